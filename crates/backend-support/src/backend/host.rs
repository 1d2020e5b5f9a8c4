//! Page-locked host memory: made so, or existing memory registered.

use super::{DriverBackend, memory};
use crate::calls::Calls;
use crate::errors::given_back;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{HostFlags, HostRegistration, PinnedHost, PointerKind, Result};

impl<D: Calls> PinnedHost for DriverBackend<D> {
    fn host_malloc(&self, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let entered = self.context.enter_current(D::NAMES.host_malloc)?;
        entered.positive(D::NAMES.host_malloc, bytes)?;
        D::host_malloc(*entered, bytes as usize, flags).map(DevicePtr)
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = || {
            let entered = self.context.enter_current(D::NAMES.host_free)?;
            memory::live_base(self, *entered, D::NAMES.host_free, ptr, &[PointerKind::Host])?;
            // SAFETY: rule 3, which the caller keeps.
            unsafe { D::host_free(*entered, ptr.0) }
        };
        given_back(free())
    }
}

impl<D: Calls> HostRegistration for DriverBackend<D> {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: HostFlags) -> Result<()> {
        let call = D::NAMES.register;
        let entered = self.context.enter_current(call)?;
        entered.positive(call, bytes)?;
        if ptr.is_null() {
            return Err(entered.invalid(call, "null is no memory"));
        }
        if flags.contains(HostFlags::WRITE_COMBINED) {
            return Err(entered.invalid(call, "memory that exists cannot become write-combined"));
        }
        // SAFETY: the caller promises that the range is host memory until it is unregistered.
        unsafe { D::register(*entered, ptr.0, bytes as usize, flags) }
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        let unregister = || {
            let entered = self.context.enter_current(D::NAMES.unregister)?;
            if ptr.is_null() {
                return Err(entered.invalid(D::NAMES.unregister, "null was never registered"));
            }
            // SAFETY: rule 3, which the caller keeps; the driver refuses what is not registered.
            unsafe { D::unregister(*entered, ptr.0) }
        };
        given_back(unregister())
    }

    fn device_pointer(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<DevicePtr> {
        let entered = self.context.enter(device, D::NAMES.device_pointer)?;
        D::device_pointer(*entered, ptr.0).map(DevicePtr)
    }
}
