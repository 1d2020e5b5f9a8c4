//! Devices: attributes, properties, waiting.

use crate::library::CudaDriver;
use backend_api::{Attribute, Result};
use backend_support::{AttributeSource, DeviceCalls, Site, call, text};
use cudarc::driver::sys::{CUdevice_attribute, CUuuid};
use std::ffi::{c_char, c_int, c_uint};

use CUdevice_attribute as Declared;

/// Newer than the declarations (CUDA 12.3).
const HANDLE_TYPE_FABRIC_SUPPORTED: c_uint = 128;
/// The same (CUDA 12.2): whether a device's memory is a node of the system's, and which.
const NUMA_CONFIG: c_uint = 130;
const NUMA_ID: c_uint = 131;
/// The configuration in which it is one.
const IS_NODE: c_int = 1;
const NO_NODE: c_int = -1;

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
        Attribute::Integrated => Declared::CU_DEVICE_ATTRIBUTE_INTEGRATED as c_uint,
        Attribute::MemoryNode => NUMA_ID,
        _ => return None,
    })
}

impl DeviceCalls for CudaDriver {
    fn attribute_source(&self, attribute: Attribute) -> AttributeSource {
        attribute_number(attribute).map_or(AttributeSource::None, AttributeSource::Asked)
    }

    fn api(&self) -> String {
        "the driver API".into()
    }

    fn ask_attribute(site: Site<'_, Self>, number: c_uint) -> Result<c_int> {
        // What a node's number is where there is none, nobody promises.
        if number == NUMA_ID && Self::ask_attribute(site, NUMA_CONFIG)? != IS_NODE {
            return Ok(NO_NODE);
        }
        let device = site.driver().device(site.device())?.number;
        let mut value = 0;
        // SAFETY: the function writes one integer; an unknown number is answered with an error.
        unsafe { call!(site.cuDeviceGetAttribute(&raw mut value, number, device)) }?;
        Ok(value)
    }

    fn device_name(site: Site<'_, Self>) -> Result<String> {
        let device = site.driver().device(site.device())?.number;
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the function writes no more than the length it is given.
        unsafe { call!(site.cuDeviceGetName(name.as_mut_ptr(), 256, device)) }?;
        Ok(text(&name))
    }

    fn total_memory(site: Site<'_, Self>) -> Result<u64> {
        let device = site.driver().device(site.device())?.number;
        let mut total = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.cuDeviceTotalMem_v2(&raw mut total, device)) }?;
        Ok(total as u64)
    }

    fn uuid(site: Site<'_, Self>) -> Result<Option<[u8; 16]>> {
        if site.driver().functions.cuDeviceGetUuid_v2.is_none() {
            return Ok(None);
        }
        let device = site.driver().device(site.device())?.number;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the function writes 16 bytes.
        unsafe { call!(site.cuDeviceGetUuid_v2(&raw mut uuid, device)) }?;
        Ok(Some(uuid.bytes.map(|byte| byte as u8)))
    }

    fn pci_bus_id(site: Site<'_, Self>) -> Result<Option<String>> {
        if site.driver().functions.cuDeviceGetPCIBusId.is_none() {
            return Ok(None);
        }
        let device = site.driver().device(site.device())?.number;
        let mut id: [c_char; 32] = [0; 32];
        // SAFETY: the function writes no more than the length it is given.
        unsafe { call!(site.cuDeviceGetPCIBusId(id.as_mut_ptr(), 32, device)) }?;
        Ok(Some(text(&id)))
    }

    fn has_primary_context(site: Site<'_, Self>) -> Result<bool> {
        let device = site.driver().device(site.device())?.number;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(site.cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active)) }?;
        Ok(active != 0)
    }

    fn synchronize(site: Site<'_, Self>) -> Result<()> {
        // SAFETY: waits for the current context, which is the device's.
        unsafe { call!(site.cuCtxSynchronize()) }
    }
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
            (Attribute::Integrated, 18),
            (Attribute::MemoryNode, 131),
        ];
        for (attribute, number) in numbers {
            assert_eq!(attribute_number(attribute), Some(number), "{attribute:?}");
        }
    }
}
