//! Devices: attributes, properties, waiting.

use crate::context::ordinal;
use crate::driver::Site;
use crate::error;
use crate::hip::Hip;
use backend_api::types::DeviceIndex;
use backend_api::{Attribute, DeviceProperties, ErrorKind, Result};
use hip_sys::abi7 as abi;
use hip_sys::{Generation, Version};
use std::ffi::{CStr, c_char, c_int, c_uint};

const CALL: &str = "hipDeviceGetAttribute";

/// Where an attribute's answer is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The runtime is asked under this number.
    Asked(c_uint),
    /// It is the same for all devices of this runtime.
    Known(i64),
    /// Nobody says.
    None,
}

fn answer(attribute: Attribute, version: Version) -> Answer {
    let has_virtual_memory = Generation::of(version) > Some(Generation::Five);
    // Numbers above 91 are first seen in these declarations.
    let has_fabric = (version.major, version.minor) >= (7, 14);
    match attribute {
        Attribute::ComputeCapabilityMajor => Answer::Asked(abi::hipDeviceAttributeComputeCapabilityMajor),
        Attribute::ComputeCapabilityMinor => Answer::Asked(abi::hipDeviceAttributeComputeCapabilityMinor),
        Attribute::MultiprocessorCount => Answer::Asked(abi::hipDeviceAttributeMultiprocessorCount),
        Attribute::WarpSize => Answer::Asked(abi::hipDeviceAttributeWarpSize),
        // On Linux every physical handle is a file descriptor below, so one answer serves both.
        Attribute::VirtualMemoryManagement | Attribute::PosixFileDescriptorHandles if has_virtual_memory => {
            Answer::Asked(abi::hipDeviceAttributeVirtualMemoryManagementSupported)
        }
        Attribute::VirtualMemoryManagement | Attribute::PosixFileDescriptorHandles => Answer::Known(0),
        Attribute::FabricHandles if has_fabric => {
            Answer::Asked(abi::hipDeviceAttributeHandleTypeFabricSupported)
        }
        Attribute::FabricHandles => Answer::Known(0),
        Attribute::GpuDirectRdmaWithVirtualMemory if has_fabric => {
            Answer::Asked(abi::hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported)
        }
        Attribute::MemoryPools => Answer::Asked(abi::hipDeviceAttributeMemoryPoolsSupported),
        Attribute::ManagedMemory => Answer::Asked(abi::hipDeviceAttributeManagedMemory),
        Attribute::Multicast => Answer::Known(0),
        Attribute::StreamMemoryOperations => Answer::Asked(abi::hipDeviceAttributeCanUseStreamWaitValue),
        Attribute::Integrated => Answer::Asked(abi::hipDeviceAttributeIntegrated),
        _ => Answer::None,
    }
}

impl Hip {
    pub(crate) fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        let site = self.site(device, CALL)?;
        let number = match answer(attribute, self.driver.version) {
            Answer::Asked(number) => number,
            Answer::Known(value) => return Ok(value),
            Answer::None => {
                let detail = format!("{attribute:?} has no number in HIP {}", self.driver.version);
                return Err(site.refuse(ErrorKind::NotSupported, CALL, detail));
            }
        };
        let mut value = 0;
        // SAFETY: the function writes one integer; an unknown number is answered with an error.
        let asked = unsafe { call!(site.hipDeviceGetAttribute(&raw mut value, number, ordinal(device))) };
        asked.map(|()| i64::from(value)).map_err(|failed| {
            if failed.code != error::INVALID_VALUE {
                return failed;
            }
            let detail = format!("this runtime does not know attribute {number} ({attribute:?})");
            site.refuse(ErrorKind::NotSupported, CALL, detail)
        })
    }

    // Scalar questions only: the property struct has another layout in 5 than in 6, and its function's plain
    // name means the old one in all of them.
    pub(crate) fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        let site = self.site(device, "hipDeviceGetName")?;
        let number = self.device(device, "hipDeviceGetName")?.number;
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the function writes no more than the length it is given.
        unsafe { call!(site.hipDeviceGetName(name.as_mut_ptr(), 256, number)) }?;
        let mut total = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.hipDeviceTotalMem(&raw mut total, number)) }?;
        let warp = self.attribute(device, Attribute::WarpSize)?;
        Ok(DeviceProperties {
            name: text(&name),
            uuid: uuid(site, number)?,
            pci_bus_id: pci_bus_id(site, device)?,
            total_memory: total as u64,
            warp_size: u32::try_from(warp).unwrap_or(0),
        })
    }

    pub(crate) fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        let site = self.site(device, "hipDevicePrimaryCtxGetState")?;
        let number = self.device(device, "hipDevicePrimaryCtxGetState")?.number;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(site.hipDevicePrimaryCtxGetState(number, &raw mut flags, &raw mut active)) }?;
        Ok(active != 0)
    }

    pub(crate) fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        let entered = self.enter(device, "hipDeviceSynchronize")?;
        // SAFETY: waits for the current device.
        unsafe { call!(entered.hipDeviceSynchronize()) }
    }
}

/// Absent where the runtime has no such function; a failure of one that it has is an error.
fn uuid(site: Site<'_>, number: c_int) -> Result<Option<[u8; 16]>> {
    if site.functions().hipDeviceGetUuid.is_none() {
        return Ok(None);
    }
    let mut uuid = abi::hipUUID { bytes: [0; 16] };
    // SAFETY: the function writes 16 bytes.
    unsafe { call!(site.hipDeviceGetUuid(&raw mut uuid, number)) }?;
    Ok(Some(uuid.bytes.map(|byte| byte as u8)))
}

fn pci_bus_id(site: Site<'_>, device: DeviceIndex) -> Result<Option<String>> {
    if site.functions().hipDeviceGetPCIBusId.is_none() {
        return Ok(None);
    }
    let mut id: [c_char; 32] = [0; 32];
    // SAFETY: the function writes no more than the length it is given.
    unsafe { call!(site.hipDeviceGetPCIBusId(id.as_mut_ptr(), 32, ordinal(device))) }?;
    Ok(Some(text(&id)))
}

fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(
        |_| String::from_utf8_lossy(&bytes).into_owned(),
        |text| text.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: Version = Version { major: 5, minor: 2, patch: 21153 };
    const SIX: Version = Version { major: 6, minor: 4, patch: 43484 };
    const NEWEST: Version = Version { major: 7, minor: 14, patch: 60850 };

    #[test]
    fn attributes_have_the_headers_numbers() {
        let numbers = [
            (Attribute::ComputeCapabilityMajor, 23),
            (Attribute::ComputeCapabilityMinor, 61),
            (Attribute::MultiprocessorCount, 63),
            (Attribute::WarpSize, 87),
            (Attribute::MemoryPools, 88),
            (Attribute::ManagedMemory, 24),
            (Attribute::StreamMemoryOperations, 10013),
            (Attribute::Integrated, 16),
        ];
        for version in [FIVE, SIX, NEWEST] {
            for (attribute, number) in numbers {
                assert_eq!(answer(attribute, version), Answer::Asked(number), "{attribute:?}");
            }
            assert_eq!(answer(Attribute::Multicast, version), Answer::Known(0));
        }
    }

    #[test]
    fn numbers_that_a_version_lacks_are_not_asked() {
        for (attribute, six, newest) in [
            (Attribute::VirtualMemoryManagement, Answer::Asked(89), Answer::Asked(89)),
            (Attribute::PosixFileDescriptorHandles, Answer::Asked(89), Answer::Asked(89)),
            (Attribute::FabricHandles, Answer::Known(0), Answer::Asked(95)),
        ] {
            assert_eq!(answer(attribute, FIVE), Answer::Known(0), "{attribute:?}");
            assert_eq!(answer(attribute, SIX), six, "{attribute:?}");
            assert_eq!(answer(attribute, NEWEST), newest, "{attribute:?}");
        }
        assert_eq!(answer(Attribute::GpuDirectRdmaWithVirtualMemory, SIX), Answer::None);
        assert_eq!(answer(Attribute::GpuDirectRdmaWithVirtualMemory, NEWEST), Answer::Asked(94));
    }

    #[test]
    fn texts_end_at_the_zero_or_at_the_end() {
        assert_eq!(text(&[77, 73, 0, 7]), "MI");
        assert_eq!(text(&[77, 73]), "MI");
    }
}
