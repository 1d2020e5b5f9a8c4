//! Tenants and their budgets; see [`crate::budget`].

use super::CachingAllocator;
use crate::device::budgets;
#[cfg(doc)]
use crate::error::AllocError;
use crate::error::Result;
use crate::features::budget::{Budget, TenantId, TenantStats};
use crate::types::{DeviceIndex, PoolId};

/// Tenants of an allocator and what they may hold: [`CachingAllocator::budgets`].
#[derive(Clone, Copy, Debug)]
pub struct Budgets<'a>(&'a CachingAllocator);

impl<'a> Budgets<'a> {
    pub(super) fn of(allocator: &'a CachingAllocator) -> Self {
        Self(allocator)
    }

    /// Makes a tenant of a device, without pools. Where others hold too much for its guarantee, all cached memory of
    /// the device is given back first. Then this blocks.
    ///
    /// # Errors
    /// [`AllocError::Budget`] for marks that are out of order, a name that is taken, or a guarantee that cannot be kept
    /// next to the guarantees and memory of others. Driver errors while memory is given back.
    pub fn create_tenant(self, device: DeviceIndex, name: &str, budget: &Budget) -> Result<TenantId> {
        budgets::create_tenant(self.0.device(device)?, name, budget)
    }

    /// Changes a tenant's budget. The tenant keeps the memory that it holds already, also beyond a new hard limit.
    ///
    /// # Errors
    /// Those of [`create_tenant`](Self::create_tenant); [`AllocError::UnknownTenant`]. Nothing has changed then.
    pub fn set(self, tenant: TenantId, budget: &Budget) -> Result<()> {
        budgets::set_budget(self.0.device(tenant.device)?, tenant, budget)
    }

    /// Makes a pool, the default one included, part of a tenant, with the memory that it holds.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`], [`AllocError::UnknownTenant`]; [`AllocError::Budget`] where the pool is part of
    /// another tenant, or holds more than this one may.
    pub fn join(self, pool: PoolId, tenant: TenantId) -> Result<()> {
        budgets::join_tenant(self.0.device(tenant.device)?, pool, tenant)
    }

    /// Takes a pool out of its tenant, if it has one. A pool that is gone has left by itself.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`]; [`AllocError::Budget`] where the memory of the pool would then eat into the
    /// tenant's guarantee.
    pub fn leave(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        budgets::leave_tenant(self.0.device(device)?, pool)
    }

    /// The tenant a pool is part of.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`].
    pub fn tenant_of(self, device: DeviceIndex, pool: PoolId) -> Result<Option<TenantId>> {
        budgets::tenant_of(self.0.seen_device(device)?, pool)
    }

    /// Removes a tenant. Its pools stay, with their memory, and are part of no tenant.
    ///
    /// # Errors
    /// [`AllocError::UnknownTenant`].
    pub fn remove_tenant(self, tenant: TenantId) -> Result<()> {
        budgets::remove_tenant(self.0.device(tenant.device)?, tenant)
    }

    /// The tenants of a device, in the order in which they were made.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`], [`AllocError::Forked`].
    pub fn tenants(self, device: DeviceIndex) -> Result<Vec<TenantId>> {
        Ok(budgets::tenants(self.0.seen_device(device)?))
    }

    /// The memory that a tenant holds, and the outcome of its requests. Its peak starts anew with
    /// [`reset_peaks`](super::Statistics::reset_peaks).
    ///
    /// # Errors
    /// [`AllocError::UnknownTenant`].
    pub fn stats(self, tenant: TenantId) -> Result<TenantStats> {
        budgets::tenant_stats(self.0.seen_device(tenant.device)?, tenant)
    }
}
