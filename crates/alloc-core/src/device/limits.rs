//! What is held and what may be held: every limit is checked here, before the driver is asked.

use super::{DeviceAllocator, DeviceState};
use crate::block::Tier;
use crate::config::{MemoryLimit, Settings};
use crate::error::{AllocError, Result};
use crate::policy::{Policy, Request};
use crate::stats::{Stat, StatArray};
use crate::types::PoolId;
use std::collections::BTreeMap;

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A limit in force, and how much of it is used. Bytes.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) held: u64,
    /// It is one pool's own.
    pub(super) of_pool: bool,
}

/// One pool's part of what is held.
#[derive(Debug, Default)]
struct Account {
    reserved: StatArray,
    /// Whether it ever held memory: its figures are listed from then on.
    used: bool,
    /// The most the pool may hold, if limited.
    limit: Option<u64>,
    /// Bytes being taken for it at the moment, by threads that hold no lock.
    intents: u128,
}

impl Account {
    /// Bytes held for the pool, those being taken at the moment included.
    fn held(&self) -> u128 {
        u128::from(self.reserved.all.current.unsigned_abs()) + self.intents
    }
}

/// What is held from the device, in all and by pool, and what may be.
#[derive(Debug)]
pub(super) struct Accounts {
    reserved: StatArray,
    /// Bytes being taken from the device at the moment, by threads that hold no lock.
    intents: u128,
    /// What the memory fraction allows; `None` is all.
    fraction: Option<u64>,
    /// `memory_limit`.
    hard: Option<u64>,
    /// `memory_soft_limit`.
    pub(super) soft: Option<u64>,
    pools: BTreeMap<PoolId, Account>,
}

impl Accounts {
    pub(super) fn new(total: u64, settings: &Settings) -> Self {
        let mut accounts = Self {
            reserved: StatArray::default(),
            intents: 0,
            fraction: fraction_of(total, settings.per_process_memory_fraction),
            hard: None,
            soft: None,
            pools: BTreeMap::new(),
        };
        accounts.configure(total, settings);
        accounts
    }

    /// Takes the limits over. The memory fraction stays as it was set, as in PyTorch.
    pub(super) fn configure(&mut self, total: u64, settings: &Settings) {
        let bytes = |limit: &MemoryLimit| limit.bytes(total);
        self.hard = settings.memory_limit.as_ref().map(bytes);
        self.soft = settings.memory_soft_limit.as_ref().map(bytes);
    }

    /// The most that may be held, if limited.
    pub(super) fn allowed(&self) -> Option<u64> {
        self.fraction.into_iter().chain(self.hard).min()
    }

    /// Every limit that a request to `pool` has to keep.
    pub(super) fn limits(&self, pool: PoolId) -> Vec<Limit> {
        let limit = |name: &str, bytes: Option<u64>| {
            bytes.map(|bytes| Limit { name: name.into(), bytes, held: self.held(), of_pool: false })
        };
        let own = self.pools.get(&pool).and_then(|account| {
            let held = u64::try_from(account.held()).unwrap_or(u64::MAX);
            let name = || format!("the limit of pool {pool} (set_pool_limit)");
            account.limit.map(|bytes| Limit { name: name(), bytes, held, of_pool: true })
        });
        let of_device = [limit("the memory fraction", self.fraction), limit("memory_limit", self.hard)];
        of_device.into_iter().flatten().chain(own).collect()
    }

    /// Bytes held from the device, those being taken at the moment included.
    pub(super) fn held(&self) -> u64 {
        u64::try_from(u128::from(self.reserved()) + self.intents).unwrap_or(u64::MAX)
    }

    /// Bytes held from the device.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.all.current.unsigned_abs()
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.intents == 0
    }

    /// Memory was taken from the device for a pool.
    pub(super) fn take(&mut self, pool: PoolId, tier: Tier, bytes: u64) {
        self.reserved.increase(tier, signed(bytes));
        let account = self.pools.entry(pool).or_default();
        account.used = true;
        account.reserved.increase(tier, signed(bytes));
    }

    /// Memory of a pool was given back to the device.
    pub(super) fn give_back(&mut self, pool: PoolId, tier: Tier, bytes: u64) {
        self.reserved.decrease(tier, signed(bytes));
        self.pools.entry(pool).or_default().reserved.decrease(tier, signed(bytes));
    }

    fn intend(&mut self, pool: PoolId, bytes: u64) {
        self.intents += u128::from(bytes);
        self.pools.entry(pool).or_default().intents += u128::from(bytes);
    }

    /// Bytes that were to be taken are counted as reserved, or are not taken.
    pub(super) fn settle(&mut self, pool: PoolId, bytes: u64) {
        self.intents -= u128::from(bytes);
        self.pools.entry(pool).or_default().intents -= u128::from(bytes);
    }

    /// Whether the pool's own limit refuses `bytes` more.
    fn pool_refuses(&self, pool: PoolId, bytes: u64) -> bool {
        self.pools.get(&pool).is_some_and(|account| {
            account.limit.is_some_and(|limit| account.held() + u128::from(bytes) > u128::from(limit))
        })
    }

    /// Limits what a pool may hold.
    pub(super) fn set_limit(&mut self, pool: PoolId, limit: Option<u64>) {
        if limit.is_some() || self.pools.contains_key(&pool) {
            self.pools.entry(pool).or_default().limit = limit;
        }
    }

    /// Totals, and those of private pools.
    pub(super) fn figures(&self) -> (StatArray, BTreeMap<PoolId, StatArray>) {
        let private = self.pools.iter().filter(|(id, account)| **id != PoolId::DEFAULT && account.used);
        (self.reserved, private.map(|(id, account)| (*id, account.reserved)).collect())
    }

    /// What one pool holds.
    pub(super) fn of_pool(&self, pool: PoolId) -> StatArray {
        self.pools.get(&pool).map(|account| account.reserved).unwrap_or_default()
    }

    /// Changes every figure.
    pub(super) fn each(&mut self, mut change: impl FnMut(&mut Stat)) {
        self.reserved.each(&mut change);
        self.pools.values_mut().for_each(|account| account.reserved.each(&mut change));
    }
}

impl<P: Policy> DeviceAllocator<P> {
    /// Counts the retry and applies the limits to the `bytes` that are to be taken. What is admitted counts as held from
    /// then on, as an intent, until it is settled.
    pub(super) fn admit(&self, pool: PoolId, request: &Request, bytes: u64, is_retry: bool) -> Result<bool> {
        let mut state = self.state.lock();
        state.counters.alloc_retries += i64::from(is_retry);
        let accounts = &state.accounts;
        let wanted = accounts.held().saturating_add(bytes);
        let refused = accounts.allowed().is_some_and(|allowed| wanted > allowed);
        if refused || accounts.pool_refuses(pool, bytes) {
            return Ok(false);
        }
        if state.settings.throw_on_oom {
            let limit = bytes_of(self.total_memory, state.settings.per_process_memory_fraction);
            if wanted > limit {
                return Err(self.reject(state, request, limit));
            }
        }
        state.accounts.intend(pool, bytes);
        Ok(true)
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
        self.tell_rejected(request, held, limit);
        AllocError::Rejected { label: self.backend.kind().label(), requested: request.requested }
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
            accounts.fraction = fraction_of(self.total_memory, fraction);
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
    pub(crate) fn set_memory_limits(&self, hard: Option<MemoryLimit>, soft: Option<MemoryLimit>) {
        let _alone = self.configuring.lock();
        let allowed = {
            let mut state = self.state.lock();
            (state.settings.memory_limit, state.settings.memory_soft_limit) = (hard, soft);
            let settings = state.settings.clone();
            state.accounts.configure(self.total_memory, &settings);
            state.accounts.allowed()
        };
        self.refresh_ages(allowed);
    }

    /// See [`CachingAllocator::set_pool_limit`](crate::allocator::CachingAllocator::set_pool_limit).
    pub(crate) fn set_pool_limit(&self, pool: PoolId, limit: Option<MemoryLimit>) -> Result<()> {
        if pool != PoolId::DEFAULT {
            self.pools.lock().get(pool)?;
        }
        let limit = limit.map(|limit| limit.bytes(self.total_memory));
        self.state.lock().accounts.set_limit(pool, limit);
        Ok(())
    }
}

fn bytes_of(total: u64, fraction: f64) -> u64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    let bytes = (fraction * total as f64) as u64;
    bytes
}

/// The bytes that `fraction` of `total` allows; `None` where that is all of it.
fn fraction_of(total: u64, fraction: f64) -> Option<u64> {
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    let allowed = (total as f64 * fraction).round() as u64;
    (fraction < 1.0).then_some(allowed)
}
