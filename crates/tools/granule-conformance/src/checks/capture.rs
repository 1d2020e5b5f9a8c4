//! Stream capture.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{prompt, refused};
use crate::{Context, Stop, Verdict};
use backend_api::types::{BackendId, DevicePtr, Stream};
use backend_api::{Capture, CaptureMode, CaptureStatus, ErrorKind, Graph};

checks! { Capture;
    "capture.status": "a stream is captured from begin to end, and not before or after" => status,
    "capture.ids_differ": "two captures have two ids" => ids_differ,
    "capture.begun_once": "a stream that is captured cannot be captured again" => begun_once,
    "capture.end_of_nothing": "the end of a capture that did not begin is refused" => end_of_nothing,
    "capture.nothing_runs": "captured work does not run" => nothing_runs,
    "capture.launch_runs": "a launch runs the captured work, each time, on the same addresses" => launch_runs,
    "capture.launch_is_ordered":
        "a launch waits for its stream, and its caller for nothing" => launch_is_ordered,
    "capture.destroyed_graph_runs":
        "a launch that was queued runs although its graph was destroyed" => destroyed_graph_runs,
    "capture.foreign_graph": "rule 1: a graph of another backend is InvalidValue" => foreign_graph,
    "capture.malloc_is_refused":
        "malloc during a global capture is a CaptureViolation, and breaks it" => malloc_is_refused,
    "capture.malloc_when_relaxed":
        "malloc and free are legal in the relaxed mode, and the capture goes on" => malloc_when_relaxed,
    "capture.global_stops_others":
        "a global capture refuses malloc in other threads too" => global_stops_others,
    "capture.local_lets_others":
        "a thread-local capture lets other threads do what they want" => local_lets_others,
    "capture.mode_is_exchanged":
        "exchange_mode returns the thread's mode before, which is global at first" => mode_is_exchanged,
    "capture.mode_is_per_thread": "the mode of one thread is not that of another" => mode_is_per_thread,
    "capture.synchronize_is_refused":
        "waiting for a captured stream is a CaptureViolation" => synchronize_is_refused,
    "capture.query_is_refused":
        "asking whether a captured stream is ready is a CaptureViolation" => query_is_refused,
    "capture.event_query_is_refused":
        "asking for an event of a capture is a CaptureViolation" => event_query_is_refused,
    "capture.broken_is_told":
        "a broken capture is Invalidated, and its end a CaptureViolation" => broken_is_told,
    "capture.broken_stream_recovers":
        "after a broken capture has ended, the stream works and can be captured" => broken_stream_recovers,
    "capture.queries_are_legal":
        "what the contract calls legal during capture leaves it whole" => queries_are_legal,
    "capture.events_join": "a stream that waits for an event of a capture joins it" => events_join,
    "capture.unjoined_is_refused":
        "a capture with a stream that was not joined back ends with a CaptureViolation"
            => unjoined_is_refused,
    "capture.frontier": "the frontier is empty at first, then the last work's node" => frontier,
    "capture.dependencies": "a node depends on the work queued before it" => dependencies,
}

const BYTES: u64 = 4096;

fn capture(cx: &Context) -> Result<&dyn Capture, Stop> {
    Ok(cx.backend().capture()?)
}

/// Captures what `body` queues on a stream.
fn record(cx: &Context, stream: Stream, body: impl FnOnce() -> Verdict) -> Result<Graph, Stop> {
    capture(cx)?.begin(stream, CaptureMode::Global)?;
    let queued = body();
    let graph = capture(cx)?.end(stream);
    queued?;
    Ok(graph?)
}

fn launch(cx: &Context, graph: Graph, stream: Stream) -> backend_api::Result<()> {
    // SAFETY: rule 2: checks keep the memory that their graphs use until the work is done.
    unsafe { cx.backend().capture()?.launch(graph, stream) }
}

fn destroy(cx: &Context, graph: Graph) -> Verdict {
    // SAFETY: rule 1: checks destroy what they captured, once.
    unsafe { capture(cx)?.destroy_graph(graph)? };
    Ok(())
}

/// Ends a capture, whatever became of it.
fn abandon(cx: &Context, stream: Stream) -> Verdict {
    if let Ok(graph) = capture(cx)?.end(stream) {
        destroy(cx, graph)?;
    }
    Ok(())
}

/// Runs `body` while a stream is captured, and then ends that capture.
fn during(cx: &Context, mode: CaptureMode, body: impl FnOnce(&dyn Capture, Stream) -> Verdict) -> Verdict {
    let capture = capture(cx)?;
    let stream = cx.stream()?;
    capture.begin(stream.handle, mode)?;
    let done = body(capture, stream.handle);
    let ended = abandon(cx, stream.handle);
    done.and(ended)
}

fn is_active(capture: &dyn Capture, stream: Stream) -> Result<bool, Stop> {
    Ok(matches!(capture.status(stream)?, CaptureStatus::Active(_)))
}

fn status(cx: &Context) -> Verdict {
    let capture = capture(cx)?;
    let (stream, other) = (cx.stream()?, cx.stream()?);
    ensure_eq!(capture.status(stream.handle)?, CaptureStatus::None, "the status before");
    capture.begin(stream.handle, CaptureMode::Global)?;
    let (own, others) = (capture.status(stream.handle), capture.status(other.handle));
    abandon(cx, stream.handle)?;
    ensure!(matches!(own?, CaptureStatus::Active(_)), "the stream is not captured after begin");
    ensure_eq!(others?, CaptureStatus::None, "the status of another stream");
    ensure_eq!(capture.status(stream.handle)?, CaptureStatus::None, "the status after");
    Ok(())
}

fn ids_differ(cx: &Context) -> Verdict {
    let mut seen = Vec::new();
    for _ in 0..3 {
        during(cx, CaptureMode::Global, |capture, stream| {
            seen.push(capture.status(stream)?);
            Ok(())
        })?;
    }
    ensure!(seen[0] != seen[1] && seen[1] != seen[2], "the same id twice: {seen:?}");
    Ok(())
}

fn begun_once(cx: &Context) -> Verdict {
    during(cx, CaptureMode::Global, |capture, stream| {
        let kinds = [ErrorKind::CaptureViolation, ErrorKind::InvalidValue, ErrorKind::Other];
        refused("a second begin", capture.begin(stream, CaptureMode::Global), &kinds)?;
        Ok(())
    })
}

fn end_of_nothing(cx: &Context) -> Verdict {
    let capture = capture(cx)?;
    let stream = cx.stream()?;
    let kinds = [ErrorKind::CaptureViolation, ErrorKind::InvalidValue, ErrorKind::Other];
    refused("end without begin", capture.end(stream.handle), &kinds)?;
    Ok(())
}

fn nothing_runs(cx: &Context) -> Verdict {
    capture(cx)?;
    let (buffer, stream) = (cx.buffer(BYTES)?, cx.stream()?);
    cx.write(buffer.ptr(), &[1; BYTES as usize])?;
    let graph = record(cx, stream.handle, || cx.fill(buffer.ptr(), 2, BYTES, stream.handle))?;
    cx.backend().synchronize_stream(stream.handle)?;
    let read = cx.read(buffer.ptr(), BYTES as usize);
    destroy(cx, graph)?;
    ensure!(read?.iter().all(|&byte| byte == 1), "the captured fill ran");
    Ok(())
}

fn launch_runs(cx: &Context) -> Verdict {
    capture(cx)?;
    let (buffer, stream) = (cx.buffer(BYTES)?, cx.stream()?);
    let graph = record(cx, stream.handle, || {
        cx.fill(buffer.ptr(), 3, BYTES, stream.handle)?;
        cx.fill(buffer.ptr(), 4, BYTES / 2, stream.handle)
    })?;
    let due = [vec![4; BYTES as usize / 2], vec![3; BYTES as usize / 2]].concat();
    let mut runs = Vec::new();
    for _ in 0..2 {
        cx.write(buffer.ptr(), &[0; BYTES as usize])?;
        launch(cx, graph, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        runs.push(cx.read(buffer.ptr(), BYTES as usize)? == due);
    }
    destroy(cx, graph)?;
    ensure_eq!(runs, vec![true, true], "whether each launch did all the work");
    Ok(())
}

fn launch_is_ordered(cx: &Context) -> Verdict {
    capture(cx)?;
    let (buffer, stream, other) = (cx.buffer(BYTES)?, cx.stream()?, cx.stream()?);
    let graph = record(cx, stream.handle, || cx.fill(buffer.ptr(), 5, BYTES / 2, stream.handle))?;
    let gate = cx.close(other.handle)?;
    cx.fill(buffer.ptr(), 6, BYTES, other.handle)?;
    prompt("a launch", || Ok(launch(cx, graph, other.handle)?))?;
    cx.stays_busy(other.handle)?;
    gate.open();
    cx.backend().synchronize_stream(other.handle)?;
    let due = [vec![5; BYTES as usize / 2], vec![6; BYTES as usize / 2]].concat();
    let read = cx.read(buffer.ptr(), BYTES as usize)?;
    destroy(cx, graph)?;
    ensure!(read == due, "the launch ran before the fill that was queued before it");
    Ok(())
}

fn destroyed_graph_runs(cx: &Context) -> Verdict {
    capture(cx)?;
    let (buffer, stream) = (cx.buffer(BYTES)?, cx.stream()?);
    cx.write(buffer.ptr(), &[0; BYTES as usize])?;
    let graph = record(cx, stream.handle, || cx.fill(buffer.ptr(), 7, BYTES, stream.handle))?;
    let gate = cx.close(stream.handle)?;
    launch(cx, graph, stream.handle)?;
    destroy(cx, graph)?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(buffer.ptr(), BYTES as usize)?.iter().all(|&byte| byte == 7), "the launch did not run");
    Ok(())
}

fn foreign_graph(cx: &Context) -> Verdict {
    capture(cx)?;
    let (buffer, stream) = (cx.buffer(BYTES)?, cx.stream()?);
    let graph = record(cx, stream.handle, || cx.fill(buffer.ptr(), 8, BYTES, stream.handle))?;
    let foreign = Graph { backend: BackendId(graph.backend.0 ^ 0x4000), ..graph };
    let answer = launch(cx, foreign, stream.handle);
    cx.backend().synchronize_stream(stream.handle)?;
    destroy(cx, graph)?;
    refused("the launch of a foreign graph", answer, &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn malloc_is_refused(cx: &Context) -> Verdict {
    let device = cx.device()?;
    during(cx, CaptureMode::Global, |capture, stream| {
        refused("malloc", cx.backend().malloc(device, BYTES), &VIOLATION)?;
        ensure_eq!(capture.status(stream)?, CaptureStatus::Invalidated, "the status afterwards");
        refused("the end", capture.end(stream), &[ErrorKind::CaptureViolation])?;
        Ok(())
    })
}

fn malloc_when_relaxed(cx: &Context) -> Verdict {
    during(cx, CaptureMode::Global, |capture, stream| {
        let before = capture.exchange_mode(CaptureMode::Relaxed)?;
        let taken = cx.buffer(BYTES).and_then(|buffer| Ok(buffer.free()?));
        capture.exchange_mode(before)?;
        taken?;
        ensure!(is_active(capture, stream)?, "the capture is broken");
        Ok(())
    })
}

fn global_stops_others(cx: &Context) -> Verdict {
    during(cx, CaptureMode::Global, |_, _| {
        let accepted = cx.on_thread(|cx| Ok(cx.buffer(BYTES).is_ok()))?;
        ensure!(!accepted, "malloc was accepted in another thread");
        Ok(())
    })
}

fn local_lets_others(cx: &Context) -> Verdict {
    during(cx, CaptureMode::ThreadLocal, |capture, stream| {
        // The buffer goes with its thread: its drop waits for the device, which is not legal here.
        cx.on_thread(|cx| Ok(cx.buffer(BYTES)?.free()?))?;
        ensure!(is_active(capture, stream)?, "the capture is broken by another thread's malloc");
        Ok(())
    })
}

fn mode_is_exchanged(cx: &Context) -> Verdict {
    let capture = capture(cx)?;
    let first = capture.exchange_mode(CaptureMode::Relaxed)?;
    let second = capture.exchange_mode(CaptureMode::ThreadLocal)?;
    let third = capture.exchange_mode(CaptureMode::Global)?;
    let due = [CaptureMode::Global, CaptureMode::Relaxed, CaptureMode::ThreadLocal];
    ensure_eq!([first, second, third], due, "the modes before");
    Ok(())
}

fn mode_is_per_thread(cx: &Context) -> Verdict {
    let capture = capture(cx)?;
    let own = capture.exchange_mode(CaptureMode::Relaxed)?;
    let other = cx.on_thread(|cx| Ok(cx.backend().capture()?.exchange_mode(CaptureMode::Global)?));
    capture.exchange_mode(own)?;
    ensure_eq!(other?, CaptureMode::Global, "the mode of a new thread");
    Ok(())
}

const VIOLATION: [ErrorKind; 1] = [ErrorKind::CaptureViolation];

fn synchronize_is_refused(cx: &Context) -> Verdict {
    during(cx, CaptureMode::Global, |_, stream| {
        refused("synchronize_stream", cx.backend().synchronize_stream(stream), &VIOLATION)?;
        Ok(())
    })
}

fn query_is_refused(cx: &Context) -> Verdict {
    during(cx, CaptureMode::Global, |_, stream| {
        refused("query_stream", cx.backend().query_stream(stream), &VIOLATION)?;
        Ok(())
    })
}

fn event_query_is_refused(cx: &Context) -> Verdict {
    let event = cx.event()?;
    during(cx, CaptureMode::Global, |_, stream| {
        cx.backend().record_event(event.handle, stream)?;
        refused("query_event", cx.backend().query_event(event.handle), &VIOLATION)?;
        Ok(())
    })
}

fn broken_is_told(cx: &Context) -> Verdict {
    during(cx, CaptureMode::Global, |capture, stream| {
        let _ = cx.backend().synchronize_stream(stream);
        ensure_eq!(capture.status(stream)?, CaptureStatus::Invalidated, "the status");
        refused("the end", capture.end(stream), &VIOLATION)?;
        Ok(())
    })
}

fn broken_stream_recovers(cx: &Context) -> Verdict {
    let capture = capture(cx)?;
    let (buffer, stream) = (cx.buffer(BYTES)?, cx.stream()?);
    capture.begin(stream.handle, CaptureMode::Global)?;
    let _ = cx.backend().synchronize_stream(stream.handle);
    abandon(cx, stream.handle)?;
    ensure_eq!(capture.status(stream.handle)?, CaptureStatus::None, "the status afterwards");
    let graph = record(cx, stream.handle, || cx.fill(buffer.ptr(), 9, BYTES, stream.handle))?;
    launch(cx, graph, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    destroy(cx, graph)?;
    ensure!(
        cx.read(buffer.ptr(), BYTES as usize)?.iter().all(|&byte| byte == 9),
        "the new capture did nothing"
    );
    Ok(())
}

fn queries_are_legal(cx: &Context) -> Verdict {
    let (buffer, device) = (cx.buffer(BYTES)?, cx.device()?);
    during(cx, CaptureMode::Global, |capture, stream| {
        let backend = cx.backend();
        backend.device_count()?;
        backend.current_device()?;
        match backend.attribute(device, backend_api::Attribute::WarpSize) {
            Err(error) if error.kind != ErrorKind::NotSupported => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
        backend.pointer_info(buffer.ptr())?;
        backend.pointer_info(DevicePtr(1))?;
        let _ = (backend.id(), backend.kind(), backend.name(), backend.default_stream(device));
        ensure!(is_active(capture, stream)?, "the capture is broken by a question");
        Ok(())
    })
}

fn events_join(cx: &Context) -> Verdict {
    let (event, back, other) = (cx.event()?, cx.event()?, cx.stream()?);
    let buffer = cx.buffer(BYTES)?;
    during(cx, CaptureMode::Global, |capture, stream| {
        cx.fill(buffer.ptr(), 1, BYTES, stream)?;
        cx.backend().record_event(event.handle, stream)?;
        cx.backend().wait_event(other.handle, event.handle)?;
        let (joined, own) = (capture.status(other.handle)?, capture.status(stream)?);
        cx.fill(buffer.ptr(), 2, BYTES, other.handle)?;
        cx.backend().record_event(back.handle, other.handle)?;
        cx.backend().wait_event(stream, back.handle)?;
        ensure_eq!(joined, own, "the status of the stream that waits");
        let graph = capture.end(stream)?;
        destroy(cx, graph)?;
        ensure_eq!(capture.status(other.handle)?, CaptureStatus::None, "its status after the end");
        Ok(())
    })
}

fn unjoined_is_refused(cx: &Context) -> Verdict {
    let (event, other) = (cx.event()?, cx.stream()?);
    let buffer = cx.buffer(BYTES)?;
    during(cx, CaptureMode::Global, |capture, stream| {
        cx.fill(buffer.ptr(), 1, BYTES, stream)?;
        cx.backend().record_event(event.handle, stream)?;
        cx.backend().wait_event(other.handle, event.handle)?;
        cx.fill(buffer.ptr(), 2, BYTES, other.handle)?;
        refused("the end", capture.end(stream), &VIOLATION)?;
        Ok(())
    })
}

fn frontier(cx: &Context) -> Verdict {
    let buffer = cx.buffer(BYTES)?;
    during(cx, CaptureMode::Global, |capture, stream| {
        ensure_eq!(capture.frontier(stream)?, vec![], "the frontier at first");
        cx.fill(buffer.ptr(), 1, BYTES, stream)?;
        let first = capture.frontier(stream)?;
        cx.fill(buffer.ptr(), 2, BYTES, stream)?;
        let second = capture.frontier(stream)?;
        ensure!(first.len() == 1 && second.len() == 1, "after one fill {first:?}, after two {second:?}");
        ensure!(first != second, "the frontier stays {first:?}");
        Ok(())
    })
}

fn dependencies(cx: &Context) -> Verdict {
    let buffer = cx.buffer(BYTES)?;
    during(cx, CaptureMode::Global, |capture, stream| {
        cx.fill(buffer.ptr(), 1, BYTES, stream)?;
        let first = capture.frontier(stream)?;
        cx.fill(buffer.ptr(), 2, BYTES, stream)?;
        let second = capture.frontier(stream)?;
        let (&[a], &[b]) = (first.as_slice(), second.as_slice()) else {
            return Err(Stop::Failed(format!("after one fill {first:?}, after two {second:?}")));
        };
        ensure_eq!(capture.dependencies(stream, a)?, vec![], "what the first depends on");
        ensure_eq!(capture.dependencies(stream, b)?, vec![a], "what the second depends on");
        Ok(())
    })
}
