//! One address that writes to many devices.

use crate::library::CudaDriver;
use backend_api::Result;
use backend_support::{MulticastCalls, Site, call};
use cudarc::driver::sys::{CUmulticastGranularity_flags, CUmulticastObjectProp};
use std::ffi::c_uint;

/// An object of any size; creating rounds nothing, so the size is a multiple of the granularity.
fn properties(devices: u32, bytes: usize) -> CUmulticastObjectProp {
    CUmulticastObjectProp { numDevices: devices, size: bytes, handleTypes: 0, flags: 0 }
}

impl MulticastCalls for CudaDriver {
    const NO_MULTICAST: Option<&'static str> = None;

    fn multicast_granularity(site: Site<'_, Self>, devices: u32, bytes: usize) -> Result<u64> {
        let wanted = properties(devices, bytes);
        let which = CUmulticastGranularity_flags::CU_MULTICAST_GRANULARITY_MINIMUM as c_uint;
        let mut granularity = 0;
        // SAFETY: the function writes one integer and reads the properties.
        unsafe { call!(site.cuMulticastGetGranularity(&raw mut granularity, &raw const wanted, which)) }?;
        Ok(granularity as u64)
    }

    fn create_multicast(site: Site<'_, Self>, devices: u32, bytes: usize) -> Result<u64> {
        let wanted = properties(devices, bytes);
        let mut raw = 0;
        // SAFETY: the function writes one handle and reads the properties.
        unsafe { call!(site.cuMulticastCreate(&raw mut raw, &raw const wanted)) }?;
        Ok(raw)
    }

    fn add_multicast_device(site: Site<'_, Self>, object: u64) -> Result<()> {
        let number = site.driver().device(site.device())?.number;
        // SAFETY: rule 1.
        unsafe { call!(site.cuMulticastAddDevice(object, number)) }
    }

    unsafe fn bind_multicast(
        site: Site<'_, Self>,
        object: u64,
        offset: usize,
        memory: u64,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: rule 1 for both; the caller keeps the memory while it is bound.
        unsafe { call!(site.cuMulticastBindMem(object, offset, memory, 0, bytes, 0)) }
    }

    unsafe fn unbind_multicast(site: Site<'_, Self>, object: u64, offset: usize, bytes: usize) -> Result<()> {
        let number = site.driver().device(site.device())?.number;
        // SAFETY: rule 3, which the caller keeps.
        unsafe { call!(site.cuMulticastUnbind(object, number, offset, bytes)) }
    }
}
