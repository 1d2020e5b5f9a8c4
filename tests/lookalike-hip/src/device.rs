//! What devices say about themselves.

use crate::entry::{device, ready};
use crate::personality::personality;
use alloc_core::backend::{Attribute, Backend};
use alloc_core::types::DeviceIndex;
use granule_hip_sys::abi6::*;
use lookalike::{Answer, Code};
use std::ffi::{c_char, c_int};

/// Numbers that no machine setting changes.
const FIXED: &[(hipDeviceAttribute_t, c_int)] = &[
    (hipDeviceAttributeCanMapHostMemory, 1),
    (hipDeviceAttributeConcurrentKernels, 1),
    (hipDeviceAttributeMaxThreadsPerBlock, 1024),
    (hipDeviceAttributeMaxThreadsPerMultiProcessor, 2048),
    (hipDeviceAttributeStreamPrioritiesSupported, 1),
    (hipDeviceAttributeUnifiedAddressing, 1),
];

/// Whether the runtime knows a number.
const fn is_known(number: hipDeviceAttribute_t) -> bool {
    number <= hipDeviceAttributeMemoryPoolSupportedHandleTypes
        || (number >= hipDeviceAttributeAmdSpecificBegin && number <= hipDeviceAttributeWallClockRate)
}

fn attribute(index: DeviceIndex, number: hipDeviceAttribute_t) -> Answer<c_int> {
    if !is_known(number) {
        return Err(Code::INVALID_VALUE);
    }
    let machine = ready()?;
    let of_machine = match number {
        hipDeviceAttributeComputeCapabilityMajor => Attribute::ComputeCapabilityMajor,
        hipDeviceAttributeComputeCapabilityMinor => Attribute::ComputeCapabilityMinor,
        hipDeviceAttributeMultiprocessorCount => Attribute::MultiprocessorCount,
        hipDeviceAttributeWarpSize => Attribute::WarpSize,
        hipDeviceAttributeIntegrated => Attribute::Integrated,
        hipDeviceAttributeVirtualMemoryManagementSupported => Attribute::VirtualMemoryManagement,
        hipDeviceAttributeHostRegisterSupported => {
            return Ok(c_int::from(machine.host_registration().is_ok()));
        }
        hipDeviceAttributePciBusId => return Ok(c_int::from(index.0) + 1),
        // An `int` is too small for what the machines have; so it is for the runtime's devices.
        hipDeviceAttributeTotalGlobalMem => {
            return Ok(c_int::try_from(machine.properties(index)?.total_memory).unwrap_or(c_int::MAX));
        }
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

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// The product's name.
    fn hipDeviceGetName as hipDeviceGetName_t(out name: *mut c_char, val length: c_int, val number: hipDevice_t) {
        name.put_text(length, &ready()?.properties(device(number)?)?.name)
    }

    /// The device's identity.
    fn hipDeviceGetUuid as hipDeviceGetUuid_t(out uuid: *mut hipUUID, val number: hipDevice_t) {
        let known = personality()?.driver.uuid(ready()?, device(number)?)?;
        uuid.put(hipUUID { bytes: known.map(|byte| byte as c_char) })
    }

    /// Where on the bus the device is.
    fn hipDeviceGetPCIBusId as hipDeviceGetPCIBusId_t(out text: *mut c_char, val length: c_int, val number: c_int) {
        let id = ready()?.properties(device(number)?)?.pci_bus_id.ok_or(Code::NOT_SUPPORTED)?;
        text.put_text(length, &id)
    }

    /// Bytes of memory.
    fn hipDeviceTotalMem as hipDeviceTotalMem_t(out bytes: *mut usize, val number: hipDevice_t) {
        let total = ready()?.properties(device(number)?)?.total_memory;
        bytes.put(personality()?.driver.total(total) as usize)
    }

    /// One number about a device.
    fn hipDeviceGetAttribute as hipDeviceGetAttribute_t(
        out value: *mut c_int, val number: hipDeviceAttribute_t, val of: c_int,
    ) {
        let of = device(of)?;
        value.wanted()?;
        value.put(attribute(of, number)?)
    }
}
