//! What follows from other functions of the contract: the bodies of [`Backend`]'s default methods.
//!
//! They are here for backends that have a function only sometimes, as a table of C functions does. Each refuses what
//! the contract refuses: devices that do not exist, and handles of other backends.

use crate::types::{BackendId, DeviceIndex, DevicePtr, Event};
use crate::{Attribute, Backend, BackendError, CopyKind, DeviceProperties, ErrorKind, PriorityRange, Result};

/// [`Backend::has_primary_context`]: every device has one at any time.
pub fn has_primary_context(backend: &(impl Backend + ?Sized), device: DeviceIndex) -> Result<bool> {
    exists(backend, "has_primary_context", device).map(|()| true)
}

/// [`Backend::attribute`]: no question has an answer.
pub fn attribute(
    backend: &(impl Backend + ?Sized),
    device: DeviceIndex,
    attribute: Attribute,
) -> Result<i64> {
    exists(backend, "attribute", device)?;
    let detail = format!("this backend answers no attribute, so not {attribute:?} either");
    Err(refused(backend, ErrorKind::NotSupported, "attribute", device, detail))
}

/// [`Backend::graph_memory`]: nobody tells.
pub fn graph_memory(backend: &(impl Backend + ?Sized), device: DeviceIndex) -> Result<u64> {
    exists(backend, "graph_memory", device)?;
    let detail = "this backend does not tell what graphs hold for their nodes";
    Err(refused(backend, ErrorKind::NotSupported, "graph_memory", device, detail))
}

/// [`Backend::properties`]: the backend's name, and the total of its memory.
pub fn properties(backend: &(impl Backend + ?Sized), device: DeviceIndex) -> Result<DeviceProperties> {
    let total_memory = backend.memory_info(device)?.total;
    // A device without warps runs its threads one by one.
    Ok(DeviceProperties {
        name: backend.name().to_owned(),
        uuid: None,
        pci_bus_id: None,
        total_memory,
        warp_size: 1,
    })
}

/// [`Backend::copy`]: queued on the default stream of the device whose memory it is, and waited for.
///
/// # Safety
/// As for [`Backend::copy`].
pub unsafe fn copy(
    backend: &(impl Backend + ?Sized),
    dst: DevicePtr,
    src: DevicePtr,
    bytes: u64,
    kind: CopyKind,
) -> Result<()> {
    // A stream of another device may not reach the memory.
    let device = match kind {
        CopyKind::HostToHost => None,
        CopyKind::DeviceToHost => backend.pointer_info(src)?.device,
        CopyKind::HostToDevice | CopyKind::DeviceToDevice => backend.pointer_info(dst)?.device,
    };
    let stream = backend.default_stream(device.map_or_else(|| backend.current_device(), Ok)?);
    // SAFETY: the caller's promise, and the wait below ends the work before this returns.
    unsafe { backend.copy_async(dst, src, bytes, kind, stream)? };
    backend.synchronize_stream(stream)
}

/// [`Backend::priority_range`]: priorities make no difference.
pub fn priority_range(backend: &(impl Backend + ?Sized), device: DeviceIndex) -> Result<PriorityRange> {
    exists(backend, "priority_range", device).map(|()| PriorityRange { least: 0, greatest: 0 })
}

/// [`Backend::elapsed_ms`]: events keep no time.
pub fn elapsed_ms(backend: &(impl Backend + ?Sized), start: Event, end: Event) -> Result<f32> {
    const CALL: &str = "elapsed_ms";
    for event in [start, end] {
        made_here(backend, CALL, event.device, event.backend)?;
        exists(backend, CALL, event.device)?;
    }
    Err(refused(backend, ErrorKind::NotSupported, CALL, start.device, "events of this backend keep no time"))
}

fn refused(
    backend: &(impl Backend + ?Sized),
    kind: ErrorKind,
    call: &'static str,
    device: DeviceIndex,
    detail: impl Into<String>,
) -> BackendError {
    BackendError::new(kind, 0, call, device, detail).of(backend.name())
}

fn exists(backend: &(impl Backend + ?Sized), call: &'static str, device: DeviceIndex) -> Result<()> {
    let count = backend.device_count()?;
    if device.0 < count {
        return Ok(());
    }
    let detail = format!("there is no device {device}; there are {count}");
    Err(refused(backend, ErrorKind::InvalidValue, call, device, detail))
}

fn made_here(
    backend: &(impl Backend + ?Sized),
    call: &'static str,
    device: DeviceIndex,
    maker: BackendId,
) -> Result<()> {
    if maker == backend.id() {
        return Ok(());
    }
    let detail = "the handle was made by another backend";
    Err(refused(backend, ErrorKind::InvalidValue, call, device, detail))
}
