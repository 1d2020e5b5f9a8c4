//! Pools that can sleep.

use crate::Allocator;
use crate::rig::DEVICE;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::SleepTag;
use alloc_core::types::{DevicePtr, Stream};

/// A pool with a sleep tag.
///
/// # Panics
/// Where the device has no virtual memory.
#[must_use]
pub fn tagged(allocator: &Allocator, tag: &str) -> MemoryPool {
    let options = PoolOptions { sleep_tag: Some(SleepTag::new(tag)), ..PoolOptions::default() };
    MemoryPool::new(allocator, DEVICE, options).expect("the device has virtual memory")
}

/// Memory of a pool.
///
/// # Panics
/// Where there is none.
#[must_use]
pub fn malloc_in(pool: &MemoryPool, allocator: &Allocator, bytes: u64, stream: Stream) -> DevicePtr {
    let _scope = pool.enter(Filter::Always).expect("no scope of it is open");
    allocator.malloc(bytes, stream).expect("there is memory")
}
