//! Device memory, and what addresses are.

pub mod host;
pub mod pools;

use crate::entry::{driver, here, is_h100};
use crate::header::*;
use crate::personality::personality;
use crate::virtual_memory::{handle_types_at, reservation_of};
use backend_api::types::DevicePtr;
use backend_api::{Backend, PointerInfo, PointerKind};
use backend_openreg::Driver;
use lookalike::argument::Out;
use lookalike::{Answer, Code, contexts};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Takes device memory.
    fn cuMemAlloc_v2 as cuMemAlloc_v2_t(out pointer: *mut CUdeviceptr, val bytes: usize) {
        let here = here()?;
        pointer.wanted()?;
        personality()?.driver.of_size("cuMemAlloc_v2", here.machine, here.device, bytes)?;
        pointer.put(here.machine.malloc(here.device, bytes as u64)?.0)
    }

    /// Takes memory that migrates.
    fn cuMemAllocManaged as cuMemAllocManaged_t(out pointer: *mut CUdeviceptr, val bytes: usize, val flags: c_uint) {
        let here = here()?;
        if !matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) {
            return Err(Code::INVALID_VALUE);
        }
        pointer.wanted()?;
        personality()?.driver.of_size("cuMemAllocManaged", here.machine, here.device, bytes)?;
        pointer.put(Driver(here.machine).malloc_managed(here.device, bytes as u64)?.0)
    }

    /// Gives device memory back. Memory that queued work still uses is refused; the machine traps it.
    fn cuMemFree_v2 as cuMemFree_v2_t(val pointer: CUdeviceptr) {
        let here = here()?;
        if pointer == 0 {
            return Ok(());
        }
        if let Some(device) = pools::owner(pointer) {
            // Memory of a pool may be freed like this too; everything before is waited for.
            here.machine.synchronize_device(device)?;
            pools::free(here.machine, pointer, here.machine.default_stream(device))?;
            return Ok(here.machine.synchronize_device(device)?);
        }
        // A correct program need not free memory in the context of its device; that Granule does is tested elsewhere.
        let owner = if is_h100()? { here.machine.pointer_info(DevicePtr(pointer))?.device } else { None };
        // SAFETY: the machine refuses what is not the base of a live allocation.
        Ok(unsafe { here.machine.free(owner.unwrap_or(here.device), DevicePtr(pointer)) }?)
    }

    /// Free and total bytes of the current device.
    fn cuMemGetInfo_v2 as cuMemGetInfo_v2_t(out free: *mut usize, out total: *mut usize) {
        let here = here()?;
        let info = personality()?.driver.memory(here.machine.memory_info(here.device)?);
        free.put(info.free as usize)?;
        total.put(info.total as usize)
    }

    /// The allocation, or the mapping, that holds an address.
    fn cuMemGetAddressRange_v2 as cuMemGetAddressRange_v2_t(
        out base: *mut CUdeviceptr, out bytes: *mut usize, val pointer: CUdeviceptr,
    ) {
        let here = here()?;
        known(pointer)?;
        let range = here.machine.address_range(DevicePtr(pointer))?;
        base.put_if_wanted(range.base.0);
        bytes.put_if_wanted(range.bytes as usize);
        Ok(())
    }

    /// One fact about an address.
    fn cuPointerGetAttribute as cuPointerGetAttribute_t(
        out data: *mut c_void, val attribute: CUpointer_attribute, val pointer: CUdeviceptr,
    ) {
        driver()?;
        data.wanted()?;
        put_attribute(&data, attribute, pointer, &known(pointer)?)
    }

    /// Sets a fact that can be set, of which nothing can be seen.
    fn cuPointerSetAttribute as cuPointerSetAttribute_t(
        input value: *const c_void, val attribute: CUpointer_attribute, val pointer: CUdeviceptr,
    ) {
        driver()?;
        known(pointer)?;
        if value.is_null() || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(Code::INVALID_VALUE);
        }
        Ok(())
    }

    /// Several facts; unlike with one, an unknown address is no error and its facts are zeros.
    fn cuPointerGetAttributes as cuPointerGetAttributes_t(
        val count: c_uint,
        input attributes: *mut CUpointer_attribute,
        input data: *mut *mut c_void,
        val pointer: CUdeviceptr,
    ) {
        driver()?;
        let (attributes, places) = (attributes.list(count as usize)?, data.list(count as usize)?);
        let info = known(pointer);
        for (attribute, place) in attributes.into_iter().zip(places) {
            // SAFETY: the caller promises a place of the attribute's size for each.
            let place = unsafe { Out::new(place) };
            match &info {
                Ok(info) => put_attribute(&place, attribute, pointer, info)?,
                Err(_) => put_nothing(&place, attribute)?,
            }
        }
        Ok(())
    }
}

/// What an address is, where it is anything.
fn known(pointer: CUdeviceptr) -> Answer<PointerInfo> {
    let info = driver()?.pointer_info(DevicePtr(pointer))?;
    if info.kind == PointerKind::Unmanaged { Err(Code::INVALID_VALUE) } else { Ok(info) }
}

/// How large the place for an attribute is.
const fn is_word(attribute: CUpointer_attribute) -> bool {
    !matches!(
        attribute,
        CU_POINTER_ATTRIBUTE_CONTEXT
            | CU_POINTER_ATTRIBUTE_DEVICE_POINTER
            | CU_POINTER_ATTRIBUTE_HOST_POINTER
            | CU_POINTER_ATTRIBUTE_BUFFER_ID
            | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
            | CU_POINTER_ATTRIBUTE_RANGE_SIZE
            | CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
            | CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
            | CU_POINTER_ATTRIBUTE_MAPPING_SIZE
            | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
            | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
    )
}

fn put_attribute(
    place: &Out<c_void>,
    attribute: CUpointer_attribute,
    pointer: CUdeviceptr,
    info: &PointerInfo,
) -> Answer {
    let (long, word) = (place.cast::<u64>(), place.cast::<u32>());
    let is_host = info.kind == PointerKind::Host;
    let is_managed = info.kind == PointerKind::Managed;
    match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => {
            let context = info.device.map_or_else(contexts::current, contexts::handle_of);
            place.cast::<CUcontext>().put(without_provenance_mut(context))
        }
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
            word.put(if is_host { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE })
        }
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => long.put(pointer),
        CU_POINTER_ATTRIBUTE_HOST_POINTER if is_host || is_managed => long.put(pointer),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => word.put(0),
        CU_POINTER_ATTRIBUTE_BUFFER_ID => long.put(info.base.0),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => word.put(u32::from(is_managed)),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
            let current = || contexts::current_device().unwrap_or_default();
            place.cast::<c_int>().put(c_int::from(info.device.unwrap_or_else(current).0))
        }
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
            let is_plain = !is_host && !is_managed && pool_of(info) == 0 && handle_types_at(pointer).is_err();
            word.put(u32::from(is_plain))
        }
        // Of virtual memory, these are the reservation's, and the two below the mapping's.
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => {
            long.put(reservation_of(pointer).map_or(info.base.0, |(base, _)| base))
        }
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => match reservation_of(pointer) {
            Some((_, bytes)) => long.put(bytes),
            None => long.put(driver()?.address_range(DevicePtr(pointer))?.bytes),
        },
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => long.put(info.base.0),
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE => long.put(driver()?.address_range(DevicePtr(pointer))?.bytes),
        CU_POINTER_ATTRIBUTE_MAPPED => word.put(1),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => long.put(handle_types_at(pointer).map_or(0, u64::from)),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => long.put(pool_of(info)),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn put_nothing(place: &Out<c_void>, attribute: CUpointer_attribute) -> Answer {
    match attribute {
        // "No device".
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => place.cast::<c_int>().put(-2),
        word if is_word(word) => place.cast::<u32>().put(0),
        _ => place.cast::<u64>().put(0),
    }
}

/// The pool that memory came from; 0 where it came from none.
fn pool_of(info: &PointerInfo) -> u64 {
    pools::owner(info.base.0).map_or(0, |device| pools::handle_of(device) as u64)
}
