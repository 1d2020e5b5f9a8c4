//! Other devices.

use super::room::Room;
use crate::check::{checks, ensure_eq};
use crate::context::{pattern, prompt, refused};
use crate::{Context, Stop, Verdict};
use backend_api::types::{BackendId, DeviceIndex, Stream};
use backend_api::{Access, ErrorKind, Peers};

checks! { Peers;
    "peers.no_such_device": "a device that does not exist is InvalidValue, on either side" => no_such_device,
    "peers.enabled_twice": "where access is possible it can be enabled, and enabled again" => enabled_twice,
    "peers.unreachable": "where access is not possible, enabling it is refused" => unreachable,
    "peers.copies": "a copy between two devices brings every byte, there and back" => copies,
    "peers.copies_no_more": "a copy between two devices touches nothing beyond its range" => copies_no_more,
    "peers.copy_is_ordered":
        "a copy between devices waits for its stream, and its caller for nothing" => copy_is_ordered,
    "peers.copy_of_nothing": "rule 4: a copy of 0 bytes between devices is InvalidValue" => copy_of_nothing,
    "peers.foreign_stream": "rule 1: a stream of another backend is InvalidValue" => foreign_stream,
    "peers.current_device_stays":
        "rule 5: the current device is as before after work about peers" => current_device_stays,
    "peers.mapped_memory": "access to a mapping is granted to a peer alone, and told" => mapped_memory,
}

const BYTES: u64 = 64 << 10;

fn pair(cx: &Context) -> Result<(&dyn Peers, DeviceIndex, DeviceIndex), Stop> {
    Ok((cx.backend().peers()?, cx.device()?, cx.second_device()?))
}

fn copy(
    cx: &Context,
    to: &crate::Buffer,
    from: &crate::Buffer,
    devices: (DeviceIndex, DeviceIndex),
    bytes: u64,
    stream: Stream,
) -> backend_api::Result<()> {
    let (dst, src) = ((devices.0, to.ptr()), (devices.1, from.ptr()));
    // SAFETY: rule 2: checks copy inside their own buffers, which outlive the stream's work.
    unsafe { cx.backend().peers()?.copy_peer_async(dst, src, bytes, stream) }
}

fn no_such_device(cx: &Context) -> Verdict {
    let (peers, device, none) = (cx.backend().peers()?, cx.device()?, cx.no_device()?);
    let wrong = [ErrorKind::InvalidValue];
    refused("can_access to nowhere", peers.can_access(device, none), &wrong)?;
    refused("can_access from nowhere", peers.can_access(none, device), &wrong)?;
    refused("enable_access to nowhere", peers.enable_access(device, none), &wrong)?;
    Ok(())
}

fn enabled_twice(cx: &Context) -> Verdict {
    let (peers, first, second) = pair(cx)?;
    for (from, to) in [(first, second), (second, first)] {
        if peers.can_access(from, to)? {
            peers.enable_access(from, to)?;
            peers.enable_access(from, to)?;
        }
    }
    Ok(())
}

fn unreachable(cx: &Context) -> Verdict {
    let (peers, devices) = (cx.backend().peers()?, cx.devices()?);
    for &from in &devices {
        for &to in devices.iter().filter(|&&to| to != from) {
            if !peers.can_access(from, to)? {
                let kinds = [ErrorKind::NotSupported, ErrorKind::InvalidValue];
                refused("enable_access where none is", peers.enable_access(from, to), &kinds)?;
                return Ok(());
            }
        }
    }
    Err(Stop::Skipped("every device reaches every other".into()))
}

fn copies(cx: &Context) -> Verdict {
    let (_, first, second) = pair(cx)?;
    let (here, there) = (cx.buffer_on(first, BYTES)?, cx.buffer_on(second, BYTES)?);
    let stream = cx.stream_on(first)?;
    let bytes = BYTES as usize;
    cx.write(here.ptr(), &pattern(1, bytes))?;
    cx.write(there.ptr(), &vec![0; bytes])?;
    copy(cx, &there, &here, (second, first), BYTES, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(cx.read(there.ptr(), bytes)? == pattern(1, bytes), true, "every byte is there");
    cx.write(here.ptr(), &vec![0; bytes])?;
    copy(cx, &here, &there, (first, second), BYTES, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(cx.read(here.ptr(), bytes)? == pattern(1, bytes), true, "every byte is back");
    Ok(())
}

fn copies_no_more(cx: &Context) -> Verdict {
    let (_, first, second) = pair(cx)?;
    let (here, there) = (cx.buffer_on(first, BYTES)?, cx.buffer_on(second, BYTES)?);
    let stream = cx.stream_on(first)?;
    cx.write(here.ptr(), &[1; 2048])?;
    cx.write(there.ptr(), &[2; 2048])?;
    copy(cx, &there, &here, (second, first), 1001, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(cx.read(there.ptr().add(1001), 1047)?, vec![2; 1047], "the bytes behind");
    Ok(())
}

fn copy_is_ordered(cx: &Context) -> Verdict {
    let (_, first, second) = pair(cx)?;
    let (here, there) = (cx.buffer_on(first, BYTES)?, cx.buffer_on(second, BYTES)?);
    let stream = cx.stream_on(first)?;
    cx.write(there.ptr(), &[0; 512])?;
    let gate = cx.close(stream.handle)?;
    cx.fill(here.ptr(), 7, BYTES, stream.handle)?;
    prompt("queueing a copy between devices", || {
        Ok(copy(cx, &there, &here, (second, first), BYTES, stream.handle)?)
    })?;
    cx.stays_busy(stream.handle)?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(cx.read(there.ptr(), 512)?, vec![7; 512], "what the fill before the copy wrote");
    Ok(())
}

fn copy_of_nothing(cx: &Context) -> Verdict {
    let (_, first, second) = pair(cx)?;
    let (here, there) = (cx.buffer_on(first, BYTES)?, cx.buffer_on(second, BYTES)?);
    let stream = cx.stream_on(first)?;
    let answer = copy(cx, &there, &here, (second, first), 0, stream.handle);
    refused("a copy of 0 bytes", answer, &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn foreign_stream(cx: &Context) -> Verdict {
    let (_, first, second) = pair(cx)?;
    let (here, there) = (cx.buffer_on(first, BYTES)?, cx.buffer_on(second, BYTES)?);
    let own = cx.stream_on(first)?;
    let foreign = Stream { backend: BackendId(own.handle.backend.0 ^ 0x4000), ..own.handle };
    let answer = copy(cx, &there, &here, (second, first), BYTES, foreign);
    refused("a copy on a foreign stream", answer, &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn current_device_stays(cx: &Context) -> Verdict {
    let (peers, first, second) = pair(cx)?;
    let (here, there) = (cx.buffer_on(first, BYTES)?, cx.buffer_on(second, BYTES)?);
    let stream = cx.stream_on(second)?;
    cx.backend().set_device(first)?;
    let stays = |what: &str| -> Verdict {
        ensure_eq!(cx.backend().current_device()?, first, "the current device after {what}");
        Ok(())
    };
    if peers.can_access(second, first)? {
        peers.enable_access(second, first)?;
        stays("enable_access")?;
    }
    copy(cx, &there, &here, (second, first), BYTES, stream.handle)?;
    stays("copy_peer_async")?;
    Ok(cx.backend().synchronize_stream(stream.handle)?)
}

fn mapped_memory(cx: &Context) -> Verdict {
    let (peers, first, second) = pair(cx)?;
    if !peers.can_access(second, first)? {
        return Err(Stop::Skipped("the second device does not reach the first".into()));
    }
    let room = Room::furnished(cx, 1)?;
    ensure_eq!(room.access(0, second)?, Access::None, "the peer's access at first");
    room.set_access(0, &[second], Access::ReadWrite)?;
    ensure_eq!(room.access(0, second)?, Access::ReadWrite, "the peer's access when granted");
    ensure_eq!(room.access(0, first)?, Access::ReadWrite, "the owner's access");
    room.close()
}
