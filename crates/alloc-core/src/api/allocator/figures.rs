//! Figures beyond the statistics of a device.

use super::CachingAllocator;
use crate::backend::MemoryInfo;
use crate::device::GrowableSize;
use crate::device::statistics;
use crate::error::Result;
use crate::features::ledger::DeviceLedger;
use crate::types::{DeviceIndex, Stream};

/// Memory that can be had in one piece, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheInfo {
    /// The largest free block in the cache.
    pub largest_cached: u64,
    /// The memory that the driver has free.
    pub device_free: u64,
}

impl CacheInfo {
    /// PyTorch's `cacheInfo`: the larger of the two.
    #[must_use]
    pub fn largest(self) -> u64 {
        self.largest_cached.max(self.device_free)
    }
}

/// Figures of an allocator beyond [`CachingAllocator::stats`]: [`CachingAllocator::statistics`].
#[derive(Clone, Copy, Debug)]
pub struct Statistics<'a>(&'a CachingAllocator);

impl<'a> Statistics<'a> {
    pub(super) fn of(allocator: &'a CachingAllocator) -> Self {
        Self(allocator)
    }

    /// Resets all peaks to the current values. PyTorch: `resetPeakStats`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn reset_peaks(self, device: DeviceIndex) -> Result<()> {
        statistics::reset_peak_stats(self.0.seen_device(device)?);
        Ok(())
    }

    /// Resets accumulated sums and all counters to 0, Granule's own included. Levels and peaks stay. PyTorch:
    /// `resetAccumulatedStats`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn reset_accumulated(self, device: DeviceIndex) -> Result<()> {
        statistics::reset_accumulated_stats(self.0.seen_device(device)?);
        Ok(())
    }

    /// Obtainable and total memory of a device, other processes included. Asks the driver. On a device that shares
    /// the host's memory the system knows better than the driver, which counts the page cache as taken: see
    /// [`SharedMemory::obtainable`](crate::system::SharedMemory::obtainable). PyTorch: `getMemoryInfo`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice); the driver's error.
    pub fn memory_info(self, device: DeviceIndex) -> Result<MemoryInfo> {
        self.0.device(device)?.memory_info()
    }

    /// Owners of a device's bytes. Asks the driver, reads figures that other processes publish, and asks the program's
    /// source of figures about processes, if there is one.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice); the driver's error.
    pub fn ledger(self, device: DeviceIndex) -> Result<DeviceLedger> {
        let engine = self.0.device(device)?;
        engine.noticing(statistics::ledger(engine))
    }

    /// The largest pieces to be had. Asks the driver. PyTorch: `cacheInfo`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn cache_info(self, device: DeviceIndex) -> Result<CacheInfo> {
        let engine = self.0.device(device)?;
        let device_free = engine.memory_info()?.free;
        Ok(CacheInfo { largest_cached: engine.arenas.largest_free_block(), device_free })
    }

    /// The largest free block that a device has cached, in bytes. Takes time with the number of blocks.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn largest_free_block(self, device: DeviceIndex) -> Result<u64> {
        Ok(self.0.seen_device(device)?.arenas.largest_free_block())
    }

    /// The most bytes that a stream could be given in one piece from its free memory in the default pool, for a request
    /// above 1 MiB. With a policy that shows free memory side by side, that can be more than the largest free block. 0
    /// where the stream has no free memory. Takes time with the number of blocks and granules; calls no driver.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn largest_in_one_piece(self, stream: Stream) -> Result<u64> {
        let stream = self.0.own(stream)?;
        Ok(statistics::largest_in_one_piece(self.0.seen_device(stream.device)?, stream))
    }

    /// The memory that growable segments hold, by stream and tier. Takes time with the number of blocks. PyTorch:
    /// `getExpandableSegmentSizes`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn growable_sizes(self, device: DeviceIndex) -> Result<Vec<GrowableSize>> {
        Ok(statistics::growable_sizes(self.0.seen_device(device)?))
    }
}
