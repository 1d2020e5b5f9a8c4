//! Settings and limits as the program changes them.

use crate::config::{MemoryLimit, Settings};
use crate::device::Base;
use crate::device::holdings::ceilings::Ceilings;
use crate::error::{AllocError, Result};
use crate::policy::Chosen;

/// What a device may hold, and how it is set.
pub(crate) struct Limits {
    base: Base,
}

impl Limits {
    pub(in crate::device) fn new(base: &Base) -> Self {
        Self { base: base.clone() }
    }

    /// Replaces the settings. What is handed out or cached stays as it is.
    pub(crate) fn configure(&self, settings: &Settings, policy: &Chosen) {
        let _alone = self.base.arenas.configuring();
        let allowed = {
            let mut state = self.base.holdings.lock();
            state.set_settings(settings.clone());
            let ceilings = state.accounts().ceilings().with_limits(settings);
            state.accounts_mut().set_ceilings(ceilings);
            ceilings.allowed()
        };
        self.base.arenas.directory().with_template(|template| template.policy = policy.clone());
        for arena in self.base.arenas.directory().all() {
            arena.lock().set_policy(policy.clone());
        }
        self.base.arenas.refresh_ages(allowed);
        self.base.hardened.configure(settings);
    }

    /// Gives up what new settings do not keep. Runs observers, which may change settings themselves.
    pub(crate) fn follow_settings(&self) {
        match self.base.site.plain_call() {
            Ok(call) => self.base.hardened.reduce_quarantine(&call),
            Err(error) => tracing::warn!(%error, "blocks stay in quarantine until the next free"),
        }
        self.base.history.tell_trackers();
        self.base.crossings.tell();
    }

    /// See [`CachingAllocator::set_memory_fraction`](crate::allocator::CachingAllocator::set_memory_fraction).
    pub(crate) fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::InvalidFraction { fraction });
        }
        let _alone = self.base.arenas.configuring();
        let allowed = {
            let mut state = self.base.holdings.lock();
            let accounts = state.accounts_mut();
            let ceilings = accounts.ceilings().with_fraction(fraction);
            accounts.guarantees().are_kept_under(&ceilings)?;
            accounts.set_ceilings(ceilings);
            ceilings.allowed()
        };
        self.base.arenas.refresh_ages(allowed);
        Ok(())
    }

    /// See [`CachingAllocator::set_memory_limits`](crate::allocator::CachingAllocator::set_memory_limits).
    pub(crate) fn set_memory_limits(
        &self,
        hard: Option<MemoryLimit>,
        soft: Option<MemoryLimit>,
    ) -> Result<()> {
        let alone = self.base.arenas.configuring();
        let allowed = {
            let mut state = self.base.holdings.lock();
            let total = self.base.site.total_memory();
            let [hard_bytes, soft_bytes] = [hard, soft].map(|limit| limit.map(|limit| limit.bytes(total)));
            let ceilings = Ceilings { hard: hard_bytes, soft: soft_bytes, ..*state.accounts().ceilings() };
            state.accounts().guarantees().are_kept_under(&ceilings)?;
            let (memory_limit, memory_soft_limit) = (hard, soft);
            let settings = Settings { memory_limit, memory_soft_limit, ..state.settings().clone() };
            state.set_settings(settings);
            state.accounts_mut().set_ceilings(ceilings);
            ceilings.allowed()
        };
        self.base.arenas.refresh_ages(allowed);
        drop(alone);
        self.base.crossings.tell();
        Ok(())
    }
}
