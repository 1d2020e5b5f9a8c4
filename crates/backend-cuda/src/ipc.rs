//! Memory and events of other processes.

use crate::cuda::Cuda;
use crate::driver::{Site, given_back, number, pointer};
use crate::error;
use crate::memory::{optional, pointer_attribute};
use backend_api::types::{DeviceIndex, DevicePtr, Event};
use backend_api::{BackendError, ErrorKind, Ipc, IpcEventHandle, IpcMemoryHandle, Result};
use cudarc::driver::sys::{CUipcEventHandle, CUipcMem_flags, CUipcMemHandle, CUpointer_attribute};
use std::ffi::{c_char, c_uint};
use std::ptr;

/// Large enough to be an allocation of its own.
const PROBE_BYTES: u64 = 2 << 20;

impl Cuda {
    pub(crate) fn probe_ipc(&self) -> Result<()> {
        needs!(self: cuIpcGetMemHandle, cuIpcOpenMemHandle_v2, cuIpcCloseMemHandle, cuIpcGetEventHandle,
            cuIpcOpenEventHandle)?;
        let _relaxed = self.relaxed()?;
        let device = self.device_of_thread()?;
        let memory = self.malloc(device, PROBE_BYTES)?;
        let exported = self.export_memory(memory);
        // SAFETY: the memory is this probe's, and nothing uses it.
        let freed = unsafe { self.free(device, memory) };
        exported.map(drop).and(freed)
    }
}

/// Whether the driver says that an address can be shared this way; none where it has no answer.
fn shareable(site: Site<'_>, ptr: DevicePtr) -> Result<Option<bool>> {
    let which = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
    let asked: Result<c_uint> = pointer_attribute(site, which, ptr);
    Ok(optional(asked)?.map(|capable| capable != 0))
}

/// Whether virtual memory is mapped at an address.
fn is_mapped(site: Site<'_>, ptr: DevicePtr) -> bool {
    let mut handle = 0;
    // SAFETY: the function writes one handle, and refuses an address where nothing is mapped.
    let retained = unsafe { call!(site.cuMemRetainAllocationHandle(&raw mut handle, pointer(ptr.0))) };
    // SAFETY: gives back the reference that was just taken.
    retained.is_ok() && unsafe { call!(site.cuMemRelease(handle)) }.is_ok()
}

fn not_a_malloc(site: Site<'_>, call: &'static str) -> BackendError {
    let detail =
        "only whole allocations of malloc are shared this way; share virtual memory by its physical handles";
    site.refuse(ErrorKind::NotSupported, call, detail)
}

impl Ipc for Cuda {
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle> {
        const CALL: &str = "cuIpcGetMemHandle";
        let entered = self.enter(self.device_at(base)?, CALL)?;
        if shareable(*entered, base)? == Some(false) || self.physical.memory_at(base.0).is_some() {
            return Err(not_a_malloc(*entered, CALL));
        }
        let range = self.address_range(base)?;
        if range.base != base {
            let detail =
                format!("{base} lies inside an allocation that begins at {}; export its base", range.base);
            return Err(entered.invalid(CALL, detail));
        }
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the function writes 64 bytes, and refuses what cannot be shared.
        let asked = unsafe { call!(entered.cuIpcGetMemHandle(&raw mut handle, base.0)) };
        match asked {
            Ok(()) => Ok(IpcMemoryHandle(handle.reserved.map(|byte| byte as u8))),
            Err(failed) if failed.code == error::INVALID_VALUE && is_mapped(*entered, base) => {
                Err(not_a_malloc(*entered, CALL))
            }
            Err(failed) => Err(failed),
        }
    }

    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr> {
        const CALL: &str = "cuIpcOpenMemHandle";
        let entered = self.enter(device, CALL)?;
        self.imports.open(device, handle, || {
            let raw = CUipcMemHandle { reserved: handle.0.map(|byte| byte as c_char) };
            let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as c_uint;
            let mut at = 0;
            // SAFETY: the function writes one address, and refuses bytes that no driver made.
            unsafe { call!(entered.cuIpcOpenMemHandle_v2(&raw mut at, raw, flags)) }
                .map_err(|failed| own_handle(*entered, CALL, failed))?;
            Ok(DevicePtr(at))
        })
    }

    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()> {
        let close = || {
            const CALL: &str = "cuIpcCloseMemHandle";
            let closed = self.imports.close(ptr, |device| {
                let entered = self.enter(device, CALL)?;
                // SAFETY: rule 3, which the caller keeps; this is the last reference to what the driver opened.
                unsafe { call!(entered.cuIpcCloseMemHandle(ptr.0)) }
            });
            closed.unwrap_or_else(|| {
                let detail = format!("{ptr} was not opened from another process");
                Err(self.any_site(CALL)?.invalid(CALL, detail))
            })
        };
        given_back(close())
    }

    fn export_event(&self, event: Event) -> Result<IpcEventHandle> {
        let entered = self.enter_handle(event.backend, event.device, "cuIpcGetEventHandle")?;
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: rule 1; the function writes 64 bytes, and refuses an event that is not for other processes.
        unsafe { call!(entered.cuIpcGetEventHandle(&raw mut handle, pointer(event.raw))) }?;
        Ok(IpcEventHandle(handle.reserved.map(|byte| byte as u8)))
    }

    fn open_event(&self, device: DeviceIndex, handle: &IpcEventHandle) -> Result<Event> {
        const CALL: &str = "cuIpcOpenEventHandle";
        let entered = self.enter(device, CALL)?;
        let raw = CUipcEventHandle { reserved: handle.0.map(|byte| byte as c_char) };
        let mut event = ptr::null_mut();
        // SAFETY: the function writes one handle, and refuses bytes that no driver made.
        unsafe { call!(entered.cuIpcOpenEventHandle(&raw mut event, raw)) }
            .map_err(|failed| own_handle(*entered, CALL, failed))?;
        Ok(Event { raw: number(event), device, backend: self.id })
    }
}

/// The driver's word for a handle of this very process is "invalid context".
fn own_handle(site: Site<'_>, call: &'static str, failed: BackendError) -> BackendError {
    match failed.code {
        error::INVALID_CONTEXT => BackendError {
            code: failed.code,
            ..site.invalid(call, "the handle was exported by this process, which has the original")
        },
        _ => failed,
    }
}
