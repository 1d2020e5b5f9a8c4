//! Memory and events of other processes.

use crate::driver::{Site, given_back, number, pointer};
use crate::error;
use crate::hip::Hip;
use backend_api::types::{DeviceIndex, DevicePtr, Event};
use backend_api::{BackendError, ErrorKind, Ipc, IpcEventHandle, IpcMemoryHandle, PointerKind, Result};
use hip_sys::abi6::{hipIpcEventHandle_t, hipIpcMemHandle_t};
use hip_sys::{Generation, abi5, abi6};
use std::ffi::{c_char, c_uint};
use std::ptr;

/// Large enough to be an allocation of its own.
const PROBE_BYTES: u64 = 2 << 20;

/// The flag that lets an opener reach another device's memory; its number changed with 6.
const fn lazy_peer_access(generation: Generation) -> c_uint {
    match generation {
        Generation::Five => abi5::hipIpcMemLazyEnablePeerAccess,
        Generation::Six | Generation::Seven => abi6::hipIpcMemLazyEnablePeerAccess,
    }
}

impl Hip {
    pub(crate) fn probe_ipc(&self) -> Result<()> {
        needs!(self: hipIpcGetMemHandle, hipIpcOpenMemHandle, hipIpcCloseMemHandle, hipIpcGetEventHandle,
            hipIpcOpenEventHandle)?;
        let _relaxed = self.relaxed()?;
        let device = self.device_of_thread()?;
        let memory = self.malloc(device, PROBE_BYTES)?;
        let exported = self.export_memory(memory);
        // SAFETY: the memory is this probe's, and nothing uses it.
        let freed = unsafe { self.free(device, memory) };
        exported.map(drop).and(freed)
    }
}

fn not_a_malloc(site: Site<'_>, call: &'static str) -> BackendError {
    let detail =
        "only whole allocations of malloc are shared this way; share virtual memory by its physical handles";
    site.refuse(ErrorKind::NotSupported, call, detail)
}

impl Ipc for Hip {
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle> {
        const CALL: &str = "hipIpcGetMemHandle";
        let entered = self.enter(self.device_at(base)?, CALL)?;
        // The runtime makes a handle for virtual memory, too; it is no good, and opening it can bring the exporter's
        // kernel driver down.
        if self.physical.is_virtual(base.0) || self.pooled.contains(base) || self.imports.contains(base) {
            return Err(not_a_malloc(*entered, CALL));
        }
        let info = self.pointer_info(base)?;
        match info.kind {
            PointerKind::Device if info.base == base => {}
            PointerKind::Device => {
                let detail =
                    format!("{base} lies inside an allocation that begins at {}; export its base", info.base);
                return Err(entered.invalid(CALL, detail));
            }
            PointerKind::Managed => return Err(not_a_malloc(*entered, CALL)),
            _ => return Err(entered.invalid(CALL, format!("no device memory is allocated at {base}"))),
        }
        let mut handle = hipIpcMemHandle_t { reserved: [0; 64] };
        // SAFETY: the function writes 64 bytes, and refuses what cannot be shared.
        unsafe { call!(entered.hipIpcGetMemHandle(&raw mut handle, pointer(base.0))) }?;
        Ok(IpcMemoryHandle(handle.reserved.map(|byte| byte as u8)))
    }

    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr> {
        const CALL: &str = "hipIpcOpenMemHandle";
        let entered = self.enter(device, CALL)?;
        self.imports.open(device, handle, || {
            let raw = hipIpcMemHandle_t { reserved: handle.0.map(|byte| byte as c_char) };
            let flags = lazy_peer_access(self.driver.generation);
            let mut at = ptr::null_mut();
            // SAFETY: the function writes one address, and refuses bytes that no driver made.
            unsafe { call!(entered.hipIpcOpenMemHandle(&raw mut at, raw, flags)) }
                .map_err(|failed| own_handle(*entered, CALL, failed))?;
            Ok(DevicePtr(number(at)))
        })
    }

    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()> {
        let close = || {
            const CALL: &str = "hipIpcCloseMemHandle";
            let closed = self.imports.close(ptr, |device| {
                let entered = self.enter(device, CALL)?;
                // SAFETY: rule 3, which the caller keeps; this is the last reference to what the runtime opened.
                unsafe { call!(entered.hipIpcCloseMemHandle(pointer(ptr.0))) }
            });
            closed.unwrap_or_else(|| {
                let detail = format!("{ptr} was not opened from another process");
                Err(self.any_site(CALL)?.invalid(CALL, detail))
            })
        };
        given_back(close())
    }

    fn export_event(&self, event: Event) -> Result<IpcEventHandle> {
        let entered = self.enter_handle(event.backend, event.device, "hipIpcGetEventHandle")?;
        let mut handle = hipIpcEventHandle_t { reserved: [0; 64] };
        // SAFETY: rule 1; the function writes 64 bytes, and refuses an event that is not for other processes.
        unsafe { call!(entered.hipIpcGetEventHandle(&raw mut handle, pointer(event.raw))) }?;
        Ok(IpcEventHandle(handle.reserved.map(|byte| byte as u8)))
    }

    fn open_event(&self, device: DeviceIndex, handle: &IpcEventHandle) -> Result<Event> {
        const CALL: &str = "hipIpcOpenEventHandle";
        let entered = self.enter(device, CALL)?;
        let raw = hipIpcEventHandle_t { reserved: handle.0.map(|byte| byte as c_char) };
        let mut event = ptr::null_mut();
        // SAFETY: the function writes one handle, and refuses bytes that no driver made.
        unsafe { call!(entered.hipIpcOpenEventHandle(&raw mut event, raw)) }
            .map_err(|failed| own_handle(*entered, CALL, failed))?;
        Ok(Event { raw: number(event), device, backend: self.id })
    }
}

/// The runtime's word for a handle of this very process is "invalid context".
fn own_handle(site: Site<'_>, call: &'static str, failed: BackendError) -> BackendError {
    match failed.code {
        error::INVALID_CONTEXT => BackendError {
            code: failed.code,
            ..site.invalid(call, "the handle was exported by this process, which has the original")
        },
        _ => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_for_peers_follows_the_generation() {
        assert_eq!(lazy_peer_access(Generation::Five), 0);
        assert_eq!(lazy_peer_access(Generation::Six), 1);
        assert_eq!(lazy_peer_access(Generation::Seven), 1);
    }
}
