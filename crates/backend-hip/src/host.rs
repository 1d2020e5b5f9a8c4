//! Page-locked host memory: made so, or existing memory registered.

use crate::driver::{given_back, number, pointer};
use crate::hip::Hip;
use crate::memory::positive;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{HostFlags, HostRegistration, PinnedHost, PointerKind, Result};
use std::ffi::c_uint;
use std::ptr;

// The runtime's bits are those of `HostFlags`: 1 portable, 2 mapped, and for new memory 4 write-combined.

impl PinnedHost for Hip {
    fn host_malloc(&self, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let entered = self.enter(self.device_of_thread()?, "hipHostMalloc")?;
        positive(*entered, "hipHostMalloc", bytes)?;
        let mut memory = ptr::null_mut();
        // SAFETY: the function writes one address.
        unsafe { call!(entered.hipHostMalloc(&raw mut memory, bytes as usize, flags.bits())) }?;
        Ok(DevicePtr(number(memory)))
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = || {
            let entered = self.enter(self.device_of_thread()?, "hipHostFree")?;
            self.live_base(*entered, "hipHostFree", ptr, &[PointerKind::Host])?;
            // SAFETY: rule 3, which the caller keeps.
            unsafe { call!(entered.hipHostFree(pointer(ptr.0))) }
        };
        given_back(free())
    }
}

impl Hip {
    pub(crate) fn probe_host_registration(&self) -> Result<()> {
        needs!(self: hipHostRegister, hipHostUnregister, hipHostGetDevicePointer)
    }
}

impl HostRegistration for Hip {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: HostFlags) -> Result<()> {
        let entered = self.enter(self.device_of_thread()?, "hipHostRegister")?;
        positive(*entered, "hipHostRegister", bytes)?;
        if ptr.is_null() {
            return Err(entered.invalid("hipHostRegister", "null is no memory"));
        }
        if flags.contains(HostFlags::WRITE_COMBINED) {
            let detail = "memory that exists cannot become write-combined";
            return Err(entered.invalid("hipHostRegister", detail));
        }
        let bits: c_uint = flags.bits();
        // SAFETY: the caller promises that the range is host memory until it is unregistered.
        unsafe { call!(entered.hipHostRegister(pointer(ptr.0), bytes as usize, bits)) }
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        let unregister = || {
            let entered = self.enter(self.device_of_thread()?, "hipHostUnregister")?;
            if ptr.is_null() {
                return Err(entered.invalid("hipHostUnregister", "null was never registered"));
            }
            // SAFETY: rule 3, which the caller keeps; the runtime refuses what is not registered.
            unsafe { call!(entered.hipHostUnregister(pointer(ptr.0))) }
        };
        given_back(unregister())
    }

    fn device_pointer(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<DevicePtr> {
        let entered = self.enter(device, "hipHostGetDevicePointer")?;
        let mut found = ptr::null_mut();
        // SAFETY: the function writes one address, and refuses memory that is not page-locked.
        unsafe { call!(entered.hipHostGetDevicePointer(&raw mut found, pointer(ptr.0), 0)) }?;
        Ok(DevicePtr(number(found)))
    }
}
