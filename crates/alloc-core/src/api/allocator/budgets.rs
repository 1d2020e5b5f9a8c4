//! Budgets of pools and tenants, and who is told and asked about them; see [`crate::budget`].

use super::CachingAllocator;
use crate::config::MemoryLimit;
#[cfg(doc)]
use crate::error::AllocError;
use crate::error::Result;
use crate::features::budget::{
    Budget, BudgetEvent, BudgetObserver, SpillHook, SpillRequest, TenantId, TenantStats,
};
use crate::sync::Arc;
use crate::types::{DeviceIndex, PoolId};

impl CachingAllocator {
    /// Makes a tenant of a device, without pools. Where others hold too much for its guarantee, all cached memory of the
    /// device is given back first: then this blocks.
    ///
    /// # Errors
    /// [`AllocError::Budget`] for marks that are out of order, a name that is taken, or a guarantee that cannot be kept
    /// next to what is guaranteed to others and what others hold; driver errors while memory is given back.
    pub fn create_tenant(&self, device: DeviceIndex, name: &str, budget: &Budget) -> Result<TenantId> {
        self.device(device)?.create_tenant(name, budget)
    }

    /// Changes a tenant's budget. What it holds already it keeps, also beyond a new hard limit.
    ///
    /// # Errors
    /// Those of [`create_tenant`](Self::create_tenant); [`AllocError::UnknownTenant`]. Nothing has changed then.
    pub fn set_budget(&self, tenant: TenantId, budget: &Budget) -> Result<()> {
        self.device(tenant.device)?.set_budget(tenant, budget)
    }

    /// Makes a pool, the default one included, part of a tenant, with what it holds.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`], [`AllocError::UnknownTenant`]; [`AllocError::Budget`] where the pool is part of
    /// another tenant, or holds more than this one may.
    pub fn join_tenant(&self, pool: PoolId, tenant: TenantId) -> Result<()> {
        self.device(tenant.device)?.join_tenant(pool, tenant)
    }

    /// Takes a pool out of its tenant, if it has one. A pool that is gone has left by itself.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`]; [`AllocError::Budget`] where what it holds would then eat into what the tenant is
    /// guaranteed.
    pub fn leave_tenant(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.device(device)?.leave_tenant(pool)
    }

    /// The tenant a pool is part of.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`].
    pub fn tenant_of(&self, device: DeviceIndex, pool: PoolId) -> Result<Option<TenantId>> {
        self.seen_device(device)?.tenant_of(pool)
    }

    /// Removes a tenant. Its pools stay, with what they hold, and are part of none.
    ///
    /// # Errors
    /// [`AllocError::UnknownTenant`].
    pub fn remove_tenant(&self, tenant: TenantId) -> Result<()> {
        self.device(tenant.device)?.remove_tenant(tenant)
    }

    /// The tenants of a device, in the order in which they were made.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`], [`AllocError::Forked`].
    pub fn tenants(&self, device: DeviceIndex) -> Result<Vec<TenantId>> {
        Ok(self.seen_device(device)?.tenants())
    }

    /// What a tenant holds, and what became of its requests. Its peak starts anew with
    /// [`reset_peak_stats`](Self::reset_peak_stats).
    ///
    /// # Errors
    /// [`AllocError::UnknownTenant`].
    pub fn tenant_stats(&self, tenant: TenantId) -> Result<TenantStats> {
        self.seen_device(tenant.device)?.tenant_stats(tenant)
    }

    /// Limits what a pool, the default one included, may hold: beyond `soft` its cached memory goes back before more is
    /// taken, and observers are told; beyond `hard` nothing is taken. `None` lifts a limit. What the pool holds already it
    /// keeps.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`]; [`AllocError::Budget`] for a limit of nothing, over the whole device, or a soft limit
    /// above the hard one.
    pub fn set_pool_limits(
        &self,
        device: DeviceIndex,
        pool: PoolId,
        hard: Option<MemoryLimit>,
        soft: Option<MemoryLimit>,
    ) -> Result<()> {
        self.device(device)?.set_pool_limits(pool, hard, Some(soft))
    }

    /// [`set_pool_limits`](Self::set_pool_limits) for the hard limit alone; the soft one stays as it is.
    ///
    /// # Errors
    /// Those of [`set_pool_limits`](Self::set_pool_limits).
    pub fn set_pool_limit(
        &self,
        device: DeviceIndex,
        pool: PoolId,
        limit: Option<MemoryLimit>,
    ) -> Result<()> {
        self.device(device)?.set_pool_limits(pool, limit, None)
    }

    /// Tells `observer` of soft limits of pools and tenants that are crossed, once for each crossing, with no lock held,
    /// before the call that crossed the limit returns, unless another thread is telling observers of the device at that
    /// moment: then by that one. It may use the allocator.
    pub fn add_budget_observer(&self, observer: impl Fn(&BudgetEvent) + Send + Sync + 'static) {
        let observer: BudgetObserver = Arc::new(observer);
        for device in self.reachable() {
            device.add_budget_observer(Arc::clone(&observer));
        }
    }

    /// Asks `hook` to make room, by freeing things or putting them to sleep, when a request would be refused otherwise:
    /// after all cached memory was given back. Hooks run in the order of their priority, the lowest first, and of equals
    /// the one added first; after each the free memory is searched, whatever the hook says. A hook is called with
    /// no lock held, never for a request that is made inside a hook, and never while the request's stream is captured. It
    /// returns the bytes it made free, which is for the statistics. Pools that [`wake`](Self::wake) and find no room ask,
    /// too; what wakes cannot be put to sleep by the hook.
    ///
    /// A hook lives as long as the allocator: one that uses the allocator holds it by a `Weak`, or neither ever goes.
    pub fn add_spill_hook(&self, priority: i32, hook: impl Fn(&SpillRequest) -> u64 + Send + Sync + 'static) {
        let hook: SpillHook = Arc::new(hook);
        for device in self.reachable() {
            device.add_spill_hook(priority, Arc::clone(&hook));
        }
    }
}
