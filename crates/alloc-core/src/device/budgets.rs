//! Budgets of pools and tenants as the program sets them, and who is told of them. What is held is counted in
//! `device/accounts.rs`; what is done for a request that misses is in `device/reclaim.rs`.

use super::accounts::{Accounts, Crossing};
use super::guarantees::Unkept;
use super::release::Flush;
use super::tenants::Owner;
use super::{DeviceAllocator, DeviceState};
use crate::base::round::format_bytes;
use crate::config::MemoryLimit;
use crate::error::{AllocError, Result};
use crate::features::budget::{
    Budget, BudgetEvent, BudgetObserver, BudgetOwner, SpillHook, TenantId, TenantStats,
};
use crate::process::foreign::{Calls, Kind};
use crate::sync::plain::AtomicBool;
use crate::sync::{Arc, Mutex, Ordering, Rank};
use crate::types::PoolId;

/// Who is told and asked. Accounts are in [`DeviceState`].
pub(super) struct Budgets {
    /// Anything here or in the accounts was ever set: a miss without budgets asks nothing more.
    used: AtomicBool,
    observers: Mutex<Vec<BudgetObserver>>,
    /// By priority.
    pub(super) hooks: Mutex<Arc<Vec<(i32, SpillHook)>>>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            used: AtomicBool::new(false),
            observers: Mutex::new(Rank::Registry, Vec::new()),
            hooks: Mutex::new(Rank::Registry, Arc::default()),
        }
    }
}

impl DeviceAllocator {
    /// Whether the program uses budgets.
    pub(super) fn has_budgets(&self) -> bool {
        self.budgets.used.load(Ordering::Relaxed)
    }

    fn use_budgets(&self) {
        self.budgets.used.store(true, Ordering::Relaxed);
    }

    pub(crate) fn create_tenant(&self, name: &str, budget: &Budget) -> Result<TenantId> {
        let number = self.promise(budget, |state| {
            let taken = state.accounts.tenants.records.values().any(|tenant| &*tenant.name == name);
            if taken {
                let problem = "a tenant of this device has that name; choose another".into();
                return Err(AllocError::Budget { owner: format!("tenant {name:?}"), problem });
            }
            Ok((None, name.into()))
        })?;
        Ok(TenantId { device: self.device, number })
    }

    pub(crate) fn set_budget(&self, tenant: TenantId, budget: &Budget) -> Result<()> {
        self.promise(budget, |state| {
            let record = state.accounts.tenants.records.get(&tenant.number);
            let record = record.ok_or(AllocError::UnknownTenant { tenant })?;
            Ok((Some(tenant.number), Arc::clone(&record.name)))
        })?;
        self.tell_crossings();
        Ok(())
    }

    /// Gives a tenant, new or not, its budget. Where others hold too much for its guarantee, cached memory goes back first.
    fn promise(
        &self,
        budget: &Budget,
        find: impl Fn(&DeviceState) -> Result<(Option<u32>, Arc<str>)>,
    ) -> Result<u32> {
        let mut emptied = false;
        loop {
            let mut state = self.state.lock();
            let (number, name) = find(&state)?;
            let refusal = |problem| AllocError::Budget { owner: format!("tenant {name:?}"), problem };
            let marks = budget.marks(self.total_memory).map_err(refusal)?;
            let Err(unkept) = state.accounts.can_promise(number, marks) else {
                self.use_budgets();
                return Ok(match number {
                    None => state.accounts.tenants.add(&name, marks),
                    Some(number) => {
                        state.accounts.set_marks(number, marks);
                        number
                    }
                });
            };
            drop(state);
            let wanted = format_bytes(marks.guarantee);
            match unkept {
                Unkept::Promised { others, capacity } => {
                    return Err(refusal(format!(
                        "{wanted} cannot be guaranteed: {} are guaranteed to others, and {} may be held in all; lower a \
                         guarantee, or raise the device's limits",
                        format_bytes(others),
                        format_bytes(capacity)
                    )));
                }
                Unkept::Held { taken, capacity } if emptied => {
                    return Err(refusal(format!(
                        "{wanted} cannot be guaranteed: of {} that may be held in all, {} are in use or guaranteed to \
                         others; free memory first, or lower the guarantee",
                        format_bytes(capacity),
                        format_bytes(taken)
                    )));
                }
                Unkept::Held { .. } => {
                    self.empty_cache(Flush::Everything)?;
                    for pool in self.pools_of_tenants() {
                        self.empty_if_known(pool)?;
                    }
                    emptied = true;
                }
            }
        }
    }

    fn pools_of_tenants(&self) -> Vec<PoolId> {
        let accounts = &self.state.lock().accounts;
        let numbers = accounts.tenants.records.keys();
        numbers.flat_map(|number| accounts.pools_of(Owner::Tenant(*number))).collect()
    }

    fn empty_if_known(&self, pool: PoolId) -> Result<()> {
        // A pool that is gone has nothing to give.
        self.slot_of(pool).map_or(Ok(()), |slot| self.empty_cache(Flush::InUse(slot)))
    }

    pub(crate) fn join_tenant(&self, pool: PoolId, tenant: TenantId) -> Result<()> {
        {
            let mut state = self.state.lock();
            self.is_there(pool)?;
            let accounts = &mut state.accounts;
            let refusal = |problem| Err(AllocError::Budget { owner: format!("pool {pool}"), problem });
            match accounts.tenant_of(pool) {
                Some((number, _)) if number == tenant.number => return Ok(()),
                Some((_, other)) => {
                    return refusal(format!(
                        "it is part of tenant {:?}; let it leave first (leave_tenant)",
                        other.name
                    ));
                }
                None => {}
            }
            let held = accounts.held_by(pool);
            let joined = accounts.tenants.records.get(&tenant.number);
            let joined = joined.ok_or(AllocError::UnknownTenant { tenant })?;
            if held > 0 && joined.refuses(held) {
                return refusal(format!(
                    "with the {} it holds, tenant {:?} would pass its hard limit; empty the pool first, or raise the \
                     limit (set_budget)",
                    format_bytes(held),
                    joined.name
                ));
            }
            accounts.set_tenant(pool, Some(tenant.number));
        }
        self.tell_crossings();
        Ok(())
    }

    /// The caller holds the device's lock, so that the pool is not forgotten meanwhile.
    fn is_there(&self, pool: PoolId) -> Result<()> {
        if pool != PoolId::DEFAULT {
            self.pools.lock().get(pool)?;
        }
        Ok(())
    }

    pub(crate) fn leave_tenant(&self, pool: PoolId) -> Result<()> {
        let mut state = self.state.lock();
        self.is_there(pool)?;
        let accounts = &mut state.accounts;
        if !accounts.may_leave(pool) {
            let held = format_bytes(accounts.held_by(pool));
            let problem = format!(
                "the {held} it holds would eat into its tenant's guarantee; empty the pool first, or lower the guarantee \
                 (set_budget)"
            );
            return Err(AllocError::Budget { owner: format!("pool {pool}"), problem });
        }
        accounts.set_tenant(pool, None);
        Ok(())
    }

    pub(crate) fn remove_tenant(&self, tenant: TenantId) -> Result<()> {
        let accounts = &mut self.state.lock().accounts;
        if !accounts.tenants.records.contains_key(&tenant.number) {
            return Err(AllocError::UnknownTenant { tenant });
        }
        accounts.remove_tenant(tenant.number);
        Ok(())
    }

    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let numbers = |accounts: &Accounts| accounts.tenants.records.keys().copied().collect::<Vec<_>>();
        let numbers = numbers(&self.state.lock().accounts);
        numbers.into_iter().map(|number| TenantId { device: self.device, number }).collect()
    }

    pub(crate) fn tenant_stats(&self, tenant: TenantId) -> Result<TenantStats> {
        let accounts = &self.state.lock().accounts;
        let record = accounts.tenants.records.get(&tenant.number);
        let record = record.ok_or(AllocError::UnknownTenant { tenant })?;
        Ok(record.stats(accounts.pools_of(Owner::Tenant(tenant.number))))
    }

    pub(crate) fn tenant_of(&self, pool: PoolId) -> Result<Option<TenantId>> {
        let state = self.state.lock();
        self.is_there(pool)?;
        let number = state.accounts.tenant_of(pool).map(|(number, _)| number);
        Ok(number.map(|number| TenantId { device: self.device, number }))
    }

    /// Sets a pool's limits; a soft limit of `None` stays as it is.
    pub(crate) fn set_pool_limits(
        &self,
        pool: PoolId,
        hard: Option<MemoryLimit>,
        soft: Option<Option<MemoryLimit>>,
    ) -> Result<()> {
        {
            let mut state = self.state.lock();
            self.is_there(pool)?;
            let accounts = &mut state.accounts;
            let before = accounts.soft_of(pool).map(MemoryLimit::Bytes);
            let budget = Budget { guarantee: None, soft: soft.unwrap_or(before), hard };
            let refusal = |problem| AllocError::Budget { owner: format!("pool {pool}"), problem };
            let marks = budget.marks(self.total_memory).map_err(refusal)?;
            accounts.set_limits(pool, marks.hard, marks.soft);
            self.use_budgets();
        }
        self.tell_crossings();
        Ok(())
    }

    pub(crate) fn add_budget_observer(&self, observer: BudgetObserver) {
        self.budgets.observers.lock().push(observer);
        self.state.lock().accounts.is_observed = true;
        self.use_budgets();
    }

    pub(crate) fn add_spill_hook(&self, priority: i32, hook: SpillHook) {
        let mut hooks = self.budgets.hooks.lock();
        let hooks = Arc::make_mut(&mut hooks);
        let at = hooks.partition_point(|(other, _)| *other <= priority);
        hooks.insert(at, (priority, hook));
        self.use_budgets();
    }

    /// Tells observers of soft limits that were crossed. Hold no lock.
    pub(super) fn tell_crossings(&self) {
        self.tell_crossings_in(&self.foreign.calls());
    }

    /// [`tell_crossings`](Self::tell_crossings), as part of a call. What an observer's own calls cross is told afterwards, with
    /// the next call's.
    pub(super) fn tell_crossings_in(&self, calls: &Calls<'_>) {
        if !self.has_budgets() || calls.is_inside(Kind::BudgetObserver) {
            return;
        }
        let events: Vec<BudgetEvent> = {
            let mut state = self.state.lock();
            let crossings = state.accounts.take_crossings();
            crossings.iter().filter_map(|crossing| self.event(&state.accounts, crossing)).collect()
        };
        if events.is_empty() {
            return;
        }
        let observers = self.budgets.observers.lock().clone();
        for event in &events {
            for observer in &observers {
                calls.call(Kind::BudgetObserver, || observer(event));
            }
        }
    }

    /// What a crossing tells observers; `None` where the tenant was removed meanwhile.
    fn event(&self, accounts: &Accounts, crossing: &Crossing) -> Option<BudgetEvent> {
        let device = self.device;
        let Crossing { owner, pool, held, wanted, soft } = *crossing;
        let (owner, hard) = match owner {
            Owner::Device => (BudgetOwner::Device, accounts.allowed()),
            Owner::Pool(pool) => (BudgetOwner::Pool(pool), accounts.limit_of(pool)),
            Owner::Tenant(number) => {
                let tenant = accounts.tenants.records.get(&number)?;
                let id = TenantId { device, number };
                (BudgetOwner::Tenant { id, name: Arc::clone(&tenant.name) }, tenant.marks.hard)
            }
        };
        Some(BudgetEvent { device, owner, pool, held, wanted, soft, hard })
    }

    /// A request of the pool is refused.
    pub(super) fn note_refusal(&self, pool: PoolId) {
        if let Some(tenant) = self.state.lock().accounts.tenant_of_mut(pool) {
            tenant.refusals += 1;
        }
    }
}
