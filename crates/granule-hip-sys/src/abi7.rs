//! HIP 7: what it changed and added since 6, over 6's declarations.
//!
//! Written by hand after 7.14's declarations. Layouts, numbers and calling conventions of 6 held, so its table of
//! functions serves 7 too; a test compares everything here, and what is taken over, with public 7.14 bindings.

pub use super::abi6::*;

// 7's header writes these otherwise with the same layout: the handle type sits in a union of two spellings, and the
// source of a copy is const.
pub use super::abi6::{
    hipMemAllocationProp, hipMemAllocationProp__bindgen_ty_1, hipMemcpyHtoD_t, hipMemcpyHtoDAsync_t,
};

use core::ffi::{CStr, c_uchar, c_uint, c_ulonglong, c_void};

pub const HIP_VERSION: u32 = 71460850;
pub const HIP_VERSION_MAJOR: u32 = 7;
pub const HIP_VERSION_MINOR: u32 = 14;
pub const HIP_VERSION_PATCH: u32 = 60850;

pub const hipErrorInvalidResourceType: hipError_t = 914;
pub const hipErrorInvalidResourceConfiguration: hipError_t = 915;
pub const hipErrorStreamDetached: hipError_t = 916;
pub const hipErrorInvalidClusterSize: hipError_t = 1054;
/// The end of the list, which moved: no error has this number.
pub const hipErrorTbd: hipError_t = 1055;

pub const hipDeviceAttributeHostNumaId: hipDeviceAttribute_t = 92;
pub const hipDeviceAttributeDmaBufSupported: hipDeviceAttribute_t = 93;
pub const hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported: hipDeviceAttribute_t = 94;
pub const hipDeviceAttributeHandleTypeFabricSupported: hipDeviceAttribute_t = 95;

pub const hipHostMallocUncached: u32 = 0x1000_0000;

pub const hipMemAllocationTypeManaged: hipMemAllocationType = 2;
pub const hipMemAllocationTypeUncached: hipMemAllocationType = 0x4000_0000;
pub const hipMemHandleTypeFabric: hipMemAllocationHandleType = 8;
pub const hipMemLocationTypeNone: hipMemLocationType = 0;
pub const hipMemLocationTypeHost: hipMemLocationType = 2;
pub const hipMemLocationTypeHostNuma: hipMemLocationType = 3;
pub const hipMemLocationTypeHostNumaCurrent: hipMemLocationType = 4;

pub type hipMemRangeHandleType = c_uint;
pub const hipMemRangeHandleTypeDmaBufFd: hipMemRangeHandleType = 1;
pub type hipMemRangeFlags = c_uint;
pub const hipMemRangeFlagDmaBufMappingTypePcie: hipMemRangeFlags = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipMemFabricHandle_st {
    pub data: [c_uchar; 64],
}
pub type hipMemFabricHandle_t = hipMemFabricHandle_st;

/// Since 7.0.
pub type hipMemGetHandleForAddressRange_t = unsafe extern "C" fn(
    handle: *mut c_void,
    dptr: hipDeviceptr_t,
    size: usize,
    handleType: hipMemRangeHandleType,
    flags: c_ulonglong,
) -> hipError_t;
/// Since 7.1.
pub type hipStreamGetId_t =
    unsafe extern "C" fn(stream: hipStream_t, streamId: *mut c_ulonglong) -> hipError_t;

/// The functions that 7 added; `NAMES` has 6's.
pub const ADDED: &[&str] = &["hipMemGetHandleForAddressRange", "hipStreamGetId"];

/// The library's functions; `None` where it has none of that name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Functions {
    /// Those that 6 has.
    pub base: super::abi6::Functions,
    pub hipMemGetHandleForAddressRange: Option<hipMemGetHandleForAddressRange_t>,
    pub hipStreamGetId: Option<hipStreamGetId_t>,
}

impl Functions {
    /// Asks `symbol` for the address of every function.
    ///
    /// # Safety
    ///
    /// Each address is that of a C function of this generation's signature, and stays one for as long as any copy of
    /// the table is used.
    pub unsafe fn load(mut symbol: impl FnMut(&CStr) -> Option<*mut c_void>) -> Self {
        Self {
            // SAFETY: the caller's promise.
            base: unsafe { super::abi6::Functions::load(&mut symbol) },
            // SAFETY: the caller's promise: the address is a function of this type.
            hipMemGetHandleForAddressRange: symbol(c"hipMemGetHandleForAddressRange").map(|address| unsafe {
                core::mem::transmute::<*mut c_void, hipMemGetHandleForAddressRange_t>(address)
            }),
            // SAFETY: as above.
            hipStreamGetId: symbol(c"hipStreamGetId")
                .map(|address| unsafe { core::mem::transmute::<*mut c_void, hipStreamGetId_t>(address) }),
        }
    }
}
