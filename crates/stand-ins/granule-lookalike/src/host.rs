//! Page-locked host memory.

use crate::argument::Out;
use crate::{Answer, Code, Here, rules};
use backend_api::types::DevicePtr;
use backend_api::{Backend, HostFlags, PinnedHost, PointerKind};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The flags that ranges were made or registered with.
static FLAGS: LazyLock<Mutex<HashMap<u64, u32>>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, HashMap<u64, u32>> {
    FLAGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember(base: u64, bytes: usize, flags: u32) {
    rules::pin(base, bytes as u64);
    known().insert(base, flags);
}

fn forget(base: u64) {
    rules::pin(base, 0);
    known().remove(&base);
}

/// The flags that page-locked memory was made or registered with.
#[must_use]
pub fn flags_of(base: DevicePtr) -> Option<u32> {
    known().get(&base.0).copied()
}

/// Takes memory; `flags` are those that it is said to have.
pub fn take(here: Here, pointer: &Out<*mut c_void>, bytes: usize, wanted: HostFlags, flags: u32) -> Answer {
    let DevicePtr(base) = here.machine.host_malloc(bytes as u64, wanted)?;
    remember(base, bytes, flags);
    pointer.put(without_provenance_mut(base as usize))
}

/// Gives memory back.
pub fn give(here: Here, pointer: *mut c_void) -> Answer {
    let base = pointer.addr() as u64;
    // SAFETY: the machine refuses what is not the base of live page-locked memory.
    unsafe { here.machine.host_free(DevicePtr(base)) }?;
    forget(base);
    Ok(())
}

/// The address under which devices see page-locked memory: host and devices share one address space.
///
/// # Errors
/// `INVALID_VALUE` for what is no such memory.
pub fn device_address(here: Here, pointer: *mut c_void) -> Answer<u64> {
    let asked = DevicePtr(pointer.addr() as u64);
    let is_host = here.machine.pointer_info(asked)?.kind == PointerKind::Host;
    if is_host { Ok(asked.0) } else { Err(Code::INVALID_VALUE) }
}

/// Tells how page-locked memory was made.
///
/// # Errors
/// `INVALID_VALUE` for what is no such memory.
pub fn put_flags(here: Here, place: &Out<u32>, pointer: *mut c_void) -> Answer {
    let info = here.machine.pointer_info(DevicePtr(pointer.addr() as u64))?;
    place.put(flags_of(info.base).ok_or(Code::INVALID_VALUE)?)
}

/// Page-locks memory of the program; `flags` are those that it is said to have.
///
/// # Errors
/// `HOST_MEMORY_ALREADY_REGISTERED`; what the machine says.
pub fn register(here: Here, pointer: *mut c_void, bytes: usize, wanted: HostFlags, flags: u32) -> Answer {
    let family = here.machine.host_registration()?;
    let base = pointer.addr() as u64;
    let last = base.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE)?.saturating_sub(1);
    // SAFETY: the caller promises its driver that the memory is there until it is unregistered.
    unsafe { family.register(DevicePtr(base), bytes as u64, wanted) }.map_err(|error| {
        let info = |at| here.machine.pointer_info(DevicePtr(at));
        let locked = |at| info(at).is_ok_and(|info| info.kind == PointerKind::Host);
        match Code::from(error) {
            Code::INVALID_VALUE if base != 0 && bytes > 0 && (locked(base) || locked(last)) => {
                Code::HOST_MEMORY_ALREADY_REGISTERED
            }
            code => code,
        }
    })?;
    remember(base, bytes, flags);
    Ok(())
}

/// Undoes it.
///
/// # Errors
/// `HOST_MEMORY_NOT_REGISTERED`; what the machine says.
pub fn unregister(here: Here, pointer: *mut c_void) -> Answer {
    let base = pointer.addr() as u64;
    if base == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let family = here.machine.host_registration()?;
    // SAFETY: the machine refuses what is not the base of registered memory.
    unsafe { family.unregister(DevicePtr(base)) }.map_err(|error| match Code::from(error) {
        Code::INVALID_VALUE => Code::HOST_MEMORY_NOT_REGISTERED,
        code => code,
    })?;
    forget(base);
    Ok(())
}
