//! Accounts of a device: bytes held in all, by pool and by tenant, and their limits. Every limit is checked here,
//! before the driver is asked.

use super::device_limits::DeviceLimits;
use super::guarantees::{Guarantees, clamped};
use super::tenants::{Owner, Tenant, Tenants, Watch, signed};
use super::whole::DeviceTotals;
use crate::base::steps::Counted;
use crate::config::Settings;
use crate::features::budget::{Marks, Shortage};
use crate::memory::block::Tier;
use crate::types::PoolId;
use crate::watch::stats::{Stat, StatArray};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A limit in force, and how much of it is used. Bytes.
#[derive(Debug)]
pub(in crate::device) struct Limit {
    pub(in crate::device) name: String,
    pub(in crate::device) bytes: u64,
    pub(in crate::device) held: u64,
    /// Shortage that it causes where it refuses.
    pub(in crate::device) shortage: Shortage,
    /// Pools whose memory counts; `None` is all.
    pub(in crate::device) counts: Option<Vec<PoolId>>,
}

/// Bytes that a request would take from the device.
#[derive(Clone, Copy, Debug)]
pub(in crate::device) struct Asked {
    /// Counted by PyTorch's own limits, the memory fraction and rejections; `None` where they count nothing more.
    pub(in crate::device) bytes: Option<u64>,
    /// Taken in whole granules: all other limits count it.
    pub(in crate::device) exact: u64,
}

impl Asked {
    /// Bytes that are taken and counted as they are.
    pub(in crate::device) fn exactly(bytes: u64) -> Self {
        Self { bytes: Some(bytes), exact: bytes }
    }
}

/// A soft limit was crossed, upwards. See [`BudgetEvent`](crate::budget::BudgetEvent).
#[derive(Debug)]
pub(in crate::device) struct Crossing {
    pub(in crate::device) owner: Owner,
    pub(in crate::device) pool: Option<PoolId>,
    pub(in crate::device) held: u64,
    pub(in crate::device) wanted: u64,
    pub(in crate::device) soft: u64,
}

/// Bytes held for one pool.
#[derive(Debug, Default)]
struct Account {
    reserved: StatArray,
    /// Set once it has held memory: its figures are listed from then on.
    used: bool,
    /// The most the pool may hold, if limited.
    limit: Option<u64>,
    /// Above this its cached memory goes back before more is taken.
    soft: Option<u64>,
    watch: Watch,
    /// Number of its tenant.
    tenant: Option<u32>,
    /// Bytes being taken for it at the moment, by threads that hold no lock.
    intents: u128,
}

impl Account {
    /// Bytes held for the pool, those being taken at the moment included.
    fn held(&self) -> u128 {
        u128::from(self.bytes()) + self.intents
    }

    fn bytes(&self) -> u64 {
        self.reserved.all.current.unsigned_abs()
    }

    fn refuses(&self, bytes: u64) -> bool {
        self.limit.is_some_and(|limit| self.held() + u128::from(bytes) > u128::from(limit))
    }
}

/// Bytes held from the device, in all and by pool, and their limits.
#[derive(Debug)]
pub(in crate::device) struct Accounts {
    whole: DeviceTotals,
    device_limits: DeviceLimits,
    pools: BTreeMap<PoolId, Account>,
    tenants: Tenants,
    watch: Watch,
    /// Soft limits that were crossed, for observers, while there are some.
    crossings: Vec<Crossing>,
    is_observed: bool,
}

impl Accounts {
    pub(in crate::device) fn new(total: u64, settings: &Settings) -> Self {
        Self {
            whole: DeviceTotals::default(),
            device_limits: DeviceLimits::new(total, settings),
            pools: BTreeMap::new(),
            tenants: Tenants::default(),
            watch: Watch::default(),
            crossings: Vec::new(),
            is_observed: false,
        }
    }

    /// Limits of the whole device.
    pub(in crate::device) fn device_limits(&self) -> &DeviceLimits {
        &self.device_limits
    }

    /// Replaces the limits of the whole device.
    pub(in crate::device) fn set_ceilings(&mut self, device_limits: DeviceLimits) {
        self.device_limits = device_limits;
        let held = self.whole.kept();
        if let Some(soft) = self.watch.review(held, device_limits.soft) {
            self.note(Crossing { owner: Owner::Device, pool: None, held, wanted: 0, soft });
        }
    }

    fn note(&mut self, crossing: Crossing) {
        if self.is_observed {
            self.crossings.push(crossing);
        }
    }

    /// Takes the crossings that observers were not told of yet.
    pub(in crate::device) fn take_crossings(&mut self) -> Vec<Crossing> {
        std::mem::take(&mut self.crossings)
    }

    /// Notes crossings from here on: somebody observes them.
    pub(in crate::device) fn observe(&mut self) {
        self.is_observed = true;
    }

    /// Limits of this process that a request to `pool` has to keep, or a request for memory of no pool.
    pub(in crate::device) fn limits(&self, pool: Option<PoolId>) -> Vec<Limit> {
        let whole = |name: &str, bytes: Option<u64>, shortage| {
            let limit = |bytes, held| Limit { name: name.into(), bytes, held, shortage, counts: None };
            bytes.map(|bytes| limit(bytes, self.whole.counted()))
        };
        let own = pool.and_then(|pool| {
            let account = self.pools.get(&pool)?;
            let name = || format!("the limit of pool {pool} (set_pool_limit)");
            let (held, shortage, counts) = (clamped(account.held()), Shortage::Pool, Some(vec![pool]));
            account.limit.map(|bytes| Limit { name: name(), bytes, held, shortage, counts })
        });
        let tenant = pool.and_then(|pool| self.tenant_of(pool));
        let of_tenant = tenant.and_then(|(number, tenant)| {
            let name = || format!("the hard limit of tenant {:?} (set_budget)", tenant.name());
            let counts = Some(self.pools_of(Owner::Tenant(number)));
            let (held, shortage) = (clamped(tenant.held()), Shortage::Tenant);
            tenant.marks().hard.map(|bytes| Limit { name: name(), bytes, held, shortage, counts })
        });
        let name = "what other tenants' guarantees leave (set_budget)";
        let left = self.guarantees().left_for(tenant);
        let left = left.filter(|_| self.guarantees().kept_from(tenant) > 0);
        let left = left.map(|left| self.whole.counted().saturating_add(left));
        let of_device = [
            whole("the memory fraction", self.device_limits.fraction, Shortage::Device),
            whole("memory_limit", self.device_limits.hard, Shortage::Device),
            whole(name, left, Shortage::Guarantees),
        ];
        of_device.into_iter().flatten().chain(own).chain(of_tenant).collect()
    }

    /// Limit by which budgets refuse `bytes` more for `pool`, if any.
    pub(in crate::device) fn budget_refusal(&self, pool: PoolId, bytes: u64) -> Option<Shortage> {
        let tenant = self.tenant_of(pool);
        if self.pools.get(&pool).is_some_and(|account| account.refuses(bytes)) {
            return Some(Shortage::Pool);
        }
        if tenant.is_some_and(|(_, tenant)| tenant.refuses(bytes)) {
            return Some(Shortage::Tenant);
        }
        let short = self.guarantees().left_for(tenant).is_some_and(|left| bytes > left);
        let is_kept = || self.guarantees().kept_from(tenant) > 0;
        short.then(|| if is_kept() { Shortage::Guarantees } else { Shortage::Device })
    }

    /// Pool and tenant whose soft limit `bytes` more for `pool` would cross, or have crossed.
    pub(in crate::device) fn above_soft(&self, pool: PoolId, bytes: u64) -> SmallVec<[Owner; 2]> {
        let above = |held: u128, soft: Option<u64>| {
            soft.is_some_and(|soft| held + u128::from(bytes) > u128::from(soft))
        };
        let of_pool = self.pools.get(&pool).filter(|account| above(account.held(), account.soft));
        let of_tenant = self.tenant_of(pool).filter(|(_, tenant)| above(tenant.held(), tenant.marks().soft));
        let owners = [of_pool.map(|_| Owner::Pool(pool)), of_tenant.map(|(number, _)| Owner::Tenant(number))];
        owners.into_iter().flatten().collect()
    }

    /// The tenant that a pool is part of.
    pub(in crate::device) fn tenant_of(&self, pool: PoolId) -> Option<(u32, &Tenant)> {
        let number = self.pools.get(&pool)?.tenant?;
        Some((number, self.tenants.get(number)?))
    }

    pub(in crate::device) fn tenant_of_mut(&mut self, pool: PoolId) -> Option<&mut Tenant> {
        let number = self.pools.get(&pool)?.tenant?;
        self.tenants.get_mut(number)
    }

    /// The device's tenants.
    pub(in crate::device) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Adds a tenant. Returns its number.
    pub(in crate::device) fn add_tenant(&mut self, name: &str, marks: Marks) -> u32 {
        self.tenants.add(name, marks)
    }

    /// Guarantees of tenants.
    pub(in crate::device) fn guarantees(&self) -> Guarantees<'_> {
        Guarantees::new(&self.tenants, self.whole.counted(), &self.device_limits)
    }

    /// Bytes of a pool, those being taken for it included.
    pub(in crate::device) fn held_by(&self, pool: PoolId) -> u64 {
        self.pools.get(&pool).map_or(0, |account| clamped(account.held()))
    }

    /// The pools whose memory counts.
    pub(in crate::device) fn pools_of(&self, owner: Owner) -> Vec<PoolId> {
        match owner {
            Owner::Device => self.pools.keys().copied().collect(),
            Owner::Pool(pool) => vec![pool],
            Owner::Tenant(number) => {
                let mine = self.pools.iter().counted().filter(|(_, account)| account.tenant == Some(number));
                mine.map(|(id, _)| *id).collect()
            }
        }
    }

    /// Bytes held and pinned in all.
    pub(in crate::device) fn whole(&self) -> &DeviceTotals {
        &self.whole
    }

    /// Sets the bytes pinned in the same memory, or about to be.
    pub(in crate::device) fn set_pinned(&mut self, pinned: u64) {
        let before = self.whole.set_pinned(pinned);
        if let Some(soft) = self.watch.review(self.whole.kept(), self.device_limits.soft) {
            let wanted = pinned.saturating_sub(before);
            let held = self.whole.kept() - wanted;
            self.note(Crossing { owner: Owner::Device, pool: None, held, wanted, soft });
        }
    }

    /// Counts memory that was taken from the device for a pool.
    pub(in crate::device) fn take(&mut self, pool: PoolId, tier: Tier, bytes: u64) {
        let before = self.whole.kept();
        self.whole.take(tier, bytes);
        let of_device = self.watch.review(self.whole.kept(), self.device_limits.soft);
        let of_device = of_device.map(|soft| (Owner::Device, before, soft));
        let account = self.pools.entry(pool).or_default();
        account.used = true;
        let before = account.bytes();
        account.reserved.increase(tier, signed(bytes));
        let of_pool = account.watch.review(account.bytes(), account.soft);
        let of_pool = of_pool.map(|soft| (Owner::Pool(pool), before, soft));
        let of_tenant = account.tenant.and_then(|number| {
            let tenant = self.tenants.get_mut(number)?;
            let before = tenant.bytes();
            tenant.take(bytes, 0).map(|soft| (Owner::Tenant(number), before, soft))
        });
        for (owner, held, soft) in [of_device, of_pool, of_tenant].into_iter().flatten() {
            self.note(Crossing { owner, pool: Some(pool), held, wanted: bytes, soft });
        }
    }

    /// Counts memory of a pool that was given back to the device.
    pub(in crate::device) fn give_back(&mut self, pool: PoolId, tier: Tier, bytes: u64) {
        self.whole.give_back(tier, bytes);
        self.watch.review(self.whole.kept(), self.device_limits.soft);
        let account = self.pools.entry(pool).or_default();
        account.reserved.decrease(tier, signed(bytes));
        account.watch.review(account.bytes(), account.soft);
        if let Some(tenant) = account.tenant.and_then(|number| self.tenants.get_mut(number)) {
            tenant.give_back(bytes, 0);
        }
    }

    /// Starts the peak anew, at a boundary.
    pub(in crate::device) fn restart_peak(&mut self) {
        self.whole.restart_peak();
    }

    /// Counts bytes that are to be taken for a pool.
    pub(in crate::device) fn intend(&mut self, pool: PoolId, bytes: u64) {
        self.change_intents(pool, |intents| *intents += u128::from(bytes));
    }

    /// Ends an intent: its bytes are counted as reserved, or are not taken.
    pub(in crate::device) fn end_intent(&mut self, pool: PoolId, bytes: u64) {
        self.change_intents(pool, |intents| *intents -= u128::from(bytes));
    }

    fn change_intents(&mut self, pool: PoolId, change: impl Fn(&mut u128)) {
        self.whole.change_intents(&change);
        let account = self.pools.entry(pool).or_default();
        change(&mut account.intents);
        if let Some(tenant) = account.tenant.and_then(|number| self.tenants.get_mut(number)) {
            tenant.change_intents(change);
        }
    }

    /// True if all limits and the pool's budget admit a request.
    pub(in crate::device) fn admits(&self, pool: PoolId, asked: Asked) -> bool {
        let counted = self.whole.counted();
        let fits =
            |limit: Option<u64>, bytes| limit.is_none_or(|limit| counted.saturating_add(bytes) <= limit);
        asked.bytes.is_none_or(|bytes| fits(self.device_limits.allowed(), bytes))
            && fits(self.device_limits.hard, asked.exact)
            && self.budget_refusal(pool, asked.exact).is_none()
    }

    /// Sets the limits of a pool.
    pub(in crate::device) fn set_limits(&mut self, pool: PoolId, hard: Option<u64>, soft: Option<u64>) {
        let account = self.pools.entry(pool).or_default();
        (account.limit, account.soft) = (hard, soft);
        let held = account.bytes();
        if let Some(soft) = account.watch.review(held, soft) {
            self.note(Crossing { owner: Owner::Pool(pool), pool: None, held, wanted: 0, soft });
        }
    }

    /// A pool's hard limit.
    pub(in crate::device) fn limit_of(&self, pool: PoolId) -> Option<u64> {
        self.pools.get(&pool)?.limit
    }

    /// A pool's soft limit.
    pub(in crate::device) fn soft_of(&self, pool: PoolId) -> Option<u64> {
        self.pools.get(&pool)?.soft
    }

    /// Forgets a pool that is gone, with its limits.
    pub(in crate::device) fn forget_pool(&mut self, pool: PoolId) {
        self.set_tenant(pool, None);
        if let Entry::Occupied(mut account) = self.pools.entry(pool) {
            let its = account.get_mut();
            (its.limit, its.soft, its.watch) = (None, None, Watch::default());
            // In PyTorch's statistics pools that held memory once stay for ever.
            if !its.used && its.intents == 0 {
                account.remove();
            }
        }
    }

    /// Makes a pool part of a tenant, or of none. The caller has checked that the tenant's limit allows that.
    pub(in crate::device) fn set_tenant(&mut self, pool: PoolId, tenant: Option<u32>) {
        if tenant.is_none() && !self.pools.contains_key(&pool) {
            return;
        }
        let account = self.pools.entry(pool).or_default();
        let (bytes, intents) = (account.bytes(), account.intents);
        let former = std::mem::replace(&mut account.tenant, tenant);
        if let Some(former) = former.and_then(|number| self.tenants.get_mut(number)) {
            former.give_back(bytes, intents);
        }
        if let Some(number) = tenant {
            self.change_tenant(number, Some(pool), |tenant| tenant.take(bytes, intents));
        }
    }

    /// Changes a tenant's marks.
    pub(in crate::device) fn set_marks(&mut self, number: u32, marks: Marks) {
        self.change_tenant(number, None, |tenant| tenant.set_marks(marks));
    }

    fn change_tenant(
        &mut self,
        number: u32,
        pool: Option<PoolId>,
        change: impl FnOnce(&mut Tenant) -> Option<u64>,
    ) {
        let Some(tenant) = self.tenants.get_mut(number) else { return };
        let held = tenant.bytes();
        if let Some(soft) = change(tenant) {
            self.note(Crossing { owner: Owner::Tenant(number), pool, held, wanted: 0, soft });
        }
    }

    /// Removes a tenant; its pools stay, and are part of none.
    pub(in crate::device) fn remove_tenant(&mut self, number: u32) {
        for pool in self.pools_of(Owner::Tenant(number)) {
            self.set_tenant(pool, None);
        }
        self.tenants.remove(number);
    }

    /// Panics where tenants and their pools contradict each other.
    pub(in crate::device) fn check(&self) {
        for (number, tenant) in self.tenants.iter() {
            let mine = || self.pools.values().filter(|account| account.tenant == Some(number));
            let bytes: u64 = mine().map(Account::bytes).sum();
            assert_eq!(tenant.bytes(), bytes, "a tenant holds what its pools hold");
            let intents: u128 = mine().map(|account| account.intents).sum();
            assert_eq!(tenant.held() - u128::from(bytes), intents, "and what is taken for them");
        }
    }

    /// Totals, and those of private pools.
    pub(in crate::device) fn figures(&self) -> (StatArray, BTreeMap<PoolId, StatArray>) {
        let private = self.pools.iter().filter(|(id, account)| **id != PoolId::DEFAULT && account.used);
        (self.whole.figures(), private.map(|(id, account)| (*id, account.reserved)).collect())
    }

    /// Bytes reserved for one pool.
    pub(in crate::device) fn of_pool(&self, pool: PoolId) -> StatArray {
        self.pools.get(&pool).map(|account| account.reserved).unwrap_or_default()
    }

    /// Changes every figure.
    pub(in crate::device) fn each(&mut self, mut change: impl FnMut(&mut Stat)) {
        self.whole.each(&mut change);
        self.pools.values_mut().for_each(|account| account.reserved.each(&mut change));
        self.tenants.each(change);
    }
}
