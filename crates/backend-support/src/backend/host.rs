//! Page-locked host memory: made so, or existing memory registered.

use super::{DriverBackend, devices, graphs, memory};
use crate::calls::Calls;
use crate::driver::Family;
use crate::errors::{given_back, memory_is_short};
use backend_api::types::DevicePtr;
use backend_api::{BackendError, ErrorKind, HostFlags, HostRegistration, PinnedHost, PointerKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// A page at least, and whole pages, whatever their size.
const PROBE: Layout = match Layout::from_size_align(1 << 16, 1 << 16) {
    Ok(layout) => layout,
    Err(_) => panic!("64 KiB is a size and a power of two"),
};

/// Some systems have the function, and refuse every range (confidential computing).
pub(super) fn probe_registration<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::HostRegistration)?;
    let _relaxed = graphs::relaxed(backend)?;
    // SAFETY: the size is not 0.
    let pages = unsafe { alloc_zeroed(PROBE) };
    if pages.is_null() {
        handle_alloc_error(PROBE);
    }
    let ptr = DevicePtr(pages.expose_provenance() as u64);
    // SAFETY: the pages were made above, and stay until they are unregistered.
    let registered = unsafe { backend.register(ptr, PROBE.size() as u64, HostFlags::empty()) };
    if registered.is_ok() {
        // SAFETY: rule 3: registered just now, and nothing uses it. Where that is refused the pages stay, for the driver has
        // them still.
        unsafe { backend.unregister(ptr) }?;
    }
    // SAFETY: the pages were made above in this layout, and the driver does not have them.
    unsafe { dealloc(pages, PROBE) };
    registered
}

/// What page-locked memory lacks is not the device's memory.
fn of_host(error: BackendError, bytes: u64) -> BackendError {
    if error.kind != ErrorKind::OutOfMemory {
        return error;
    }
    let detail = format!(
        "{}: {bytes} bytes of page-locked host memory were asked for; the system may allow less of it than is free \
         (WSL2: about half of the memory; see also `ulimit -l`)",
        error.detail
    );
    BackendError { detail, ..error }
}

impl<D: Calls> PinnedHost for DriverBackend<D> {
    fn host_malloc(&self, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let entered = self.context.enter_current(D::NAMES.host_malloc)?;
        entered.positive(D::NAMES.host_malloc, bytes)?;
        D::host_malloc(*entered, bytes as usize, flags)
            .map(DevicePtr)
            .map_err(|error| of_host(memory_is_short(error), bytes))
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = || {
            let entered = self.context.enter_current(D::NAMES.host_free)?;
            memory::live_base(self, *entered, D::NAMES.host_free, ptr, PointerKind::Host)?;
            // SAFETY: rule 3, which the caller keeps.
            unsafe { D::host_free(*entered, ptr.0) }
        };
        given_back(free())
    }
}

impl<D: Calls> HostRegistration for DriverBackend<D> {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: HostFlags) -> Result<()> {
        let call = D::NAMES.register;
        let entered = self.context.enter_current(call)?;
        entered.positive(call, bytes)?;
        if ptr.is_null() {
            return Err(entered.invalid(call, "null is no memory"));
        }
        if flags.contains(HostFlags::WRITE_COMBINED) {
            return Err(entered.invalid(call, "memory that exists cannot become write-combined"));
        }
        // SAFETY: the caller promises that the range is host memory until it is unregistered.
        unsafe { D::register(*entered, ptr.0, bytes as usize, flags) }
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        let unregister = || {
            let entered = self.context.enter_current(D::NAMES.unregister)?;
            if ptr.is_null() {
                return Err(entered.invalid(D::NAMES.unregister, "null was never registered"));
            }
            // SAFETY: rule 3, which the caller keeps; the driver refuses what is not registered.
            unsafe { D::unregister(*entered, ptr.0) }
        };
        given_back(unregister())
    }
}
