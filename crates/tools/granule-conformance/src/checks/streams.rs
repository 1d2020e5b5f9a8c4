//! Streams, their priorities and host functions.

mod running;

pub(crate) use running::CHECKS as RUNNING_CHECKS;

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{prompt, refused};
use crate::{Context, Verdict};
use backend_api::ErrorKind;
use std::collections::HashSet;

checks! { Streams;
    "streams.handle_names_its_device": "create_stream: the handle carries the device" => handle_device,
    "streams.handle_names_its_backend": "rule 1: the handle carries the backend's id" => handle_backend,
    "streams.handle_is_not_the_default":
        "create_stream: a new stream, not the default one" => not_the_default,
    "streams.handles_differ": "create_stream: a new handle each time" => handles_differ,
    "streams.many_at_once": "create_stream: tens of streams live side by side" => many_at_once,
    "streams.ready_at_first": "query_stream: a new stream has no work" => ready_at_first,
    "streams.synchronize_idle": "synchronize_stream returns where nothing is queued" => synchronize_idle,
    "streams.default_is_the_null_handle":
        "default_stream: the null handle of the device and backend" => default_is_the_null_handle,
    "streams.default_exists":
        "default_stream: exists without being created, on every device" => default_exists,
    "streams.default_runs_work": "default_stream: runs work like any stream" => default_runs_work,
    "streams.create_unknown_device_is_refused":
        "create_stream: a device that is not there is InvalidValue" => create_unknown_device,
    "streams.priorities_in_order":
        "priority_range: least is not negative, greatest not positive" => range_order,
    "streams.priorities_are_stable": "priority_range: the same at every call" => range_stable,
    "streams.priority_unknown_device_is_refused":
        "priority_range: a device that is not there is InvalidValue" => range_unknown_device,
    "streams.each_priority_works": "create_stream: every priority of the range works" => each_priority_works,
    "streams.priorities_are_clamped":
        "create_stream: priorities out of range are clamped" => priorities_are_clamped,
    "streams.destroyed_work_runs": "destroy_stream: work queued on it still runs" => destroyed_work_runs,
    "streams.destroyed_work_runs_in_order":
        "destroy_stream: work queued on it still runs in order" => destroyed_work_in_order,
    "streams.destroy_does_not_wait": "destroy_stream: does not wait" => destroy_does_not_wait,
    "streams.destroy_leaves_others": "destroy_stream: other streams go on" => destroy_leaves_others,
    "streams.create_and_destroy_many":
        "create_stream, destroy_stream: hundreds in turn" => create_and_destroy_many,
    "streams.runs_on_its_device": "a stream's work runs whatever device is current" => runs_on_its_device,
}

fn handle_device(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        ensure_eq!(cx.stream_on(device)?.handle.device, device, "the handle's device");
    }
    Ok(())
}

fn handle_backend(cx: &Context) -> Verdict {
    ensure_eq!(cx.stream()?.handle.backend, cx.backend().id(), "the handle's backend");
    Ok(())
}

fn not_the_default(cx: &Context) -> Verdict {
    let (stream, default) = (cx.stream()?, cx.backend().default_stream(cx.device()?));
    // Checked by handle and by behaviour: one may be held while the other is not.
    ensure!(stream.handle != default, "the new stream is the default stream");
    Ok(())
}

fn handles_differ(cx: &Context) -> Verdict {
    let (one, other) = (cx.stream()?, cx.stream()?);
    ensure!(one.handle != other.handle, "two streams have the handle {:?}", one.handle);
    Ok(())
}

fn many_at_once(cx: &Context) -> Verdict {
    let buffer = cx.buffer(32)?;
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(cx.stream()?);
    }
    let handles: HashSet<_> = streams.iter().map(|stream| stream.handle).collect();
    ensure_eq!(handles.len(), 32, "handles of 32 streams");
    for (place, stream) in streams.iter().enumerate() {
        cx.fill(buffer.ptr().add(place as u64), place as u8, 1, stream.handle)?;
    }
    for stream in &streams {
        cx.backend().synchronize_stream(stream.handle)?;
    }
    let due: Vec<u8> = (0..32).collect();
    ensure_eq!(cx.read(buffer.ptr(), 32)?, due, "what 32 streams wrote");
    Ok(())
}

fn ready_at_first(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    ensure!(cx.backend().query_stream(stream.handle)?.is_ready(), "a new stream is not ready");
    Ok(())
}

fn synchronize_idle(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    for _ in 0..3 {
        cx.backend().synchronize_stream(stream.handle)?;
    }
    Ok(())
}

fn default_is_the_null_handle(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let stream = cx.backend().default_stream(device);
        ensure_eq!((stream.raw, stream.device, stream.backend), (0, device, cx.backend().id()), "the handle");
    }
    Ok(())
}

fn default_exists(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let stream = cx.backend().default_stream(device);
        cx.backend().query_stream(stream)?;
        cx.backend().synchronize_stream(stream)?;
    }
    Ok(())
}

fn default_runs_work(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let buffer = cx.buffer_on(device, 512)?;
        let stream = cx.backend().default_stream(device);
        cx.fill(buffer.ptr(), 0x42, 512, stream)?;
        cx.backend().synchronize_stream(stream)?;
        ensure!(cx.read(buffer.ptr(), 512)? == [0x42; 512], "the fill on device {device} did not run");
    }
    Ok(())
}

fn create_unknown_device(cx: &Context) -> Verdict {
    let answer = cx.backend().create_stream(cx.no_device()?, 0);
    refused("create_stream", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn range_order(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let range = cx.backend().priority_range(device)?;
        ensure!(range.greatest <= 0 && 0 <= range.least, "the priorities of device {device} are {range:?}");
    }
    Ok(())
}

fn range_stable(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let range = cx.backend().priority_range(device)?;
        ensure_eq!(cx.backend().priority_range(device)?, range, "the priorities, asked again");
    }
    Ok(())
}

fn range_unknown_device(cx: &Context) -> Verdict {
    let answer = cx.backend().priority_range(cx.no_device()?);
    refused("priority_range", answer, &[ErrorKind::InvalidValue]).map(drop)
}

/// Makes streams of these priorities and runs something on each.
fn priorities_work(cx: &Context, priorities: &[i32]) -> Verdict {
    let (device, buffer) = (cx.device()?, cx.buffer(512)?);
    for &priority in priorities {
        let stream = cx.adopt_stream(cx.backend().create_stream(device, priority)?);
        cx.fill(buffer.ptr(), priority as u8, 512, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        ensure!(cx.read(buffer.ptr(), 512)? == [priority as u8; 512], "priority {priority} did not run");
    }
    Ok(())
}

fn each_priority_works(cx: &Context) -> Verdict {
    let range = cx.backend().priority_range(cx.device()?)?;
    let all: Vec<i32> = (range.greatest..=range.least).collect();
    priorities_work(cx, &all)
}

fn priorities_are_clamped(cx: &Context) -> Verdict {
    let range = cx.backend().priority_range(cx.device()?)?;
    priorities_work(cx, &[i32::MIN, range.greatest - 1, range.least + 1, i32::MAX])
}

fn destroyed_work_runs(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    cx.write(buffer.ptr(), &[1; 512])?;
    let gate = cx.close(stream.handle)?;
    cx.fill(buffer.ptr(), 2, 512, stream.handle)?;
    stream.destroy()?;
    gate.open();
    cx.eventually("work of a destroyed stream runs", || Ok(cx.read(buffer.ptr(), 512)? == [2; 512]))
}

fn destroyed_work_in_order(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    cx.write(buffer.ptr(), &[0; 512])?;
    let gate = cx.close(stream.handle)?;
    for value in 1..=4 {
        cx.fill(buffer.ptr(), value, 512, stream.handle)?;
    }
    let passed = cx.flag(stream.handle)?;
    stream.destroy()?;
    gate.open();
    cx.eventually("the destroyed stream's last work runs", || {
        Ok(passed.load(std::sync::atomic::Ordering::SeqCst))
    })?;
    ensure!(cx.read(buffer.ptr(), 512)? == [4; 512], "the last work did not run last");
    Ok(())
}

fn destroy_does_not_wait(cx: &Context) -> Verdict {
    let mut streams = [Some(cx.stream()?), Some(cx.stream()?), Some(cx.stream()?)].into_iter();
    let mut gates = Vec::new();
    prompt("destroy_stream", || {
        let Some(stream) = streams.next().flatten() else { return Ok(()) };
        gates.push(cx.close(stream.handle)?);
        Ok(stream.destroy()?)
    })
}

fn destroy_leaves_others(cx: &Context) -> Verdict {
    let buffer = cx.buffer(512)?;
    let (one, other) = (cx.stream()?, cx.stream()?);
    cx.fill(buffer.ptr(), 1, 512, other.handle)?;
    one.destroy()?;
    cx.fill(buffer.ptr(), 2, 512, other.handle)?;
    cx.backend().synchronize_stream(other.handle)?;
    ensure!(cx.read(buffer.ptr(), 512)? == [2; 512], "the other stream lost work");
    Ok(())
}

fn create_and_destroy_many(cx: &Context) -> Verdict {
    for _ in 0..200 {
        cx.stream()?.destroy()?;
    }
    Ok(())
}

fn runs_on_its_device(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    for (current, device) in [(first, second), (second, first)] {
        cx.backend().set_device(current)?;
        let (buffer, stream) = (cx.buffer_on(device, 512)?, cx.stream_on(device)?);
        cx.fill(buffer.ptr(), 0x42, 512, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        ensure!(cx.read(buffer.ptr(), 512)? == [0x42; 512], "a stream of device {device} ran nothing");
    }
    Ok(())
}
