//! Pools that can sleep.

use crate::Allocator;
use crate::quiet::Sleeps;
use crate::rig::DEVICE;
use alloc_core::CachingAllocator;
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::error::Result;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, Stream};
use backend_openreg::{Call, Driver, Links, OpenReg, OpenRegConfig};
use std::sync::Arc;

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

/// Bytes of each block of a measured pool: no multiple of a granule.
pub const MEASURED_BLOCK: u64 = 193 * MIB;

/// What a cycle of sleep and wake took by the cost model.
#[derive(Clone, Copy, Debug)]
pub struct Modelled {
    /// What slept, on all devices.
    pub bytes: u64,
    /// Nanoseconds.
    pub sleep_ns: u64,
    /// Nanoseconds.
    pub wake_ns: u64,
    /// Driver calls: those of the sleep, and of the wake.
    pub calls: [u64; 2],
    /// Waits for a device among them.
    pub waits: [u64; 2],
}

/// Cycles of pools of `bytes` on each of so many devices, whose memory has no bytes, with links to the host.
///
/// # Errors
/// What the allocator answers.
///
/// # Panics
/// Where something does not sleep or wake.
pub fn modelled_cycles(
    devices: u16,
    bytes: u64,
    links: Links,
    backup: &Backup,
    cycles: usize,
) -> Result<Vec<Modelled>> {
    let config = OpenRegConfig::default().devices(devices).capacity(bytes + 4 * GIB).links(links);
    let machine = OpenReg::new(config)?;
    let allocator = Arc::new(CachingAllocator::new(machine.clone(), Settings::default())?);
    let mut pools = Vec::new();
    for device in (0..devices).map(DeviceIndex) {
        let options = PoolOptions { sleep_tag: Some(SleepTag::new("weights")), ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, device, options)?;
        for _ in 0..bytes / MEASURED_BLOCK {
            let _kept_by_the_pool =
                malloc_in(&pool, &allocator, MEASURED_BLOCK, machine.default_stream(device));
        }
        pools.push(pool);
    }
    let counted = || {
        let calls = machine.calls();
        (Driver(&machine).elapsed(), calls.total(), calls.get(Call::SynchronizeDevice))
    };
    let mut measured = Vec::new();
    for _ in 0..cycles {
        machine.reset_calls();
        let slept = allocator.put_to_sleep(Tags::All, backup)?;
        let (sleep_ns, sleep_calls, sleep_waits) = counted();
        assert!((0..devices).all(|device| machine.used(DeviceIndex(device)) == 0), "all of it sleeps");
        machine.reset_calls();
        let woken = allocator.sleep_mode().wake(Tags::All)?;
        let (wake_ns, wake_calls, wake_waits) = counted();
        assert_eq!(woken.woken, slept.slept, "all of it wakes");
        measured.push(Modelled {
            bytes: slept.slept,
            sleep_ns,
            wake_ns,
            calls: [sleep_calls, wake_calls],
            waits: [sleep_waits, wake_waits],
        });
    }
    Ok(measured)
}
