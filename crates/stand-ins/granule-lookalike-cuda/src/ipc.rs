//! Sharing with other processes.

use crate::entry::here;
use crate::header::*;
use crate::memory::pools;
use backend_api::types::DevicePtr;
use backend_api::{Backend, IpcMemoryHandle};
use backend_openreg::Driver;
use lookalike::{Code, events, ipc};
use std::ffi::c_uint;

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// A handle for a whole allocation; virtual and pool memory have none.
    fn cuIpcGetMemHandle as cuIpcGetMemHandle_t(out handle: *mut CUipcMemHandle, val pointer: CUdeviceptr) {
        let here = here()?;
        handle.wanted()?;
        let family = here.machine.ipc()?;
        if pools::owner(pointer).is_some() {
            return Err(Code::INVALID_VALUE);
        }
        let exported = family.export_memory(DevicePtr(pointer)).map_err(|error| match Code::from(error) {
            // The machine says more exactly than drivers that it is virtual memory.
            Code::NOT_SUPPORTED => Code::INVALID_VALUE,
            code => code,
        })?;
        handle.put(CUipcMemHandle { reserved: ipc::exported(exported.0) })
    }

    /// Opens another process's memory; the same handle again gives the same address.
    fn cuIpcOpenMemHandle_v2 as cuIpcOpenMemHandle_v2_t(
        out pointer: *mut CUdeviceptr, val handle: CUipcMemHandle, val flags: c_uint,
    ) {
        let here = here()?;
        if flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
            return Err(Code::INVALID_VALUE);
        }
        pointer.wanted()?;
        let family = here.machine.ipc()?;
        let handle = ipc::foreign(handle.reserved)?;
        pointer.put(family.open_memory(here.device, &IpcMemoryHandle(handle))?.0)
    }

    /// Closes it again.
    fn cuIpcCloseMemHandle as cuIpcCloseMemHandle_t(val pointer: CUdeviceptr) {
        let here = here()?;
        // SAFETY: the machine refuses what was not opened.
        Ok(unsafe { here.machine.ipc()?.close_memory(DevicePtr(pointer)) }?)
    }

    /// A handle for an event.
    fn cuIpcGetEventHandle as cuIpcGetEventHandle_t(out handle: *mut CUipcEventHandle, val event: CUevent) {
        let here = here()?;
        handle.wanted()?;
        let known = events::resolve(event)?;
        if !known.is_shared {
            return Err(Code::INVALID_HANDLE);
        }
        let exported = Driver(here.machine).export_event(known.event)?;
        handle.put(CUipcEventHandle { reserved: ipc::exported(exported) })
    }

    /// Opens another process's event.
    fn cuIpcOpenEventHandle as cuIpcOpenEventHandle_t(out event: *mut CUevent, val handle: CUipcEventHandle) {
        let here = here()?;
        event.wanted()?;
        let handle = ipc::foreign(handle.reserved)?;
        let opened = Driver(here.machine).open_event(here.device, &handle)?;
        event.put(events::adopt(opened))
    }
}
