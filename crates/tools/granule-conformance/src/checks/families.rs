//! The smaller families.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, refused};
use crate::{Context, Stop, Verdict};
use backend_api::types::DevicePtr;
use backend_api::{Attribute, CopyKind, ErrorKind, HostFlags, HostRegistration, PointerKind, families};

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
    backend.virtual_memory()?;
    // A driver without the number has no say.
    let said = backend.attribute(device, Attribute::VirtualMemoryManagement);
    ensure!(said != Ok(0), "VirtualMemoryManagement is 0, and the family is offered");
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
