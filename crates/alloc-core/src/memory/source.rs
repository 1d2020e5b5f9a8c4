//! Sources of memory besides the driver.

use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle, Stream};
use std::fmt::Debug;

/// Source of a pool's memory, instead of the driver's `malloc`. PyTorch: the allocator of a `MemPool`.
///
/// The functions are called on the thread that needs or returns the memory. They may panic and use the allocator: see
/// [code of the program](crate#code-of-the-program). They must not wait for a thread that may be inside the allocator,
/// which may be waiting for memory in flight here. An `alloc` that panics gave nothing; a `free` that panics took the
/// memory.
///
/// # Safety
/// Memory handed out is the program's to use on the device, at least as large as asked, aligned to 512 bytes,
/// and disjoint from all other memory that is held, until it is taken back.
pub unsafe trait SegmentSource: Debug + Send + Sync {
    /// Takes a segment of `bytes` of device memory for work of `stream`: as much as would be asked from the driver, so
    /// 20 MiB for a request of 3 MiB. `None` where there is not enough; it is asked again after memory was given back.
    /// May block.
    fn alloc(&self, bytes: u64, stream: Stream) -> Option<DevicePtr>;

    /// Takes back memory of [`alloc`](Self::alloc) for `stream`. May block.
    ///
    /// # Safety
    /// `ptr` and `bytes` are those of one `alloc`, given back once; no queued work uses the memory.
    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, stream: Stream);

    /// True if a segment may be taken back now: asked before [`free`](Self::free). One that may not stays cached, and
    /// is asked about again whenever cached memory is given back. For memory that a library has registered.
    fn may_leave(&self, ptr: DevicePtr, bytes: u64) -> bool {
        let _ = (ptr, bytes);
        true
    }

    /// The physical memory behind growable segments; `None` (the default) where the pool's segments are
    /// fixed, whatever the settings say. Always the same.
    fn physical(&self) -> Option<&dyn PhysicalSource> {
        None
    }
}

/// Physical memory for a pool's growable segments. As for [`SegmentSource`]; a `release` that panics refused.
///
/// # Safety
/// A handle's memory is the program's to use on the device, as large as asked, and nobody else has it mapped or maps
/// it, until the handle is taken back.
pub unsafe trait PhysicalSource: Debug + Send + Sync {
    /// A handle to `bytes` of physical memory of `device`, which the engine maps; `None` where there is not
    /// enough.
    fn create(&self, device: DeviceIndex, bytes: u64) -> Option<PhysicalHandle>;

    /// Takes back a handle that nothing maps any more.
    ///
    /// # Errors
    /// Where it could not be released now: the engine keeps it and tries again.
    fn release(&self, handle: PhysicalHandle) -> crate::backend::Result<()>;
}
