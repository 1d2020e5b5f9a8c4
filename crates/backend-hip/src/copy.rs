//! Copies and fills.

use crate::driver::pointer;
use crate::hip::Hip;
use crate::memory::positive;
use backend_api::types::{DevicePtr, Stream};
use backend_api::{CopyKind, Result};
use hip_sys::abi6::{
    hipMemcpyDeviceToDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice, hipMemcpyHostToHost, hipMemcpyKind,
};
use std::ptr;

const fn driver_kind(kind: CopyKind) -> hipMemcpyKind {
    match kind {
        CopyKind::HostToHost => hipMemcpyHostToHost,
        CopyKind::HostToDevice => hipMemcpyHostToDevice,
        CopyKind::DeviceToHost => hipMemcpyDeviceToHost,
        CopyKind::DeviceToDevice => hipMemcpyDeviceToDevice,
    }
}

impl Hip {
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
        let entered = self.enter(device, "hipMemcpy")?;
        positive(*entered, "hipMemcpy", bytes)?;
        self.not_during_capture(*entered, "hipMemcpy")?;
        // SAFETY: rule 2 for both ranges, and the caller says truly which side is what.
        unsafe {
            call!(entered.hipMemcpy(pointer(dst.0), pointer(src.0), bytes as usize, driver_kind(kind)))
        }?;
        match kind {
            CopyKind::HostToHost | CopyKind::DeviceToHost => Ok(()),
            // The runtime may return from these two before the bytes have arrived.
            // SAFETY: the null stream is the one of the current device, on which the copy ran.
            CopyKind::HostToDevice | CopyKind::DeviceToDevice => unsafe {
                call!(entered.hipStreamSynchronize(ptr::null_mut()))
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
        let entered = self.enter_handle(stream.backend, stream.device, "hipMemcpyAsync")?;
        positive(*entered, "hipMemcpyAsync", bytes)?;
        let (to, from, kind) = (pointer(dst.0), pointer(src.0), driver_kind(kind));
        // SAFETY: rule 2 for both ranges until the stream has passed it, and the caller says truly which side
        // is what.
        unsafe { call!(entered.hipMemcpyAsync(to, from, bytes as usize, kind, pointer(stream.raw))) }
    }

    pub(crate) unsafe fn memset_async(
        &self,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipMemsetAsync")?;
        positive(*entered, "hipMemsetAsync", bytes)?;
        let queue = pointer(stream.raw);
        // SAFETY: rule 2 for the range until the stream has passed it.
        unsafe { call!(entered.hipMemsetAsync(pointer(dst.0), i32::from(value), bytes as usize, queue)) }
    }
}
