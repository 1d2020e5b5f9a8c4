//! Page-locked host memory: made so, or existing memory registered.

use crate::cuda::Cuda;
use crate::driver::{given_back, number, pointer};
use crate::memory::positive;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{HostFlags, HostRegistration, PinnedHost, Result};
use std::ffi::c_uint;
use std::ptr;

// The driver's bits for both ways are those of `HostFlags`: 1 portable, 2 mapped, 4 write-combined.

impl PinnedHost for Cuda {
    fn host_malloc(&self, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let entered = self.enter(self.device_of_thread()?, "cuMemHostAlloc")?;
        positive(*entered, "cuMemHostAlloc", bytes)?;
        let mut memory = ptr::null_mut();
        // SAFETY: the function writes one address.
        unsafe { call!(entered.cuMemHostAlloc(&raw mut memory, bytes as usize, flags.bits())) }?;
        Ok(DevicePtr(number(memory)))
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = || {
            let entered = self.enter(self.device_of_thread()?, "cuMemFreeHost")?;
            // SAFETY: rule 3, which the caller keeps; the driver refuses what it did not hand out.
            unsafe { call!(entered.cuMemFreeHost(pointer(ptr.0))) }
        };
        given_back(free())
    }
}

impl Cuda {
    pub(crate) fn probe_host_registration(&self) -> Result<()> {
        needs!(self: cuMemHostRegister_v2, cuMemHostUnregister, cuMemHostGetDevicePointer_v2)
    }
}

impl HostRegistration for Cuda {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: HostFlags) -> Result<()> {
        let entered = self.enter(self.device_of_thread()?, "cuMemHostRegister")?;
        positive(*entered, "cuMemHostRegister", bytes)?;
        if ptr.is_null() {
            return Err(entered.invalid("cuMemHostRegister", "null is no memory"));
        }
        if flags.contains(HostFlags::WRITE_COMBINED) {
            let detail = "memory that exists cannot become write-combined";
            return Err(entered.invalid("cuMemHostRegister", detail));
        }
        let bits: c_uint = flags.bits();
        // SAFETY: the caller promises that the range is host memory until it is unregistered.
        unsafe { call!(entered.cuMemHostRegister_v2(pointer(ptr.0), bytes as usize, bits)) }
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        let unregister = || {
            let entered = self.enter(self.device_of_thread()?, "cuMemHostUnregister")?;
            if ptr.is_null() {
                return Err(entered.invalid("cuMemHostUnregister", "null was never registered"));
            }
            // SAFETY: rule 3, which the caller keeps; the driver refuses what is not registered.
            unsafe { call!(entered.cuMemHostUnregister(pointer(ptr.0))) }
        };
        given_back(unregister())
    }

    fn device_pointer(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<DevicePtr> {
        let entered = self.enter(device, "cuMemHostGetDevicePointer")?;
        let mut found = 0;
        // SAFETY: the function writes one address, and refuses memory that is not page-locked.
        unsafe { call!(entered.cuMemHostGetDevicePointer_v2(&raw mut found, pointer(ptr.0), 0)) }?;
        Ok(DevicePtr(found))
    }
}
