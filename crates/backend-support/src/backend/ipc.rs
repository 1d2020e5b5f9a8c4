//! Memory of other processes.

use super::{DriverBackend, devices, graphs, memory};
use crate::calls::Calls;
use crate::driver::{Family, Site};
use crate::errors::{INVALID_CONTEXT, given_back};
use crate::physical::Place;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Backend, BackendError, ErrorKind, Ipc, IpcMemoryHandle, Result};

/// Large enough to be an allocation of its own.
const PROBE_BYTES: u64 = 2 << 20;

pub(super) fn probe<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::Ipc)?;
    let _relaxed = graphs::relaxed(backend)?;
    let device = backend.context.device_of_thread()?;
    let memory = backend.malloc(device, PROBE_BYTES)?;
    let exported = backend.export_memory(memory);
    // SAFETY: the memory is this probe's, and nothing uses it.
    let freed = unsafe { backend.free(device, memory) };
    exported.map(drop).and(freed)
}

/// Whether memory is known to come from elsewhere than `malloc`. Some drivers make a handle for it all the same, which is
/// no good: opening one for virtual memory can bring the exporter's kernel driver down.
fn is_no_malloc<D: Calls>(backend: &DriverBackend<D>, base: DevicePtr) -> bool {
    let is_imported = || backend.imports.contains(base);
    backend.physical.place(base.0) != Place::Elsewhere || !D::ABILITIES.tells_shareable && is_imported()
}

impl<D: Calls> Ipc for DriverBackend<D> {
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle> {
        let call = D::NAMES.export_memory;
        let entered = self.context.enter(memory::device_at(self, base)?, call)?;
        let not_a_malloc = || {
            let detail = "only whole allocations of malloc are shared this way; share virtual memory by its \
                          physical handles";
            entered.refuse(ErrorKind::NotSupported, call, detail)
        };
        if is_no_malloc(self, base) {
            return Err(not_a_malloc());
        }
        let begin = D::shareable_base(&self.context, *entered, base)?.ok_or_else(not_a_malloc)?;
        if begin != base {
            let detail = format!("{base} lies inside an allocation that begins at {begin}; export its base");
            return Err(entered.invalid(call, detail));
        }
        D::export_memory(*entered, base)?.ok_or_else(not_a_malloc)
    }

    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr> {
        let call = D::NAMES.open_memory;
        let entered = self.context.enter(device, call)?;
        self.imports.open(device, handle, || {
            D::open_memory(*entered, handle)
                .map(DevicePtr)
                .map_err(|failed| own_handle(*entered, call, failed))
        })
    }

    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()> {
        let call = D::NAMES.close_memory;
        let close = || {
            let closed = self.imports.close(ptr, |device| {
                let entered = self.context.enter(device, call)?;
                // SAFETY: rule 3, which the caller keeps; this is the last reference to what the driver opened.
                unsafe { D::close_memory(*entered, ptr.0) }
            });
            closed.unwrap_or_else(|| {
                let detail = format!("{ptr} was not opened from another process");
                Err(self.context.any_site(call)?.invalid(call, detail))
            })
        };
        given_back(close())
    }
}

/// The drivers' word for a handle of this very process is "invalid context".
fn own_handle<D: Calls>(site: Site<'_, D>, call: &'static str, failed: BackendError) -> BackendError {
    match failed.code {
        INVALID_CONTEXT => BackendError {
            code: failed.code,
            ..site.invalid(call, "the handle was exported by this process, which has the original")
        },
        _ => failed,
    }
}
