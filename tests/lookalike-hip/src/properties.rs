//! Everything about a device in one struct, whose layout changed in 6. The name without a suffix still means
//! the old one.

use crate::entry::{device, ready};
use crate::personality::personality;
use alloc_core::backend::{Attribute, Backend};
use granule_hip_sys::abi5::{hipDeviceProp_t, hipGetDeviceProperties_t};
use granule_hip_sys::abi6::{hipDeviceProp_tR0600, hipError_t, hipGetDevicePropertiesR0600_t, hipUUID};
use lookalike::Answer;
use std::ffi::{c_char, c_int};

/// What architecture the devices say they are.
const ARCHITECTURE: &str = "gfx942";

fn text<const LENGTH: usize>(text: &str) -> [c_char; LENGTH] {
    let mut bytes = text.bytes().take(LENGTH - 1);
    std::array::from_fn(|_| bytes.next().unwrap_or(0) as c_char)
}

/// Fills what both layouts have.
macro_rules! fill {
    ($layout:ty, $number:expr) => {{
        let (machine, device) = (ready()?, device($number)?);
        let known = machine.properties(device)?;
        let number = |attribute| -> Answer<c_int> { Ok(machine.attribute(device, attribute)? as c_int) };
        // SAFETY: numbers, arrays of numbers and pointers, of which all may be zero.
        let mut properties = unsafe { std::mem::zeroed::<$layout>() };
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
        properties.managedMemory = number(Attribute::ManagedMemory)?;
        properties
    }};
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Everything about a device, as 6 and 7 lay it out.
    fn hipGetDevicePropertiesR0600 as hipGetDevicePropertiesR0600_t(
        out place: *mut hipDeviceProp_tR0600, val number: c_int,
    ) {
        place.wanted()?;
        let mut properties = fill!(hipDeviceProp_tR0600, number);
        let uuid = personality()?.driver.uuid(ready()?, device(number)?)?;
        properties.uuid = hipUUID { bytes: uuid.map(|byte| byte as c_char) };
        properties.memoryPoolsSupported = c_int::from(ready()?.driver_pools().is_ok());
        place.put(properties)
    }

    /// Everything about a device, as 5 laid it out.
    fn hipGetDeviceProperties as hipGetDeviceProperties_t(out place: *mut hipDeviceProp_t, val number: c_int) {
        place.wanted()?;
        let properties = fill!(hipDeviceProp_t, number);
        place.put(properties)
    }
}
