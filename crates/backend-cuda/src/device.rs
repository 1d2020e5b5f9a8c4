//! Devices: attributes, properties, waiting.

use crate::cuda::Cuda;
use crate::driver::Site;
use crate::error;
use backend_api::types::DeviceIndex;
use backend_api::{Attribute, DeviceProperties, ErrorKind, Result};
use cudarc::driver::sys::{CUdevice_attribute, CUuuid};
use std::ffi::{CStr, c_char, c_int, c_uint};

use CUdevice_attribute as Declared;

/// Newer than the declarations (CUDA 12.3).
const HANDLE_TYPE_FABRIC_SUPPORTED: c_uint = 128;

fn attribute_number(attribute: Attribute) -> Option<c_uint> {
    Some(match attribute {
        Attribute::ComputeCapabilityMajor => Declared::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as c_uint,
        Attribute::ComputeCapabilityMinor => Declared::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as c_uint,
        Attribute::MultiprocessorCount => Declared::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as c_uint,
        Attribute::WarpSize => Declared::CU_DEVICE_ATTRIBUTE_WARP_SIZE as c_uint,
        Attribute::VirtualMemoryManagement => {
            Declared::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED as c_uint
        }
        Attribute::PosixFileDescriptorHandles => {
            Declared::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED as c_uint
        }
        Attribute::FabricHandles => HANDLE_TYPE_FABRIC_SUPPORTED,
        Attribute::GpuDirectRdmaWithVirtualMemory => {
            Declared::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED as c_uint
        }
        Attribute::MemoryPools => Declared::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as c_uint,
        Attribute::ManagedMemory => Declared::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY as c_uint,
        Attribute::Multicast => Declared::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED as c_uint,
        Attribute::Integrated => Declared::CU_DEVICE_ATTRIBUTE_INTEGRATED as c_uint,
        _ => return None,
    })
}

impl Cuda {
    pub(crate) fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        let site = self.site(device, "cuDeviceGetAttribute")?;
        if attribute == Attribute::StreamMemoryOperations {
            // The second form of these calls works on every device; its attributes are about more than that.
            return Ok(i64::from(site.functions().cuStreamWriteValue32_v2.is_some()));
        }
        let Some(number) = attribute_number(attribute) else {
            let detail = format!("{attribute:?} has no number in the driver API");
            return Err(site.refuse(ErrorKind::NotSupported, "cuDeviceGetAttribute", detail));
        };
        self.attribute_by_number(site, number).map(i64::from).map_err(|error| {
            if error.code != error::INVALID_VALUE {
                return error;
            }
            let detail = format!("this driver does not know attribute {number} ({attribute:?})");
            site.refuse(ErrorKind::NotSupported, "cuDeviceGetAttribute", detail)
        })
    }

    fn attribute_by_number(&self, site: Site<'_>, number: c_uint) -> Result<c_int> {
        let device = self.device(site.device(), "cuDeviceGetAttribute")?.number;
        let mut value = 0;
        // SAFETY: the function writes one integer; an unknown number is answered with an error.
        unsafe { call!(site.cuDeviceGetAttribute(&raw mut value, number, device)) }?;
        Ok(value)
    }

    pub(crate) fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        let site = self.site(device, "cuDeviceGetName")?;
        let number = self.device(device, "cuDeviceGetName")?.number;
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the function writes no more than the length it is given.
        unsafe { call!(site.cuDeviceGetName(name.as_mut_ptr(), 256, number)) }?;
        let mut total = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.cuDeviceTotalMem_v2(&raw mut total, number)) }?;
        let warp = self.attribute(device, Attribute::WarpSize)?;
        Ok(DeviceProperties {
            name: text(&name),
            uuid: uuid(site, number)?,
            pci_bus_id: pci_bus_id(site, number)?,
            total_memory: total as u64,
            warp_size: u32::try_from(warp).unwrap_or(0),
        })
    }

    pub(crate) fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        let site = self.site(device, "cuDevicePrimaryCtxGetState")?;
        let number = self.device(device, "cuDevicePrimaryCtxGetState")?.number;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(site.cuDevicePrimaryCtxGetState(number, &raw mut flags, &raw mut active)) }?;
        Ok(active != 0)
    }

    pub(crate) fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        let entered = self.enter(device, "cuCtxSynchronize")?;
        // SAFETY: waits for the current context, which is the device's.
        unsafe { call!(entered.cuCtxSynchronize()) }
    }
}

/// Absent where the driver has no such function; a failure of one that it has is an error.
fn uuid(site: Site<'_>, device: c_int) -> Result<Option<[u8; 16]>> {
    if site.functions().cuDeviceGetUuid_v2.is_none() {
        return Ok(None);
    }
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: the function writes 16 bytes.
    unsafe { call!(site.cuDeviceGetUuid_v2(&raw mut uuid, device)) }?;
    Ok(Some(uuid.bytes.map(|byte| byte as u8)))
}

fn pci_bus_id(site: Site<'_>, device: c_int) -> Result<Option<String>> {
    if site.functions().cuDeviceGetPCIBusId.is_none() {
        return Ok(None);
    }
    let mut id: [c_char; 32] = [0; 32];
    // SAFETY: the function writes no more than the length it is given.
    unsafe { call!(site.cuDeviceGetPCIBusId(id.as_mut_ptr(), 32, device)) }?;
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

    #[test]
    fn attributes_have_the_headers_numbers() {
        let numbers = [
            (Attribute::ComputeCapabilityMajor, 75),
            (Attribute::ComputeCapabilityMinor, 76),
            (Attribute::MultiprocessorCount, 16),
            (Attribute::WarpSize, 10),
            (Attribute::VirtualMemoryManagement, 102),
            (Attribute::PosixFileDescriptorHandles, 103),
            (Attribute::FabricHandles, 128),
            (Attribute::GpuDirectRdmaWithVirtualMemory, 110),
            (Attribute::MemoryPools, 115),
            (Attribute::ManagedMemory, 83),
            (Attribute::Multicast, 132),
            (Attribute::Integrated, 18),
        ];
        for (attribute, number) in numbers {
            assert_eq!(attribute_number(attribute), Some(number), "{attribute:?}");
        }
    }

    #[test]
    fn texts_end_at_the_zero_or_at_the_end() {
        assert_eq!(text(&[72, 50, 0, 7]), "H2");
        assert_eq!(text(&[72, 50]), "H2");
    }
}
