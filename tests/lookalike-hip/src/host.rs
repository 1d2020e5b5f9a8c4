//! Page-locked host memory.

use crate::entry::here;
use crate::personality::personality;
use alloc_core::backend::HostFlags;
use granule_hip_sys::abi6::*;
use lookalike::argument::Out;
use lookalike::{Answer, Code, host};
use std::ffi::{c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// What CUDA has too.
const COMMON: c_uint = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined;
/// What only AMD has, and the machine makes no difference of.
const OWN: c_uint = hipHostMallocNumaUser | hipHostMallocCoherent | hipHostMallocNonCoherent;

fn flags(number: c_uint, allowed: c_uint) -> Answer<HostFlags> {
    if number & !allowed != 0 { Err(Code::INVALID_VALUE) } else { Ok(HostFlags::from_bits_truncate(number)) }
}

/// Takes memory. Nothing asked for is nothing given, and no error.
fn take(pointer: &Out<*mut c_void>, bytes: usize, options: c_uint) -> Answer {
    let here = here()?;
    pointer.wanted()?;
    let wanted = flags(options, COMMON | OWN)?;
    personality()?.driver.of_pinned("hipHostMalloc", bytes)?;
    if bytes == 0 { pointer.put(null_mut()) } else { host::take(here, pointer, bytes, wanted, options) }
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Takes page-locked memory.
    fn hipHostMalloc as hipHostMalloc_t(out pointer: *mut *mut c_void, val bytes: usize, val options: c_uint) {
        take(&pointer, bytes, options)
    }

    /// The same by CUDA's name.
    fn hipHostAlloc as hipHostAlloc_t(out pointer: *mut *mut c_void, val bytes: usize, val options: c_uint) {
        take(&pointer, bytes, options)
    }

    /// Gives page-locked memory back.
    fn hipHostFree as hipHostFree_t(val pointer: *mut c_void) {
        host::give(here()?, pointer)
    }

    /// The same by CUDA's name.
    fn hipFreeHost as hipFreeHost_t(val pointer: *mut c_void) {
        host::give(here()?, pointer)
    }

    /// The address under which the current device sees page-locked memory.
    fn hipHostGetDevicePointer as hipHostGetDevicePointer_t(
        out found: *mut *mut c_void, val pointer: *mut c_void, val _options: c_uint,
    ) {
        found.put(without_provenance_mut(host::device_address(here()?, pointer)? as usize))
    }

    /// How page-locked memory was made.
    fn hipHostGetFlags as hipHostGetFlags_t(out options: *mut c_uint, val pointer: *mut c_void) {
        host::put_flags(here()?, &options, pointer)
    }

    /// Page-locks memory of the program.
    fn hipHostRegister as hipHostRegister_t(val pointer: *mut c_void, val bytes: usize, val options: c_uint) {
        let here = here()?;
        let allowed =
            hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterIoMemory | hipHostRegisterReadOnly;
        // 4 and 8 mean something else than for new memory.
        let wanted = flags(options, allowed)? & (HostFlags::PORTABLE | HostFlags::MAPPED);
        personality()?.driver.of_pinned("hipHostRegister", bytes)?;
        host::register(here, pointer, bytes, wanted, options)
    }

    /// Undoes it.
    fn hipHostUnregister as hipHostUnregister_t(val pointer: *mut c_void) {
        host::unregister(here()?, pointer)
    }
}
