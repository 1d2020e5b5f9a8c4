//! An owning piece of device memory.

use crate::api::allocator::CachingAllocator;
use crate::backend::{BackendError, CopyKind, ErrorKind};
use crate::error::{AllocError, Result, log_end};
use crate::features::share::SharedBlock;
use crate::host::PinnedBuffer;
use crate::process::stream_identity::{named, shown};
use crate::sync::Arc;
use crate::types::{DevicePtr, Stream};
use bytemuck::Pod;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// Device memory for values of one type, freed in the order of its stream's work when this is dropped.
///
/// The type is plain data ([`Pod`]): numbers, arrays of numbers, structures that derive it. New memory has whatever its
/// last owner left there.
///
/// No other owner frees it: [`CachingAllocator::free`] refuses its address, and so does every other safe call that
/// would take the memory away.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    allocator: Arc<CachingAllocator>,
    ptr: DevicePtr,
    len: usize,
    /// Under the engine's own name.
    stream: Stream,
    values: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Memory of `len` values for work of `stream`. Blocks as [`CachingAllocator::malloc`] does.
    ///
    /// # Errors
    /// Those of [`CachingAllocator::malloc`].
    pub fn new(allocator: &Arc<CachingAllocator>, len: usize, stream: Stream) -> Result<Self> {
        let stream = allocator.own(stream)?;
        // More than there are bytes is refused like any request of that size.
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        loop {
            let ptr = allocator.malloc(bytes, stream)?;
            match allocator.set_owned(ptr, Some((bytes, stream))) {
                Ok(()) => {
                    let allocator = Arc::clone(allocator);
                    return Ok(Self { allocator, ptr, len, stream, values: PhantomData });
                }
                // Another thread freed it meanwhile by a stale address; another block may be there.
                Err(AllocError::InvalidPointer(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Its address; null for 0 bytes.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Its length in values, as requested.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its length in bytes, as requested.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // `malloc` refused what does not fit.
        self.len as u64 * size_of::<T>() as u64
    }

    /// True for a buffer of no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stream it belongs to.
    #[must_use]
    pub fn stream(&self) -> Stream {
        shown(self.stream)
    }

    /// Says that work of `stream` uses it, too: it is not reused before that work is done.
    ///
    /// # Errors
    /// Those of [`CachingAllocator::record_stream`].
    pub fn record_stream(&self, stream: Stream) -> Result<()> {
        self.allocator.record_stream(self.ptr, stream)
    }

    /// Copies `values` to its beginning, in the order of its stream's work, and waits. **Blocks.**
    ///
    /// # Errors
    /// `InvalidValue` where it holds fewer, and where its stream is another thread's default stream; the driver's
    /// error.
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        self.copy(bytemuck::cast_slice(values).to_vec(), CopyKind::HostToDevice).map(drop)
    }

    /// Copies its beginning to all of `values`, in the order of its stream's work, and waits. **Blocks.**
    ///
    /// # Errors
    /// Those of [`write`](Self::write), and `values` are unchanged.
    pub fn read(&self, values: &mut [T]) -> Result<()> {
        let read = self.copy(vec![0; size_of_val(values)], CopyKind::DeviceToHost)?;
        bytemuck::cast_slice_mut(values).copy_from_slice(&read);
        Ok(())
    }

    /// Sets every byte, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// `InvalidValue` where its stream is another thread's default stream; the driver's error.
    pub fn fill_bytes(&mut self, value: u8) -> Result<()> {
        let stream = self.holds(0)?;
        if self.bytes() > 0 {
            // SAFETY: rule 2: the whole of this live buffer, in the order of its own stream, in which it is freed too.
            let said =
                unsafe { self.allocator.backend().memset_async(self.ptr, value, self.bytes(), stream) };
            self.noticing(said)?;
        }
        Ok(())
    }

    /// Copies all of `from` to its beginning, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Safety
    /// Nobody writes `from` before the stream has passed the copy, nor while a graph that recorded it runs.
    pub unsafe fn write_async(&mut self, from: &PinnedBuffer) -> Result<()> {
        let stream = self.holds(from.len())?;
        from.record_stream(stream)?;
        // SAFETY: rule 2: this buffer is freed in its stream's order, pinned memory is kept for the stream; the rest is
        // the caller's promise.
        unsafe { self.queue(self.ptr, from.ptr(), from.len(), CopyKind::HostToDevice, stream) }
    }

    /// Copies its beginning to all of `to`, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Safety
    /// Nobody reads or writes `to` before the stream has passed the copy, nor while a graph that recorded it runs.
    pub unsafe fn read_async(&self, to: &mut PinnedBuffer) -> Result<()> {
        let stream = self.holds(to.len())?;
        to.record_stream(stream)?;
        // SAFETY: as above.
        unsafe { self.queue(to.ptr(), self.ptr, to.len(), CopyKind::DeviceToHost, stream) }
    }

    /// Copies all of `from` to its beginning, in the order of `stream`'s work, also from one device to another. Does
    /// not block: neither buffer's memory is reused before the copy is done.
    ///
    /// # Errors
    /// Those of [`Peers::copy_async`](crate::allocator::Peers::copy_async); `InvalidValue` where `from` is longer.
    ///
    /// # Safety
    /// Both buffers are one allocator's. `stream` may be another stream than a buffer's own. Then the copy comes after
    /// the work that the buffer's stream was given for that buffer. And later work of the buffer's stream comes after
    /// the copy.
    pub unsafe fn copy_from(&mut self, from: &Self, stream: Stream) -> Result<()> {
        self.fits(from.bytes())?;
        self.record_stream(stream)?;
        from.record_stream(stream)?;
        let place = |buffer: &Self| (buffer.stream.device, buffer.ptr);
        // SAFETY: rule 2: both are live, as long as this, and stay until the stream has passed the copy; the rest is
        // the caller's promise.
        unsafe { self.allocator.peers().copy_async(place(self), place(from), from.bytes(), stream) }
    }

    /// Lets other processes open it; see [`Sharing::share`](crate::allocator::Sharing::share).
    ///
    /// # Errors
    /// Those of [`Sharing::share`](crate::allocator::Sharing::share).
    pub fn share(&self) -> Result<SharedBlock> {
        self.allocator.sharing().share_held_by(self.ptr, true)
    }

    /// Gives the memory up without freeing it; free the address through the allocator.
    #[must_use]
    pub fn into_raw(self) -> DevicePtr {
        log_end(self.allocator.set_owned(self.ptr, None), "a buffer's memory stays with it");
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the allocator's reference is taken out once.
        drop(unsafe { std::ptr::read(&raw const this.allocator) });
        this.ptr
    }

    fn fits(&self, bytes: u64) -> Result<()> {
        if bytes <= self.bytes() {
            return Ok(());
        }
        let detail = format!("{bytes} bytes do not fit into a buffer of {}", self.bytes());
        let device = self.stream.device;
        Err(BackendError::new(ErrorKind::InvalidValue, 0, "DeviceBuffer", device, detail).into())
    }

    /// Driver's name of its stream, if a copy of so many bytes may be queued.
    fn holds(&self, bytes: u64) -> Result<Stream> {
        self.fits(bytes)?;
        self.allocator.device(self.stream.device)?;
        Ok(named(self.stream)?)
    }

    /// Passes the driver's answer on, and notices if it is unloading.
    fn noticing(&self, said: crate::backend::Result<()>) -> Result<()> {
        self.allocator.device(self.stream.device)?.noticing(said.map_err(AllocError::Backend))
    }

    /// # Safety
    /// That of `Backend::copy_async`.
    unsafe fn queue(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        if bytes > 0 {
            // SAFETY: the caller's promise.
            self.noticing(unsafe { self.allocator.backend().copy_async(to, from, bytes, kind, stream) })?;
        }
        Ok(())
    }

    /// Copies between the beginning and `host`. It owns the host's bytes: if the wait fails, they are leaked, because
    /// the driver may still use them.
    fn copy(&self, host: Vec<u8>, kind: CopyKind) -> Result<Vec<u8>> {
        let bytes = host.len() as u64;
        let stream = self.holds(bytes)?;
        if bytes == 0 {
            return Ok(host);
        }
        let mut host = ManuallyDrop::new(host);
        let at = DevicePtr(host.as_mut_ptr().expose_provenance() as u64);
        let (to, from) = if kind == CopyKind::HostToDevice { (self.ptr, at) } else { (at, self.ptr) };
        // SAFETY: rule 2: the buffer is live and at least as long; the host's bytes stay until the stream has
        // passed the copy: it is waited for, or they stay for good.
        let queued = unsafe { self.queue(to, from, bytes, kind, stream) };
        // Also after a failure: what it left behind may still run.
        self.noticing(self.allocator.backend().synchronize_stream(stream))?;
        let host = ManuallyDrop::into_inner(host);
        queued?;
        Ok(host)
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        let given_up = self.allocator.set_owned(self.ptr, None);
        let freed = given_up.and_then(|()| self.allocator.free(self.ptr));
        log_end(freed, "a buffer's memory could not be given back");
    }
}
