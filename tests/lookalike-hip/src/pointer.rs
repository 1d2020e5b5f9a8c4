//! What addresses are.

use crate::entry::ready;
use alloc_core::backend::{Backend, PointerInfo, PointerKind};
use alloc_core::types::DevicePtr;
use granule_hip_sys::abi6::*;
use lookalike::{Answer, Code, host};
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

fn known(at: u64) -> Answer<PointerInfo> {
    Ok(ready()?.pointer_info(DevicePtr(at))?)
}

/// A kind's number.
const fn kind_number(kind: PointerKind) -> hipMemoryType {
    match kind {
        PointerKind::Unmanaged => hipMemoryTypeUnregistered,
        PointerKind::Host => hipMemoryTypeHost,
        PointerKind::Device => hipMemoryTypeDevice,
        PointerKind::Managed => hipMemoryTypeManaged,
    }
}

/// The device that is written for memory of none.
fn device_number(info: &PointerInfo) -> c_int {
    info.device.map_or(0, |device| c_int::from(device.0))
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// What an address is.
    fn hipPointerGetAttributes as hipPointerGetAttributes_t(
        out attributes: *mut hipPointerAttribute_t, val pointer: *const c_void,
    ) {
        attributes.wanted()?;
        if pointer.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let info = known(pointer.addr() as u64)?;
        let same = without_provenance_mut(pointer.addr());
        attributes.put(hipPointerAttribute_t {
            type_: kind_number(info.kind),
            device: device_number(&info),
            devicePointer: if info.kind == PointerKind::Unmanaged { null_mut() } else { same },
            hostPointer: if matches!(info.kind, PointerKind::Host | PointerKind::Managed) { same } else { null_mut() },
            isManaged: c_int::from(info.kind == PointerKind::Managed),
            allocationFlags: host::flags_of(info.base).unwrap_or(0),
        })
    }

    /// One fact about an address.
    fn hipPointerGetAttribute as hipPointerGetAttribute_t(
        out data: *mut c_void, val attribute: hipPointer_attribute, val pointer: hipDeviceptr_t,
    ) {
        data.wanted()?;
        let at = pointer.addr() as u64;
        let info = known(at)?;
        if info.kind == PointerKind::Unmanaged {
            return Err(Code::INVALID_VALUE);
        }
        let (word, long) = (data.cast::<u32>(), data.cast::<u64>());
        match attribute {
            HIP_POINTER_ATTRIBUTE_MEMORY_TYPE => word.put(kind_number(info.kind)),
            HIP_POINTER_ATTRIBUTE_DEVICE_POINTER => long.put(at),
            HIP_POINTER_ATTRIBUTE_HOST_POINTER if info.kind != PointerKind::Device => long.put(at),
            HIP_POINTER_ATTRIBUTE_BUFFER_ID | HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR => long.put(info.base.0),
            HIP_POINTER_ATTRIBUTE_RANGE_SIZE => long.put(ready()?.address_range(DevicePtr(at))?.bytes),
            HIP_POINTER_ATTRIBUTE_IS_MANAGED => word.put(u32::from(info.kind == PointerKind::Managed)),
            HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast::<c_int>().put(device_number(&info)),
            HIP_POINTER_ATTRIBUTE_MAPPED => word.put(1),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
