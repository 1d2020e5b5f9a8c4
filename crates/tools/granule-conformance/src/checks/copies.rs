//! Copies and fills.

mod queued;

pub(crate) use queued::CHECKS as QUEUED_CHECKS;

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, refused};
use crate::{Buffer, Context, Verdict};
use backend_api::types::DevicePtr;
use backend_api::{CopyKind, ErrorKind};
use std::time::Duration;

checks! { Copies;
    "copies.to_device_and_back": "copy: every byte arrives, for sizes of all kinds" => to_device_and_back,
    "copies.last_byte": "copy: the last byte too" => last_byte,
    "copies.nothing_beyond": "copy: no byte before or behind the range changes" => nothing_beyond,
    "copies.at_odd_addresses": "copy: from and to any address" => at_odd_addresses,
    "copies.within_a_device": "copy: DeviceToDevice" => within_a_device,
    "copies.within_an_allocation": "copy: between two ranges of one allocation" => within_an_allocation,
    "copies.between_devices": "copy: DeviceToDevice, possibly another one" => between_devices,
    "copies.within_the_host": "copy: HostToHost" => within_the_host,
    "copies.source_is_kept": "copy: the source keeps its bytes" => source_is_kept,
    "copies.device_copy_is_waited_for": "copy: waits also between device memory" => device_copy_is_waited_for,
    "copies.large": "copy: sizes beyond any staging buffer" => large,
    "copies.of_other_device": "copy: whatever device is current" => of_other_device,
    "copies.of_nothing": "rule 4: a copy of 0 bytes is InvalidValue" => of_nothing,
    "copies.refused_copy_leaves_no_error":
        "rule 6: a refused copy leaves no error behind" => refused_copy_leaves_no_error,
    "copies.last_copy_wins": "copy: a later copy overwrites an earlier one" => last_copy_wins,
}

fn copy(cx: &Context, to: DevicePtr, from: DevicePtr, bytes: u64, kind: CopyKind) -> Verdict {
    // SAFETY: rule 2: the checks below pass ranges inside their own live buffers.
    unsafe { cx.backend().copy(to, from, bytes, kind)? };
    Ok(())
}

fn to_device_and_back(cx: &Context) -> Verdict {
    for bytes in [1, 3, 64, 511, 512, 4096, 4097, 100_003] {
        let buffer = cx.buffer(bytes as u64)?;
        cx.write(buffer.ptr(), &pattern(bytes as u8, bytes))?;
        ensure!(cx.read(buffer.ptr(), bytes)? == pattern(bytes as u8, bytes), "{bytes} bytes changed");
    }
    Ok(())
}

fn last_byte(cx: &Context) -> Verdict {
    let buffer = cx.buffer(4096)?;
    cx.write(buffer.ptr(), &[0x11; 4096])?;
    cx.write(buffer.ptr(), &[0x22; 1000])?;
    let read = cx.read(buffer.ptr(), 1001)?;
    ensure_eq!((read[999], read[1000]), (0x22, 0x11), "the last byte of 1000, and the next");
    Ok(())
}

fn nothing_beyond(cx: &Context) -> Verdict {
    let buffer = cx.buffer(4096)?;
    cx.write(buffer.ptr(), &[0x11; 4096])?;
    for (offset, bytes) in [(100, 7), (1000, 512), (3000, 1)] {
        cx.write(buffer.ptr(), &[0x11; 4096])?;
        cx.write(buffer.ptr().add(offset as u64), &vec![0x22; bytes])?;
        for (at, byte) in cx.read(buffer.ptr(), 4096)?.into_iter().enumerate() {
            let due = if (offset..offset + bytes).contains(&at) { 0x22 } else { 0x11 };
            ensure_eq!(byte, due, "byte {at} after {bytes} bytes were copied to {offset}");
        }
    }
    Ok(())
}

fn at_odd_addresses(cx: &Context) -> Verdict {
    let (from, to) = (cx.buffer(4096)?, cx.buffer(4096)?);
    cx.write(from.ptr(), &pattern(0, 4096))?;
    for (source, target, bytes) in [(1, 2, 3), (511, 513, 1001), (7, 0, 4089)] {
        copy(cx, to.ptr().add(target), from.ptr().add(source), bytes, CopyKind::DeviceToDevice)?;
        let (start, bytes) = (source as usize, bytes as usize);
        let arrived = cx.read(to.ptr().add(target), bytes)?;
        ensure!(arrived == pattern(0, 4096)[start..start + bytes], "{bytes} bytes from {source} to {target}");
    }
    Ok(())
}

fn within_a_device(cx: &Context) -> Verdict {
    let (from, to) = (cx.buffer(5000)?, cx.buffer(5000)?);
    cx.write(from.ptr(), &pattern(5, 5000))?;
    copy(cx, to.ptr(), from.ptr(), 5000, CopyKind::DeviceToDevice)?;
    ensure!(cx.read(to.ptr(), 5000)? == pattern(5, 5000), "other bytes arrived");
    Ok(())
}

fn within_an_allocation(cx: &Context) -> Verdict {
    let buffer = cx.buffer(4096)?;
    cx.write(buffer.ptr(), &pattern(5, 4096))?;
    copy(cx, buffer.ptr().add(2048), buffer.ptr(), 2048, CopyKind::DeviceToDevice)?;
    ensure!(cx.read(buffer.ptr().add(2048), 2048)? == pattern(5, 2048), "other bytes arrived");
    Ok(())
}

fn between_devices(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    for (here, there) in [(first, second), (second, first)] {
        let (from, to) = (cx.buffer_on(here, 5000)?, cx.buffer_on(there, 5000)?);
        cx.write(from.ptr(), &pattern(here.0 as u8, 5000))?;
        copy(cx, to.ptr(), from.ptr(), 5000, CopyKind::DeviceToDevice)?;
        let arrived = cx.read(to.ptr(), 5000)?;
        ensure!(arrived == pattern(here.0 as u8, 5000), "other bytes came from device {here} to {there}");
    }
    Ok(())
}

fn within_the_host(cx: &Context) -> Verdict {
    cx.device()?;
    let from = pattern(5, 5000);
    let mut to = vec![0u8; 5000];
    let (target, source) = (to.as_mut_ptr().addr() as u64, from.as_ptr().addr() as u64);
    copy(cx, DevicePtr(target), DevicePtr(source), 5000, CopyKind::HostToHost)?;
    ensure!(to == from, "other bytes arrived");
    Ok(())
}

fn source_is_kept(cx: &Context) -> Verdict {
    let (from, to) = (cx.buffer(5000)?, cx.buffer(5000)?);
    cx.write(from.ptr(), &pattern(5, 5000))?;
    cx.write(to.ptr(), &[0; 5000])?;
    copy(cx, to.ptr(), from.ptr(), 5000, CopyKind::DeviceToDevice)?;
    ensure!(cx.read(from.ptr(), 5000)? == pattern(5, 5000), "the source changed");
    Ok(())
}

fn device_copy_is_waited_for(cx: &Context) -> Verdict {
    let (from, to) = (cx.buffer(4096)?, cx.buffer(4096)?);
    cx.write(from.ptr(), &[0x22; 4096])?;
    let stream = cx.backend().default_stream(cx.device()?);
    for _ in 0..3 {
        cx.write(to.ptr(), &[0x11; 4096])?;
        // Something before it, so that the copy has to be waited for.
        let pause = Box::new(|| std::thread::sleep(Duration::from_millis(2)));
        cx.backend().launch_host_function(stream, pause)?;
        copy(cx, to.ptr(), from.ptr(), 4096, CopyKind::DeviceToDevice)?;
        ensure!(cx.read(to.ptr(), 4096)? == [0x22; 4096], "the copy was not done when it returned");
    }
    Ok(())
}

fn large(cx: &Context) -> Verdict {
    const BYTES: usize = (5 << 20) / 2 + 3;
    let (from, to) = (cx.buffer(BYTES as u64)?, cx.buffer(BYTES as u64)?);
    let due = pattern(5, BYTES);
    cx.write(from.ptr(), &due)?;
    copy(cx, to.ptr(), from.ptr(), BYTES as u64, CopyKind::DeviceToDevice)?;
    ensure!(cx.read(to.ptr(), BYTES)? == due, "{BYTES} bytes changed");
    Ok(())
}

fn of_other_device(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    for (current, owner) in [(first, second), (second, first)] {
        cx.backend().set_device(current)?;
        let buffer = cx.buffer_on(owner, 5000)?;
        cx.write(buffer.ptr(), &pattern(5, 5000))?;
        let same = cx.read(buffer.ptr(), 5000)? == pattern(5, 5000);
        ensure!(same, "bytes of device {owner} changed while {current} was current");
    }
    Ok(())
}

/// Copies of nothing in each direction.
fn empty_copies(cx: &Context, one: &Buffer, other: &Buffer) -> Verdict {
    let host = [0u8; 16];
    let host = DevicePtr(host.as_ptr().addr() as u64);
    for (to, from, kind) in [
        (one.ptr(), host, CopyKind::HostToDevice),
        (host, one.ptr(), CopyKind::DeviceToHost),
        (one.ptr(), other.ptr(), CopyKind::DeviceToDevice),
    ] {
        // SAFETY: rule 2 asks nothing of an empty range.
        let answer = unsafe { cx.backend().copy(to, from, 0, kind) };
        refused("a copy of 0 bytes", answer, &[ErrorKind::InvalidValue])?;
    }
    Ok(())
}

fn of_nothing(cx: &Context) -> Verdict {
    empty_copies(cx, &cx.buffer(512)?, &cx.buffer(512)?)
}

fn refused_copy_leaves_no_error(cx: &Context) -> Verdict {
    let (one, other, stream) = (cx.buffer(512)?, cx.buffer(512)?, cx.stream()?);
    empty_copies(cx, &one, &other)?;
    cx.backend().synchronize_stream(stream.handle)?;
    cx.write(one.ptr(), &[1; 512])
}

fn last_copy_wins(cx: &Context) -> Verdict {
    let buffer = cx.buffer(512)?;
    for value in 1..=5 {
        cx.write(buffer.ptr(), &[value; 512])?;
        ensure!(cx.read(buffer.ptr(), 512)? == [value; 512], "copy number {value} did not arrive");
    }
    Ok(())
}
