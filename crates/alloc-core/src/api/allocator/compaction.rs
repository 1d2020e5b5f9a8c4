//! Memory between live blocks, given back; [`crate::compaction`] says what that means.

use super::CachingAllocator;
use crate::error::Result;
use crate::features::compaction::CompactionReport;
use crate::types::{DeviceIndex, DevicePtr};

impl CachingAllocator {
    /// Gives back what a device's default pool has cached, as [`empty_cache`](Self::empty_cache) does, and then the memory between
    /// live blocks. Their addresses and contents stay as they are. What is excepted stands in [`crate::compaction`]. Waits for
    /// the device. Blocks. Returns zeros where another thread compacts the device at this moment.
    ///
    /// Under PyTorch this call is the way to compact, or a [hook](super::Hooks::on_quiesce): other threads of it launch.
    ///
    /// # Safety
    /// While the call runs, nobody gives any device work on memory of this allocator: no kernel, copy or graph, from any thread of
    /// the process.
    ///
    /// # Errors
    /// [`AllocError::Limit`](crate::AllocError::Limit) where nothing of the device can be compacted, with the reason;
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice); the driver's first error, after which each live block has its contents at its address. After
    /// [`DeviceLost`](crate::backend::ErrorKind::DeviceLost) that is not so, and the driver is not called any more.
    pub unsafe fn compact(&self, device: DeviceIndex) -> Result<CompactionReport> {
        let device = self.device(device)?;
        device.noticing(device.compaction().compact())
    }

    /// The live block at `ptr` keeps its physical memory until it is freed: no [compaction](crate::compaction) moves it. For
    /// memory that is registered with a library or a network card. Waits for a compaction that is under way.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`](crate::AllocError::InvalidPointer) where `ptr` is no live block of this allocator.
    pub fn pin_physical(&self, ptr: DevicePtr) -> Result<()> {
        let Some(device) = self.block_device(ptr) else { return Err(self.bad_pointer(ptr)) };
        self.device(device)?.compaction().pin(ptr);
        Ok(())
    }
}
