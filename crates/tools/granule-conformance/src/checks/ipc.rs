//! Other processes.

use super::room::Room;
use crate::check::{checks, ensure, ensure_eq};
use crate::context::{Buffer, pattern, refused};
use crate::peer::{Answer, Peer, Request};
use crate::{Context, Stop, Verdict};
use backend_api::types::DevicePtr;
use backend_api::{Access, Attribute, ErrorKind, HandleType, IpcMemoryHandle, ShareableHandle};

checks! { Ipc;
    "ipc.other_process_reads":
        "another process that opens a handle sees the exporter's bytes" => other_process_reads,
    "ipc.other_process_writes":
        "what another process writes to opened memory is seen by the exporter" => other_process_writes,
    "ipc.opened_here": "memory of another process can be opened, read and closed here" => opened_here,
    "ipc.opened_twice": "the same bytes again give the same address and one more reference" => opened_twice,
    "ipc.closed_for_good": "the last close ends the mapping; one more is refused" => closed_for_good,
    "ipc.close_keeps_memory": "an importer's close leaves the exporter's memory alone" => close_keeps_memory,
    "ipc.importer_never_frees":
        "opened memory is closed, not freed: free is InvalidValue" => importer_never_frees,
    "ipc.death_of_the_importer":
        "an importer that dies takes nothing of the exporter's with it" => death_of_the_importer,
    "ipc.death_of_the_exporter": "the handle of a process that has gone is refused" => death_of_the_exporter,
    "ipc.malformed_handle": "64 arbitrary bytes are refused" => malformed_handle,
    "ipc.interior_pointer":
        "only a whole allocation is exported: an address inside one is refused" => interior_pointer,
    "ipc.no_memory": "what is no device memory is not exported" => no_memory,
    "ipc.mapped_memory": "a range of virtual memory is not exported: NotSupported" => mapped_memory,
    "ipc.physical_memory_leaves":
        "exported physical memory is the same memory in the other process" => physical_memory_leaves,
    "ipc.physical_memory_arrives":
        "imported physical memory is the other process's, and lives while it is mapped (I4)"
            => physical_memory_arrives,
    "ipc.exported_memory_outlives_handle":
        "exported memory lives on when its handle was released" => exported_memory_outlives_handle,
}

const BYTES: u64 = 2 << 20;
const SAMPLE: usize = 4096;
/// Whatever a driver calls a handle that it cannot open; never a shortage or a lost device.
const UNOPENED: [ErrorKind; 3] = [ErrorKind::InvalidValue, ErrorKind::NotSupported, ErrorKind::Other];

/// Memory here, and a process that has it open there.
fn shared(cx: &Context) -> Result<(Buffer, Peer, u64), Stop> {
    let ipc = cx.backend().ipc()?;
    let mut peer = cx.child()?.start()?;
    let buffer = cx.buffer(BYTES)?;
    cx.write(buffer.ptr(), &pattern(1, SAMPLE))?;
    let handle = ipc.export_memory(buffer.ptr())?.0.to_vec();
    let at = address(&peer.ask(&Request::OpenMemory { handle })?)?;
    Ok((buffer, peer, at))
}

/// A process that exports memory with the pattern of seed 2: where it is there, and its handle.
fn exporter(cx: &Context) -> Result<(Peer, u64, IpcMemoryHandle), Stop> {
    cx.backend().ipc()?;
    let mut peer = cx.child()?.start()?;
    let at = address(&peer.ask(&Request::Malloc { bytes: BYTES })?)?;
    peer.ask(&Request::Write { at, bytes: SAMPLE, seed: 2 })?;
    let handle = IpcMemoryHandle(handle(peer.ask(&Request::ExportMemory { at })?)?);
    Ok((peer, at, handle))
}

fn address(answer: &Answer) -> Result<u64, Stop> {
    match answer {
        Answer::Address(at) => Ok(*at),
        other => Err(Stop::Failed(format!("an address was due, not {other:?}"))),
    }
}

fn handle(answer: Answer) -> Result<[u8; 64], Stop> {
    match answer {
        Answer::Handle(bytes) => {
            bytes.try_into().map_err(|_| Stop::Failed("a handle has not 64 bytes".into()))
        }
        other => Err(Stop::Failed(format!("a handle was due, not {other:?}"))),
    }
}

fn yes(answer: &Answer) -> bool {
    matches!(answer, Answer::Holds(true))
}

fn open(cx: &Context, handle: &IpcMemoryHandle) -> Result<DevicePtr, Stop> {
    Ok(cx.backend().ipc()?.open_memory(cx.device()?, handle)?)
}

fn close(cx: &Context, at: DevicePtr) -> backend_api::Result<()> {
    // SAFETY: rule 3: checks close what they opened, and have ended their work.
    unsafe { cx.backend().ipc()?.close_memory(at) }
}

fn other_process_reads(cx: &Context) -> Verdict {
    let (_buffer, mut peer, at) = shared(cx)?;
    let seen = peer.ask(&Request::Holds { at, bytes: SAMPLE, seed: 1 })?;
    ensure!(yes(&seen), "the second process sees other bytes");
    Ok(())
}

fn other_process_writes(cx: &Context) -> Verdict {
    let (buffer, mut peer, at) = shared(cx)?;
    peer.ask(&Request::Write { at, bytes: SAMPLE, seed: 3 })?;
    ensure_eq!(cx.read(buffer.ptr(), SAMPLE)?, pattern(3, SAMPLE), "the bytes here");
    Ok(())
}

fn opened_here(cx: &Context) -> Verdict {
    let (mut peer, there, handle) = exporter(cx)?;
    let at = open(cx, &handle)?;
    ensure_eq!(cx.read(at, SAMPLE)?, pattern(2, SAMPLE), "the other process's bytes");
    cx.write(at, &pattern(4, SAMPLE))?;
    let seen = peer.ask(&Request::Holds { at: there, bytes: SAMPLE, seed: 4 })?;
    ensure!(yes(&seen), "the other process does not see what was written here");
    Ok(close(cx, at)?)
}

fn opened_twice(cx: &Context) -> Verdict {
    let (_peer, _, handle) = exporter(cx)?;
    let first = open(cx, &handle)?;
    let second = open(cx, &handle)?;
    ensure_eq!(second, first, "the second address");
    close(cx, first)?;
    ensure_eq!(cx.read(second, SAMPLE)?, pattern(2, SAMPLE), "the bytes after one of two closes");
    Ok(close(cx, second)?)
}

fn closed_for_good(cx: &Context) -> Verdict {
    let (_peer, _, handle) = exporter(cx)?;
    let at = open(cx, &handle)?;
    close(cx, at)?;
    refused("a second close", close(cx, at), &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn close_keeps_memory(cx: &Context) -> Verdict {
    let (mut peer, there, handle) = exporter(cx)?;
    for _ in 0..3 {
        let at = open(cx, &handle)?;
        close(cx, at)?;
    }
    let seen = peer.ask(&Request::Holds { at: there, bytes: SAMPLE, seed: 2 })?;
    ensure!(yes(&seen), "the exporter's bytes are others after the importer's close");
    peer.ask(&Request::Free { at: there })?;
    Ok(())
}

fn importer_never_frees(cx: &Context) -> Verdict {
    let (_peer, _, handle) = exporter(cx)?;
    let at = open(cx, &handle)?;
    // SAFETY: no queued work uses it, and what is no live base is answered with an error.
    let answer = unsafe { cx.backend().free(cx.device()?, at) };
    refused("free of opened memory", answer, &[ErrorKind::InvalidValue])?;
    Ok(close(cx, at)?)
}

fn death_of_the_importer(cx: &Context) -> Verdict {
    let (buffer, peer, _) = shared(cx)?;
    // Its process dies.
    drop(peer);
    ensure_eq!(cx.read(buffer.ptr(), SAMPLE)?, pattern(1, SAMPLE), "the bytes afterwards");
    Ok(buffer.free()?)
}

fn death_of_the_exporter(cx: &Context) -> Verdict {
    let (peer, _, handle) = exporter(cx)?;
    // Its process dies.
    drop(peer);
    refused("open", cx.backend().ipc()?.open_memory(cx.device()?, &handle), &UNOPENED)?;
    Ok(())
}

fn malformed_handle(cx: &Context) -> Verdict {
    let (ipc, device) = (cx.backend().ipc()?, cx.device()?);
    for byte in [0, 0x5a, 0xff] {
        refused("open of arbitrary bytes", ipc.open_memory(device, &IpcMemoryHandle([byte; 64])), &UNOPENED)?;
    }
    Ok(())
}

fn interior_pointer(cx: &Context) -> Verdict {
    let ipc = cx.backend().ipc()?;
    let buffer = cx.buffer(BYTES)?;
    let kinds = [ErrorKind::InvalidValue, ErrorKind::NotSupported];
    refused("export of an interior pointer", ipc.export_memory(buffer.ptr().add(512)), &kinds)?;
    Ok(())
}

fn no_memory(cx: &Context) -> Verdict {
    let ipc = cx.backend().ipc()?;
    let kinds = [ErrorKind::InvalidValue, ErrorKind::NotSupported];
    let host = vec![0_u8; SAMPLE];
    refused("export of host memory", ipc.export_memory(DevicePtr(host.as_ptr().addr() as u64)), &kinds)?;
    let freed = cx.buffer(BYTES)?;
    let at = freed.ptr();
    freed.free()?;
    refused("export of freed memory", ipc.export_memory(at), &kinds)?;
    Ok(())
}

fn mapped_memory(cx: &Context) -> Verdict {
    let ipc = cx.backend().ipc()?;
    let room = Room::furnished(cx, 1)?;
    refused("export of virtual memory", ipc.export_memory(room.at(0)), &[ErrorKind::NotSupported])?;
    room.close()
}

/// Skips where physical memory is not shared, or the device says that it has no file descriptors.
fn has_descriptors(cx: &Context) -> Verdict {
    cx.backend().physical_sharing()?;
    cx.backend().virtual_memory()?;
    match cx.backend().attribute(cx.device()?, Attribute::PosixFileDescriptorHandles) {
        Ok(0) => Err(Stop::Skipped("physical memory is not exported as file descriptors here".into())),
        // A driver without the number has no say.
        Err(error) if error.kind != ErrorKind::NotSupported => Err(error.into()),
        _ => Ok(()),
    }
}

/// Exportable memory here, written and exported.
fn exported(cx: &Context) -> Result<(Room, ShareableHandle), Stop> {
    let (vmm, device) = (cx.backend().physical_sharing()?, cx.device()?);
    let mut room = Room::reserve(cx, device, 1)?;
    let handle = room.create(HandleType::PosixFd)?;
    room.map(0, handle)?;
    room.set_access(0, &[device], Access::ReadWrite)?;
    cx.write(room.at(0), &pattern(5, SAMPLE))?;
    let shared = vmm.export_physical(handle, HandleType::PosixFd)?;
    Ok((room, shared))
}

fn import_there(peer: &mut Peer, room: &Room, shared: &ShareableHandle) -> Result<u64, Stop> {
    let ShareableHandle::PosixFd(descriptor) = shared else {
        return Err(Stop::Failed("a file descriptor was asked for".into()));
    };
    match peer.exchange(&Request::ImportPhysical { bytes: room.granule() }, Some(descriptor))? {
        (Answer::Refused { text }, _) => Err(Stop::Failed(format!("in the second process: {text}"))),
        (answer, _) => address(&answer),
    }
}

fn physical_memory_leaves(cx: &Context) -> Verdict {
    has_descriptors(cx)?;
    let mut peer = cx.child()?.start()?;
    let (room, shared) = exported(cx)?;
    let at = import_there(&mut peer, &room, &shared)?;
    let seen = peer.ask(&Request::Holds { at, bytes: SAMPLE, seed: 5 })?;
    ensure!(yes(&seen), "the second process sees other bytes");
    peer.ask(&Request::Write { at, bytes: SAMPLE, seed: 6 })?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(6, SAMPLE), "what the second process wrote");
    drop(peer);
    room.close()
}

fn physical_memory_arrives(cx: &Context) -> Verdict {
    has_descriptors(cx)?;
    let (vmm, device) = (cx.backend().physical_sharing()?, cx.device()?);
    let mut peer = cx.child()?.start()?;
    let (answer, descriptor) = peer.exchange(&Request::ExportPhysical { granules: 1, seed: 7 }, None)?;
    let descriptor = descriptor.ok_or_else(|| Stop::Failed(format!("no descriptor came: {answer:?}")))?;
    let shared = ShareableHandle::PosixFd(descriptor);
    let mut room = Room::reserve(cx, device, 1)?;
    let handle = vmm.import_physical(device, &shared)?;
    room.adopt(handle);
    room.map(0, handle)?;
    room.set_access(0, &[device], Access::ReadWrite)?;
    drop(shared);
    room.release(handle)?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(7, SAMPLE), "the other process's bytes");
    cx.write(room.at(0), &pattern(8, SAMPLE))?;
    let there = address(&answer)?;
    let seen = peer.ask(&Request::Holds { at: there, bytes: SAMPLE, seed: 8 })?;
    ensure!(yes(&seen), "the other process does not see what was written here");
    room.close()
}

fn exported_memory_outlives_handle(cx: &Context) -> Verdict {
    has_descriptors(cx)?;
    let mut peer = cx.child()?.start()?;
    let (room, shared) = exported(cx)?;
    let bytes = room.granule();
    room.close()?;
    let ShareableHandle::PosixFd(descriptor) = &shared else {
        return Err(Stop::Failed("a file descriptor was asked for".into()));
    };
    let (answer, _) = peer.exchange(&Request::ImportPhysical { bytes }, Some(descriptor))?;
    let at = address(&answer)?;
    let seen = peer.ask(&Request::Holds { at, bytes: SAMPLE, seed: 5 })?;
    ensure!(yes(&seen), "the second process sees other bytes");
    Ok(())
}
