//! Memory that migrates between host and devices.

use crate::context::ordinal;
use crate::driver::{number, pointer};
use crate::hip::Hip;
use crate::memory::{aligned, log_undo, positive};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Attribute, ManagedMemory, Result};
use hip_sys::abi6::hipMemAttachGlobal;
use std::ffi::c_int;
use std::ptr;

/// The number that stands for the host where a device is asked for.
const HOST: c_int = -1;

impl Hip {
    pub(crate) fn probe_managed_memory(&self) -> Result<()> {
        needs!(self: hipMallocManaged, hipMemPrefetchAsync)?;
        self.every_device_has(Attribute::ManagedMemory)?;
        let _relaxed = self.relaxed()?;
        let device = self.device_of_thread()?;
        let memory = self.malloc_managed(device, 1)?;
        // SAFETY: the memory is this probe's, and nothing uses it.
        unsafe { self.free(device, memory) }
    }
}

impl ManagedMemory for Hip {
    fn malloc_managed(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let entered = self.enter(device, "hipMallocManaged")?;
        positive(*entered, "hipMallocManaged", bytes)?;
        let mut ptr = ptr::null_mut();
        // SAFETY: the function writes one address.
        unsafe { call!(entered.hipMallocManaged(&raw mut ptr, bytes as usize, hipMemAttachGlobal)) }?;
        aligned(*entered, number(ptr), "hipMallocManaged").inspect_err(|_| {
            // SAFETY: nobody knows the address yet.
            log_undo(unsafe { call!(entered.hipFree(ptr)) });
        })
    }

    unsafe fn prefetch_async(
        &self,
        ptr: DevicePtr,
        bytes: u64,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipMemPrefetchAsync")?;
        positive(*entered, "hipMemPrefetchAsync", bytes)?;
        let target = match to {
            Some(device) => {
                self.device(device, "hipMemPrefetchAsync")?;
                ordinal(device)
            }
            None => HOST,
        };
        // SAFETY: rule 2 for the range.
        unsafe {
            call!(entered.hipMemPrefetchAsync(pointer(ptr.0), bytes as usize, target, pointer(stream.raw)))
        }
    }
}
