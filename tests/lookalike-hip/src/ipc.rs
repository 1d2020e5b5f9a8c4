//! Sharing with other processes.

use crate::entry::here;
use crate::memory::{INVALID_DEVICE_POINTER, unknown_address};
use alloc_core::backend::{Backend, IpcMemoryHandle};
use alloc_core::types::DevicePtr;
use granule_hip_sys::abi6::*;
use lookalike::{Code, control, ipc};
use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ptr::without_provenance_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// What a handle of virtual memory is: bytes that no process can open.
const POISON: [u8; 64] = [0xdb; 64];

/// What is open: address, and the handle that it was opened from.
static OPENED: LazyLock<Mutex<HashMap<u64, [u8; 64]>>> = LazyLock::new(Mutex::default);

fn opened() -> MutexGuard<'static, HashMap<u64, [u8; 64]>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// A handle for a whole allocation. The runtime does not notice that it can share no virtual memory, and
    /// may harm the machine; here the handle is worthless.
    fn hipIpcGetMemHandle as hipIpcGetMemHandle_t(out handle: *mut hipIpcMemHandle_t, val pointer: *mut c_void) {
        let here = here()?;
        handle.wanted()?;
        let family = here.machine.ipc()?;
        let base = pointer.addr() as u64;
        let bytes = match family.export_memory(DevicePtr(base)).map_err(unknown_address) {
            Ok(exported) => exported.0,
            Err(Code::NOT_SUPPORTED) => {
                control::trap("hipIpcGetMemHandle was given virtual memory, which the runtime does not refuse");
                POISON
            }
            Err(code) => return Err(code),
        };
        handle.put(hipIpcMemHandle_t { reserved: ipc::exported(bytes) })
    }

    /// Opens another process's memory; once.
    fn hipIpcOpenMemHandle as hipIpcOpenMemHandle_t(
        out pointer: *mut *mut c_void, val handle: hipIpcMemHandle_t, val flags: c_uint,
    ) {
        let here = here()?;
        pointer.wanted()?;
        if flags != hipIpcMemLazyEnablePeerAccess {
            return Err(Code::INVALID_VALUE);
        }
        let family = here.machine.ipc()?;
        let handle = ipc::foreign(handle.reserved)?;
        let mut opened = opened();
        if opened.values().any(|known| *known == handle) {
            return Err(INVALID_DEVICE_POINTER);
        }
        let DevicePtr(base) = family.open_memory(here.device, &IpcMemoryHandle(handle)).map_err(unknown_address)?;
        opened.insert(base, handle);
        pointer.put(without_provenance_mut(base as usize))
    }

    /// Closes it again.
    fn hipIpcCloseMemHandle as hipIpcCloseMemHandle_t(val pointer: *mut c_void) {
        let here = here()?;
        let base = pointer.addr() as u64;
        // SAFETY: the machine refuses what was not opened.
        unsafe { here.machine.ipc()?.close_memory(DevicePtr(base)) }?;
        opened().remove(&base);
        Ok(())
    }
}
