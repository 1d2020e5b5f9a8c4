//! One address that writes to many devices. An object is given up as a physical handle is.

use crate::cuda::Cuda;
use crate::driver::given_back;
use crate::memory::positive;
use crate::physical::Memory;
use backend_api::types::{DeviceIndex, PhysicalHandle};
use backend_api::{Attribute, HandleType, Multicast, MulticastHandle, Result, VirtualMemory};
use cudarc::driver::sys::{CUmulticastGranularity_flags, CUmulticastObjectProp};
use std::ffi::c_uint;

/// An object of any size; creating rounds nothing, so the size is a multiple of the granularity.
fn properties(devices: u32, bytes: u64) -> CUmulticastObjectProp {
    CUmulticastObjectProp { numDevices: devices, size: bytes as usize, handleTypes: 0, flags: 0 }
}

impl Cuda {
    pub(crate) fn probe_multicast(&self) -> Result<()> {
        needs!(self: cuMulticastGetGranularity, cuMulticastCreate, cuMulticastAddDevice, cuMulticastBindMem,
            cuMulticastUnbind, cuMemRelease)?;
        self.every_device_has(Attribute::Multicast)?;
        let _relaxed = self.relaxed()?;
        let devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        let bytes = self.multicast_granularity(devices, 1)?;
        let object = self.create(devices, bytes)?;
        // SAFETY: the object is this probe's and is not used again.
        unsafe { self.release_physical(PhysicalHandle { raw: object.raw, backend: object.backend }) }
    }
}

impl Multicast for Cuda {
    fn multicast_granularity(&self, devices: u32, bytes: u64) -> Result<u64> {
        let entered = self.enter(self.device_of_thread()?, "cuMulticastGetGranularity")?;
        positive(*entered, "cuMulticastGetGranularity", bytes)?;
        let wanted = properties(devices, bytes);
        let which = CUmulticastGranularity_flags::CU_MULTICAST_GRANULARITY_MINIMUM as c_uint;
        let mut granularity = 0;
        // SAFETY: the function writes one integer and reads the properties.
        unsafe { call!(entered.cuMulticastGetGranularity(&raw mut granularity, &raw const wanted, which)) }?;
        Ok(granularity as u64)
    }

    fn create(&self, devices: u32, bytes: u64) -> Result<MulticastHandle> {
        let entered = self.enter(self.device_of_thread()?, "cuMulticastCreate")?;
        positive(*entered, "cuMulticastCreate", bytes)?;
        let wanted = properties(devices, bytes);
        let mut raw = 0;
        // SAFETY: the function writes one handle and reads the properties.
        unsafe { call!(entered.cuMulticastCreate(&raw mut raw, &raw const wanted)) }?;
        let device = entered.device();
        self.physical.add(raw, Memory { device, bytes: Some(bytes), handle_type: HandleType::None });
        Ok(MulticastHandle { raw, backend: self.id })
    }

    fn add_device(&self, object: MulticastHandle, device: DeviceIndex) -> Result<()> {
        const CALL: &str = "cuMulticastAddDevice";
        let entered = self.enter_handle(object.backend, device, CALL)?;
        let number = self.device(device, CALL)?.number;
        // SAFETY: rule 1.
        unsafe { call!(entered.cuMulticastAddDevice(object.raw, number)) }
    }

    unsafe fn bind(
        &self,
        object: MulticastHandle,
        offset: u64,
        memory: PhysicalHandle,
        bytes: u64,
    ) -> Result<()> {
        const CALL: &str = "cuMulticastBindMem";
        let device = self.memory_of(memory, CALL)?.device;
        let entered = self.enter_handle(object.backend, device, CALL)?;
        positive(*entered, CALL, bytes)?;
        let (at, length) = (offset as usize, bytes as usize);
        // SAFETY: rule 1 for both; the caller keeps the memory while it is bound.
        unsafe { call!(entered.cuMulticastBindMem(object.raw, at, memory.raw, 0, length, 0)) }
    }

    unsafe fn unbind(
        &self,
        object: MulticastHandle,
        device: DeviceIndex,
        offset: u64,
        bytes: u64,
    ) -> Result<()> {
        let unbind = || {
            const CALL: &str = "cuMulticastUnbind";
            let entered = self.enter_handle(object.backend, device, CALL)?;
            let number = self.device(device, CALL)?.number;
            // SAFETY: rule 3, which the caller keeps.
            unsafe { call!(entered.cuMulticastUnbind(object.raw, number, offset as usize, bytes as usize)) }
        };
        given_back(unbind())
    }
}
