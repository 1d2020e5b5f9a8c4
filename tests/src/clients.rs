//! Programs that share a device: each has a pool of its own, and perhaps a budget.

use crate::Allocator;
use crate::rig::{DEVICE, Rig};
use alloc_core::AllocError;
use alloc_core::budget::{Budget, TenantId};
use alloc_core::config::MemoryLimit;
use alloc_core::oom::OomReport;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions, PoolScope};
use alloc_core::types::{DevicePtr, MIB, Stream};
use backend_openreg::OpenRegConfig;
use std::sync::Arc;

/// A machine with two devices of so many MiB.
#[must_use]
pub fn device(mebibytes: u64) -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(mebibytes * MIB)
}

/// Guarantee, soft and hard limit in MiB; 0 is none.
#[must_use]
pub fn budget(guarantee: u64, soft: u64, hard: u64) -> Budget {
    let limit = |mib: u64| (mib > 0).then_some(MemoryLimit::Bytes(mib * MIB));
    Budget { guarantee: limit(guarantee), soft: limit(soft), hard: limit(hard) }
}

/// A pool with a stream of its own, whose requests go to it. Sizes are MiB.
#[derive(Debug)]
pub struct Client {
    allocator: Allocator,
    /// Its stream.
    pub stream: Stream,
    /// Its pool.
    pub pool: MemoryPool,
    _scope: PoolScope,
}

impl Client {
    /// One that is part of no tenant.
    ///
    /// # Panics
    /// Where the machine refuses.
    #[must_use]
    pub fn new(rig: &Rig, allocator: &Allocator) -> Self {
        let stream = rig.new_stream();
        let pool = MemoryPool::new(allocator, DEVICE, PoolOptions::default()).expect("a pool can be made");
        let scope = pool.enter(Filter::Stream(stream)).expect("nobody uses the pool yet");
        Self { allocator: Arc::clone(allocator), stream, pool, _scope: scope }
    }

    /// One whose pool is all that a new tenant has.
    ///
    /// # Panics
    /// Where the budget is refused.
    #[must_use]
    pub fn of(rig: &Rig, allocator: &Allocator, name: &str, budget: Budget) -> (Self, TenantId) {
        let client = Self::new(rig, allocator);
        let tenant =
            allocator.budgets().create_tenant(DEVICE, name, &budget).expect("the budget can be given");
        client.pool.join_tenant(tenant).expect("the pool is empty");
        (client, tenant)
    }

    /// Memory for its stream.
    ///
    /// # Errors
    /// What the allocator says.
    pub fn malloc(&self, mib: u64) -> Result<DevicePtr, AllocError> {
        self.allocator.malloc(mib * MIB, self.stream)
    }

    /// Why it gets no memory.
    ///
    /// # Panics
    /// Where it gets some.
    #[must_use]
    pub fn refused(&self, mib: u64) -> OomReport {
        match self.malloc(mib) {
            Err(AllocError::OutOfMemory(report)) => *report,
            other => panic!("{other:?}"),
        }
    }

    /// Frees its blocks.
    ///
    /// # Panics
    /// Where one is not live.
    pub fn free(&self, blocks: impl IntoIterator<Item = DevicePtr>) {
        blocks.into_iter().for_each(|ptr| self.allocator.free(ptr).expect("the block is live"));
    }

    /// What it holds from the device.
    ///
    /// # Panics
    /// Where its pool is gone.
    #[must_use]
    pub fn held(&self) -> u64 {
        let stats = self.pool.stats().expect("the pool is there");
        stats.reserved_bytes.all.current.unsigned_abs() / MIB
    }

    /// Holds free memory, in one piece, and nothing else.
    ///
    /// # Panics
    /// Where it cannot.
    pub fn cache(&self, mib: u64) {
        let block = self.malloc(mib).expect("there is room");
        self.free([block]);
        assert_eq!(self.held(), mib);
    }
}
