//! A small program whose figures are the same each time.

use alloc_core::CachingAllocator;
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::pool::Filter;
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, PoolId};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use std::sync::Arc;

pub(crate) const DEVICE: DeviceIndex = DeviceIndex(0);

/// An allocator that has served a few requests, one of them in a private pool, and one block that is still handed out.
pub(crate) fn program() -> (Arc<CachingAllocator>, DevicePtr) {
    let config = OpenRegConfig::default().devices(1).capacity(512 * MIB).clock(Clock::Virtual { lag: 1000 });
    let device = OpenReg::new(config).unwrap();
    let (stream, other) = (device.default_stream(DEVICE), device.create_stream(DEVICE, 0).unwrap());
    let allocator: CachingAllocator = CachingAllocator::new(device.clone(), Settings::default()).unwrap();
    allocator.history().record(&HistoryOptions::newest(2));
    let kept = allocator.malloc(3 * MIB, stream).unwrap();
    let small = allocator.malloc(1000, stream).unwrap();
    allocator.free(small).unwrap();
    let shared = allocator.malloc(5 * MIB, stream).unwrap();
    device.use_memory(other, shared, 5 * MIB).unwrap();
    allocator.record_stream(shared, other).unwrap();
    allocator.free(shared).unwrap();
    let pool = PoolId(0, 424_242);
    allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
    let private = allocator.malloc(24 * MIB, stream).unwrap();
    allocator.pools().end(DEVICE, pool).unwrap();
    allocator.free(private).unwrap();
    assert!(allocator.malloc(1024 * MIB, stream).is_err());
    (Arc::new(allocator), kept)
}
