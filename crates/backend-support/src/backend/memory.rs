//! Questions about addresses: what may be handed out and freed, and whose memory it is.

use super::DriverBackend;
use crate::calls::Calls;
use crate::driver::Site;
use crate::errors::log_undo;
use crate::physical::Place;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Backend, ErrorKind, PointerInfo, PointerKind, Result};

/// What memory handed out is aligned to (rule I1).
const ALIGNMENT: u64 = 512;

/// Of an address that is no memory of the driver.
pub(super) const UNMANAGED: PointerInfo =
    PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL };

/// Memory that was handed out; where it is not aligned as the contract promises, `give_back` gets it.
pub(super) fn aligned<D: Calls>(
    site: Site<'_, D>,
    ptr: u64,
    call: &'static str,
    give_back: impl FnOnce() -> Result<()>,
) -> Result<DevicePtr> {
    if ptr != 0 && ptr.is_multiple_of(ALIGNMENT) {
        return Ok(DevicePtr(ptr));
    }
    log_undo(give_back());
    let detail = format!("the {} handed out {ptr:#x}, which is not aligned to {ALIGNMENT} bytes", D::NOUN);
    Err(site.refuse(ErrorKind::Other, call, detail))
}

/// Refuses what a free must not see, where the driver does not: how it takes addresses inside an allocation, and memory
/// of another kind, may differ by version.
pub(super) fn live_base<D: Calls>(
    backend: &DriverBackend<D>,
    site: Site<'_, D>,
    call: &'static str,
    ptr: DevicePtr,
    kind: PointerKind,
) -> Result<()> {
    if D::ABILITIES.checks_frees {
        return Ok(());
    }
    let info = backend.pointer_info(ptr)?;
    let is_base = info.kind == kind && info.base == ptr;
    if is_base && backend.physical.place(ptr.0) == Place::Elsewhere && !backend.imports.contains(ptr) {
        return Ok(());
    }
    Err(site.invalid(call, format!("{ptr} is not where a live allocation of {kind:?} memory begins")))
}

/// The device in whose memory an address lies; the thread's current one where it lies in none.
pub(super) fn device_at<D: Calls>(backend: &DriverBackend<D>, ptr: DevicePtr) -> Result<DeviceIndex> {
    if !D::ABILITIES.tells_mappings
        && let Some(device) = backend.physical.device_at(ptr.0)
    {
        return Ok(device);
    }
    match D::device_of(&backend.context, ptr)? {
        Some(device) => Ok(device),
        None => backend.context.device_of_thread(),
    }
}
