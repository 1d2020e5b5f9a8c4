//! Memory that migrates between host and devices.

use crate::cuda::Cuda;
use crate::driver::pointer;
use crate::memory::{aligned, log_undo, positive};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Attribute, ManagedMemory, Result};
use cudarc::driver::sys::{CUdevice, CUmemAttach_flags};
use std::ffi::c_uint;

/// The number that stands for the host where a device is asked for.
const HOST: CUdevice = -1;

impl Cuda {
    pub(crate) fn probe_managed_memory(&self) -> Result<()> {
        needs!(self: cuMemAllocManaged, cuMemPrefetchAsync)?;
        self.every_device_has(Attribute::ManagedMemory)?;
        let _relaxed = self.relaxed()?;
        let device = self.device_of_thread()?;
        let memory = self.malloc_managed(device, 1)?;
        // SAFETY: the memory is this probe's, and nothing uses it.
        unsafe { self.free(device, memory) }
    }
}

impl ManagedMemory for Cuda {
    fn malloc_managed(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let entered = self.enter(device, "cuMemAllocManaged")?;
        positive(*entered, "cuMemAllocManaged", bytes)?;
        let flags = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as c_uint;
        let mut ptr = 0;
        // SAFETY: the function writes one address.
        unsafe { call!(entered.cuMemAllocManaged(&raw mut ptr, bytes as usize, flags)) }?;
        aligned(*entered, ptr, "cuMemAllocManaged").inspect_err(|_| {
            // SAFETY: nobody knows the address yet.
            log_undo(unsafe { call!(entered.cuMemFree_v2(ptr)) });
        })
    }

    unsafe fn prefetch_async(
        &self,
        ptr: DevicePtr,
        bytes: u64,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuMemPrefetchAsync")?;
        positive(*entered, "cuMemPrefetchAsync", bytes)?;
        let target = match to {
            Some(device) => self.device(device, "cuMemPrefetchAsync")?.number,
            None => HOST,
        };
        // SAFETY: rule 2 for the range.
        unsafe { call!(entered.cuMemPrefetchAsync(ptr.0, bytes as usize, target, pointer(stream.raw))) }
    }
}
