//! Rule 5: a call leaves the current device as it found it, also on error.

use crate::check::{checks, ensure, ensure_eq};
use crate::{Context, Stop, Verdict};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Attribute, CopyKind, EventFlags, HostFlags};

checks! { Errors;
    "errors.current_device_after_memory_calls": "rule 5, for calls about memory" => memory_calls,
    "errors.current_device_after_questions": "rule 5, for calls that only ask" => questions,
    "errors.current_device_after_copies": "rule 5, for copies and fills" => copies,
    "errors.current_device_after_stream_calls": "rule 5, for calls about streams" => stream_calls,
    "errors.current_device_after_event_calls": "rule 5, for calls about events" => event_calls,
    "errors.current_device_after_host_memory": "rule 5, for page-locked memory" => host_memory,
    "errors.current_device_after_synchronize": "rule 5, for calls that wait" => synchronize_calls,
    "errors.current_device_after_refused_malloc": "rule 5, on error: out of memory" => refused_malloc,
    "errors.current_device_after_refused_free": "rule 5, on error: an unknown pointer" => refused_free,
    "errors.current_device_after_refused_copy": "rule 5, on error: a copy of nothing" => refused_copy,
    "errors.current_device_after_unknown_device": "rule 5, on error: an unknown device" => unknown_device,
    "errors.current_device_after_unknown_handle":
        "rule 5, on error: another backend's handle" => unknown_handle,
}

/// Calls `visit(watch, other)` with each of two devices current, where `other` is the one that is not;
/// `watch(what)` fails where the current device changed.
fn watched(cx: &Context, visit: impl Fn(&dyn Fn(&str) -> Verdict, DeviceIndex) -> Verdict) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    for (current, other) in [(first, second), (second, first)] {
        cx.backend().set_device(current)?;
        let watch = |what: &str| {
            ensure_eq!(cx.backend().current_device()?, current, "the current device after {what}");
            Ok(())
        };
        visit(&watch, other)?;
    }
    Ok(())
}

fn memory_calls(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        let ptr = cx.backend().malloc(other, 4096)?;
        let after_malloc = watch("malloc");
        // SAFETY: rule 3: just handed out, freed once.
        unsafe { cx.backend().free(other, ptr)? };
        after_malloc?;
        watch("free")
    })
}

fn questions(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        cx.backend().memory_info(other)?;
        watch("memory_info")?;
        cx.backend().properties(other)?;
        watch("properties")?;
        // What it answers is another check's business.
        let _ = cx.backend().attribute(other, Attribute::WarpSize);
        watch("attribute")?;
        cx.backend().priority_range(other)?;
        watch("priority_range")?;
        cx.backend().has_primary_context(other)?;
        watch("has_primary_context")?;
        let buffer = cx.buffer_on(other, 512)?;
        cx.backend().pointer_info(buffer.ptr())?;
        watch("pointer_info")?;
        cx.backend().address_range(buffer.ptr())?;
        watch("address_range")?;
        let _ = cx.backend().default_stream(other);
        watch("default_stream")?;
        cx.backend().device_count()?;
        watch("device_count")
    })
}

fn copies(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        let (one, two) = (cx.buffer_on(other, 512)?, cx.buffer_on(other, 512)?);
        let stream = cx.stream_on(other)?;
        cx.write(one.ptr(), &[1; 512])?;
        watch("copy")?;
        cx.queue_copy(two.ptr(), one.ptr(), 512, CopyKind::DeviceToDevice, stream.handle)?;
        watch("copy_async")?;
        cx.fill(two.ptr(), 1, 512, stream.handle)?;
        watch("memset_async")?;
        cx.backend().synchronize_stream(stream.handle)?;
        Ok(())
    })
}

fn stream_calls(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        let (stream, event) = (cx.stream_on(other)?, cx.event_on(other, EventFlags::empty())?);
        watch("create_stream")?;
        cx.backend().query_stream(stream.handle)?;
        watch("query_stream")?;
        cx.backend().wait_event(stream.handle, event.handle)?;
        watch("wait_event")?;
        cx.flag(stream.handle)?;
        watch("launch_host_function")?;
        stream.destroy()?;
        watch("destroy_stream")
    })
}

fn event_calls(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        let (stream, event) = (cx.stream_on(other)?, cx.event_on(other, EventFlags::TIMING)?);
        watch("create_event")?;
        cx.backend().record_event(event.handle, stream.handle)?;
        watch("record_event")?;
        cx.backend().query_event(event.handle)?;
        watch("query_event")?;
        cx.backend().synchronize_event(event.handle)?;
        watch("synchronize_event")?;
        // A backend without time stamps refuses it, and rule 5 holds all the same.
        let _ = cx.backend().elapsed_ms(event.handle, event.handle);
        watch("elapsed_ms")?;
        event.destroy()?;
        watch("destroy_event")
    })
}

fn host_memory(cx: &Context) -> Verdict {
    watched(cx, |watch, _| {
        let ptr = cx.backend().pinned_host()?.host_malloc(4096, HostFlags::PORTABLE)?;
        let after_malloc = watch("host_malloc");
        // SAFETY: rule 3: just handed out, freed once.
        unsafe { cx.backend().pinned_host()?.host_free(ptr)? };
        after_malloc?;
        watch("host_free")
    })
}

fn synchronize_calls(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        let stream = cx.stream_on(other)?;
        cx.backend().synchronize_stream(stream.handle)?;
        watch("synchronize_stream")?;
        cx.backend().synchronize_device(other)?;
        watch("synchronize_device")
    })
}

/// Fails where a call that must be refused was accepted.
fn must_fail<T>(what: &str, answer: backend_api::Result<T>) -> Verdict {
    match answer {
        Ok(_) => Err(Stop::Failed(format!("{what} was accepted"))),
        Err(_) => Ok(()),
    }
}

fn refused_malloc(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        let too_much = cx.backend().memory_info(other)?.total.saturating_mul(4);
        must_fail("malloc of too much", cx.backend().malloc(other, too_much))?;
        watch("a malloc of too much")?;
        must_fail("malloc of 0 bytes", cx.backend().malloc(other, 0))?;
        watch("a malloc of nothing")
    })
}

fn refused_free(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        // SAFETY: rule 3 with its exception: a pointer that is no live base is answered.
        must_fail("free of an unknown pointer", unsafe { cx.backend().free(other, DevicePtr(512)) })?;
        watch("a free of an unknown pointer")?;
        must_fail("address_range of an unknown pointer", cx.backend().address_range(DevicePtr(512)))?;
        watch("address_range of an unknown pointer")
    })
}

fn refused_copy(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        let (one, two) = (cx.buffer_on(other, 512)?, cx.buffer_on(other, 512)?);
        let stream = cx.stream_on(other)?;
        let kind = CopyKind::DeviceToDevice;
        // SAFETY: rule 2 asks nothing of an empty range.
        must_fail("copy of 0 bytes", unsafe { cx.backend().copy(one.ptr(), two.ptr(), 0, kind) })?;
        watch("a copy of nothing")?;
        // SAFETY: rule 2 asks nothing of an empty range.
        let answer = unsafe { cx.backend().copy_async(one.ptr(), two.ptr(), 0, kind, stream.handle) };
        must_fail("copy_async of 0 bytes", answer)?;
        watch("a queued copy of nothing")
    })
}

fn unknown_device(cx: &Context) -> Verdict {
    let nowhere = cx.no_device()?;
    watched(cx, |watch, _| {
        must_fail("malloc on an unknown device", cx.backend().malloc(nowhere, 512))?;
        must_fail("memory_info on an unknown device", cx.backend().memory_info(nowhere))?;
        must_fail("create_stream on an unknown device", cx.backend().create_stream(nowhere, 0))?;
        must_fail(
            "create_event on an unknown device",
            cx.backend().create_event(nowhere, EventFlags::empty()),
        )?;
        must_fail("synchronize_device on an unknown device", cx.backend().synchronize_device(nowhere))?;
        watch("calls about an unknown device")
    })
}

fn unknown_handle(cx: &Context) -> Verdict {
    watched(cx, |watch, other| {
        let (mut stream, mut event) = (cx.stream_on(other)?, cx.event_on(other, EventFlags::empty())?);
        let (good_stream, good_event) = (stream.handle, event.handle);
        stream.handle.backend.0 = good_stream.backend.0.wrapping_add(0x4000);
        event.handle.backend = stream.handle.backend;
        let answers = [
            ("query_stream", cx.backend().query_stream(stream.handle).is_err()),
            ("synchronize_stream", cx.backend().synchronize_stream(stream.handle).is_err()),
            ("query_event", cx.backend().query_event(event.handle).is_err()),
            ("record_event", cx.backend().record_event(event.handle, good_stream).is_err()),
        ];
        // The handles' owners destroy what they hold.
        (stream.handle, event.handle) = (good_stream, good_event);
        let accepted: Vec<&str> =
            answers.iter().filter(|(_, refused)| !refused).map(|(call, _)| *call).collect();
        ensure!(accepted.is_empty(), "another backend's handle was accepted by {}", accepted.join(", "));
        watch("calls with another backend's handles")
    })
}
