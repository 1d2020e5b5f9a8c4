//! Who is told of budgets, and who is asked to make room.

use super::holdings::Holdings;
use super::holdings::accounts::{Accounts, Crossing};
use super::holdings::tenants::Owner;
use super::site::Site;
use crate::features::budget::{BudgetEvent, BudgetObserver, BudgetOwner, SpillHook, TenantId};
use crate::process::foreign::{Calls, Kind};
use crate::sync::{Arc, Mutex, Rank};

/// Observers of soft limits, and spill hooks. What is held is counted in the [accounts](Accounts).
pub(crate) struct Crossings {
    site: Site,
    holdings: Arc<Holdings>,
    observers: Mutex<Vec<BudgetObserver>>,
    /// By priority.
    hooks: Mutex<Arc<Vec<(i32, SpillHook)>>>,
}

impl Crossings {
    pub(super) fn new(site: &Site, holdings: &Arc<Holdings>) -> Self {
        Self {
            site: site.clone(),
            holdings: Arc::clone(holdings),
            observers: Mutex::new(Rank::Registry, Vec::new()),
            hooks: Mutex::new(Rank::Registry, Arc::default()),
        }
    }

    /// What makes room, in order.
    pub(super) fn hooks(&self) -> Arc<Vec<(i32, SpillHook)>> {
        Arc::clone(&self.hooks.lock())
    }

    pub(crate) fn add_observer(&self, observer: BudgetObserver) {
        self.observers.lock().push(observer);
        self.holdings.lock().accounts_mut().observe();
        self.holdings.use_budgets();
    }

    pub(crate) fn add_spill_hook(&self, priority: i32, hook: SpillHook) {
        let mut hooks = self.hooks.lock();
        let hooks = Arc::make_mut(&mut hooks);
        let at = hooks.partition_point(|(other, _)| *other <= priority);
        hooks.insert(at, (priority, hook));
        self.holdings.use_budgets();
    }

    /// Tells observers of soft limits that were crossed. Hold no lock.
    pub(super) fn tell(&self) {
        self.tell_in(&self.site.calls());
    }

    /// [`tell`](Self::tell), as part of a call. What an observer's own calls cross is told afterwards, with
    /// the next call's.
    pub(super) fn tell_in(&self, calls: &Calls<'_>) {
        if !self.holdings.has_budgets() || calls.is_inside(Kind::BudgetObserver) {
            return;
        }
        let events: Vec<BudgetEvent> = {
            let mut state = self.holdings.lock();
            let crossings = state.accounts_mut().take_crossings();
            crossings.iter().filter_map(|crossing| self.event(state.accounts(), crossing)).collect()
        };
        if events.is_empty() {
            return;
        }
        let observers = self.observers.lock().clone();
        for event in &events {
            for observer in &observers {
                calls.call(Kind::BudgetObserver, || observer(event));
            }
        }
    }

    /// What a crossing tells observers; `None` where the tenant was removed meanwhile.
    fn event(&self, accounts: &Accounts, crossing: &Crossing) -> Option<BudgetEvent> {
        let device = self.site.device();
        let Crossing { owner, pool, held, wanted, soft } = *crossing;
        let (owner, hard) = match owner {
            Owner::Device => (BudgetOwner::Device, accounts.ceilings().allowed()),
            Owner::Pool(pool) => (BudgetOwner::Pool(pool), accounts.limit_of(pool)),
            Owner::Tenant(number) => {
                let tenant = accounts.tenants().get(number)?;
                let id = TenantId { device, number };
                (BudgetOwner::Tenant { id, name: Arc::clone(tenant.name()) }, tenant.marks().hard)
            }
        };
        Some(BudgetEvent { device, owner, pool, held, wanted, soft, hard })
    }
}
