//! What devices say about themselves.

mod h100;

use crate::entry::{device, driver, is_h100};
use crate::header::*;
use crate::personality::personality;
use backend_api::types::DeviceIndex;
use backend_api::{Attribute, Backend};
use lookalike::argument::Out;
use lookalike::{Answer, Code};
use std::ffi::{c_char, c_int};

/// Numbers that no machine setting changes.
const FIXED: &[(CUdevice_attribute, c_int)] = &[
    (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
    (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048),
    (CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
    (CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
    (CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1),
    (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1),
    (CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
    (CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1),
    (CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
    (CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
    (CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1),
    (CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
];

fn attribute(index: DeviceIndex, number: CUdevice_attribute) -> Answer<c_int> {
    let machine = driver()?;
    if is_h100()?
        && let Some(value) = h100::attribute(number)
    {
        return Ok(value);
    }
    let of_machine = match number {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => Attribute::ComputeCapabilityMajor,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => Attribute::ComputeCapabilityMinor,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => Attribute::MultiprocessorCount,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => Attribute::WarpSize,
        CU_DEVICE_ATTRIBUTE_INTEGRATED => Attribute::Integrated,
        CU_DEVICE_ATTRIBUTE_NUMA_ID => Attribute::MemoryNode,
        CU_DEVICE_ATTRIBUTE_NUMA_CONFIG => {
            let node = personality()?.driver.attribute(Attribute::MemoryNode);
            return Ok(c_int::from(node.is_some_and(|node| node >= 0)));
        }
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => Attribute::VirtualMemoryManagement,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => {
            Attribute::PosixFileDescriptorHandles
        }
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED => Attribute::FabricHandles,
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED => {
            Attribute::GpuDirectRdmaWithVirtualMemory
        }
        CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED => {
            return Ok(c_int::from(machine.host_registration().is_ok()));
        }
        CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED => return Ok(c_int::from(machine.ipc().is_ok())),
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => return Ok(c_int::from(index.0) + 1),
        0 => return Err(Code::INVALID_VALUE),
        beyond if beyond >= CU_DEVICE_ATTRIBUTE_MAX => return Err(Code::INVALID_VALUE),
        other => {
            let fixed = FIXED.iter().find(|(number, _)| *number == other);
            return Ok(fixed.map_or(0, |&(_, value)| value));
        }
    };
    if let Some(said) = personality()?.driver.attribute(of_machine) {
        return Ok(said as c_int);
    }
    Ok(machine.attribute(index, of_machine)? as c_int)
}

fn put_uuid(place: &Out<CUuuid>, number: CUdevice) -> Answer {
    let uuid = personality()?.driver.uuid(driver()?, device(number)?)?;
    place.put(CUuuid { bytes: uuid.map(|byte| byte as c_char) })
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// A device by its number.
    fn cuDeviceGet as cuDeviceGet_t(out found: *mut CUdevice, val ordinal: c_int) {
        device(ordinal)?;
        found.put(ordinal)
    }

    /// How many devices there are.
    fn cuDeviceGetCount as cuDeviceGetCount_t(out count: *mut c_int) {
        count.put(c_int::from(driver()?.device_count()?))
    }

    /// A device by where it is on the bus.
    fn cuDeviceGetByPCIBusId as cuDeviceGetByPCIBusId_t(out found: *mut CUdevice, input text: *const c_char) {
        let text = text.text()?;
        let mut parts = text.split(':').map(|part| CUdevice::from_str_radix(part, 16));
        let bus = match (parts.next(), parts.next()) {
            (Some(Ok(_)), Some(Ok(bus))) => bus,
            _ => return Err(Code::INVALID_VALUE),
        };
        // Devices are on the buses from 1.
        let ordinal = bus - 1;
        device(ordinal)?;
        found.put(ordinal)
    }

    /// The generation of its instructions.
    fn cuDeviceComputeCapability as cuDeviceComputeCapability_t(
        out major: *mut c_int, out minor: *mut c_int, val number: CUdevice,
    ) {
        let of = device(number)?;
        major.put(attribute(of, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?)?;
        minor.put(attribute(of, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?)
    }

    /// The product's name.
    fn cuDeviceGetName as cuDeviceGetName_t(out name: *mut c_char, val length: c_int, val number: CUdevice) {
        let properties = driver()?.properties(device(number)?)?;
        name.put_text(length, if is_h100()? { h100::NAME } else { &properties.name })
    }

    /// The device's identity.
    fn cuDeviceGetUuid as cuDeviceGetUuid_t(out uuid: *mut CUuuid, val number: CUdevice) {
        put_uuid(&uuid, number)
    }

    /// The device's identity, or that of its part.
    fn cuDeviceGetUuid_v2 as cuDeviceGetUuid_v2_t(out uuid: *mut CUuuid, val number: CUdevice) {
        put_uuid(&uuid, number)
    }

    /// Bytes of memory.
    fn cuDeviceTotalMem_v2 as cuDeviceTotalMem_v2_t(out bytes: *mut usize, val number: CUdevice) {
        let total = driver()?.properties(device(number)?)?.total_memory;
        bytes.put(personality()?.driver.total(total) as usize)
    }

    /// One number about a device.
    fn cuDeviceGetAttribute as cuDeviceGetAttribute_t(
        out value: *mut c_int, val number: CUdevice_attribute, val of: CUdevice,
    ) {
        let of = device(of)?;
        value.wanted()?;
        value.put(attribute(of, number)?)
    }

    /// Where on the bus the device is.
    fn cuDeviceGetPCIBusId as cuDeviceGetPCIBusId_t(
        out text: *mut c_char, val length: c_int, val number: CUdevice,
    ) {
        let id = driver()?.properties(device(number)?)?.pci_bus_id.ok_or(Code::NOT_SUPPORTED)?;
        text.put_text(length, &id)
    }
}
