//! How streams run: in order, beside the host and beside each other.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{OFTEN, prompt};
use crate::{Context, Stop, Verdict};
use backend_api::CopyKind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

checks! { Streams;
    "streams.busy_behind_work": "query_stream: NotReady while work runs" => busy_behind_work,
    "streams.ready_after_work": "query_stream: Ready once all work is done" => ready_after_work,
    "streams.not_ready_leaves_no_error": "rule 6: NotReady is a value, not an error" => not_ready_no_error,
    "streams.query_does_not_block": "query_stream: does not block" => query_does_not_block,
    "streams.synchronize_waits": "I3: synchronize_stream returns when the work has finished" => sync_waits,
    "streams.synchronize_waits_every_time":
        "I3: synchronize_stream returns when the work has finished, every time" => sync_waits_every_time,
    "streams.synchronize_sees_results":
        "I3: what the stream did is there when synchronize_stream returns" => sync_sees_results,
    "streams.synchronize_waits_for_itself_only":
        "synchronize_stream: waits for no other stream" => sync_itself_only,
    "streams.run_beside_each_other":
        "create_stream: non-blocking, one stream does not hold another" => beside_each_other,
    "streams.default_does_not_hold_others":
        "create_stream: non-blocking, the default stream does not hold it" => default_holds_none,
    "streams.others_do_not_hold_the_default":
        "create_stream: non-blocking, it does not hold the default stream" => default_is_not_held,
    "streams.devices_do_not_hold_each_other":
        "a stream does not hold streams of another device" => devices_are_apart,
    "streams.query_is_of_its_stream":
        "query_stream: of this stream, not of another" => query_is_of_its_stream,
    "streams.host_function_runs": "launch_host_function: the function runs, and not on the calling thread" => host_function_runs,
    "streams.host_function_runs_once": "launch_host_function: the function runs once" => host_function_once,
    "streams.host_functions_in_order":
        "launch_host_function: functions of a stream run in order" => host_functions_in_order,
    "streams.host_function_when_reached":
        "launch_host_function: not before the stream reaches it" => host_function_when_reached,
    "streams.host_function_sees_work":
        "launch_host_function: after all work queued before" => host_function_sees_work,
    "streams.host_function_holds_later_work":
        "launch_host_function: before all work queued later" => host_function_holds,
    "streams.host_function_does_not_block": "launch_host_function: does not block" => launch_does_not_block,
    "streams.host_function_on_default":
        "launch_host_function: on the default stream" => host_function_on_default,
    "streams.host_function_is_dropped":
        "launch_host_function: what the function holds is let go once it ran" => host_function_is_dropped,
}

fn busy_behind_work(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let _gate = cx.close(stream.handle)?;
    cx.stays_busy(stream.handle)
}

fn ready_after_work(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.eventually_idle(stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.backend().query_stream(stream.handle)?.is_ready(), "not ready after synchronize_stream");
    Ok(())
}

fn not_ready_no_error(cx: &Context) -> Verdict {
    let (buffer, stream, other) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let event = cx.event()?;
    let _gate = cx.close(stream.handle)?;
    for _ in 0..3 {
        ensure!(!cx.backend().query_stream(stream.handle)?.is_ready(), "ready behind work that waits");
        cx.fill(buffer.ptr(), 1, 512, other.handle)?;
        ensure!(!cx.backend().query_stream(stream.handle)?.is_ready(), "ready behind work that waits");
        cx.backend().record_event(event.handle, other.handle)?;
        cx.backend().synchronize_event(event.handle)?;
    }
    Ok(())
}

fn query_does_not_block(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let _gate = cx.close(stream.handle)?;
    prompt("query_stream", || Ok(cx.backend().query_stream(stream.handle).map(drop)?))
}

fn sync_waits(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let done = cx.slow_work(stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(done.load(Ordering::SeqCst), "synchronize_stream returned before the work was done");
    Ok(())
}

fn sync_waits_every_time(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    cx.waits_every_time(stream.handle, || Ok(cx.backend().synchronize_stream(stream.handle)?))
}

fn sync_sees_results(cx: &Context) -> Verdict {
    let (device, host, stream) = (cx.buffer(4096)?, cx.host_buffer(4096)?, cx.stream()?);
    for value in 1..=10 {
        cx.fill(device.ptr(), value, 4096, stream.handle)?;
        cx.queue_copy(host.ptr(), device.ptr(), 4096, CopyKind::DeviceToHost, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        // Read from the driver's side too, so that a race is not mistaken for memory that is never written.
        let arrived = cx.read(device.ptr(), 4096)? == [value; 4096];
        ensure!(arrived && host.bytes() == [value; 4096], "round {value} was not done");
    }
    Ok(())
}

fn sync_itself_only(cx: &Context) -> Verdict {
    let (buffer, held, free) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let _gate = cx.close(held.handle)?;
    prompt("synchronize_stream of another stream", || {
        cx.fill(buffer.ptr(), 1, 512, free.handle)?;
        Ok(cx.backend().synchronize_stream(free.handle)?)
    })
}

fn beside_each_other(cx: &Context) -> Verdict {
    let (buffer, held, free) = (cx.buffer(512)?, cx.stream()?, cx.stream()?);
    let _gate = cx.close(held.handle)?;
    cx.fill(buffer.ptr(), 1, 512, free.handle)?;
    cx.soon_idle(free.handle)
}

fn default_holds_none(cx: &Context) -> Verdict {
    let (buffer, free) = (cx.buffer(512)?, cx.stream()?);
    let default = cx.backend().default_stream(cx.device()?);
    let gate = cx.close(default)?;
    cx.fill(buffer.ptr(), 1, 512, free.handle)?;
    let verdict = cx.soon_idle(free.handle);
    gate.open();
    cx.backend().synchronize_stream(default)?;
    verdict
}

fn default_is_not_held(cx: &Context) -> Verdict {
    let (buffer, held) = (cx.buffer(512)?, cx.stream()?);
    let default = cx.backend().default_stream(cx.device()?);
    let _gate = cx.close(held.handle)?;
    cx.fill(buffer.ptr(), 1, 512, default)?;
    cx.soon_idle(default)
}

fn devices_are_apart(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    let buffer = cx.buffer_on(second, 512)?;
    let (held, free) = (cx.stream_on(first)?, cx.stream_on(second)?);
    let _gate = cx.close(held.handle)?;
    cx.fill(buffer.ptr(), 1, 512, free.handle)?;
    cx.soon_idle(free.handle)
}

fn query_is_of_its_stream(cx: &Context) -> Verdict {
    let (held, free) = (cx.stream()?, cx.stream()?);
    let _gate = cx.close(held.handle)?;
    ensure!(cx.backend().query_stream(free.handle)?.is_ready(), "an idle stream is said to be busy");
    ensure!(!cx.backend().query_stream(held.handle)?.is_ready(), "a busy stream is said to be idle");
    Ok(())
}

fn host_function_runs(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    for _ in 0..OFTEN {
        let (ran, runs) = mpsc::channel();
        let function = move || _ = ran.send(std::thread::current().id());
        cx.backend().launch_host_function(stream.handle, Box::new(function))?;
        cx.backend().synchronize_stream(stream.handle)?;
        let thread = runs.try_recv().map_err(|_| Stop::Failed("the function did not run".into()))?;
        ensure!(thread != std::thread::current().id(), "the function ran on the calling thread");
    }
    Ok(())
}

fn host_function_once(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let count = Arc::new(AtomicU32::new(0));
    for _ in 0..5 {
        let count = Arc::clone(&count);
        cx.backend().launch_host_function(
            stream.handle,
            Box::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
            }),
        )?;
    }
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(count.load(Ordering::SeqCst), 5, "runs of 5 functions");
    Ok(())
}

fn host_functions_in_order(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let order = Arc::new(Mutex::new(Vec::new()));
    let gate = cx.close(stream.handle)?;
    for place in 0..10 {
        let order = Arc::clone(&order);
        let note = move || order.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(place);
        cx.backend().launch_host_function(stream.handle, Box::new(note))?;
    }
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    let order = order.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    ensure_eq!(*order, (0..10).collect::<Vec<_>>(), "the order of ten functions");
    Ok(())
}

fn host_function_when_reached(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let _gate = cx.close(stream.handle)?;
    let flag = cx.flag(stream.handle)?;
    cx.never("a function ran behind work that waits", || Ok(flag.load(Ordering::SeqCst)))
}

fn host_function_sees_work(cx: &Context) -> Verdict {
    // Behind a closed gate: a copy to pageable memory may block.
    let (device, host, stream) = (cx.buffer(512)?, cx.pinned_buffer(512)?, cx.stream()?);
    let (at, seen) = (host.ptr().0 as usize, Arc::new(AtomicU32::new(0)));
    let gate = cx.close(stream.handle)?;
    cx.fill(device.ptr(), 0x42, 512, stream.handle)?;
    cx.queue_copy(host.ptr(), device.ptr(), 512, CopyKind::DeviceToHost, stream.handle)?;
    let note = Arc::clone(&seen);
    let look = move || {
        let last = std::ptr::with_exposed_provenance::<u8>(at + 511);
        // SAFETY: rule 2: page-locked memory that lives until the stream was waited for; the copy to it is
        // done.
        note.store(u32::from(unsafe { last.read_volatile() }), Ordering::SeqCst);
    };
    cx.backend().launch_host_function(stream.handle, Box::new(look))?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(seen.load(Ordering::SeqCst), 0x42, "what the function saw");
    Ok(())
}

fn host_function_holds(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    cx.write(buffer.ptr(), &[1; 512])?;
    let gate = cx.close(stream.handle)?;
    cx.fill(buffer.ptr(), 2, 512, stream.handle)?;
    cx.never("a fill ran before a function that waits", || Ok(cx.read(buffer.ptr(), 1)? == [2]))?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(cx.read(buffer.ptr(), 1)?, [2], "the fill after the function");
    Ok(())
}

fn launch_does_not_block(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let _gate = cx.close(stream.handle)?;
    prompt("launch_host_function", || cx.flag(stream.handle).map(drop))
}

fn host_function_on_default(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let stream = cx.backend().default_stream(device);
        let flag = cx.flag(stream)?;
        cx.backend().synchronize_stream(stream)?;
        ensure!(flag.load(Ordering::SeqCst), "the function did not run on device {device}");
    }
    Ok(())
}

fn host_function_is_dropped(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let flag = cx.flag(stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    cx.eventually("the function is let go", || Ok(Arc::strong_count(&flag) == 1))
}
