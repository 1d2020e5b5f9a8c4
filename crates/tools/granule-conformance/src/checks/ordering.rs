//! What waits for what.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{OFTEN, prompt};
use crate::{Context, Gate, LocalEvent, LocalStream, Stop, Verdict};
use backend_api::types::DeviceIndex;
use backend_api::{CopyKind, EventFlags};
use std::sync::atomic::Ordering;
use std::time::Duration;

checks! { Ordering;
    "ordering.wait_holds_later_work": "wait_event: later work of the stream waits" => wait_holds,
    "ordering.wait_holds_every_time": "wait_event: later work waits, every time" => wait_holds_every_time,
    "ordering.wait_lets_go": "wait_event: the work goes on when the event is passed" => wait_lets_go,
    "ordering.wait_does_not_block": "wait_event: does not block" => wait_does_not_block,
    "ordering.wait_spares_earlier_work": "wait_event: earlier work does not wait" => wait_spares_earlier_work,
    "ordering.wait_spares_other_streams": "wait_event: other streams do not wait" => wait_spares_others,
    "ordering.wait_for_unrecorded":
        "wait_event: an event that was never recorded holds nothing" => unrecorded,
    "ordering.wait_for_passed": "wait_event: an event that was passed holds nothing" => wait_for_passed,
    "ordering.wait_for_own_event": "wait_event: a stream may wait for its own event" => wait_for_own_event,
    "ordering.later_record_does_not_hold":
        "wait_event: a later re-record of the event does not hold the wait" => later_record_does_not_hold,
    "ordering.later_record_does_not_free":
        "wait_event: a later re-record of the event does not end the wait" => later_record_does_not_free,
    "ordering.wait_outlives_event":
        "destroy_event: waits already queued on it still hold" => wait_outlives_event,
    "ordering.wait_outlives_stream":
        "destroy_stream: a wait for its work still holds, and ends" => wait_outlives_stream,
    "ordering.wait_across_devices": "wait_event: for another device's event" => wait_across_devices,
    "ordering.wait_on_default_stream": "wait_event: by the default stream" => wait_on_default_stream,
    "ordering.wait_for_two": "wait_event: two waits hold until both are passed" => wait_for_two,
    "ordering.wait_in_a_chain": "wait_event: a record behind a wait waits too" => wait_in_a_chain,
    "ordering.wait_carries_data":
        "wait_event: work behind it sees what the other stream wrote" => carries_data,
    "ordering.synchronize_behind_wait":
        "I3: synchronize_stream waits through an event's wait" => synchronize_behind_wait,
    "ordering.device_waits_for_all_streams":
        "I3: synchronize_device waits for all work of the device" => device_waits_for_all,
    "ordering.device_waits_every_time":
        "I3: synchronize_device returns when the work has finished, every time" => device_waits_every_time,
    "ordering.device_waits_for_default_stream":
        "I3: synchronize_device waits for the default stream too" => device_waits_for_default,
    "ordering.device_waits_for_destroyed_streams":
        "I3: synchronize_device waits for work of destroyed streams too" => device_waits_for_destroyed,
    "ordering.device_waits_for_itself_only":
        "synchronize_device: waits for no other device" => device_itself_only,
    "ordering.second_device_waits": "synchronize_device: of the device named" => second_device_waits,
}

/// A stream that is held, and an event behind what holds it. The gate opens first.
struct Held {
    gate: Gate,
    event: LocalEvent,
    _stream: LocalStream,
}

fn held(cx: &Context) -> Result<Held, Stop> {
    held_on(cx, cx.device()?)
}

fn held_on(cx: &Context, device: DeviceIndex) -> Result<Held, Stop> {
    let (stream, event) = (cx.stream_on(device)?, cx.event_on(device, EventFlags::empty())?);
    let gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    Ok(Held { gate, event, _stream: stream })
}

fn wait_holds(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    let held = held(cx)?;
    cx.backend().wait_event(stream.handle, held.event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.stays_busy(stream.handle)
}

fn wait_holds_every_time(cx: &Context) -> Verdict {
    let (first, second, event) = (cx.stream()?, cx.stream()?, cx.event()?);
    for time in 1..=OFTEN {
        let gate = cx.close(first.handle)?;
        cx.backend().record_event(event.handle, first.handle)?;
        cx.backend().wait_event(second.handle, event.handle)?;
        let flag = cx.flag(second.handle)?;
        // Long enough for a stream that does not wait, most times.
        std::thread::sleep(Duration::from_micros(200));
        ensure!(
            !flag.load(Ordering::SeqCst),
            "work behind a wait ran before the event, time {time} of {OFTEN}"
        );
        gate.open();
        cx.backend().synchronize_stream(second.handle)?;
    }
    Ok(())
}

fn wait_lets_go(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    let held = held(cx)?;
    cx.backend().wait_event(stream.handle, held.event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    held.gate.open();
    cx.eventually_idle(stream.handle)?;
    ensure!(cx.read(buffer.ptr(), 512)? == [1; 512], "the work behind the wait was lost");
    Ok(())
}

fn wait_does_not_block(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let held = held(cx)?;
    prompt("wait_event", || Ok(cx.backend().wait_event(stream.handle, held.event.handle)?))
}

fn wait_spares_earlier_work(cx: &Context) -> Verdict {
    let (stream, earlier) = (cx.stream()?, cx.event()?);
    let held = held(cx)?;
    cx.backend().record_event(earlier.handle, stream.handle)?;
    cx.backend().wait_event(stream.handle, held.event.handle)?;
    cx.eventually("work before the wait runs", || Ok(cx.backend().query_event(earlier.handle)?.is_ready()))
}

fn wait_spares_others(cx: &Context) -> Verdict {
    let (buffer, stream, other) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let held = held(cx)?;
    cx.backend().wait_event(stream.handle, held.event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, other.handle)?;
    cx.soon_idle(other.handle)
}

fn unrecorded(cx: &Context) -> Verdict {
    let (buffer, stream, event) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
    cx.backend().wait_event(stream.handle, event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.soon_idle(stream.handle)
}

fn wait_for_passed(cx: &Context) -> Verdict {
    let (buffer, stream, other) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let event = cx.event()?;
    cx.backend().record_event(event.handle, other.handle)?;
    cx.backend().synchronize_event(event.handle)?;
    // Work that comes to the other stream later is no matter.
    let _gate = cx.close(other.handle)?;
    cx.backend().wait_event(stream.handle, event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.soon_idle(stream.handle)
}

fn wait_for_own_event(cx: &Context) -> Verdict {
    let (buffer, stream, event) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
    let gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.backend().wait_event(stream.handle, event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    gate.open();
    cx.soon_idle(stream.handle)
}

fn later_record_does_not_hold(cx: &Context) -> Verdict {
    let (buffer, stream, recorder) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let blocker = held(cx)?;
    let event = cx.event()?;
    cx.backend().record_event(event.handle, recorder.handle)?;
    cx.backend().wait_event(stream.handle, event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.backend().wait_event(recorder.handle, blocker.event.handle)?;
    cx.backend().record_event(event.handle, recorder.handle)?;
    cx.soon_idle(stream.handle)
}

fn later_record_does_not_free(cx: &Context) -> Verdict {
    let (buffer, stream, free) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let held = held(cx)?;
    cx.backend().wait_event(stream.handle, held.event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.backend().record_event(held.event.handle, free.handle)?;
    cx.stays_busy(stream.handle)
}

fn wait_outlives_event(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    let Held { event, _stream: source, gate } = held(cx)?;
    cx.backend().wait_event(stream.handle, event.handle)?;
    event.destroy()?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.stays_busy(stream.handle)?;
    gate.open();
    cx.eventually_idle(stream.handle)?;
    drop(source);
    Ok(())
}

fn wait_outlives_stream(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    let Held { event, _stream: source, gate } = held(cx)?;
    cx.backend().wait_event(stream.handle, event.handle)?;
    source.destroy()?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.stays_busy(stream.handle)?;
    gate.open();
    cx.eventually_idle(stream.handle)
}

fn wait_across_devices(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    for (here, there) in [(first, second), (second, first)] {
        let (buffer, stream) = (cx.buffer_on(here, 512)?, cx.stream_on(here)?);
        let held = held_on(cx, there)?;
        cx.backend().wait_event(stream.handle, held.event.handle)?;
        cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
        cx.stays_busy(stream.handle)?;
        held.gate.open();
        cx.eventually_idle(stream.handle)?;
    }
    Ok(())
}

fn wait_on_default_stream(cx: &Context) -> Verdict {
    let buffer = cx.buffer(512)?;
    let stream = cx.backend().default_stream(cx.device()?);
    let held = held(cx)?;
    cx.backend().wait_event(stream, held.event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream)?;
    cx.stays_busy(stream)?;
    held.gate.open();
    cx.eventually_idle(stream)
}

fn wait_for_two(cx: &Context) -> Verdict {
    let (buffer, stream, passed) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
    let other = cx.stream()?;
    cx.backend().record_event(passed.handle, other.handle)?;
    for held_first in [true, false] {
        let held = held(cx)?;
        let order = if held_first { [&held.event, &passed] } else { [&passed, &held.event] };
        for event in order {
            cx.backend().wait_event(stream.handle, event.handle)?;
        }
        cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
        cx.stays_busy(stream.handle)?;
        held.gate.open();
        cx.eventually_idle(stream.handle)?;
    }
    Ok(())
}

fn wait_in_a_chain(cx: &Context) -> Verdict {
    let (buffer, middle, last) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let event = cx.event()?;
    let held = held(cx)?;
    cx.backend().wait_event(middle.handle, held.event.handle)?;
    cx.backend().record_event(event.handle, middle.handle)?;
    cx.backend().wait_event(last.handle, event.handle)?;
    cx.fill(buffer.ptr(), 1, 512, last.handle)?;
    cx.stays_busy(last.handle)?;
    held.gate.open();
    cx.eventually_idle(last.handle)
}

fn carries_data(cx: &Context) -> Verdict {
    let (from, to) = (cx.buffer(512)?, cx.buffer(512)?);
    let (writer, reader, event) = (cx.stream()?, cx.stream()?, cx.event()?);
    cx.write(from.ptr(), &[1; 512])?;
    let gate = cx.close(writer.handle)?;
    cx.fill(from.ptr(), 2, 512, writer.handle)?;
    cx.backend().record_event(event.handle, writer.handle)?;
    cx.backend().wait_event(reader.handle, event.handle)?;
    cx.queue_copy(to.ptr(), from.ptr(), 512, CopyKind::DeviceToDevice, reader.handle)?;
    std::thread::sleep(Duration::from_millis(2));
    gate.open();
    cx.backend().synchronize_stream(reader.handle)?;
    ensure_eq!(cx.read(to.ptr(), 1)?, [2], "what the second stream copied");
    Ok(())
}

fn synchronize_behind_wait(cx: &Context) -> Verdict {
    let (slow, behind, event) = (cx.stream()?, cx.stream()?, cx.event()?);
    let done = cx.slow_work(slow.handle)?;
    cx.backend().record_event(event.handle, slow.handle)?;
    cx.backend().wait_event(behind.handle, event.handle)?;
    cx.backend().synchronize_stream(behind.handle)?;
    ensure!(done.load(Ordering::SeqCst), "synchronize_stream returned before what its stream waits for");
    Ok(())
}

fn device_waits_every_time(cx: &Context) -> Verdict {
    let (device, stream) = (cx.device()?, cx.stream()?);
    cx.waits_every_time(stream.handle, || Ok(cx.backend().synchronize_device(device)?))
}

fn device_waits_for_all(cx: &Context) -> Verdict {
    let streams = [cx.stream()?, cx.stream()?, cx.stream()?];
    let mut flags = Vec::new();
    for stream in &streams {
        flags.push(cx.slow_work(stream.handle)?);
    }
    cx.backend().synchronize_device(cx.device()?)?;
    let done: Vec<bool> = flags.iter().map(|flag| flag.load(Ordering::SeqCst)).collect();
    ensure_eq!(done, [true; 3], "work done when synchronize_device returned");
    Ok(())
}

fn device_waits_for_default(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let done = cx.slow_work(cx.backend().default_stream(device))?;
    cx.backend().synchronize_device(device)?;
    ensure!(done.load(Ordering::SeqCst), "synchronize_device returned before the default stream's work");
    Ok(())
}

fn device_waits_for_destroyed(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let done = cx.slow_work(stream.handle)?;
    stream.destroy()?;
    cx.backend().synchronize_device(cx.device()?)?;
    ensure!(done.load(Ordering::SeqCst), "synchronize_device returned before a destroyed stream's work");
    Ok(())
}

fn device_itself_only(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    for (held, free) in [(first, second), (second, first)] {
        let stream = cx.stream_on(held)?;
        let _gate = cx.close(stream.handle)?;
        prompt("synchronize_device of another device", || Ok(cx.backend().synchronize_device(free)?))?;
    }
    Ok(())
}

fn second_device_waits(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    cx.backend().set_device(first)?;
    let stream = cx.stream_on(second)?;
    let done = cx.slow_work(stream.handle)?;
    cx.backend().synchronize_device(second)?;
    ensure!(done.load(Ordering::SeqCst), "synchronize_device of device {second} returned before its work");
    ensure_eq!(cx.backend().current_device()?, first, "the current device");
    Ok(())
}
