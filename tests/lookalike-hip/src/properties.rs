//! Everything about a device in one struct.

use crate::entry::{device, ready};
use crate::personality::personality;
use alloc_core::backend::{Attribute, Backend};
use granule_hip_sys::abi6::{hipDeviceProp_tR0600, hipError_t, hipGetDevicePropertiesR0600_t, hipUUID};
use lookalike::Answer;
use std::ffi::{c_char, c_int};

/// What architecture the devices say they are.
const ARCHITECTURE: &str = "gfx942";

fn text<const LENGTH: usize>(text: &str) -> [c_char; LENGTH] {
    let mut bytes = text.bytes().take(LENGTH - 1);
    std::array::from_fn(|_| bytes.next().unwrap_or(0) as c_char)
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Everything about a device.
    fn hipGetDevicePropertiesR0600 as hipGetDevicePropertiesR0600_t(
        out place: *mut hipDeviceProp_tR0600, val number: c_int,
    ) {
        place.wanted()?;
        let (machine, device) = (ready()?, device(number)?);
        let known = machine.properties(device)?;
        let number = |attribute| -> Answer<c_int> { Ok(machine.attribute(device, attribute)? as c_int) };
        // SAFETY: numbers, arrays of numbers and pointers, of which all may be zero.
        let mut properties = unsafe { std::mem::zeroed::<hipDeviceProp_tR0600>() };
        properties.name = text(&known.name);
        properties.totalGlobalMem = known.total_memory as usize;
        properties.warpSize = known.warp_size as c_int;
        properties.major = number(Attribute::ComputeCapabilityMajor)?;
        properties.minor = number(Attribute::ComputeCapabilityMinor)?;
        properties.multiProcessorCount = number(Attribute::MultiprocessorCount)?;
        properties.pciBusID = c_int::from(device.0) + 1;
        properties.gcnArchName = text(ARCHITECTURE);
        properties.canMapHostMemory = 1;
        properties.concurrentKernels = 1;
        let uuid = personality()?.driver.uuid(machine, device)?;
        properties.uuid = hipUUID { bytes: uuid.map(|byte| byte as c_char) };
        place.put(properties)
    }
}
