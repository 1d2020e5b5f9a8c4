//! Limits as requests meet them and as the program sets them. What is held is counted in `device/accounts.rs`.

pub(super) use super::accounts::signed;
use super::accounts::{Asked, fraction_of};
use super::{DeviceAllocator, DeviceState};
use crate::config::{MemoryLimit, Settings};
use crate::error::{AllocError, Result};
use crate::policy::Request;
use crate::types::PoolId;
use crate::watch::observers::Rejection;

impl DeviceAllocator {
    /// Applies the limits to what is to be taken. What is admitted counts as held from then on, as an intent, until it is
    /// settled.
    pub(super) fn admit(&self, pool: PoolId, request: &Request, asked: Asked) -> Result<bool> {
        let mut state = self.state.lock();
        let accounts = &state.accounts;
        let wanted = accounts.held().saturating_add(asked.bytes);
        let refused = accounts.allowed().is_some_and(|allowed| wanted > allowed);
        if refused
            || accounts.is_over_hard(asked.exact)
            || accounts.budget_refusal(pool, asked.exact).is_some()
        {
            return Ok(false);
        }
        if let Some(limit) = state.rejects_above(self.total_memory).filter(|limit| wanted > *limit) {
            return Err(self.reject(state, request, limit));
        }
        state.accounts.intend(pool, asked.exact);
        Ok(true)
    }

    /// Applies the limits to the `bytes` that are to be taken for memory that wakes. They count as held from then on.
    pub(super) fn admit_waking(&self, pool: PoolId, bytes: u64) -> bool {
        let accounts = &mut self.state.lock().accounts;
        let over = accounts.allowed().is_some_and(|allowed| accounts.held().saturating_add(bytes) > allowed);
        let admitted = !over && accounts.budget_refusal(pool, bytes).is_none();
        if admitted {
            accounts.intend(pool, bytes);
        }
        admitted
    }

    /// Refuses a request before the driver is asked (`throw_on_cudamalloc_oom`).
    fn reject(
        &self,
        mut state: crate::sync::Guard<'_, DeviceState>,
        request: &Request,
        limit: u64,
    ) -> AllocError {
        state.counters.oom_rejections += 1;
        let held = state.accounts.held();
        drop(state);
        let requested = request.requested;
        self.observers.tell_rejected(Rejection { requested, wanted: request.segment_bytes, held, limit });
        AllocError::Rejected { label: self.backend.label(), requested }
    }

    /// Whether `request` would take the device over its soft limit.
    pub(super) fn is_over_soft_limit(&self, request: &Request) -> bool {
        let accounts = &self.state.lock().accounts;
        accounts.soft.is_some_and(|soft| accounts.held().saturating_add(request.segment_bytes) > soft)
    }

    /// See [`CachingAllocator::set_memory_fraction`](crate::allocator::CachingAllocator::set_memory_fraction).
    pub(crate) fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::InvalidFraction { fraction });
        }
        let _alone = self.configuring.lock();
        let allowed = {
            let accounts = &mut self.state.lock().accounts;
            let fraction = fraction_of(self.total_memory, fraction);
            accounts.keeps_guarantees(fraction, accounts.hard)?;
            accounts.fraction = fraction;
            accounts.allowed()
        };
        self.refresh_ages(allowed);
        Ok(())
    }

    /// The share of the device's memory that may be held; 1 when unlimited.
    pub(crate) fn memory_fraction(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        self.state.lock().accounts.fraction.map_or(1.0, |allowed| allowed as f64 / self.total_memory as f64)
    }

    /// See [`CachingAllocator::set_memory_limits`](crate::allocator::CachingAllocator::set_memory_limits).
    pub(crate) fn set_memory_limits(
        &self,
        hard: Option<MemoryLimit>,
        soft: Option<MemoryLimit>,
    ) -> Result<()> {
        let alone = self.configuring.lock();
        let allowed = {
            let mut state = self.state.lock();
            let limit = hard.map(|hard| hard.bytes(self.total_memory));
            state.accounts.keeps_guarantees(state.accounts.fraction, limit)?;
            (state.settings.memory_limit, state.settings.memory_soft_limit) = (hard, soft);
            let settings = state.settings.clone();
            state.accounts.configure(self.total_memory, &settings);
            state.accounts.allowed()
        };
        self.refresh_ages(allowed);
        drop(alone);
        self.tell_crossings();
        Ok(())
    }

    /// Whether the tenants' guarantees can be kept under new settings.
    pub(crate) fn keeps_guarantees(&self, settings: &Settings) -> Result<()> {
        let accounts = &self.state.lock().accounts;
        let limit = settings.memory_limit.map(|limit| limit.bytes(self.total_memory));
        accounts.keeps_guarantees(accounts.fraction, limit)
    }
}

impl DeviceState {
    /// What may be held before requests are rejected unasked (`throw_on_cudamalloc_oom`), on a device of `total` bytes.
    pub(super) fn rejects_above(&self, total: u64) -> Option<u64> {
        self.settings.throw_on_oom.then(|| bytes_of(total, self.settings.per_process_memory_fraction))
    }
}

fn bytes_of(total: u64, fraction: f64) -> u64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    let bytes = (fraction * total as f64) as u64;
    bytes
}
