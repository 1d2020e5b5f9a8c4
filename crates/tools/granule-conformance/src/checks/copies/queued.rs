//! Copies and fills in stream order.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, prompt, refused};
use crate::{Context, Verdict};
use backend_api::{CopyKind, ErrorKind};

checks! { Copies;
    "copies.queued_to_device": "copy_async: every byte arrives on the device" => queued_to_device,
    "copies.queued_from_device": "copy_async: every byte arrives on the host" => queued_from_device,
    "copies.queued_within_a_device": "copy_async: DeviceToDevice" => queued_within_a_device,
    "copies.queued_between_devices": "copy_async: to another device's memory" => queued_between_devices,
    "copies.queued_on_default_stream": "copy_async: on the default stream" => queued_on_default_stream,
    "copies.queued_reads_when_reached":
        "copy_async: stream-ordered, the source is read when the stream reaches it" => reads_when_reached,
    "copies.queued_in_order": "copy_async: copies of a stream run in order" => queued_in_order,
    "copies.queued_does_not_block": "copy_async: does not block" => copy_does_not_block,
    "copies.queued_of_nothing": "rule 4: a copy of 0 bytes is InvalidValue" => queued_of_nothing,
    "copies.queued_nothing_beyond":
        "copy_async: no byte outside of the range changes" => queued_nothing_beyond,
    "copies.refused_queued_copy_queues_nothing":
        "rule 6: a refused copy_async leaves the stream usable and idle" => refused_queues_nothing,
    "copies.fill_value": "memset_async: every byte gets the value" => fill_value,
    "copies.fill_nothing_beyond":
        "memset_async: no byte before or behind the range changes" => fill_nothing_beyond,
    "copies.fill_at_odd_addresses": "memset_async: any address, any size" => fill_at_odd_addresses,
    "copies.fill_when_reached":
        "memset_async: stream-ordered, written when the stream reaches it" => fill_when_reached,
    "copies.fill_in_order": "memset_async: in order with copies of the stream" => fill_in_order,
    "copies.fill_does_not_block": "memset_async: does not block" => fill_does_not_block,
    "copies.fill_of_nothing": "rule 4: a fill of 0 bytes is InvalidValue" => fill_of_nothing,
    "copies.fill_on_second_device":
        "memset_async: on any device, whatever is current" => fill_on_second_device,
}

fn queued_to_device(cx: &Context) -> Verdict {
    let (device, mut host, stream) = (cx.buffer(5003)?, cx.host_buffer(5003)?, cx.stream()?);
    host.bytes_mut().copy_from_slice(&pattern(4, 5003));
    cx.write(device.ptr(), &[0; 5003])?;
    cx.queue_copy(device.ptr(), host.ptr(), 5003, CopyKind::HostToDevice, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(device.ptr(), 5003)? == pattern(4, 5003), "other bytes arrived");
    Ok(())
}

fn queued_from_device(cx: &Context) -> Verdict {
    let (device, host, stream) = (cx.buffer(5003)?, cx.host_buffer(5003)?, cx.stream()?);
    cx.write(device.ptr(), &pattern(4, 5003))?;
    cx.queue_copy(host.ptr(), device.ptr(), 5003, CopyKind::DeviceToHost, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(host.bytes() == pattern(4, 5003), "other bytes arrived");
    Ok(())
}

fn queued_within_a_device(cx: &Context) -> Verdict {
    let (from, to, stream) = (cx.buffer(5003)?, cx.buffer(5003)?, cx.stream()?);
    cx.write(from.ptr(), &pattern(4, 5003))?;
    cx.write(to.ptr(), &[0; 5003])?;
    cx.queue_copy(to.ptr(), from.ptr(), 5003, CopyKind::DeviceToDevice, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(to.ptr(), 5003)? == pattern(4, 5003), "other bytes arrived");
    Ok(())
}

fn queued_between_devices(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    let (from, to) = (cx.buffer_on(first, 5003)?, cx.buffer_on(second, 5003)?);
    let stream = cx.stream_on(first)?;
    cx.write(from.ptr(), &pattern(4, 5003))?;
    cx.write(to.ptr(), &[0; 5003])?;
    cx.queue_copy(to.ptr(), from.ptr(), 5003, CopyKind::DeviceToDevice, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(to.ptr(), 5003)? == pattern(4, 5003), "other bytes arrived");
    Ok(())
}

fn queued_on_default_stream(cx: &Context) -> Verdict {
    let (device, host) = (cx.buffer(512)?, cx.host_buffer(512)?);
    let stream = cx.backend().default_stream(cx.device()?);
    cx.fill(device.ptr(), 0x42, 512, stream)?;
    cx.queue_copy(host.ptr(), device.ptr(), 512, CopyKind::DeviceToHost, stream)?;
    cx.backend().synchronize_stream(stream)?;
    ensure!(host.bytes() == [0x42; 512], "other bytes arrived");
    Ok(())
}

fn reads_when_reached(cx: &Context) -> Verdict {
    let (from, to, stream) = (cx.buffer(512)?, cx.buffer(512)?, cx.stream()?);
    cx.write(from.ptr(), &[1; 512])?;
    let gate = cx.close(stream.handle)?;
    cx.queue_copy(to.ptr(), from.ptr(), 512, CopyKind::DeviceToDevice, stream.handle)?;
    cx.write(from.ptr(), &[2; 512])?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(to.ptr(), 512)? == [2; 512], "the copy ran before the stream reached it");
    Ok(())
}

fn queued_in_order(cx: &Context) -> Verdict {
    let buffers = [cx.buffer(512)?, cx.buffer(512)?, cx.buffer(512)?];
    let stream = cx.stream()?;
    for (value, buffer) in buffers.iter().enumerate() {
        cx.write(buffer.ptr(), &[value as u8; 512])?;
    }
    let gate = cx.close(stream.handle)?;
    for (to, from) in [(1, 0), (2, 1)] {
        let (to, from) = (buffers[to].ptr(), buffers[from].ptr());
        cx.queue_copy(to, from, 512, CopyKind::DeviceToDevice, stream.handle)?;
    }
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(buffers[2].ptr(), 512)? == [0; 512], "the second copy ran before the first");
    Ok(())
}

fn copy_does_not_block(cx: &Context) -> Verdict {
    let (from, to, stream) = (cx.buffer(512)?, cx.buffer(512)?, cx.stream()?);
    // From pageable memory it may block.
    let host = cx.backend().pinned_host().is_ok().then(|| cx.pinned_buffer(512)).transpose()?;
    let _gate = cx.close(stream.handle)?;
    prompt("copy_async within a device", || {
        cx.queue_copy(to.ptr(), from.ptr(), 512, CopyKind::DeviceToDevice, stream.handle)
    })?;
    host.as_ref().map_or(Ok(()), |host| {
        prompt("copy_async from page-locked memory", || {
            cx.queue_copy(to.ptr(), host.ptr(), 512, CopyKind::HostToDevice, stream.handle)
        })
    })
}

fn queued_of_nothing(cx: &Context) -> Verdict {
    let (one, other, stream) = (cx.buffer(512)?, cx.buffer(512)?, cx.stream()?);
    // SAFETY: rule 2 asks nothing of an empty range.
    let answer = unsafe {
        cx.backend().copy_async(one.ptr(), other.ptr(), 0, CopyKind::DeviceToDevice, stream.handle)
    };
    refused("copy_async of 0 bytes", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn queued_nothing_beyond(cx: &Context) -> Verdict {
    let (from, to, stream) = (cx.buffer(4096)?, cx.buffer(4096)?, cx.stream()?);
    cx.write(from.ptr(), &[0x22; 4096])?;
    cx.write(to.ptr(), &[0x11; 4096])?;
    cx.queue_copy(to.ptr().add(100), from.ptr(), 1001, CopyKind::DeviceToDevice, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let read = cx.read(to.ptr(), 4096)?;
    let changed = (read.iter().position(|&b| b == 0x22), read.iter().rposition(|&b| b == 0x22));
    ensure_eq!(changed, (Some(100), Some(1100)), "the first and the last byte that changed");
    Ok(())
}

fn refused_queues_nothing(cx: &Context) -> Verdict {
    let (one, other, stream) = (cx.buffer(512)?, cx.buffer(512)?, cx.stream()?);
    cx.write(one.ptr(), &[1; 512])?;
    cx.write(other.ptr(), &[2; 512])?;
    // SAFETY: rule 2 asks nothing of an empty range.
    let answer = unsafe {
        cx.backend().copy_async(one.ptr(), other.ptr(), 0, CopyKind::DeviceToDevice, stream.handle)
    };
    ensure!(answer.is_err(), "a copy of 0 bytes was taken");
    ensure!(cx.backend().query_stream(stream.handle)?.is_ready(), "the refused copy is queued");
    cx.fill(other.ptr(), 3, 512, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(one.ptr(), 512)? == [1; 512], "the refused copy changed memory");
    Ok(())
}

fn fill_value(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(5003)?, cx.stream()?);
    for value in [0, 0x5A, 0xFF, 0x80, 1] {
        cx.fill(buffer.ptr(), value, 5003, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        ensure!(cx.read(buffer.ptr(), 5003)?.iter().all(|&b| b == value), "not all bytes are {value:#x}");
    }
    Ok(())
}

/// Fills a part of a buffer and checks the whole of it.
fn fill_part(cx: &Context, parts: &[(usize, usize)]) -> Verdict {
    let (buffer, stream) = (cx.buffer(4096)?, cx.stream()?);
    for &(offset, bytes) in parts {
        cx.write(buffer.ptr(), &[0x11; 4096])?;
        cx.fill(buffer.ptr().add(offset as u64), 0x22, bytes as u64, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        for (at, byte) in cx.read(buffer.ptr(), 4096)?.into_iter().enumerate() {
            let due = if (offset..offset + bytes).contains(&at) { 0x22 } else { 0x11 };
            ensure_eq!(byte, due, "byte {at} after {bytes} bytes at {offset} were filled");
        }
    }
    Ok(())
}

fn fill_nothing_beyond(cx: &Context) -> Verdict {
    fill_part(cx, &[(512, 512), (1024, 2048)])
}

fn fill_at_odd_addresses(cx: &Context) -> Verdict {
    fill_part(cx, &[(1, 1), (3, 7), (511, 1003)])
}

fn fill_when_reached(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    let gate = cx.close(stream.handle)?;
    cx.fill(buffer.ptr(), 2, 512, stream.handle)?;
    cx.write(buffer.ptr(), &[1; 512])?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(buffer.ptr(), 512)? == [2; 512], "the fill ran before the stream reached it");
    Ok(())
}

fn fill_in_order(cx: &Context) -> Verdict {
    let (buffer, copied, stream) = (cx.buffer(512)?, cx.buffer(512)?, cx.stream()?);
    let gate = cx.close(stream.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.queue_copy(copied.ptr(), buffer.ptr(), 512, CopyKind::DeviceToDevice, stream.handle)?;
    cx.fill(buffer.ptr(), 2, 512, stream.handle)?;
    // What does not keep the order has its time now.
    cx.stays_busy(stream.handle)?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(copied.ptr(), 512)? == [1; 512], "the copy saw another fill than the one before it");
    ensure!(cx.read(buffer.ptr(), 512)? == [2; 512], "the last fill did not win");
    Ok(())
}

fn fill_does_not_block(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    let _gate = cx.close(stream.handle)?;
    prompt("memset_async", || cx.fill(buffer.ptr(), 1, 512, stream.handle))
}

fn fill_of_nothing(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    // SAFETY: rule 2 asks nothing of an empty range.
    let answer = unsafe { cx.backend().memset_async(buffer.ptr(), 1, 0, stream.handle) };
    refused("memset_async of 0 bytes", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn fill_on_second_device(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    cx.backend().set_device(first)?;
    let (buffer, stream) = (cx.buffer_on(second, 512)?, cx.stream_on(second)?);
    cx.fill(buffer.ptr(), 0x42, 512, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(buffer.ptr(), 512)? == [0x42; 512], "the fill did not arrive");
    Ok(())
}
