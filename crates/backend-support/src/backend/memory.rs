//! Device memory, questions about addresses, copies and fills.

use super::{DriverBackend, graphs};
use crate::calls::Calls;
use crate::driver::Site;
use crate::errors::{given_back, log_undo};
use crate::physical::Place;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{AddressRange, CopyKind, ErrorKind, MemoryInfo, PointerInfo, PointerKind, Result};

/// What memory handed out is aligned to (rule I1).
const ALIGNMENT: u64 = 512;

const UNMANAGED: PointerInfo =
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

pub(super) fn malloc<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    bytes: u64,
) -> Result<DevicePtr> {
    let call = D::NAMES.malloc;
    let entered = backend.context.enter(device, call)?;
    entered.positive(call, bytes)?;
    let ptr = D::malloc(*entered, bytes as usize)?;
    // SAFETY: nobody knows the address yet.
    aligned(*entered, ptr, call, || unsafe { D::free(*entered, ptr) })
}

pub(super) unsafe fn free<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    ptr: DevicePtr,
) -> Result<()> {
    if ptr.is_null() {
        return Ok(());
    }
    let free = || {
        let entered = backend.context.enter(device, D::NAMES.free)?;
        // SAFETY: rule 3, which the caller keeps.
        let free = || unsafe { D::free(*entered, ptr.0) };
        let kinds = [PointerKind::Device, PointerKind::Managed];
        live_base(backend, *entered, D::NAMES.free, ptr, &kinds)?;
        if D::ABILITIES.tells_shareable { free() } else { backend.pooled.giving_back(ptr, free) }
    };
    given_back(free())
}

/// Refuses what a free must not see, where the driver does not: how it takes addresses inside an allocation, and memory
/// of another kind, may differ by version.
pub(super) fn live_base<D: Calls>(
    backend: &DriverBackend<D>,
    site: Site<'_, D>,
    call: &'static str,
    ptr: DevicePtr,
    kinds: &[PointerKind],
) -> Result<()> {
    if D::ABILITIES.checks_frees {
        return Ok(());
    }
    let info = pointer_info(backend, ptr)?;
    let is_base = kinds.contains(&info.kind) && info.base == ptr;
    if is_base && backend.physical.place(ptr.0) == Place::Elsewhere && !backend.imports.contains(ptr) {
        return Ok(());
    }
    Err(site.invalid(call, format!("{ptr} is not where a live allocation of {kinds:?} memory begins")))
}

pub(super) fn memory_info<D: Calls>(backend: &DriverBackend<D>, device: DeviceIndex) -> Result<MemoryInfo> {
    D::memory_info(*backend.context.enter(device, D::NAMES.memory_info)?)
}

pub(super) fn pointer_info<D: Calls>(backend: &DriverBackend<D>, ptr: DevicePtr) -> Result<PointerInfo> {
    if ptr.is_null() {
        return Ok(UNMANAGED);
    }
    // What drivers say about virtual memory differs: where the reservation begins, or not even that. This backend knows
    // what it mapped.
    match backend.physical.place(ptr.0) {
        Place::Mapped { base, device, .. } => {
            backend.context.site(device, D::NAMES.pointer_attribute)?;
            Ok(PointerInfo { kind: PointerKind::Device, device: Some(device), base: DevicePtr(base) })
        }
        Place::Reserved => Ok(UNMANAGED),
        Place::Elsewhere => D::pointer_info(&backend.context, ptr),
    }
}

pub(super) fn address_range<D: Calls>(backend: &DriverBackend<D>, ptr: DevicePtr) -> Result<AddressRange> {
    if !D::ABILITIES.tells_mappings {
        let call = D::NAMES.address_range;
        match backend.physical.place(ptr.0) {
            Place::Mapped { base, bytes, device } => {
                backend.context.site(device, call)?;
                return Ok(AddressRange { base: DevicePtr(base), bytes });
            }
            Place::Reserved => {
                let site = backend.context.any_site(call)?;
                return Err(site.invalid(call, format!("nothing is allocated at {ptr}")));
            }
            Place::Elsewhere => {}
        }
    }
    D::address_range(&backend.context, ptr)
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

pub(super) unsafe fn copy<D: Calls>(
    backend: &DriverBackend<D>,
    dst: DevicePtr,
    src: DevicePtr,
    bytes: u64,
    kind: CopyKind,
) -> Result<()> {
    let call = D::NAMES.copy;
    let device = match kind {
        CopyKind::HostToHost => backend.context.device_of_thread()?,
        CopyKind::HostToDevice | CopyKind::DeviceToDevice => device_at(backend, dst)?,
        CopyKind::DeviceToHost => device_at(backend, src)?,
    };
    let entered = backend.context.enter(device, call)?;
    entered.positive(call, bytes)?;
    graphs::not_during_capture(backend, *entered, call)?;
    // SAFETY: rule 2 for both ranges, and the caller says truly which side is what.
    unsafe { D::copy(*entered, dst, src, bytes as usize, kind) }?;
    match kind {
        CopyKind::HostToHost | CopyKind::DeviceToHost => Ok(()),
        // The driver may return from these two before the bytes have arrived. The null stream is that of the current
        // device, on which the copy ran.
        CopyKind::HostToDevice | CopyKind::DeviceToDevice => {
            let stream = Stream { raw: 0, device, backend: backend.context.id() };
            D::synchronize_stream(*entered, stream)
        }
    }
}

pub(super) unsafe fn copy_async<D: Calls>(
    backend: &DriverBackend<D>,
    dst: DevicePtr,
    src: DevicePtr,
    bytes: u64,
    kind: CopyKind,
    stream: Stream,
) -> Result<()> {
    let call = D::NAMES.copy_async;
    let entered = backend.context.enter_handle(stream.backend, stream.device, call)?;
    entered.positive(call, bytes)?;
    // SAFETY: rule 2 for both ranges until the stream has passed it, and the caller says truly which side is what.
    unsafe { D::copy_async(*entered, dst, src, bytes as usize, kind, stream) }
}

pub(super) unsafe fn memset_async<D: Calls>(
    backend: &DriverBackend<D>,
    dst: DevicePtr,
    value: u8,
    bytes: u64,
    stream: Stream,
) -> Result<()> {
    let call = D::NAMES.memset_async;
    let entered = backend.context.enter_handle(stream.backend, stream.device, call)?;
    entered.positive(call, bytes)?;
    // SAFETY: rule 2 for the range until the stream has passed it.
    unsafe { D::memset_async(*entered, dst, value, bytes as usize, stream) }
}
