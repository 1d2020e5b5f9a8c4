//! Device memory.

use crate::entry::here;
use crate::personality::personality;
use alloc_core::backend::Backend;
use alloc_core::types::DevicePtr;
use granule_hip_sys::abi6::*;
use lookalike::argument::Out;
use lookalike::{Answer, Code, Here, control};
use std::ffi::{c_uint, c_void};
use std::ptr::without_provenance_mut;

/// Takes memory. Nothing asked for is nothing given, and no error.
fn take(pointer: &Out<*mut c_void>, bytes: usize) -> Answer {
    let here = here()?;
    pointer.wanted()?;
    personality()?.driver.of_size("hipMalloc", here.machine, here.device, bytes)?;
    let base = if bytes == 0 { 0 } else { here.machine.malloc(here.device, bytes as u64)?.0 };
    pointer.put(without_provenance_mut(base as usize))
}

/// Gives memory back, of whichever device.
fn give(base: u64, here: Here) -> Answer {
    let owner = here.machine.pointer_info(DevicePtr(base))?.device.unwrap_or(here.device);
    // SAFETY: the machine refuses what is not the base of a live allocation, and traps what is in use.
    Ok(unsafe { here.machine.free(owner, DevicePtr(base)) }?)
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Takes device memory.
    fn hipMalloc as hipMalloc_t(out pointer: *mut *mut c_void, val bytes: usize) {
        take(&pointer, bytes)
    }

    /// Takes device memory of a kind, between which the machine makes no difference.
    fn hipExtMallocWithFlags as hipExtMallocWithFlags_t(
        out pointer: *mut *mut c_void, val bytes: usize, val flags: c_uint,
    ) {
        if flags > hipDeviceMallocContiguous {
            return Err(Code::INVALID_VALUE);
        }
        take(&pointer, bytes)
    }

    /// Gives device memory back.
    fn hipFree as hipFree_t(val pointer: *mut c_void) {
        let here = here()?;
        if pointer.is_null() { Ok(()) } else { give(pointer.addr() as u64, here) }
    }

    /// Free and total bytes of the current device.
    fn hipMemGetInfo as hipMemGetInfo_t(out free: *mut usize, out total: *mut usize) {
        let here = here()?;
        let info = personality()?.driver.memory(here.machine.memory_info(here.device)?);
        free.put_if_wanted(info.free as usize);
        total.put_if_wanted(info.total as usize);
        Ok(())
    }

    /// The allocation that holds an address. The runtime writes both answers unasked; where one has no place,
    /// a program dies of it.
    fn hipMemGetAddressRange as hipMemGetAddressRange_t(
        out base: *mut hipDeviceptr_t, out bytes: *mut usize, val pointer: hipDeviceptr_t,
    ) {
        let here = here()?;
        if base.is_null() || bytes.is_null() {
            control::trap("hipMemGetAddressRange has null for an answer, which the runtime would write to");
            return Err(Code::INVALID_VALUE);
        }
        let found = here.machine.address_range(DevicePtr(pointer.addr() as u64)).map_err(unknown_address)?;
        base.put(without_provenance_mut(found.base.0 as usize))?;
        bytes.put(found.bytes as usize)
    }
}

/// The runtime has a number of its own for addresses that it does not know.
pub const INVALID_DEVICE_POINTER: Code = Code(hipErrorInvalidDevicePointer.cast_signed());

/// The machine's error about an address, in the runtime's numbers.
pub fn unknown_address(error: alloc_core::backend::BackendError) -> Code {
    match Code::from(error) {
        Code::INVALID_VALUE => INVALID_DEVICE_POINTER,
        code => code,
    }
}
