//! What a program asks Granule's memory for.

use crate::allocator::Allocator;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, HostSlice, ValidAsZeroBits};
use std::sync::Arc;

/// The calls of [`CudaStream`] that make a slice, with Granule's memory. All are in the order of the stream's work and
/// block only where the cache has no fit. A length of 0 takes no memory.
impl Allocator {
    /// `len` elements of whatever was there before. [`CudaStream::alloc`]
    ///
    /// # Errors
    /// Those of [`alloc_zeros`](Self::alloc_zeros).
    ///
    /// # Safety
    /// Nothing reads an element before it was written, unless any bits are a `T`.
    pub unsafe fn alloc<T: DeviceRepr>(&self, stream: &Arc<CudaStream>, len: usize) -> Result<Buffer<T>> {
        let mut buffer = self.unwritten(stream, len)?;
        // As if it had been written here: the memory's last user may still have work on this stream, which the first use
        // on another stream has to come after.
        drop(buffer.device_ptr_mut(stream));
        Ok(buffer)
    }

    /// `len` elements of zero bits. [`CudaStream::alloc_zeros`]
    ///
    /// # Errors
    /// [`Error::Granule`] with [`OutOfMemory`](granule::AllocError::OutOfMemory) and its report; [`Error::OtherContext`];
    /// [`Error::TooLong`]; [`Error::Driver`] for events, copies and fills, and for errors that cudarc kept
    /// ([`CudaContext::check_err`](cudarc::driver::CudaContext::check_err)).
    pub fn alloc_zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        stream: &Arc<CudaStream>,
        len: usize,
    ) -> Result<Buffer<T>> {
        let mut buffer = self.unwritten(stream, len)?;
        if buffer.num_bytes() > 0 {
            stream.memset_zeros(&mut buffer)?;
        }
        Ok(buffer)
    }

    /// A copy of host memory. [`CudaStream::clone_htod`]
    ///
    /// # Errors
    /// Those of [`alloc_zeros`](Self::alloc_zeros).
    pub fn clone_htod<T: DeviceRepr, Src: HostSlice<T> + ?Sized>(
        &self,
        stream: &Arc<CudaStream>,
        src: &Src,
    ) -> Result<Buffer<T>> {
        let mut buffer = self.unwritten(stream, src.len())?;
        if buffer.num_bytes() > 0 {
            stream.memcpy_htod(src, &mut buffer)?;
        }
        Ok(buffer)
    }

    /// A copy of device memory: of a buffer, a view, or a slice of cudarc's. [`CudaStream::clone_dtod`]
    ///
    /// # Errors
    /// Those of [`alloc_zeros`](Self::alloc_zeros).
    pub fn clone_dtod<T: DeviceRepr, Src: DevicePtr<T>>(
        &self,
        stream: &Arc<CudaStream>,
        src: &Src,
    ) -> Result<Buffer<T>> {
        let mut buffer = self.unwritten(stream, src.len())?;
        if buffer.num_bytes() > 0 {
            stream.memcpy_dtod(src, &mut buffer)?;
            let from = src.stream();
            if !Arc::ptr_eq(from.context(), stream.context()) {
                // cudarc notes such a read on the source's stream, and makes it on this one.
                from.join(stream).or_else(|_| stream.synchronize())?;
            }
        }
        Ok(buffer)
    }

    /// A buffer whose first use has to be on `stream`.
    fn unwritten<T: DeviceRepr>(&self, stream: &Arc<CudaStream>, len: usize) -> Result<Buffer<T>> {
        // What cudarc kept is told here, as by its own calls: an event that it refuses for that would be a panic.
        stream.context().check_err()?;
        let size = size_of::<T>();
        let bytes = len.checked_mul(size).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(Error::TooLong { len, size })?;
        let memory = self.granule().allocate(bytes, &self.stream(stream)?)?;
        Buffer::over(memory, stream, len, self.clone())
    }
}

impl<T: DeviceRepr> Buffer<T> {
    /// A copy of it, of the same allocator and on the same stream. [`CudaSlice::try_clone`](cudarc::driver::CudaSlice::try_clone)
    ///
    /// # Errors
    /// Those of [`Allocator::clone_dtod`].
    pub fn try_clone(&self) -> Result<Self> {
        self.allocator().clone_dtod(self.stream(), self)
    }
}

/// As [`Buffer::try_clone`]; panics where that fails, as the clone of a [`CudaSlice`](cudarc::driver::CudaSlice) does.
impl<T: DeviceRepr> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        self.try_clone().unwrap_or_else(|error| panic!("a buffer could not be cloned: {error}"))
    }
}
