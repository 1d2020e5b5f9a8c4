//! Page-locked host memory.

use crate::entry::{here, of_pinned};
use alloc_core::backend::{Backend, HostFlags, PinnedHost, PointerKind};
use alloc_core::types::DevicePtr;
use granule_hip_sys::abi6::*;
use lookalike::argument::Out;
use lookalike::{Answer, Code, rules};
use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ptr::without_provenance_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// What CUDA has too.
const COMMON: c_uint = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined;
/// What only AMD has, and the machine makes no difference of.
const OWN: c_uint = hipHostMallocNumaUser | hipHostMallocCoherent | hipHostMallocNonCoherent;

/// The flags that ranges were made or registered with.
static FLAGS: LazyLock<Mutex<HashMap<u64, c_uint>>> = LazyLock::new(Mutex::default);

fn known_flags() -> MutexGuard<'static, HashMap<u64, c_uint>> {
    FLAGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The flags that page-locked memory was made or registered with.
#[must_use]
pub fn flags_of(base: DevicePtr) -> Option<c_uint> {
    known_flags().get(&base.0).copied()
}

fn flags(number: c_uint, allowed: c_uint) -> Answer<HostFlags> {
    if number & !allowed != 0 { Err(Code::INVALID_VALUE) } else { Ok(HostFlags::from_bits_truncate(number)) }
}

/// Takes memory. Nothing asked for is nothing given, and no error.
fn take(pointer: &Out<*mut c_void>, bytes: usize, options: c_uint) -> Answer {
    let here = here()?;
    pointer.wanted()?;
    let wanted = flags(options, COMMON | OWN)?;
    of_pinned("hipHostMalloc", bytes)?;
    let base = if bytes == 0 { 0 } else { here.machine.host_malloc(bytes as u64, wanted)?.0 };
    if base != 0 {
        known_flags().insert(base, options);
        rules::pin(base, bytes as u64);
    }
    pointer.put(without_provenance_mut(base as usize))
}

fn give(pointer: *mut c_void) -> Answer {
    let here = here()?;
    let base = pointer.addr() as u64;
    // SAFETY: the machine refuses what is not the base of live page-locked memory.
    unsafe { here.machine.host_free(DevicePtr(base)) }?;
    known_flags().remove(&base);
    rules::pin(base, 0);
    Ok(())
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
        give(pointer)
    }

    /// The same by CUDA's name.
    fn hipFreeHost as hipFreeHost_t(val pointer: *mut c_void) {
        give(pointer)
    }

    /// The address under which the current device sees page-locked memory.
    fn hipHostGetDevicePointer as hipHostGetDevicePointer_t(
        out found: *mut *mut c_void, val pointer: *mut c_void, val _options: c_uint,
    ) {
        let here = here()?;
        found.wanted()?;
        let asked = DevicePtr(pointer.addr() as u64);
        if here.machine.pointer_info(asked)?.kind != PointerKind::Host {
            return Err(Code::INVALID_VALUE);
        }
        // Host and devices share one address space here.
        found.put(without_provenance_mut(asked.0 as usize))
    }

    /// How page-locked memory was made.
    fn hipHostGetFlags as hipHostGetFlags_t(out options: *mut c_uint, val pointer: *mut c_void) {
        let info = here()?.machine.pointer_info(DevicePtr(pointer.addr() as u64))?;
        options.put(flags_of(info.base).ok_or(Code::INVALID_VALUE)?)
    }

    /// Page-locks memory of the program.
    fn hipHostRegister as hipHostRegister_t(val pointer: *mut c_void, val bytes: usize, val options: c_uint) {
        let here = here()?;
        let allowed =
            hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterIoMemory | hipHostRegisterReadOnly;
        // 4 and 8 mean something else than for new memory.
        let wanted = flags(options, allowed)? & (HostFlags::PORTABLE | HostFlags::MAPPED);
        of_pinned("hipHostRegister", bytes)?;
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
        known_flags().insert(base, options);
        rules::pin(base, bytes as u64);
        Ok(())
    }

    /// Undoes it.
    fn hipHostUnregister as hipHostUnregister_t(val pointer: *mut c_void) {
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
        rules::pin(base, 0);
        known_flags().remove(&base);
        Ok(())
    }
}
