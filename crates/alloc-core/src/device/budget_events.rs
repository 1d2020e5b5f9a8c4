//! Observers that are told of crossed soft limits, and spill hooks that make room.

use super::Device;
use super::accounting::accounts::{Accounts, Crossing};
use super::accounting::tenants::Owner;
use crate::features::budget::{BudgetEvent, BudgetObserver, BudgetOwner, SpillHook, TenantId};
use crate::process::callbacks::{CallbackScope, Kind};
use crate::sync::{Arc, Mutex, Rank};

/// Observers of soft limits, and spill hooks. The [accounts](Accounts) count the bytes held.
pub(crate) struct BudgetEvents {
    observers: Mutex<Vec<BudgetObserver>>,
    /// By priority.
    hooks: Mutex<Arc<Vec<(i32, SpillHook)>>>,
}

impl Default for BudgetEvents {
    fn default() -> Self {
        Self {
            observers: Mutex::new(Rank::Registry, Vec::new()),
            hooks: Mutex::new(Rank::Registry, Arc::default()),
        }
    }
}

impl BudgetEvents {
    /// Spill hooks, by priority.
    pub(super) fn hooks(&self) -> Arc<Vec<(i32, SpillHook)>> {
        Arc::clone(&self.hooks.lock())
    }
}

pub(crate) fn add_observer(device: &Device, observer: BudgetObserver) {
    device.budget_events.observers.lock().push(observer);
    device.accounting.lock().accounts_mut().observe();
    device.accounting.use_budgets();
}

pub(crate) fn add_spill_hook(device: &Device, priority: i32, hook: SpillHook) {
    let mut hooks = device.budget_events.hooks.lock();
    let hooks = Arc::make_mut(&mut hooks);
    let at = hooks.partition_point(|(other, _)| *other <= priority);
    hooks.insert(at, (priority, hook));
    device.accounting.use_budgets();
}

/// Tells observers of soft limits that were crossed. Hold no lock.
pub(in crate::device) fn tell(device: &Device) {
    tell_in(device, &device.driver.calls());
}

/// [`tell`], as part of a call. Crossings caused by an observer's own calls are told with the next call.
pub(in crate::device) fn tell_in(device: &Device, calls: &CallbackScope<'_>) {
    if !device.accounting.has_budgets() || calls.is_inside(Kind::BudgetObserver) {
        return;
    }
    let events: Vec<BudgetEvent> = {
        let mut state = device.accounting.lock();
        let crossings = state.accounts_mut().take_crossings();
        crossings.iter().filter_map(|crossing| event(device, state.accounts(), crossing)).collect()
    };
    if events.is_empty() {
        return;
    }
    let observers = device.budget_events.observers.lock().clone();
    for event in &events {
        for observer in &observers {
            calls.call(Kind::BudgetObserver, || observer(event));
        }
    }
}

/// Event of a crossing, for observers; `None` where the tenant was removed meanwhile.
fn event(device: &Device, accounts: &Accounts, crossing: &Crossing) -> Option<BudgetEvent> {
    let device = device.driver.device();
    let Crossing { owner, pool, held, wanted, soft } = *crossing;
    let (owner, hard) = match owner {
        Owner::Device => (BudgetOwner::Device, accounts.device_limits().allowed()),
        Owner::Pool(pool) => (BudgetOwner::Pool(pool), accounts.limit_of(pool)),
        Owner::Tenant(number) => {
            let tenant = accounts.tenants().get(number)?;
            let id = TenantId { device, number };
            (BudgetOwner::Tenant { id, name: Arc::clone(tenant.name()) }, tenant.marks().hard)
        }
    };
    Some(BudgetEvent { device, owner, pool, held, wanted, soft, hard })
}
