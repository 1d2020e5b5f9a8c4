//! Devices: attributes, properties, waiting.

use crate::library::{HipDriver, ordinal};
use backend_api::{Attribute, Result};
use backend_support::{AttributeSource as Answer, DeviceCalls, Site, call, text};
use granule_hip_sys::Version;
use granule_hip_sys::abi7 as abi;
use std::ffi::{c_char, c_int, c_uint};

fn answer(attribute: Attribute, version: Version) -> Answer {
    // Numbers above 91 are first seen in these declarations.
    let has_fabric = (version.major, version.minor) >= (7, 14);
    match attribute {
        Attribute::ComputeCapabilityMajor => Answer::Asked(abi::hipDeviceAttributeComputeCapabilityMajor),
        Attribute::ComputeCapabilityMinor => Answer::Asked(abi::hipDeviceAttributeComputeCapabilityMinor),
        Attribute::MultiprocessorCount => Answer::Asked(abi::hipDeviceAttributeMultiprocessorCount),
        Attribute::WarpSize => Answer::Asked(abi::hipDeviceAttributeWarpSize),
        // On Linux every physical handle is a file descriptor below, so one answer serves both.
        Attribute::VirtualMemoryManagement | Attribute::PosixFileDescriptorHandles => {
            Answer::Asked(abi::hipDeviceAttributeVirtualMemoryManagementSupported)
        }
        Attribute::FabricHandles if has_fabric => {
            Answer::Asked(abi::hipDeviceAttributeHandleTypeFabricSupported)
        }
        Attribute::FabricHandles => Answer::Known(0),
        Attribute::GpuDirectRdmaWithVirtualMemory if has_fabric => {
            Answer::Asked(abi::hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported)
        }
        Attribute::Integrated => Answer::Asked(abi::hipDeviceAttributeIntegrated),
        _ => Answer::None,
    }
}

// Scalar questions only: the plain name of the property struct's function means 5's layout in every version.
impl DeviceCalls for HipDriver {
    fn attribute_source(&self, attribute: Attribute) -> Answer {
        answer(attribute, self.version)
    }

    fn api(&self) -> String {
        format!("HIP {}", self.version)
    }

    fn ask_attribute(site: Site<'_, Self>, number: c_uint) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: the function writes one integer; an unknown number is answered with an error.
        unsafe { call!(site.hipDeviceGetAttribute(&raw mut value, number, ordinal(site.device()))) }?;
        Ok(value)
    }

    fn device_name(site: Site<'_, Self>) -> Result<String> {
        let number = site.driver().number(site.device())?;
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the function writes no more than the length it is given.
        unsafe { call!(site.hipDeviceGetName(name.as_mut_ptr(), 256, number)) }?;
        Ok(text(&name))
    }

    fn total_memory(site: Site<'_, Self>) -> Result<u64> {
        let number = site.driver().number(site.device())?;
        let mut total = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.hipDeviceTotalMem(&raw mut total, number)) }?;
        Ok(total as u64)
    }

    fn uuid(site: Site<'_, Self>) -> Result<Option<[u8; 16]>> {
        if site.driver().functions.hipDeviceGetUuid.is_none() {
            return Ok(None);
        }
        let number = site.driver().number(site.device())?;
        let mut uuid = abi::hipUUID { bytes: [0; 16] };
        // SAFETY: the function writes 16 bytes.
        unsafe { call!(site.hipDeviceGetUuid(&raw mut uuid, number)) }?;
        Ok(Some(uuid.bytes.map(|byte| byte as u8)))
    }

    fn pci_bus_id(site: Site<'_, Self>) -> Result<Option<String>> {
        if site.driver().functions.hipDeviceGetPCIBusId.is_none() {
            return Ok(None);
        }
        let mut id: [c_char; 32] = [0; 32];
        // SAFETY: the function writes no more than the length it is given.
        unsafe { call!(site.hipDeviceGetPCIBusId(id.as_mut_ptr(), 32, ordinal(site.device()))) }?;
        Ok(Some(text(&id)))
    }

    fn has_primary_context(site: Site<'_, Self>) -> Result<bool> {
        let number = site.driver().number(site.device())?;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(site.hipDevicePrimaryCtxGetState(number, &raw mut flags, &raw mut active)) }?;
        Ok(active != 0)
    }

    fn synchronize(site: Site<'_, Self>) -> Result<()> {
        // SAFETY: waits for the current device.
        unsafe { call!(site.hipDeviceSynchronize()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIX: Version = Version { major: 6, minor: 4, patch: 43484 };
    const NEWEST: Version = Version { major: 7, minor: 14, patch: 60850 };

    #[test]
    fn attributes_have_the_headers_numbers() {
        let numbers = [
            (Attribute::ComputeCapabilityMajor, 23),
            (Attribute::ComputeCapabilityMinor, 61),
            (Attribute::MultiprocessorCount, 63),
            (Attribute::WarpSize, 87),
            (Attribute::Integrated, 16),
        ];
        for version in [SIX, NEWEST] {
            for (attribute, number) in numbers {
                assert_eq!(answer(attribute, version), Answer::Asked(number), "{attribute:?}");
            }
        }
    }

    #[test]
    fn numbers_that_a_version_lacks_are_not_asked() {
        for (attribute, six, newest) in [
            (Attribute::VirtualMemoryManagement, Answer::Asked(89), Answer::Asked(89)),
            (Attribute::PosixFileDescriptorHandles, Answer::Asked(89), Answer::Asked(89)),
            (Attribute::FabricHandles, Answer::Known(0), Answer::Asked(95)),
        ] {
            assert_eq!(answer(attribute, SIX), six, "{attribute:?}");
            assert_eq!(answer(attribute, NEWEST), newest, "{attribute:?}");
        }
        assert_eq!(answer(Attribute::GpuDirectRdmaWithVirtualMemory, SIX), Answer::None);
        assert_eq!(answer(Attribute::GpuDirectRdmaWithVirtualMemory, NEWEST), Answer::Asked(94));
    }
}
