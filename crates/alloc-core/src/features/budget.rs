//! Budgets: limits of a pool, or a tenant, on a device, observers that are told at a soft limit, and hooks that make
//! room.
//!
//! A *tenant* is a named group of pools of one device. Three marks bound what a tenant holds, all optional:
//!
//! * its **guarantee**: nobody else's memory ever grows into its unused part;
//! * its **soft** limit: before it is crossed the tenant's own cached memory goes back, then observers are told;
//! * its **hard** limit: beyond it nothing is taken.
//!
//! Held memory was taken from the device. It includes cached memory and memory in flight, as whole segments and
//! granules; memory of a pool's own source counts like the device's. A budget concerns the programs in one process:
//! other processes and the driver itself have their own part of the device. `memory_limit` leaves room for them, and
//! bounds what can be guaranteed.
//!
//! ```
//! use alloc_core::budget::Budget;
//! use alloc_core::config::MemoryLimit;
//! use alloc_core::types::{DeviceIndex, GIB, PoolId};
//! use alloc_core::{AllocError, CachingAllocator};
//!
//! fn share(allocator: &CachingAllocator, device: DeviceIndex, serving: PoolId) -> Result<(), AllocError> {
//!     let budget = Budget {
//!         guarantee: Some(MemoryLimit::Bytes(20 * GIB)),
//!         soft: Some(MemoryLimit::Bytes(30 * GIB)),
//!         hard: Some(MemoryLimit::Fraction(0.5)),
//!     };
//!     let tenant = allocator.budgets().create_tenant(device, "serving", &budget)?;
//!     allocator.budgets().join(serving, tenant)?;
//!     allocator.hooks().on_budget(|event| println!("{:?} holds {} bytes", event.owner, event.held));
//!     // Called before a request is refused: frees things, and says how many bytes.
//!     allocator.hooks().on_spill(0, |request| drop_something(request.missing));
//!     Ok(())
//! }
//! # fn drop_something(bytes: u64) -> u64 { 0 }
//! ```

pub use crate::base::tenant_marks::{Marks, TenantId};

use crate::config::MemoryLimit;
use crate::sync::Arc;
use crate::types::{DeviceIndex, PoolId, Stream};

/// Limits of a tenant. No mark is above the next one.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Budget {
    /// Memory it can always have, whatever others do.
    pub guarantee: Option<MemoryLimit>,
    /// Beyond it, its cached memory goes back before more is taken.
    pub soft: Option<MemoryLimit>,
    /// Beyond it nothing is taken.
    pub hard: Option<MemoryLimit>,
}

impl Budget {
    /// Its marks on a device with `total` bytes; the error says what to write instead.
    pub(crate) fn marks(&self, total: u64) -> Result<Marks, String> {
        for (name, limit) in [("guarantee", self.guarantee), ("soft", self.soft), ("hard", self.hard)] {
            if let Some(limit) = limit.filter(|limit| !limit.is_sound()) {
                return Err(format!(
                    "{name} is {limit:?}; it must be MemoryLimit::Fraction over 0 and up to 1, MemoryLimit::Bytes of at \
                     least 1, or None"
                ));
            }
        }
        let bytes = |limit: Option<MemoryLimit>| limit.map(|limit| limit.bytes(total));
        let (guarantee, soft, hard) = (bytes(self.guarantee), bytes(self.soft), bytes(self.hard));
        let beyond = |low: Option<u64>, high: Option<u64>| low.zip(high).filter(|(low, high)| low > high);
        if let Some((low, high)) = beyond(soft, hard) {
            return Err(format!(
                "the soft limit ({low} bytes) is above the hard one ({high} bytes) and would never be reached; lower it, \
                 or raise the hard limit"
            ));
        }
        if let Some((low, high)) = beyond(guarantee, soft.or(hard)) {
            return Err(format!(
                "the guarantee ({low} bytes) is above the limit ({high} bytes); lower it, or raise the limit"
            ));
        }
        Ok(Marks { guarantee: guarantee.unwrap_or(0), soft, hard })
    }
}

/// Owner of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetOwner {
    /// The whole device: `memory_soft_limit`.
    Device,
    /// A pool.
    Pool(PoolId),
    /// A tenant.
    Tenant {
        /// The tenant.
        id: TenantId,
        /// Its name.
        name: Arc<str>,
    },
}

/// Soft limit crossed upwards. It is told again only after the owner was back at the limit or below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetEvent {
    /// The device.
    pub device: DeviceIndex,
    /// Owner of the limit.
    pub owner: BudgetOwner,
    /// The pool for which memory was taken, or that joined; `None` where the limit was changed.
    pub pool: Option<PoolId>,
    /// Bytes the owner held before.
    pub held: u64,
    /// Bytes that were taken; 0 where no request crossed the limit: it was lowered, or a pool joined.
    pub wanted: u64,
    /// The soft limit in bytes.
    pub soft: u64,
    /// The hard limit in bytes.
    pub hard: Option<u64>,
}

/// Limit that a request fails on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shortage {
    /// The pool is at its own limit: only memory of this pool helps.
    Pool,
    /// The tenant is at its hard limit: only memory of its pools helps.
    Tenant,
    /// The rest is guaranteed to other tenants.
    Guarantees,
    /// The device is full, or a limit on all that is held is reached.
    Device,
}

/// Request to the program to make room, where a request would be refused otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillRequest {
    /// The device.
    pub device: DeviceIndex,
    /// The stream of the request.
    pub stream: Stream,
    /// The pool that the memory is for.
    pub pool: PoolId,
    /// The pool's tenant.
    pub tenant: Option<TenantId>,
    /// Bytes that the request takes from the device.
    pub wanted: u64,
    /// Bytes that are missing for that, as far as it is known: `wanted` where memory is there, but in pieces.
    pub missing: u64,
    /// Reason why they are missing.
    pub shortage: Shortage,
}

/// Memory of a tenant, and the fate of its requests. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantStats {
    /// Its name.
    pub name: Arc<str>,
    /// Its budget.
    pub marks: Marks,
    /// Held from the device.
    pub held: u64,
    /// The most it ever held.
    pub peak: u64,
    /// Its pools.
    pub pools: Vec<PoolId>,
    /// Requests of its pools that ended in an out-of-memory error.
    pub refusals: u64,
    /// Times it crossed its soft limit upwards.
    pub soft_crossings: u64,
    /// Times a spill hook made room for one of its requests.
    pub spills: u64,
    /// Bytes that hooks said they had freed for it.
    pub spilled_bytes: u64,
}

/// Observer of crossed soft limits. Called with no lock held, before the call that crossed the limit returns. If
/// another thread is telling observers of the device at that moment, that one calls it.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type BudgetObserver = Arc<dyn Fn(&BudgetEvent) + Send + Sync>;
/// Hook that makes room, and returns the bytes it freed; 0 for none.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type SpillHook = Arc<dyn Fn(&SpillRequest) -> u64 + Send + Sync>;
