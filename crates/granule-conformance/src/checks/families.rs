//! The smaller families.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, refused};
use crate::{Context, Stop, Verdict};
use backend_api::types::{BackendId, DevicePtr, Stream};
use backend_api::{
    Access, Attribute, CopyKind, ErrorKind, HostAccess, HostFlags, HostRegistration, PointerKind, families,
};

checks! { Families;
    "families.absent_with_reason":
        "a family that is absent says why, and always the same" => absent_with_reason,
    "families.sharing_needs_virtual_memory":
        "sharing of physical memory builds on virtual memory, which is offered too" => sharing_needs_virtual_memory,
    "families.attributes_agree": "the attribute of a family that is offered is not 0" => attributes_agree,
    "families.registered_is_host":
        "registered memory is page-locked host memory until it is unregistered" => registered_is_host,
    "families.registered_once":
        "memory that is registered is not registered again: InvalidValue" => registered_once,
    "families.register_nothing": "rule 4: registering 0 bytes is InvalidValue" => register_nothing,
    "families.unregister_null": "unregistering null is InvalidValue" => unregister_null,
    "families.unregister_unknown":
        "unregistering what is not registered is InvalidValue" => unregister_unknown,
    "families.registered_copies":
        "queued copies work with registered memory, every byte" => registered_copies,
    "families.device_pointer": "page-locked memory has an address for the device" => device_pointer,
    "families.device_pointer_of_pageable":
        "pageable memory has no address for the device: InvalidValue" => device_pointer_of_pageable,
    "families.managed_is_told": "pointer_info knows managed memory" => managed_is_told,
    "families.managed_of_nothing": "rule 4: 0 bytes of managed memory are InvalidValue" => managed_of_nothing,
    "families.managed_is_shared": "host and device see the same managed bytes" => managed_is_shared,
    "families.managed_migrates": "managed memory keeps its bytes when it migrates" => managed_migrates,
    "families.managed_is_freed":
        "managed memory is given back with free, and unknown afterwards" => managed_is_freed,
    "families.prefetch_to_nowhere":
        "a migration to a device that does not exist is InvalidValue" => prefetch_to_nowhere,
    "families.word_is_written":
        "a stream writes one word of four bytes, and nothing beside it" => word_is_written,
    "families.word_is_ordered": "a word is written when its stream reaches it" => word_is_ordered,
    "families.word_on_foreign_stream":
        "rule 1: a stream of another backend is InvalidValue" => word_on_foreign_stream,
    "families.multicast_granularity":
        "the unit of multicast objects is a power of two" => multicast_granularity,
    "families.closed_to_the_host":
        "device memory is closed to the host, and again after a scope" => closed_to_the_host,
    "families.scopes_are_counted":
        "memory is open to the host until the last of several scopes ends" => scopes_are_counted,
    "families.scopes_end_once": "ending a scope that is not open is InvalidValue" => scopes_end_once,
    "families.host_sees_bytes": "the host sees the device's bytes in a scope" => host_sees_bytes,
    "families.accounted": "what the simulator accounts for follows malloc and free to the byte" => accounted,
}

const BYTES: u64 = 64 << 10;
const SAMPLE: usize = 4096;

fn absent_with_reason(cx: &Context) -> Verdict {
    let first = families(cx.backend());
    for absent in first.iter().filter_map(|(_, answer)| answer.as_ref().err()) {
        ensure!(!absent.family.is_empty() && !absent.reason.is_empty(), "no reason: {absent:?}");
    }
    ensure_eq!(families(cx.backend()), first, "the second answer");
    Ok(())
}

fn sharing_needs_virtual_memory(cx: &Context) -> Verdict {
    cx.backend().physical_sharing()?;
    match cx.backend().virtual_memory() {
        Ok(_) => Ok(()),
        Err(absent) => Err(Stop::Failed(format!("physical memory is shared, and yet {absent}"))),
    }
}

fn attributes_agree(cx: &Context) -> Verdict {
    let (backend, device) = (cx.backend(), cx.device()?);
    let offered = [
        (backend.virtual_memory().is_ok(), Attribute::VirtualMemoryManagement),
        (backend.driver_pools().is_ok(), Attribute::MemoryPools),
        (backend.managed_memory().is_ok(), Attribute::ManagedMemory),
        (backend.stream_memory().is_ok(), Attribute::StreamMemoryOperations),
        (backend.multicast().is_ok(), Attribute::Multicast),
    ];
    for (_, attribute) in offered.into_iter().filter(|(is_offered, _)| *is_offered) {
        // A driver without the number has no say.
        if let Ok(value) = backend.attribute(device, attribute) {
            ensure!(value != 0, "{attribute:?} is 0, and the family is offered");
        }
    }
    Ok(())
}

/// A page of pageable host memory, and registration to try on it.
fn page(cx: &Context) -> Result<(&dyn HostRegistration, Vec<u8>, DevicePtr), Stop> {
    let registration = cx.backend().host_registration()?;
    let mut memory = pattern(9, 3 * SAMPLE);
    let at = memory.as_mut_ptr().expose_provenance().next_multiple_of(SAMPLE);
    Ok((registration, memory, DevicePtr(at as u64)))
}

fn register(registration: &dyn HostRegistration, at: DevicePtr) -> backend_api::Result<()> {
    // SAFETY: the page lies in a vector that checks keep until it is unregistered.
    unsafe { registration.register(at, SAMPLE as u64, HostFlags::empty()) }
}

fn unregister(registration: &dyn HostRegistration, at: DevicePtr) -> backend_api::Result<()> {
    // SAFETY: rule 3: no queued work uses the page; what is not registered is answered with an error.
    unsafe { registration.unregister(at) }
}

fn registered_is_host(cx: &Context) -> Verdict {
    let (registration, _memory, at) = page(cx)?;
    register(registration, at)?;
    let during = cx.backend().pointer_info(at)?.kind;
    unregister(registration, at)?;
    let after = cx.backend().pointer_info(at)?.kind;
    ensure_eq!(during, PointerKind::Host, "the kind of registered memory");
    ensure_eq!(after, PointerKind::Unmanaged, "the kind of memory that was registered");
    Ok(())
}

fn registered_once(cx: &Context) -> Verdict {
    let (registration, _memory, at) = page(cx)?;
    register(registration, at)?;
    let again = register(registration, at);
    unregister(registration, at)?;
    refused("a second registration", again, &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn register_nothing(cx: &Context) -> Verdict {
    let (registration, _memory, at) = page(cx)?;
    // SAFETY: no bytes at a valid address.
    let answer = unsafe { registration.register(at, 0, HostFlags::empty()) };
    refused("registering 0 bytes", answer, &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn unregister_null(cx: &Context) -> Verdict {
    let registration = cx.backend().host_registration()?;
    refused("unregister(null)", unregister(registration, DevicePtr::NULL), &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn unregister_unknown(cx: &Context) -> Verdict {
    let (registration, _memory, at) = page(cx)?;
    refused("unregister", unregister(registration, at), &[ErrorKind::InvalidValue])?;
    register(registration, at)?;
    unregister(registration, at)?;
    refused("a second unregister", unregister(registration, at), &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn registered_copies(cx: &Context) -> Verdict {
    let (registration, memory, at) = page(cx)?;
    let buffer = cx.buffer(BYTES)?;
    let stream = cx.stream()?;
    cx.write(buffer.ptr(), &[0; SAMPLE])?;
    register(registration, at)?;
    let queued = cx.queue_copy(buffer.ptr(), at, SAMPLE as u64, CopyKind::HostToDevice, stream.handle);
    cx.backend().synchronize_stream(stream.handle)?;
    unregister(registration, at)?;
    queued?;
    let from = at.0 as usize - memory.as_ptr().addr();
    ensure_eq!(cx.read(buffer.ptr(), SAMPLE)?, memory[from..from + SAMPLE], "what arrived");
    Ok(())
}

fn device_pointer(cx: &Context) -> Verdict {
    let registration = cx.backend().host_registration()?;
    let host = cx.backend().pinned_host()?.host_malloc(BYTES, HostFlags::MAPPED)?;
    let seen = registration.device_pointer(cx.device()?, host);
    // SAFETY: rule 3: taken above, not used.
    unsafe { cx.backend().pinned_host()?.host_free(host)? };
    ensure!(!seen?.is_null(), "the device's address is null");
    Ok(())
}

fn device_pointer_of_pageable(cx: &Context) -> Verdict {
    let (registration, _memory, at) = page(cx)?;
    let answer = registration.device_pointer(cx.device()?, at);
    refused("the device's address of pageable memory", answer, &[ErrorKind::InvalidValue])?;
    Ok(())
}

/// Managed memory; the caller frees it with `give`.
fn managed(cx: &Context) -> Result<DevicePtr, Stop> {
    Ok(cx.backend().managed_memory()?.malloc_managed(cx.device()?, BYTES)?)
}

fn give(cx: &Context, ptr: DevicePtr) -> Verdict {
    // SAFETY: rule 3: checks free what they took, once, when their work is done.
    unsafe { cx.backend().free(cx.device()?, ptr)? };
    Ok(())
}

fn managed_is_told(cx: &Context) -> Verdict {
    let ptr = managed(cx)?;
    let info = cx.backend().pointer_info(ptr.add(100))?;
    give(cx, ptr)?;
    ensure_eq!((info.kind, info.base), (PointerKind::Managed, ptr), "kind and base");
    Ok(())
}

fn managed_of_nothing(cx: &Context) -> Verdict {
    let family = cx.backend().managed_memory()?;
    refused("malloc_managed(0)", family.malloc_managed(cx.device()?, 0), &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn managed_is_shared(cx: &Context) -> Verdict {
    let ptr = managed(cx)?;
    let stream = cx.stream()?;
    cx.fill(ptr, 0x3c, BYTES, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    // The host must not touch what is not managed.
    let kind = cx.backend().pointer_info(ptr)?.kind;
    let mut seen = Vec::new();
    if kind == PointerKind::Managed {
        let bytes = std::ptr::with_exposed_provenance::<u8>(ptr.0 as usize);
        // SAFETY: managed memory is valid on the host, was filled just now, and no work uses it.
        seen = unsafe { std::slice::from_raw_parts(bytes, BYTES as usize) }.to_vec();
    }
    give(cx, ptr)?;
    ensure_eq!(kind, PointerKind::Managed, "the kind");
    ensure!(seen.iter().all(|&byte| byte == 0x3c), "the host does not see what the device wrote");
    Ok(())
}

fn managed_migrates(cx: &Context) -> Verdict {
    let (family, device) = (cx.backend().managed_memory()?, cx.device()?);
    let ptr = managed(cx)?;
    let stream = cx.stream()?;
    cx.write(ptr, &pattern(4, BYTES as usize))?;
    let mut moved = Ok(());
    for to in [Some(device), None] {
        // SAFETY: rule 2: the whole of live memory, until the stream is done.
        moved = moved.and(unsafe { family.prefetch_async(ptr, BYTES, to, stream.handle) });
    }
    cx.backend().synchronize_stream(stream.handle)?;
    let read = cx.read(ptr, BYTES as usize);
    give(cx, ptr)?;
    moved?;
    ensure!(read? == pattern(4, BYTES as usize), "other bytes after the migrations");
    Ok(())
}

fn managed_is_freed(cx: &Context) -> Verdict {
    let ptr = managed(cx)?;
    give(cx, ptr)?;
    ensure_eq!(cx.backend().pointer_info(ptr)?.kind, PointerKind::Unmanaged, "the kind when freed");
    Ok(())
}

fn prefetch_to_nowhere(cx: &Context) -> Verdict {
    let (family, none) = (cx.backend().managed_memory()?, cx.no_device()?);
    let ptr = managed(cx)?;
    let stream = cx.stream()?;
    // SAFETY: rule 2: the whole of live memory, until the stream is done.
    let answer = unsafe { family.prefetch_async(ptr, BYTES, Some(none), stream.handle) };
    cx.backend().synchronize_stream(stream.handle)?;
    give(cx, ptr)?;
    refused("a migration to nowhere", answer, &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn write_word(cx: &Context, stream: Stream, at: DevicePtr, value: u32) -> backend_api::Result<()> {
    // SAFETY: rule 2: four aligned bytes inside a check's buffer, which outlives the stream's work.
    unsafe { cx.backend().stream_memory()?.write_value32(stream, at, value) }
}

fn word_is_written(cx: &Context) -> Verdict {
    cx.backend().stream_memory()?;
    let (buffer, stream) = (cx.buffer(BYTES)?, cx.stream()?);
    cx.write(buffer.ptr(), &[0xaa; 12])?;
    write_word(cx, stream.handle, buffer.ptr().add(4), 0x0102_0304)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let due = [[0xaa; 4], 0x0102_0304_u32.to_ne_bytes(), [0xaa; 4]].concat();
    ensure_eq!(cx.read(buffer.ptr(), 12)?, due, "the word and its neighbours");
    Ok(())
}

fn word_is_ordered(cx: &Context) -> Verdict {
    cx.backend().stream_memory()?;
    let (buffer, stream) = (cx.buffer(BYTES)?, cx.stream()?);
    let gate = cx.close(stream.handle)?;
    cx.fill(buffer.ptr(), 0x11, 8, stream.handle)?;
    write_word(cx, stream.handle, buffer.ptr(), 0x2222_2222)?;
    cx.stays_busy(stream.handle)?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    let due = [[0x22; 4], [0x11; 4]].concat();
    ensure_eq!(cx.read(buffer.ptr(), 8)?, due, "the word after the fill before it");
    Ok(())
}

fn word_on_foreign_stream(cx: &Context) -> Verdict {
    cx.backend().stream_memory()?;
    let (buffer, own) = (cx.buffer(BYTES)?, cx.stream()?);
    let foreign = Stream { backend: BackendId(own.handle.backend.0 ^ 0x4000), ..own.handle };
    refused(
        "a word on a foreign stream",
        write_word(cx, foreign, buffer.ptr(), 1),
        &[ErrorKind::InvalidValue],
    )?;
    Ok(())
}

fn multicast_granularity(cx: &Context) -> Verdict {
    let unit = cx.backend().multicast()?.multicast_granularity(2, 2 << 20)?;
    ensure!(unit.is_power_of_two(), "the unit is {unit}");
    Ok(())
}

fn unprotect(cx: &Context, ptr: DevicePtr) -> Verdict {
    // SAFETY: rule 2: live memory of the check, closed again before it is freed.
    unsafe { cx.backend().host_access()?.unprotect(ptr)? };
    Ok(())
}

fn protect(host: &dyn HostAccess, ptr: DevicePtr) -> backend_api::Result<()> {
    // SAFETY: the check touches nothing on the strength of a scope that it ends; where it opened none, this is refused.
    unsafe { host.protect(ptr) }
}

fn closed_to_the_host(cx: &Context) -> Verdict {
    let host = cx.backend().host_access()?;
    let buffer = cx.buffer(BYTES)?;
    ensure_eq!(host.host_access_of(buffer.ptr())?, Access::None, "at first");
    unprotect(cx, buffer.ptr())?;
    ensure_eq!(host.host_access_of(buffer.ptr())?, Access::ReadWrite, "in a scope");
    protect(host, buffer.ptr())?;
    ensure_eq!(host.host_access_of(buffer.ptr())?, Access::None, "after the scope");
    Ok(())
}

fn scopes_are_counted(cx: &Context) -> Verdict {
    let host = cx.backend().host_access()?;
    let buffer = cx.buffer(BYTES)?;
    unprotect(cx, buffer.ptr())?;
    unprotect(cx, buffer.ptr().add(512))?;
    protect(host, buffer.ptr())?;
    ensure_eq!(host.host_access_of(buffer.ptr())?, Access::ReadWrite, "after one of two");
    protect(host, buffer.ptr())?;
    ensure_eq!(host.host_access_of(buffer.ptr())?, Access::None, "after both");
    Ok(())
}

fn scopes_end_once(cx: &Context) -> Verdict {
    let host = cx.backend().host_access()?;
    let buffer = cx.buffer(BYTES)?;
    refused("protect of closed memory", protect(host, buffer.ptr()), &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn host_sees_bytes(cx: &Context) -> Verdict {
    let host = cx.backend().host_access()?;
    let buffer = cx.buffer(BYTES)?;
    cx.write(buffer.ptr(), &pattern(6, SAMPLE))?;
    unprotect(cx, buffer.ptr())?;
    let open = host.host_access_of(buffer.ptr())?;
    let mut seen = Vec::new();
    if open != Access::None {
        let bytes = std::ptr::with_exposed_provenance::<u8>(buffer.ptr().0 as usize);
        // SAFETY: live memory that is open to the host, written just now, and no work uses it.
        seen = unsafe { std::slice::from_raw_parts(bytes, SAMPLE) }.to_vec();
    }
    protect(host, buffer.ptr())?;
    ensure_eq!(seen, pattern(6, SAMPLE), "what the host sees");
    Ok(())
}

fn accounted(cx: &Context) -> Verdict {
    let (host, device) = (cx.backend().host_access()?, cx.device()?);
    let before = host.accounted(device)?;
    let buffer = cx.buffer(8 << 20)?;
    let during = host.accounted(device)?;
    buffer.free()?;
    ensure_eq!(during.free, before.free - (8 << 20), "free bytes with 8 MiB taken");
    ensure_eq!(host.accounted(device)?, before, "the account afterwards");
    Ok(())
}
