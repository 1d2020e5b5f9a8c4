//! Multicast objects: the simulated devices have none, as their attribute says.

use crate::entry::{device, driver};
use crate::header::*;
use crate::personality::since;
use lookalike::{Answer, Code};
use std::ffi::c_ulonglong;

fn absent() -> Answer {
    since(12_010)?;
    driver()?;
    Err(Code::NOT_SUPPORTED)
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// The unit of sizes.
    fn cuMulticastGetGranularity as cuMulticastGetGranularity_t(
        out _bytes: *mut usize, input _properties: *const CUmulticastObjectProp, val _option: CUmulticastGranularity_flags,
    ) {
        absent()
    }

    /// A new object.
    fn cuMulticastCreate as cuMulticastCreate_t(
        out _object: *mut CUmemGenericAllocationHandle, input _properties: *const CUmulticastObjectProp,
    ) {
        absent()
    }

    /// Adds a device.
    fn cuMulticastAddDevice as cuMulticastAddDevice_t(val _object: CUmemGenericAllocationHandle, val number: CUdevice) {
        device(number)?;
        absent()
    }

    /// Binds physical memory.
    fn cuMulticastBindMem as cuMulticastBindMem_t(
        val _object: CUmemGenericAllocationHandle, val _offset: usize, val _memory: CUmemGenericAllocationHandle,
        val _memory_offset: usize, val _bytes: usize, val _flags: c_ulonglong,
    ) {
        absent()
    }

    /// Binds mapped memory.
    fn cuMulticastBindAddr as cuMulticastBindAddr_t(
        val _object: CUmemGenericAllocationHandle, val _offset: usize, val _at: CUdeviceptr, val _bytes: usize,
        val _flags: c_ulonglong,
    ) {
        absent()
    }

    /// Undoes that.
    fn cuMulticastUnbind as cuMulticastUnbind_t(
        val _object: CUmemGenericAllocationHandle, val number: CUdevice, val _offset: usize, val _bytes: usize,
    ) {
        device(number)?;
        absent()
    }
}
