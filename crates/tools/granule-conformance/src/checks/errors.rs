//! Kinds, codes and completeness of errors, and the current device across calls.

mod current;

pub(crate) use current::CHECKS as CURRENT_CHECKS;

use crate::check::{checks, ensure, ensure_eq};
use crate::context::refused;
use crate::{Context, Stop, Verdict};
use backend_api::types::{BackendId, DevicePtr, Event, Stream};
use backend_api::{BackendError, CopyKind, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

checks! { Errors;
    "errors.foreign_stream_is_not_queried":
        "rule 1: another backend's stream is InvalidValue" => query_foreign,
    "errors.foreign_stream_is_not_waited_for":
        "rule 1: another backend's stream is InvalidValue" => synchronize_foreign,
    "errors.foreign_stream_is_not_destroyed":
        "rule 1: another backend's stream is InvalidValue" => destroy_foreign,
    "errors.foreign_stream_copies_nothing":
        "rule 1: another backend's stream is InvalidValue" => copy_foreign,
    "errors.foreign_stream_fills_nothing": "rule 1: another backend's stream is InvalidValue" => fill_foreign,
    "errors.foreign_stream_runs_nothing":
        "rule 1: another backend's stream is InvalidValue, and the function does not run" => run_foreign,
    "errors.foreign_stream_waits_for_nothing":
        "rule 1: another backend's stream is InvalidValue" => wait_foreign_stream,
    "errors.foreign_stream_records_nothing":
        "rule 1: another backend's stream is InvalidValue" => record_foreign_stream,
    "errors.foreign_default_stream": "rule 1: also another backend's default stream" => foreign_default,
    "errors.foreign_event_is_not_queried":
        "rule 1: another backend's event is InvalidValue" => query_foreign_event,
    "errors.foreign_event_is_not_waited_for":
        "rule 1: another backend's event is InvalidValue" => synchronize_foreign_event,
    "errors.foreign_event_is_not_destroyed":
        "rule 1: another backend's event is InvalidValue" => destroy_foreign_event,
    "errors.foreign_event_is_not_recorded":
        "rule 1: another backend's event is InvalidValue" => record_foreign_event,
    "errors.foreign_event_holds_nothing":
        "rule 1: another backend's event is InvalidValue, and the stream does not wait" => wait_foreign_event,
    "errors.foreign_event_has_no_time":
        "rule 1: another backend's event is InvalidValue" => elapsed_foreign_event,
    "errors.name_the_call": "BackendError: names the driver function" => name_the_call,
    "errors.name_the_device": "BackendError: names the device the call was about" => name_the_device,
    "errors.say_something": "BackendError: a detail for people, one line" => say_something,
    "errors.codes_have_names": "error_name: the driver's name of its own code" => codes_have_names,
    "errors.unknown_codes": "error_name: \"unknown\" for a code it does not know" => unknown_codes,
    "errors.are_repeatable": "the same wrong call is refused in the same way" => are_repeatable,
    "errors.out_of_memory_is_its_own":
        "OutOfMemory: only where memory is short, not for wrong arguments" => out_of_memory_is_its_own,
    "errors.clear_error_is_harmless": "clear_error: at any time" => clear_error_is_harmless,
    "errors.leave_the_device_usable": "rule 6: a failed call leaves no sticky error" => leave_device_usable,
    "errors.do_not_need_clearing_between_kinds":
        "rule 6: one refused call does not change how the next is refused" => next_refusal_is_its_own,
}

/// An id that the backend does not have.
fn other_id(cx: &Context) -> BackendId {
    BackendId(cx.backend().id().0.wrapping_add(0x4000))
}

/// A stream's handle as another backend would have made it.
fn foreign(cx: &Context, stream: Stream) -> Stream {
    Stream { backend: other_id(cx), ..stream }
}

fn foreign_event(cx: &Context, event: Event) -> Event {
    Event { backend: other_id(cx), ..event }
}

fn invalid<T: std::fmt::Debug>(what: &str, answer: Result<T, BackendError>) -> Verdict {
    refused(what, answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn query_foreign(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    invalid("query_stream", cx.backend().query_stream(foreign(cx, stream.handle)))
}

fn synchronize_foreign(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    invalid("synchronize_stream", cx.backend().synchronize_stream(foreign(cx, stream.handle)))
}

fn destroy_foreign(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    // SAFETY: rule 1 with its answer: the handle is not this backend's, and refused.
    let answer = unsafe { cx.backend().destroy_stream(foreign(cx, stream.handle)) };
    if answer.is_ok() {
        // It is gone now, and must not be destroyed again.
        std::mem::forget(stream);
    }
    invalid("destroy_stream", answer)
}

fn copy_foreign(cx: &Context) -> Verdict {
    let (to, from, stream) = (cx.buffer(512)?, cx.buffer(512)?, cx.stream()?);
    let stream = foreign(cx, stream.handle);
    // SAFETY: rule 2: both are live buffers of this size.
    let answer =
        unsafe { cx.backend().copy_async(to.ptr(), from.ptr(), 512, CopyKind::DeviceToDevice, stream) };
    invalid("copy_async", answer)
}

fn fill_foreign(cx: &Context) -> Verdict {
    let (to, stream) = (cx.buffer(512)?, cx.stream()?);
    // SAFETY: rule 2: a live buffer of this size.
    let answer = unsafe { cx.backend().memset_async(to.ptr(), 1, 512, foreign(cx, stream.handle)) };
    invalid("memset_async", answer)
}

fn run_foreign(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let ran = Arc::new(AtomicBool::new(false));
    let run = Arc::clone(&ran);
    let function = Box::new(move || run.store(true, Ordering::SeqCst));
    let answer = cx.backend().launch_host_function(foreign(cx, stream.handle), function);
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(!ran.load(Ordering::SeqCst), "the function of a refused call ran");
    invalid("launch_host_function", answer)
}

fn wait_foreign_stream(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    invalid("wait_event", cx.backend().wait_event(foreign(cx, stream.handle), event.handle))
}

fn record_foreign_stream(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    invalid("record_event", cx.backend().record_event(event.handle, foreign(cx, stream.handle)))
}

fn foreign_default(cx: &Context) -> Verdict {
    let stream = foreign(cx, cx.backend().default_stream(cx.device()?));
    invalid("query_stream", cx.backend().query_stream(stream))?;
    invalid("synchronize_stream", cx.backend().synchronize_stream(stream))
}

fn query_foreign_event(cx: &Context) -> Verdict {
    let event = cx.event()?;
    invalid("query_event", cx.backend().query_event(foreign_event(cx, event.handle)))
}

fn synchronize_foreign_event(cx: &Context) -> Verdict {
    let event = cx.event()?;
    invalid("synchronize_event", cx.backend().synchronize_event(foreign_event(cx, event.handle)))
}

fn destroy_foreign_event(cx: &Context) -> Verdict {
    let event = cx.event()?;
    // SAFETY: rule 1 with its answer: the handle is not this backend's, and refused.
    let answer = unsafe { cx.backend().destroy_event(foreign_event(cx, event.handle)) };
    if answer.is_ok() {
        // It is gone now, and must not be destroyed again.
        std::mem::forget(event);
    }
    invalid("destroy_event", answer)
}

fn record_foreign_event(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    invalid("record_event", cx.backend().record_event(foreign_event(cx, event.handle), stream.handle))
}

fn wait_foreign_event(cx: &Context) -> Verdict {
    let (source, stream, event) = (cx.stream()?, cx.stream()?, cx.event()?);
    let _gate = cx.close(source.handle)?;
    cx.backend().record_event(event.handle, source.handle)?;
    let answer = cx.backend().wait_event(stream.handle, foreign_event(cx, event.handle));
    ensure!(cx.backend().query_stream(stream.handle)?.is_ready(), "the stream waits for a refused event");
    invalid("wait_event", answer)
}

fn elapsed_foreign_event(cx: &Context) -> Verdict {
    let flags = backend_api::EventFlags::TIMING;
    let (stream, event) = (cx.stream()?, cx.event_on(cx.device()?, flags)?);
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.backend().synchronize_event(event.handle)?;
    let (own, other) = (event.handle, foreign_event(cx, event.handle));
    for (start, end) in [(other, own), (own, other)] {
        // A backend that keeps no time may say that first.
        let kinds = [ErrorKind::InvalidValue, ErrorKind::NotSupported];
        refused("elapsed_ms", cx.backend().elapsed_ms(start, end), &kinds)?;
    }
    Ok(())
}

/// Calls that every backend refuses, about the last device.
fn refusals(cx: &Context) -> Result<Vec<BackendError>, Stop> {
    cx.device()?;
    let last = *cx.devices()?.last().ok_or_else(|| Stop::Skipped("there is no device".into()))?;
    let too_much = cx.backend().memory_info(last)?.total.saturating_mul(4);
    // SAFETY: rule 3 with its exception: a pointer that is no live base is answered.
    let unknown = unsafe { cx.backend().free(last, DevicePtr(512)) };
    let calls = [
        ("malloc of 0 bytes", cx.backend().malloc(last, 0).err()),
        ("malloc of four times the device's memory", cx.backend().malloc(last, too_much).err()),
        ("free of an unknown pointer", unknown.err()),
    ];
    let accepted: Vec<&str> = calls.iter().filter(|(_, e)| e.is_none()).map(|(call, _)| *call).collect();
    ensure!(accepted.is_empty(), "accepted, and must be refused: {}", accepted.join(", "));
    Ok(calls.into_iter().filter_map(|(_, error)| error).collect())
}

fn name_the_call(cx: &Context) -> Verdict {
    for error in refusals(cx)? {
        ensure!(!error.call.is_empty(), "no call is named: {error}");
        let letters = error.call.chars().all(|c| c.is_ascii_alphanumeric() || "_:.".contains(c));
        ensure!(letters, "{:?} is no function's name", error.call);
    }
    Ok(())
}

fn name_the_device(cx: &Context) -> Verdict {
    let last = cx.devices()?.last().copied();
    for error in refusals(cx)? {
        ensure_eq!(Some(error.device), last, "the device of '{error}'");
    }
    Ok(())
}

fn say_something(cx: &Context) -> Verdict {
    for error in refusals(cx)? {
        ensure!(!error.detail.trim().is_empty(), "no detail: {error}");
        ensure!(!error.detail.contains(['\n', '\0']), "more than one line: {:?}", error.detail);
    }
    Ok(())
}

fn codes_have_names(cx: &Context) -> Verdict {
    for error in refusals(cx)? {
        let name = cx.backend().error_name(error.code);
        // Code 0: the driver was never asked.
        ensure!(error.code == 0 || (name != "unknown" && !name.is_empty()), "{} is {name:?}", error.code);
    }
    Ok(())
}

fn unknown_codes(cx: &Context) -> Verdict {
    for code in [i32::MIN, -77_777, 77_777, i32::MAX] {
        ensure_eq!(cx.backend().error_name(code), "unknown", "the name of code {code}");
    }
    Ok(())
}

fn are_repeatable(cx: &Context) -> Verdict {
    let kinds = |errors: Vec<BackendError>| errors.iter().map(|e| (e.kind, e.code)).collect::<Vec<_>>();
    let first = kinds(refusals(cx)?);
    for _ in 0..3 {
        ensure_eq!(kinds(refusals(cx)?), first, "the same refusals");
    }
    Ok(())
}

fn out_of_memory_is_its_own(cx: &Context) -> Verdict {
    let memory: Vec<bool> = refusals(cx)?.iter().map(BackendError::is_out_of_memory).collect();
    ensure_eq!(memory, [false, true, false], "of nothing, of too much, of an unknown pointer: out of memory");
    Ok(())
}

fn clear_error_is_harmless(cx: &Context) -> Verdict {
    let (buffer, stream, other) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    cx.backend().clear_error();
    let gate = cx.close(stream.handle)?;
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.backend().clear_error();
    ensure!(!cx.backend().query_stream(stream.handle)?.is_ready(), "clear_error ended work");
    cx.backend().synchronize_stream(other.handle)?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(buffer.ptr(), 512)? == [1; 512], "clear_error lost work");
    Ok(())
}

/// Calls of every group that must work.
fn all_groups_work(cx: &Context, after: &BackendError) -> Verdict {
    let work = || -> Verdict {
        let (buffer, stream, event) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
        cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
        cx.backend().record_event(event.handle, stream.handle)?;
        cx.backend().synchronize_event(event.handle)?;
        cx.backend().memory_info(cx.device()?)?;
        cx.backend().synchronize_device(cx.device()?)?;
        buffer.free().map_err(Stop::from)
    };
    work().map_err(|stop| match stop {
        Stop::Failed(why) => Stop::Failed(format!("after '{after}': {why}")),
        skipped @ Stop::Skipped(_) => skipped,
    })
}

fn leave_device_usable(cx: &Context) -> Verdict {
    for error in refusals(cx)? {
        all_groups_work(cx, &error)?;
    }
    let stream = cx.stream()?;
    let error = cx.backend().query_stream(foreign(cx, stream.handle)).err();
    let error = error.ok_or_else(|| Stop::Failed("query_stream accepted another backend's stream".into()))?;
    all_groups_work(cx, &error)
}

fn next_refusal_is_its_own(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let too_much = cx.backend().memory_info(device)?.total.saturating_mul(4);
    for _ in 0..2 {
        refused("malloc(0)", cx.backend().malloc(device, 0), &[ErrorKind::InvalidValue])?;
        refused("too much", cx.backend().malloc(device, too_much), &[ErrorKind::OutOfMemory])?;
    }
    Ok(())
}
