//! Events.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{OFTEN, prompt, refused};
use crate::{Context, LocalEvent, Stop, Verdict};
use backend_api::{ErrorKind, EventFlags};
use std::sync::atomic::Ordering;
use std::time::Duration;

checks! { Events;
    "events.handle_names_its_device": "create_event: the handle carries the device" => handle_device,
    "events.handle_names_its_backend": "rule 1: the handle carries the backend's id" => handle_backend,
    "events.handles_differ": "create_event: a new handle each time" => handles_differ,
    "events.complete_at_first": "create_event: complete until first recorded" => complete_at_first,
    "events.synchronize_unrecorded":
        "synchronize_event: returns where nothing was recorded" => synchronize_unrecorded,
    "events.create_unknown_device_is_refused":
        "create_event: a device that is not there is InvalidValue" => create_unknown_device,
    "events.each_flag_works": "create_event: with each flag that one process needs" => each_flag_works,
    "events.many_at_once": "create_event: hundreds live side by side" => many_at_once,
    "events.not_ready_behind_work": "I2: ready only when all work before the record is done" => not_ready,
    "events.ready_after_work": "query_event: Ready once the record was passed" => ready_after_work,
    "events.not_ready_leaves_no_error": "rule 6: NotReady is a value, not an error" => not_ready_no_error,
    "events.none_of_many_is_ready_early":
        "I2: no event is ready before the work, not even one of many" => none_of_many_is_ready_early,
    "events.later_work_does_not_count":
        "record_event: the end of what is queued now, not of what comes later" => later_work_does_not_count,
    "events.record_again_moves_it": "query_event: about the last record" => record_again_moves_it,
    "events.record_elsewhere_moves_it":
        "query_event: about the last record, also on another stream" => record_elsewhere_moves_it,
    "events.each_event_is_its_own": "query_event: of this event, not of another" => each_event_is_its_own,
    "events.of_other_device_is_refused":
        "record_event: an event of another device is InvalidValue" => of_other_device,
    "events.refused_record_changes_nothing":
        "rule 6: a refused record leaves the event as it was" => refused_record_changes_nothing,
    "events.synchronize_waits":
        "I3: synchronize_event returns when the work has finished" => synchronize_waits,
    "events.synchronize_waits_every_time":
        "I3: synchronize_event returns when the work has finished, every time" => synchronize_waits_every_time,
    "events.synchronize_waits_for_its_record_only":
        "synchronize_event: does not wait for later work" => synchronize_its_record_only,
    "events.blocking_synchronize_waits":
        "BLOCKING_SYNC: waits all the same" => blocking_synchronize_waits,
    "events.query_does_not_block": "query_event: does not block" => query_does_not_block,
    "events.record_does_not_block": "record_event: does not block" => record_does_not_block,
    "events.record_on_default_stream": "record_event: on the default stream" => record_on_default_stream,
    "events.record_on_second_device": "record_event: on any device, whatever is current" => record_on_second,
    "events.destroy_pending": "destroy_event: of an event that is not ready" => destroy_pending,
    "events.destroy_does_not_block": "destroy_event: does not block" => destroy_does_not_block,
    "events.elapsed_measures_work": "elapsed_ms: milliseconds between two records" => elapsed_measures_work,
    "events.elapsed_is_not_negative": "elapsed_ms: a later record is not earlier" => elapsed_is_not_negative,
    "events.elapsed_of_itself": "elapsed_ms: nothing passes between an event and itself" => elapsed_of_itself,
    "events.elapsed_without_timing_is_refused":
        "elapsed_ms: NotSupported without TIMING" => elapsed_without_timing,
}

fn handle_device(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let event = cx.event_on(device, EventFlags::empty())?;
        ensure_eq!(event.handle.device, device, "the handle's device");
    }
    Ok(())
}

fn handle_backend(cx: &Context) -> Verdict {
    ensure_eq!(cx.event()?.handle.backend, cx.backend().id(), "the handle's backend");
    Ok(())
}

fn handles_differ(cx: &Context) -> Verdict {
    let (one, other) = (cx.event()?, cx.event()?);
    ensure!(one.handle != other.handle, "two events have the handle {:?}", one.handle);
    Ok(())
}

fn ready(cx: &Context, event: &LocalEvent) -> Result<bool, Stop> {
    Ok(cx.backend().query_event(event.handle)?.is_ready())
}

fn complete_at_first(cx: &Context) -> Verdict {
    ensure!(ready(cx, &cx.event()?)?, "an event that was never recorded is not ready");
    Ok(())
}

fn synchronize_unrecorded(cx: &Context) -> Verdict {
    Ok(cx.backend().synchronize_event(cx.event()?.handle)?)
}

fn create_unknown_device(cx: &Context) -> Verdict {
    let answer = cx.backend().create_event(cx.no_device()?, EventFlags::empty());
    refused("create_event", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn each_flag_works(cx: &Context) -> Verdict {
    let (device, stream) = (cx.device()?, cx.stream()?);
    let (timing, blocking) = (EventFlags::TIMING, EventFlags::BLOCKING_SYNC);
    for flags in [EventFlags::empty(), timing, blocking, timing | blocking] {
        let event = cx.event_on(device, flags)?;
        cx.backend().record_event(event.handle, stream.handle)?;
        cx.backend().synchronize_event(event.handle)?;
        ensure!(ready(cx, &event)?, "an event with {flags:?} is not ready after it was waited for");
    }
    Ok(())
}

fn many_at_once(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let mut events = Vec::new();
    for _ in 0..200 {
        events.push(cx.event()?);
    }
    for event in &events {
        cx.backend().record_event(event.handle, stream.handle)?;
    }
    cx.backend().synchronize_stream(stream.handle)?;
    for event in &events {
        ensure!(ready(cx, event)?, "one of 200 events is not ready");
    }
    Ok(())
}

fn not_ready(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    let _gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.never("the event became ready before the work", || ready(cx, &event))
}

fn none_of_many_is_ready_early(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let _gate = cx.close(stream.handle)?;
    for time in 1..=OFTEN {
        let event = cx.event()?;
        cx.backend().record_event(event.handle, stream.handle)?;
        ensure!(!ready(cx, &event)?, "event {time} of {OFTEN} is ready before the work");
    }
    Ok(())
}

fn synchronize_waits_every_time(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    cx.waits_every_time(stream.handle, || {
        cx.backend().record_event(event.handle, stream.handle)?;
        Ok(cx.backend().synchronize_event(event.handle)?)
    })
}

fn ready_after_work(cx: &Context) -> Verdict {
    let (buffer, stream, event) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.eventually("the event becomes ready", || ready(cx, &event))?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(ready(cx, &event)?, "the event is not ready after its stream was waited for");
    Ok(())
}

fn not_ready_no_error(cx: &Context) -> Verdict {
    let (buffer, stream, other) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let event = cx.event()?;
    let _gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    for _ in 0..3 {
        ensure!(!ready(cx, &event)?, "the event is ready before the work");
        cx.fill(buffer.ptr(), 1, 512, other.handle)?;
        ensure!(!ready(cx, &event)?, "the event is ready before the work");
        cx.backend().synchronize_stream(other.handle)?;
    }
    Ok(())
}

fn later_work_does_not_count(cx: &Context) -> Verdict {
    let (buffer, stream, event) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    let _gate = cx.close(stream.handle)?;
    cx.eventually("the event becomes ready before later work", || ready(cx, &event))?;
    ensure!(!cx.backend().query_stream(stream.handle)?.is_ready(), "the later work is done");
    Ok(())
}

fn record_again_moves_it(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.backend().synchronize_event(event.handle)?;
    let gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.never("the event stayed ready when it was recorded again", || ready(cx, &event))?;
    gate.open();
    cx.eventually("the event becomes ready again", || ready(cx, &event))
}

fn record_elsewhere_moves_it(cx: &Context) -> Verdict {
    let (held, free, event) = (cx.stream()?, cx.stream()?, cx.event()?);
    let _gate = cx.close(held.handle)?;
    cx.backend().record_event(event.handle, held.handle)?;
    ensure!(!ready(cx, &event)?, "the event is ready before the work");
    cx.backend().record_event(event.handle, free.handle)?;
    cx.soon_idle(free.handle)?;
    ensure!(ready(cx, &event)?, "the event still stands for its first record");
    Ok(())
}

fn each_event_is_its_own(cx: &Context) -> Verdict {
    let (stream, early, late) = (cx.stream()?, cx.event()?, cx.event()?);
    cx.backend().record_event(early.handle, stream.handle)?;
    cx.backend().synchronize_event(early.handle)?;
    let _gate = cx.close(stream.handle)?;
    cx.backend().record_event(late.handle, stream.handle)?;
    ensure!(ready(cx, &early)?, "an event that was ready is not any more");
    ensure!(!ready(cx, &late)?, "the event is ready before the work");
    Ok(())
}

/// Records an event of one device on a stream of another.
fn foreign_record(cx: &Context, event: &LocalEvent) -> Verdict {
    let stream = cx.stream_on(cx.second_device()?)?;
    let answer = cx.backend().record_event(event.handle, stream.handle);
    refused("record_event across devices", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn of_other_device(cx: &Context) -> Verdict {
    foreign_record(cx, &cx.event()?)
}

fn refused_record_changes_nothing(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    foreign_record(cx, &event)?;
    ensure!(ready(cx, &event)?, "a refused record made the event not ready");
    let _gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    foreign_record(cx, &event)?;
    ensure!(!ready(cx, &event)?, "a refused record made the event ready");
    Ok(())
}

/// Queues work that takes a while, records the event behind it and waits for the event.
fn waits(cx: &Context, flags: EventFlags) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event_on(cx.device()?, flags)?);
    let done = cx.slow_work(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.backend().synchronize_event(event.handle)?;
    ensure!(done.load(Ordering::SeqCst), "synchronize_event returned before the work was done");
    Ok(())
}

fn synchronize_waits(cx: &Context) -> Verdict {
    waits(cx, EventFlags::empty())
}

fn blocking_synchronize_waits(cx: &Context) -> Verdict {
    waits(cx, EventFlags::BLOCKING_SYNC)
}

fn synchronize_its_record_only(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    cx.backend().record_event(event.handle, stream.handle)?;
    let _gate = cx.close(stream.handle)?;
    prompt("synchronize_event before later work", || Ok(cx.backend().synchronize_event(event.handle)?))
}

fn query_does_not_block(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    let _gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    prompt("query_event", || ready(cx, &event).map(drop))
}

fn record_does_not_block(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    let _gate = cx.close(stream.handle)?;
    prompt("record_event", || Ok(cx.backend().record_event(event.handle, stream.handle)?))
}

fn record_on_default_stream(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let (stream, event) =
            (cx.backend().default_stream(device), cx.event_on(device, EventFlags::empty())?);
        let gate = cx.close(stream)?;
        cx.backend().record_event(event.handle, stream)?;
        let early = ready(cx, &event)?;
        gate.open();
        cx.backend().synchronize_event(event.handle)?;
        ensure!(!early, "the event is ready before the default stream's work");
    }
    Ok(())
}

fn record_on_second(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    for (current, device) in [(first, second), (second, first)] {
        cx.backend().set_device(current)?;
        let (stream, event) = (cx.stream_on(device)?, cx.event_on(device, EventFlags::empty())?);
        let gate = cx.close(stream.handle)?;
        cx.backend().record_event(event.handle, stream.handle)?;
        ensure!(!ready(cx, &event)?, "the event is ready before the work");
        gate.open();
        cx.backend().synchronize_event(event.handle)?;
    }
    Ok(())
}

fn destroy_pending(cx: &Context) -> Verdict {
    let (buffer, stream, event) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
    let gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    event.destroy()?;
    cx.fill(buffer.ptr(), 2, 512, stream.handle)?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(buffer.ptr(), 512)? == [2; 512], "work behind a destroyed event's record was lost");
    Ok(())
}

fn destroy_does_not_block(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let mut events = Vec::new();
    for _ in 0..3 {
        events.push(cx.event()?);
    }
    let _gate = cx.close(stream.handle)?;
    for event in &events {
        cx.backend().record_event(event.handle, stream.handle)?;
    }
    prompt("destroy_event", || events.pop().map_or(Ok(()), |event| Ok(event.destroy()?)))
}

/// Two events with time stamps around some milliseconds of work, waited for. Skips where the backend keeps
/// none.
fn stamped(cx: &Context, pause: u64) -> Result<(LocalEvent, LocalEvent), Stop> {
    let (device, stream) = (cx.device()?, cx.stream()?);
    let make = || cx.event_on(device, EventFlags::TIMING);
    let (start, end) = (make()?, make()?);
    cx.backend().record_event(start.handle, stream.handle)?;
    let work = move || std::thread::sleep(Duration::from_millis(pause));
    cx.backend().launch_host_function(stream.handle, Box::new(work))?;
    cx.backend().record_event(end.handle, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    match cx.backend().elapsed_ms(start.handle, end.handle) {
        Err(error) if error.kind == ErrorKind::NotSupported => Err(Stop::Skipped(error.to_string())),
        _ => Ok((start, end)),
    }
}

fn elapsed_measures_work(cx: &Context) -> Verdict {
    let (start, end) = stamped(cx, 5)?;
    let elapsed = cx.backend().elapsed_ms(start.handle, end.handle)?;
    // Clocks of host and device differ a little; a busy machine sleeps much longer.
    ensure!((4.0..5000.0).contains(&elapsed), "5 ms of work took {elapsed} ms");
    Ok(())
}

fn elapsed_is_not_negative(cx: &Context) -> Verdict {
    let (start, end) = stamped(cx, 0)?;
    let elapsed = cx.backend().elapsed_ms(start.handle, end.handle)?;
    ensure!((0.0..5000.0).contains(&elapsed), "{elapsed} ms passed");
    Ok(())
}

fn elapsed_of_itself(cx: &Context) -> Verdict {
    let (_, end) = stamped(cx, 0)?;
    let elapsed = cx.backend().elapsed_ms(end.handle, end.handle)?;
    ensure!((-1e-3..1e-3).contains(&elapsed), "{elapsed} ms passed between an event and itself");
    Ok(())
}

fn elapsed_without_timing(cx: &Context) -> Verdict {
    let (stream, start, end) = (cx.stream()?, cx.event()?, cx.event()?);
    cx.backend().record_event(start.handle, stream.handle)?;
    cx.backend().record_event(end.handle, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let answer = cx.backend().elapsed_ms(start.handle, end.handle);
    refused("elapsed_ms without TIMING", answer, &[ErrorKind::NotSupported]).map(drop)
}
