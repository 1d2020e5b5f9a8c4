//! Page-locked host memory.

use crate::entry::here;
use crate::header::*;
use crate::personality::personality;
use backend_api::HostFlags;
use lookalike::argument::Out;
use lookalike::{Answer, Code, host};
use std::ffi::{c_uint, c_void};

fn flags(number: c_uint, allowed: c_uint) -> Answer<HostFlags> {
    if number & !allowed != 0 { Err(Code::INVALID_VALUE) } else { Ok(HostFlags::from_bits_truncate(number)) }
}

/// All host memory is mapped where addresses are unified.
const fn shown(options: c_uint) -> c_uint {
    options | CU_MEMHOSTALLOC_DEVICEMAP
}

fn take(function: &str, pointer: &Out<*mut c_void>, bytes: usize, options: c_uint) -> Answer {
    let here = here()?;
    let allowed = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    let wanted = flags(options, allowed)?;
    pointer.wanted()?;
    personality()?.driver.of_pinned(function, bytes)?;
    host::take(here, pointer, bytes, wanted, shown(options))
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Takes page-locked memory.
    fn cuMemHostAlloc as cuMemHostAlloc_t(out pointer: *mut *mut c_void, val bytes: usize, val options: c_uint) {
        take("cuMemHostAlloc", &pointer, bytes, options)
    }

    /// Takes page-locked memory.
    fn cuMemAllocHost_v2 as cuMemAllocHost_v2_t(out pointer: *mut *mut c_void, val bytes: usize) {
        take("cuMemAllocHost_v2", &pointer, bytes, 0)
    }

    /// Gives page-locked memory back.
    fn cuMemFreeHost as cuMemFreeHost_t(val pointer: *mut c_void) {
        host::give(here()?, pointer)
    }

    /// The address under which the current device sees page-locked memory.
    fn cuMemHostGetDevicePointer_v2 as cuMemHostGetDevicePointer_v2_t(
        out found: *mut CUdeviceptr, val pointer: *mut c_void, val options: c_uint,
    ) {
        let here = here()?;
        if options != 0 {
            return Err(Code::INVALID_VALUE);
        }
        found.put(host::device_address(here, pointer)?)
    }

    /// How page-locked memory was made.
    fn cuMemHostGetFlags as cuMemHostGetFlags_t(out options: *mut c_uint, val pointer: *mut c_void) {
        host::put_flags(here()?, &options, pointer)
    }

    /// Page-locks memory of the program.
    fn cuMemHostRegister_v2 as cuMemHostRegister_v2_t(
        val pointer: *mut c_void, val bytes: usize, val options: c_uint,
    ) {
        let here = here()?;
        let wanted = flags(options, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)?;
        personality()?.driver.of_pinned("cuMemHostRegister_v2", bytes)?;
        host::register(here, pointer, bytes, wanted, shown(options))
    }

    /// Undoes it.
    fn cuMemHostUnregister as cuMemHostUnregister_t(val pointer: *mut c_void) {
        host::unregister(here()?, pointer)
    }
}
