//! Memory that cudarc uses and Granule owns.

use crate::allocator::Allocator;
use crate::error::{Error, Result};
use crate::streams::is_per_thread;
use cudarc::driver::{
    CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, DriverError, LaunchArgs,
    PushKernelArg, SyncOnDrop, sys,
};
use granule::cuda::DeviceBuffer;
use std::mem::ManuallyDrop;
use std::ops::{Deref, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A [`CudaSlice`] whose memory is Granule's: it goes back into the cache when this is dropped, on any thread, after the
/// last read and the last write that cudarc has noted. Where several streams read it at a time, tell of each by
/// [`record_stream`](Self::record_stream): cudarc notes one.
///
/// Reading goes through [`Deref`] to `CudaSlice`: lengths, views, `&buffer` as an argument of a kernel or a copy. Writing
/// goes through [`slice_mut`](Self::slice_mut) and its like, and `&mut buffer` as an argument. There is no `DerefMut`:
/// `std::mem::swap` would exchange memory with a slice that the driver owns.
#[derive(Debug)]
pub struct Buffer<T> {
    /// Leaked in `drop`: the driver does not own its memory.
    slice: ManuallyDrop<CudaSlice<T>>,
    /// Freed in `drop`, after the slice.
    memory: ManuallyDrop<DeviceBuffer<u8>>,
    allocator: Allocator,
}

impl<T> Buffer<T> {
    /// All of `memory`, which is of `stream` and as long as `len` elements.
    pub(crate) fn over(
        memory: DeviceBuffer<u8>,
        stream: &Arc<CudaStream>,
        len: usize,
        allocator: Allocator,
    ) -> Result<Self> {
        let place = memory.ptr().0;
        // SAFETY: `upgrade_device_ptr` wants an allocation with room for `len` elements, and no reading before writing:
        // the former is what the caller made, the latter is up to those who hand the buffer out. The slice never
        // frees it: `drop` leaks the slice.
        let upgrade = || unsafe { stream.upgrade_device_ptr(place, len) };
        // It panics where the driver makes no event. It only borrows, so nothing is left half done.
        let slice = catch_unwind(AssertUnwindSafe(upgrade)).map_err(|_| {
            let unknown = DriverError(sys::CUresult::CUDA_ERROR_UNKNOWN);
            Error::Driver(stream.context().new_event(None).err().unwrap_or(unknown))
        })?;
        Ok(Self { slice: ManuallyDrop::new(slice), memory: ManuallyDrop::new(memory), allocator })
    }

    /// The allocator it goes back to.
    #[must_use]
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Says that work of `stream` uses it that cudarc does not know of, such as a library's that was given the bare
    /// address: it is not reused before that work is done. Call it after that work was queued, or at least before the drop.
    /// Work that goes through cudarc needs it only while [event
    /// tracking](cudarc::driver::CudaContext::disable_event_tracking) is off. Does not block.
    ///
    /// # Errors
    /// [`Error::OtherContext`](crate::Error::OtherContext); what Granule says.
    pub fn record_stream(&self, stream: &Arc<CudaStream>) -> Result<()> {
        Ok(self.memory.record_stream(&self.allocator.stream(stream)?)?)
    }

    /// All of it, to write. [`CudaSlice::as_view_mut`]
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }

    /// A part of it, to write. [`CudaSlice::slice_mut`]
    ///
    /// # Panics
    /// Where the range is not within it.
    pub fn slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> CudaViewMut<'_, T> {
        self.slice.slice_mut(bounds)
    }

    /// A part of it, to write; none where the range is not within it. [`CudaSlice::try_slice_mut`]
    pub fn try_slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> Option<CudaViewMut<'_, T>> {
        self.slice.try_slice_mut(bounds)
    }

    /// Both parts of it, to write. [`CudaSlice::split_at_mut`]
    ///
    /// # Panics
    /// Where `mid` is beyond its end.
    pub fn split_at_mut(&mut self, mid: usize) -> (CudaViewMut<'_, T>, CudaViewMut<'_, T>) {
        self.slice.split_at_mut(mid)
    }

    /// All of it as `len` elements of another type, to write; none where there is no room. [`CudaSlice::transmute_mut`]
    ///
    /// # Safety
    /// The bytes are valid for the other type, and what is written for this one.
    pub unsafe fn transmute_mut<S>(&mut self, len: usize) -> Option<CudaViewMut<'_, S>> {
        // SAFETY: the caller's promise.
        unsafe { self.slice.transmute_mut(len) }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: `ManuallyDrop::take` wants that nobody uses it again: the field is private and this is its end.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        let stream = Arc::clone(slice.stream());
        if wait_for_uses(slice, &stream) && self.note_this_thread(&stream) {
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        } else {
            tracing::error!("a buffer's users cannot be waited for: its memory is never used again");
        }
        // This one, and the allocator's.
        let is_last = Arc::strong_count(&stream) == 2;
        drop(stream);
        if is_last {
            self.allocator.retire_unused_streams();
        }
    }
}

/// Lets the slice's stream wait for all that uses the slice. False where that could not be had at all.
fn wait_for_uses<T>(slice: CudaSlice<T>, stream: &CudaStream) -> bool {
    let context = stream.context();
    // An error that cudarc keeps for later would be the answer to the waits, which are not queued then.
    let earlier = context.check_err();
    slice.leak();
    let waited = context.check_err();
    // Blocks, and only then: nothing is in use any more where it succeeds. An error of before may be that of a use that
    // has no event.
    let is_safe = (earlier.is_ok() && waited.is_ok()) || context.synchronize().is_ok();
    context.record_err(waited);
    context.record_err(earlier);
    is_safe
}

impl<T> Buffer<T> {
    /// The handle of per-thread streams means this thread's own, and that one has just waited for the uses. Where the
    /// memory is of another thread's, Granule has to wait for this one. False where it could not be told.
    fn note_this_thread(&self, stream: &Arc<CudaStream>) -> bool {
        if !is_per_thread(stream) {
            return true;
        }
        let noted = self.record_stream(stream);
        noted.is_ok() || stream.context().synchronize().is_ok()
    }
}

impl<T> DeviceSlice<T> for Buffer<T> {
    fn len(&self) -> usize {
        self.slice.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.slice.stream()
    }
}

impl<T> DevicePtr<T> for Buffer<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.slice.device_ptr(stream)
    }
}

impl<T> DevicePtrMut<T> for Buffer<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.slice.device_ptr_mut(stream)
    }
}

// SAFETY: `PushKernelArg` wants an argument that CUDA can take and that lives until the launch: it is cudarc's own for a
// slice, borrowed for as long as the buffer.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b Buffer<T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, buffer: &'b Buffer<T>) -> &mut Self {
        self.arg(&*buffer.slice)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut Buffer<T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, buffer: &'b mut Buffer<T>) -> &mut Self {
        self.arg(&mut *buffer.slice)
    }
}
