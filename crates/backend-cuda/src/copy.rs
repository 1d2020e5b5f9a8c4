//! Copies and fills.

use crate::cuda::Cuda;
use crate::driver::pointer;
use crate::memory::positive;
use backend_api::types::{DevicePtr, Stream};
use backend_api::{CopyKind, Result};
use std::ptr;

impl Cuda {
    pub(crate) unsafe fn copy(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        let device = match kind {
            CopyKind::HostToHost => self.device_of_thread()?,
            CopyKind::HostToDevice | CopyKind::DeviceToDevice => self.device_at(dst)?,
            CopyKind::DeviceToHost => self.device_at(src)?,
        };
        let entered = self.enter(device, "cuMemcpy")?;
        positive(*entered, "cuMemcpy", bytes)?;
        let length = bytes as usize;
        match kind {
            // SAFETY: rule 2 for both ranges, and the caller says truly which side is what.
            CopyKind::HostToHost => unsafe { call!(entered.cuMemcpy(dst.0, src.0, length)) },
            // SAFETY: as above.
            CopyKind::HostToDevice => unsafe {
                call!(entered.cuMemcpyHtoD_v2(dst.0, pointer(src.0), length))
            },
            // SAFETY: as above.
            CopyKind::DeviceToHost => unsafe {
                call!(entered.cuMemcpyDtoH_v2(pointer(dst.0), src.0, length))
            },
            // SAFETY: as above.
            CopyKind::DeviceToDevice => unsafe { call!(entered.cuMemcpyDtoD_v2(dst.0, src.0, length)) },
        }?;
        match kind {
            CopyKind::HostToHost | CopyKind::DeviceToHost => Ok(()),
            // The driver may return from these two before the bytes have arrived.
            // SAFETY: the null stream is the one of the current context, on which the copy ran.
            CopyKind::HostToDevice | CopyKind::DeviceToDevice => unsafe {
                call!(entered.cuStreamSynchronize(ptr::null_mut()))
            },
        }
    }

    pub(crate) unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuMemcpyAsync")?;
        positive(*entered, "cuMemcpyAsync", bytes)?;
        let (length, queue) = (bytes as usize, pointer(stream.raw));
        match kind {
            // SAFETY: rule 2 for both ranges until the stream has passed it, and the caller says truly which
            // side is what.
            CopyKind::HostToHost => unsafe { call!(entered.cuMemcpyAsync(dst.0, src.0, length, queue)) },
            // SAFETY: as above.
            CopyKind::HostToDevice => unsafe {
                call!(entered.cuMemcpyHtoDAsync_v2(dst.0, pointer(src.0), length, queue))
            },
            // SAFETY: as above.
            CopyKind::DeviceToHost => unsafe {
                call!(entered.cuMemcpyDtoHAsync_v2(pointer(dst.0), src.0, length, queue))
            },
            // SAFETY: as above.
            CopyKind::DeviceToDevice => unsafe {
                call!(entered.cuMemcpyDtoDAsync_v2(dst.0, src.0, length, queue))
            },
        }
    }

    pub(crate) unsafe fn memset_async(
        &self,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuMemsetD8Async")?;
        positive(*entered, "cuMemsetD8Async", bytes)?;
        // SAFETY: rule 2 for the range until the stream has passed it.
        unsafe { call!(entered.cuMemsetD8Async(dst.0, value, bytes as usize, pointer(stream.raw))) }
    }
}
