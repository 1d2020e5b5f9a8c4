//! Page-locked host memory.

use crate::entry::{here, of_pinned};
use crate::header::*;
use backend_api::types::DevicePtr;
use backend_api::{Backend, HostFlags, PinnedHost, PointerKind};
use lookalike::{Answer, Code, rules};
use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ptr::without_provenance_mut;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The flags that ranges were made or registered with.
static FLAGS: LazyLock<Mutex<HashMap<u64, c_uint>>> = LazyLock::new(Mutex::default);

fn remember(base: u64, range: Option<(c_uint, usize)>) {
    rules::pin(base, range.map_or(0, |(_, bytes)| bytes as u64));
    let mut known = FLAGS.lock().unwrap_or_else(PoisonError::into_inner);
    match range {
        // All host memory is mapped where addresses are unified.
        Some((flags, _)) => known.insert(base, flags | CU_MEMHOSTALLOC_DEVICEMAP),
        None => known.remove(&base),
    };
}

fn flags(number: c_uint, allowed: c_uint) -> Answer<HostFlags> {
    if number & !allowed != 0 { Err(Code::INVALID_VALUE) } else { Ok(HostFlags::from_bits_truncate(number)) }
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Takes page-locked memory.
    fn cuMemHostAlloc as cuMemHostAlloc_t(out pointer: *mut *mut c_void, val bytes: usize, val options: c_uint) {
        let here = here()?;
        let wanted = flags(options, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)?;
        pointer.wanted()?;
        of_pinned("cuMemHostAlloc", bytes)?;
        let DevicePtr(base) = here.machine.host_malloc(bytes as u64, wanted)?;
        remember(base, Some((options, bytes)));
        pointer.put(without_provenance_mut(base as usize))
    }

    /// Takes page-locked memory.
    fn cuMemAllocHost_v2 as cuMemAllocHost_v2_t(out pointer: *mut *mut c_void, val bytes: usize) {
        let here = here()?;
        pointer.wanted()?;
        of_pinned("cuMemAllocHost_v2", bytes)?;
        let DevicePtr(base) = here.machine.host_malloc(bytes as u64, HostFlags::empty())?;
        remember(base, Some((0, bytes)));
        pointer.put(without_provenance_mut(base as usize))
    }

    /// Gives page-locked memory back.
    fn cuMemFreeHost as cuMemFreeHost_t(val pointer: *mut c_void) {
        let here = here()?;
        let base = pointer.addr() as u64;
        // SAFETY: the machine refuses what is not the base of live page-locked memory.
        unsafe { here.machine.host_free(DevicePtr(base)) }?;
        remember(base, None);
        Ok(())
    }

    /// The address under which the current device sees page-locked memory.
    fn cuMemHostGetDevicePointer_v2 as cuMemHostGetDevicePointer_v2_t(
        out found: *mut CUdeviceptr, val pointer: *mut c_void, val options: c_uint,
    ) {
        let here = here()?;
        if options != 0 {
            return Err(Code::INVALID_VALUE);
        }
        found.wanted()?;
        let asked = DevicePtr(pointer.addr() as u64);
        if here.machine.pointer_info(asked)?.kind != PointerKind::Host {
            return Err(Code::INVALID_VALUE);
        }
        // Host and devices share one address space.
        found.put(asked.0)
    }

    /// How page-locked memory was made.
    fn cuMemHostGetFlags as cuMemHostGetFlags_t(out options: *mut c_uint, val pointer: *mut c_void) {
        let here = here()?;
        let info = here.machine.pointer_info(DevicePtr(pointer.addr() as u64))?;
        let known = FLAGS.lock().unwrap_or_else(PoisonError::into_inner).get(&info.base.0).copied();
        options.put(known.ok_or(Code::INVALID_VALUE)?)
    }

    /// Page-locks memory of the program.
    fn cuMemHostRegister_v2 as cuMemHostRegister_v2_t(
        val pointer: *mut c_void, val bytes: usize, val options: c_uint,
    ) {
        let here = here()?;
        let wanted = flags(options, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)?;
        of_pinned("cuMemHostRegister_v2", bytes)?;
        let family = here.machine.host_registration()?;
        let base = pointer.addr() as u64;
        let last = base.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE)?.saturating_sub(1);
        // SAFETY: the caller promises that the memory is there until it is unregistered.
        unsafe { family.register(DevicePtr(base), bytes as u64, wanted) }.map_err(|error| {
            let locked = |at| here.machine.pointer_info(DevicePtr(at)).is_ok_and(|info| info.kind == PointerKind::Host);
            match Code::from(error) {
                Code::INVALID_VALUE if base != 0 && bytes > 0 && (locked(base) || locked(last)) => {
                    Code::HOST_MEMORY_ALREADY_REGISTERED
                }
                code => code,
            }
        })?;
        remember(base, Some((options, bytes)));
        Ok(())
    }

    /// Undoes it.
    fn cuMemHostUnregister as cuMemHostUnregister_t(val pointer: *mut c_void) {
        let here = here()?;
        let base = pointer.addr() as u64;
        if base == 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the machine refuses what is not the base of registered memory.
        unsafe { here.machine.host_registration()?.unregister(DevicePtr(base)) }.map_err(|error| {
            match Code::from(error) {
                Code::INVALID_VALUE => Code::HOST_MEMORY_NOT_REGISTERED,
                code => code,
            }
        })?;
        remember(base, None);
        Ok(())
    }
}
