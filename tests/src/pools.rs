//! Private pools, and memory from them.

use crate::Allocator;
use crate::rig::DEVICE;
use alloc_core::AllocError;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions, SegmentSource};
use alloc_core::types::{DevicePtr, Stream};
use std::sync::Arc;

/// A pool over the driver's memory.
///
/// # Panics
/// Where it is refused, as the functions below.
#[must_use]
pub fn new_pool(allocator: &Allocator) -> MemoryPool {
    MemoryPool::new(allocator, DEVICE, PoolOptions::default()).expect("a pool can be made")
}

/// A pool over a source of the program.
///
/// # Panics
/// As above.
#[must_use]
pub fn pool_over(allocator: &Allocator, source: Option<Arc<dyn SegmentSource>>) -> MemoryPool {
    let options = PoolOptions { source, ..PoolOptions::default() };
    MemoryPool::new(allocator, DEVICE, options).expect("a pool can be made")
}

/// Memory of the pool.
///
/// # Errors
/// What the allocator says.
///
/// # Panics
/// Where a scope of it is open.
pub fn take(
    allocator: &Allocator,
    pool: &MemoryPool,
    bytes: u64,
    stream: Stream,
) -> Result<DevicePtr, AllocError> {
    let _scope = pool.enter(Filter::this_thread()).expect("no scope of it is open");
    allocator.malloc(bytes, stream)
}
