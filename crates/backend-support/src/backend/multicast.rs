//! One address that writes to many devices. An object is given up as a physical handle is.

use super::{DriverBackend, devices, graphs, virtual_memory};
use crate::calls::Calls;
use crate::driver::Family;
use crate::errors::given_back;
use crate::physical::Memory;
use backend_api::types::{DeviceIndex, PhysicalHandle};
use backend_api::{Attribute, HandleType, Multicast, MulticastHandle, Result, VirtualMemory};

pub(super) fn probe<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::Multicast)?;
    devices::every_device_has(backend, Attribute::Multicast)?;
    let _relaxed = graphs::relaxed(backend)?;
    let devices = u32::from(backend.context.driver().device_count());
    let bytes = backend.multicast_granularity(devices, 1)?;
    let object = backend.create(devices, bytes)?;
    // SAFETY: the object is this probe's and is not used again.
    unsafe { backend.release_physical(PhysicalHandle { raw: object.raw, backend: object.backend }) }
}

impl<D: Calls> Multicast for DriverBackend<D> {
    fn multicast_granularity(&self, devices: u32, bytes: u64) -> Result<u64> {
        let call = D::NAMES.multicast_granularity;
        let entered = self.context.enter_current(call)?;
        entered.positive(call, bytes)?;
        D::multicast_granularity(*entered, devices, bytes as usize)
    }

    fn create(&self, devices: u32, bytes: u64) -> Result<MulticastHandle> {
        let call = D::NAMES.create_multicast;
        let entered = self.context.enter_current(call)?;
        entered.positive(call, bytes)?;
        let raw = D::create_multicast(*entered, devices, bytes as usize)?;
        let (device, handle_type, keeps) = (entered.device(), HandleType::None, D::Keeps::default());
        self.physical.add(raw, Memory { device, bytes: Some(bytes), handle_type, keeps });
        Ok(MulticastHandle { raw, backend: self.context.id() })
    }

    fn add_device(&self, object: MulticastHandle, device: DeviceIndex) -> Result<()> {
        let call = D::NAMES.add_multicast_device;
        D::add_multicast_device(*self.context.enter_handle(object.backend, device, call)?, object.raw)
    }

    unsafe fn bind(
        &self,
        object: MulticastHandle,
        offset: u64,
        memory: PhysicalHandle,
        bytes: u64,
    ) -> Result<()> {
        let call = D::NAMES.bind_multicast;
        let device = virtual_memory::memory_of(self, memory, call)?.device;
        let entered = self.context.enter_handle(object.backend, device, call)?;
        entered.positive(call, bytes)?;
        // SAFETY: rule 1 for both; the caller keeps the memory while it is bound.
        unsafe { D::bind_multicast(*entered, object.raw, offset as usize, memory.raw, bytes as usize) }
    }

    unsafe fn unbind(
        &self,
        object: MulticastHandle,
        device: DeviceIndex,
        offset: u64,
        bytes: u64,
    ) -> Result<()> {
        let unbind = || {
            let call = D::NAMES.unbind_multicast;
            let entered = self.context.enter_handle(object.backend, device, call)?;
            // SAFETY: rule 3, which the caller keeps.
            unsafe { D::unbind_multicast(*entered, object.raw, offset as usize, bytes as usize) }
        };
        given_back(unbind())
    }
}
