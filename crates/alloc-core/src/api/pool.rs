//! Memory pools: their requests, the source of their memory, and pools as values that clean up after themselves.
//!
//! A pool is a set of segments with an owner. Requests go to the default pool unless an open *scope* sends them
//! elsewhere. Pools are counted: when nobody uses one any more, its cached memory can be given back.

pub use crate::arena::pool_table::{Filter, PoolStats};
pub use crate::memory::source::{PhysicalSource, SegmentSource};
pub use crate::sync::ThreadId;

use crate::api::allocator::CachingAllocator;
use crate::arena::pool_table::Holder;
use crate::config::MemoryLimit;
use crate::error::{AllocError, Result, log_end};
use crate::features::budget::TenantId;
use crate::features::sleep::SleepTag;
use crate::sync::Arc;
use crate::types::{DeviceIndex, PoolId};
use crate::watch::snapshot::Snapshot;

/// Options of a [`MemoryPool`]; the default is an ordinary pool.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// Source of its memory, if not the driver.
    pub source: Option<Arc<dyn SegmentSource>>,
    /// Requests to the default pool that cannot be served otherwise may take what it has cached.
    pub use_on_oom: bool,
    /// It hands blocks out whole.
    pub no_split: bool,
    /// It can sleep, under this tag; see [`crate::sleep`].
    pub sleep_tag: Option<SleepTag>,
}

/// A reference to a pool, taken away when this is dropped.
#[derive(Debug)]
pub(crate) struct PoolReference {
    pub(crate) allocator: Arc<CachingAllocator>,
    pub(crate) device: DeviceIndex,
    pub(crate) pool: PoolId,
}

impl PoolReference {
    /// One more reference to a pool, which is made on its first one.
    pub(crate) fn to(
        allocator: &Arc<CachingAllocator>,
        device: DeviceIndex,
        pool: PoolId,
        source: Option<Arc<dyn SegmentSource>>,
    ) -> Result<Self> {
        allocator.pools().reference_pool(device, pool, source, Holder::Value)?;
        Ok(Self { allocator: Arc::clone(allocator), device, pool })
    }
}

impl Drop for PoolReference {
    fn drop(&mut self) {
        let released = self.allocator.pools().unreference_pool(self.device, self.pool, Holder::Value);
        log_end(released, "a pool could not be released");
    }
}

/// A pool that the program made. When this is dropped the pool serves nobody any more, and its cached memory is given
/// back. Live memory is given back when it is freed and the cache is emptied. PyTorch: `MemPool`.
#[derive(Debug)]
pub struct MemoryPool {
    reference: Option<PoolReference>,
    allocator: Arc<CachingAllocator>,
    device: DeviceIndex,
    id: PoolId,
}

impl MemoryPool {
    /// A new pool with a fresh id.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn new(allocator: &Arc<CachingAllocator>, device: DeviceIndex, options: PoolOptions) -> Result<Self> {
        let id = PoolId::fresh();
        let reference = PoolReference::to(allocator, device, id, options.source)?;
        if options.sleep_tag.is_some() {
            allocator.sleep_mode().set_tag(device, id, options.sleep_tag)?;
        }
        if options.use_on_oom {
            allocator.pools().set_use_on_oom(device, id, true)?;
        }
        if options.no_split {
            allocator.pools().set_no_split(device, id)?;
        }
        Ok(Self { reference: Some(reference), allocator: Arc::clone(allocator), device, id })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// References to it: this one, open scopes, graphs.
    ///
    /// # Errors
    /// [`AllocError::Forked`](crate::AllocError::Forked).
    pub fn use_count(&self) -> Result<u32> {
        self.allocator.pools().use_count(self.device, self.id)
    }

    /// Memory that it holds, and its users.
    ///
    /// # Errors
    /// As for [`use_count`](Self::use_count).
    pub fn stats(&self) -> Result<PoolStats> {
        self.allocator.pools().stats(self.device, self.id)
    }

    /// Limits what it may hold; see [`Pools::set_limits`](crate::allocator::Pools::set_limits).
    ///
    /// # Errors
    /// Those of [`Pools::set_limits`](crate::allocator::Pools::set_limits).
    pub fn set_limits(&self, hard: Option<MemoryLimit>, soft: Option<MemoryLimit>) -> Result<()> {
        self.allocator.pools().set_limits(self.device, self.id, hard, soft)
    }

    /// Makes it part of a tenant; see [`Budgets::join`](crate::allocator::Budgets::join).
    ///
    /// # Errors
    /// Those of [`Budgets::join`](crate::allocator::Budgets::join).
    pub fn join_tenant(&self, tenant: TenantId) -> Result<()> {
        if tenant.device() != self.device {
            let problem = format!("tenant {tenant} is another device's; make one on device {}", self.device);
            return Err(AllocError::Budget { owner: format!("pool {}", self.id), problem });
        }
        self.allocator.budgets().join(self.id, tenant)
    }

    /// Takes it out of its tenant; see [`Budgets::leave`](crate::allocator::Budgets::leave).
    ///
    /// # Errors
    /// Those of [`Budgets::leave`](crate::allocator::Budgets::leave).
    pub fn leave_tenant(&self) -> Result<()> {
        self.allocator.budgets().leave(self.device, self.id)
    }

    /// Its segments, and the device's history if `traces`.
    #[must_use]
    pub fn snapshot(&self, traces: bool) -> Snapshot {
        self.allocator.pools().snapshot(self.id, traces)
    }

    /// Sends requests that `filter` accepts to this pool while the result lives.
    ///
    /// # Errors
    /// [`AllocError::Pool`](crate::AllocError::Pool) where a scope of it is open already.
    pub fn enter(&self, filter: Filter) -> Result<PoolScope> {
        PoolScope::new(&self.allocator, self.device, self.id, filter)
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        let outcome = self.allocator.pools().set_use_on_oom(self.device, self.id, false);
        drop(self.reference.take());
        let emptied = outcome.and_then(|()| self.allocator.pools().empty(self.id));
        log_end(emptied, "a pool's cached memory could not be given back; the next flush tries again");
    }
}

/// Requests that a filter accepts go to a pool while this lives. PyTorch: `use_mem_pool`.
#[derive(Debug)]
pub struct PoolScope {
    allocator: Arc<CachingAllocator>,
    device: DeviceIndex,
    pool: PoolId,
}

impl PoolScope {
    /// Opens a scope of a pool. The pool gets one more reference, and is made if there is none.
    ///
    /// # Errors
    /// Those of [`Pools::begin`](crate::allocator::Pools::begin).
    pub fn new(
        allocator: &Arc<CachingAllocator>,
        device: DeviceIndex,
        pool: PoolId,
        filter: Filter,
    ) -> Result<Self> {
        allocator.pools().open_scope(device, pool, filter, Holder::Value)?;
        Ok(Self { allocator: Arc::clone(allocator), device, pool })
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        self.pool
    }
}

impl Drop for PoolScope {
    fn drop(&mut self) {
        let Self { allocator, device, pool } = self;
        let calls = allocator.calls();
        // A tracker that panics does so after the scope's end.
        let ended =
            calls.catch(|| allocator.pools().close_scope(*device, *pool, Holder::Value)).unwrap_or(Ok(()));
        let released = ended.and_then(|()| allocator.pools().unreference_pool(*device, *pool, Holder::Value));
        log_end(released, "a pool's scope could not be ended");
    }
}
