//! Everything that is exported, read in one go.

use alloc_core::CachingAllocator;
use alloc_core::budget::TenantStats;
use alloc_core::host::{HostAllocator, HostStats};
use alloc_core::ledger::DeviceLedger;
use alloc_core::pool::PoolStats;
use alloc_core::snapshot::HistoryStatus;
use alloc_core::stats::{DeviceStats, StatArray};
use alloc_core::types::{DeviceIndex, DeviceKind, PoolId};
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// The figures of allocators.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// One for each device.
    pub devices: Vec<DeviceReading>,
    /// One for each allocator of pinned host memory.
    pub hosts: Vec<HostReading>,
}

/// The figures of one allocator of pinned host memory.
#[derive(Clone, Debug)]
pub struct HostReading {
    /// What the program sees the devices as that use it.
    pub kind: DeviceKind,
    /// PyTorch's statistics and Granule's own.
    pub stats: HostStats,
}

/// The figures of one device.
#[derive(Clone, Debug)]
pub struct DeviceReading {
    /// The device.
    pub device: DeviceIndex,
    /// What the program sees it as.
    pub kind: DeviceKind,
    /// PyTorch's statistics and Granule's own.
    pub stats: DeviceStats,
    /// The largest free block that is cached, in bytes.
    pub largest_free_block: u64,
    /// Of the history; `None` while it is off.
    pub history: Option<HistoryStatus>,
    /// Whose its memory is; `None` where the allocator does not publish, or the driver does not say.
    pub ledger: Option<DeviceLedger>,
    /// The default pool, and every private pool that ever had memory.
    pub pools: Vec<PoolReading>,
    /// Its tenants.
    pub tenants: Vec<TenantStats>,
}

/// The figures of one pool.
#[derive(Clone, Debug)]
pub struct PoolReading {
    /// Its id.
    pub id: PoolId,
    /// Bytes that it holds from the device.
    pub reserved_bytes: StatArray,
    /// The rest; `None` for a pool that is gone.
    pub stats: Option<PoolStats>,
}

impl DeviceReading {
    /// The figures of a device; `None` in a forked child, and where there is no such device.
    #[must_use]
    pub fn of(allocator: &CachingAllocator, device: DeviceIndex) -> Option<Self> {
        let stats = allocator.stats(device).ok()?;
        let history = allocator.history().status(device).ok()?;
        let of_default = allocator.pools().stats(device, PoolId::DEFAULT).ok()?;
        let default = PoolReading {
            id: PoolId::DEFAULT,
            reserved_bytes: of_default.reserved_bytes,
            stats: Some(of_default),
        };
        let private = stats.reserved_bytes_by_private_pools.iter().map(|(id, reserved)| PoolReading {
            id: *id,
            reserved_bytes: *reserved,
            stats: allocator.pools().stats(device, *id).ok(),
        });
        let pools = std::iter::once(default).chain(private).collect();
        // One that was removed meanwhile has nothing to say.
        let tenants = allocator.budgets().tenants(device).ok()?.into_iter();
        let tenants = tenants.filter_map(|tenant| allocator.budgets().stats(tenant).ok()).collect();
        // The ledger asks the driver, which a program that looks on may not want.
        let publishes = allocator.settings().publish;
        Some(Self {
            device,
            kind: allocator.backend().kind(),
            largest_free_block: allocator.statistics().largest_free_block(device).ok()?,
            history: history.recorded.then_some(history),
            ledger: publishes.then(|| allocator.statistics().ledger(device).ok()).flatten(),
            pools,
            tenants,
            stats,
        })
    }
}

/// Where figures come from: an allocator, a reference to one, or a pair of these. A [`Weak`] reference does not keep it
/// alive, and has nothing to say once it is gone.
pub trait Source: Debug + Send + Sync {
    /// All figures of this moment.
    fn read(&self) -> Reading;
}

impl Source for CachingAllocator {
    fn read(&self) -> Reading {
        let devices = (0..self.device_count()).filter_map(|n| DeviceReading::of(self, DeviceIndex(n)));
        Reading { devices: devices.collect(), hosts: Vec::new() }
    }
}

impl Source for HostAllocator {
    fn read(&self) -> Reading {
        let reading = HostReading { kind: self.backend().kind(), stats: self.stats() };
        Reading { devices: Vec::new(), hosts: vec![reading] }
    }
}

impl<A: Source, B: Source> Source for (A, B) {
    fn read(&self) -> Reading {
        let (mut first, second) = (self.0.read(), self.1.read());
        first.devices.extend(second.devices);
        first.hosts.extend(second.hosts);
        first
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn read(&self) -> Reading {
        (**self).read()
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn read(&self) -> Reading {
        (**self).read()
    }
}

impl<S: Source + ?Sized> Source for Weak<S> {
    fn read(&self) -> Reading {
        self.upgrade().map(|source| source.read()).unwrap_or_default()
    }
}
