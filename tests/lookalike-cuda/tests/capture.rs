//! Capture: graphs, user objects, and every number by which a capture can break.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::header::*;
use support::{Driver, in_process, library};

const GLOBAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test passes an atomic that lives on.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

/// Longer than the calls may take that must find it unfinished.
unsafe extern "C" fn nap(_: *mut c_void) {
    std::thread::sleep(Duration::from_secs(1));
}

#[test]
fn a_graph_runs_as_often_as_it_is_launched() {
    in_process("a_graph_runs_as_often_as_it_is_launched", "", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let (stream, pointer) = (d.stream(), d.memory(4096));
        ok!(d.cuMemsetD8Async(pointer, 1, 4096, stream));
        ok!(d.cuStreamSynchronize(stream));
        ok!(d.cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(d.cuMemsetD8Async(pointer, 2, 4096, stream));
        ok!(d.cuMemsetD8Async(pointer, 3, 16, stream));
        let (mut status, mut id, mut graph) = (9, 0, null_mut());
        let (mut nodes, mut length) = (std::ptr::null(), 0);
        ok!(d.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut length));
        assert_eq!((status, length), (CU_STREAM_CAPTURE_STATUS_ACTIVE, 1));
        // SAFETY: the driver says that one lies there.
        let last = unsafe { *nodes };
        let mut before = [null_mut(); 4];
        let mut room = 4;
        ok!(d.cuGraphNodeGetDependencies(last, before.as_mut_ptr(), &mut room));
        assert_eq!(room, 1);
        ok!(d.cuGraphNodeGetDependencies(before[0], null_mut(), &mut room));
        assert_eq!(room, 0);
        let (ended, mut object) = (AtomicU32::new(0), null_mut());
        let data = (&raw const ended).cast_mut().cast();
        ok!(d.cuUserObjectCreate(&mut object, data, Some(count), 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
        ok!(d.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
        let mut done = null_mut();
        ok!(d.cuStreamEndCapture(stream, &mut done));
        assert_eq!(done, graph);
        ok!(d.cuGraphGetNodes(done, null_mut(), &mut room));
        assert_eq!(room, 2);
        let mut bytes = [0u8; 32];
        ok!(d.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), pointer, 32));
        assert_eq!(bytes, [1; 32], "a captured fill does not run");
        let mut executable = null_mut();
        ok!(d.cuGraphInstantiateWithFlags(&mut executable, done, 0));
        ok!(d.cuGraphDestroy(done));
        assert_eq!(cu!(d.cuGraphDestroy(done)), CUDA_ERROR_INVALID_VALUE);
        for _ in 0..2 {
            ok!(d.cuMemsetD8Async(pointer, 1, 4096, stream));
            ok!(d.cuGraphLaunch(executable, stream));
            ok!(d.cuStreamSynchronize(stream));
            ok!(d.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), pointer, 32));
            assert_eq!((bytes[0], bytes[31]), (3, 2));
        }
        assert_eq!(ended.load(Ordering::SeqCst), 0, "held by what was instantiated");
        ok!(d.cuGraphExecDestroy(executable));
        // The thread that ran the last launch may still be letting go of it.
        let deadline = Instant::now() + Duration::from_secs(10);
        while ended.load(Ordering::SeqCst) == 0 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    });
}

/// A driver with a captured stream, and one that is not.
fn captured(mode: CUstreamCaptureMode) -> (Driver, CUstream, CUstream) {
    let d = Driver::load(&library());
    d.enter(0);
    let (stream, other) = (d.stream(), d.stream());
    {
        let d = &d;
        ok!(d.cuStreamBeginCapture_v2(stream, mode));
    }
    (d, stream, other)
}

fn ends_with(d: &Driver, stream: CUstream, code: CUresult) {
    let mut graph = 1 as CUgraph;
    assert_eq!(cu!(d.cuStreamEndCapture(stream, &mut graph)), code);
    assert!(graph.is_null());
}

#[test]
fn every_violation_has_its_number() {
    in_process("every_violation_has_its_number", "", || {
        let (d, stream, other) = captured(GLOBAL);
        let d = &d;
        let mut pointer = 0;
        // 900, and 901 for everything after.
        assert_eq!(cu!(d.cuMemAlloc_v2(&mut pointer, 512)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let event = d.event(CU_EVENT_DISABLE_TIMING);
        assert_eq!(cu!(d.cuEventRecord(event, stream)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // Over now: 401, and memory can be had again.
        ends_with(d, stream, CUDA_ERROR_ILLEGAL_STATE);
        let pointer = d.memory(512);
        // 401 for a second beginning.
        ok!(d.cuStreamBeginCapture_v2(stream, GLOBAL));
        assert_eq!(cu!(d.cuStreamBeginCapture_v2(stream, GLOBAL)), CUDA_ERROR_ILLEGAL_STATE);
        // 900 for waiting and asking, which break it.
        assert_eq!(cu!(d.cuStreamSynchronize(stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // 902: two captures meet.
        ok!(d.cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(d.cuStreamBeginCapture_v2(other, GLOBAL));
        ok!(d.cuEventRecord(event, stream));
        assert_eq!(cu!(d.cuStreamWaitEvent(other, event, 0)), CUDA_ERROR_STREAM_CAPTURE_MERGE);
        ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ends_with(d, other, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // 903: ended on a stream that joined.
        ok!(d.cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(d.cuEventRecord(event, stream));
        ok!(d.cuStreamWaitEvent(other, event, 0));
        ends_with(d, other, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // 904: its work was not joined back.
        ok!(d.cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(d.cuEventRecord(event, stream));
        ok!(d.cuStreamWaitEvent(other, event, 0));
        ok!(d.cuMemsetD8Async(pointer, 1, 16, other));
        ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        // 905: waits for something outside.
        ok!(d.cuEventRecord(event, other));
        ok!(d.cuStreamBeginCapture_v2(stream, GLOBAL));
        assert_eq!(cu!(d.cuStreamWaitEvent(stream, event, 0)), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // 905 too: a stream with queued work cannot join.
        ok!(d.cuLaunchHostFunc(other, Some(nap), null_mut()));
        ok!(d.cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(d.cuEventRecord(event, stream));
        assert_eq!(cu!(d.cuStreamWaitEvent(other, event, 0)), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ok!(d.cuStreamSynchronize(other));
        // 906: the default stream would wait for a blocking stream's capture.
        let mut blocking = null_mut();
        ok!(d.cuStreamCreateWithPriority(&mut blocking, CU_STREAM_DEFAULT, 0));
        ok!(d.cuStreamBeginCapture_v2(blocking, RELAXED));
        assert_eq!(cu!(d.cuMemsetD8Async(pointer, 1, 16, null_mut())), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        ends_with(d, blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // 907: an event that stands for captured work.
        ok!(d.cuStreamBeginCapture_v2(stream, RELAXED));
        ok!(d.cuEventRecord(event, stream));
        let mut mode = RELAXED;
        ok!(d.cuThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, GLOBAL);
        assert_eq!(cu!(d.cuEventSynchronize(event)), CUDA_ERROR_CAPTURED_EVENT);
        ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ok!(d.cuThreadExchangeStreamCaptureMode(&mut mode));
        // A default stream cannot be captured.
        let legacy = cu!(d.cuStreamBeginCapture_v2(null_mut(), GLOBAL));
        assert_eq!(legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        // 908: ended by another thread.
        ok!(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        let address = stream.addr();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                d.enter(0);
                let stream = std::ptr::without_provenance_mut(address);
                ends_with(d, stream, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
            });
        });
        let mut graph = null_mut();
        ok!(d.cuStreamEndCapture(stream, &mut graph));
        ok!(d.cuGraphDestroy(graph));
    });
}

#[test]
fn the_relaxed_mode_allows_memory_calls() {
    in_process("the_relaxed_mode_allows_memory_calls", "clock=virtual:4", || {
        let (d, stream, _) = captured(GLOBAL);
        let d = &d;
        let mut mode = RELAXED;
        ok!(d.cuThreadExchangeStreamCaptureMode(&mut mode));
        let pointer = d.memory(4096);
        ok!(d.cuThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, RELAXED);
        ok!(d.cuMemsetD8Async(pointer, 1, 16, stream));
        let mut graph = null_mut();
        ok!(d.cuStreamEndCapture(stream, &mut graph));
        ok!(d.cuGraphDestroy(graph));
    });
}

/// What the driver takes for a graph is no call of the program.
#[test]
fn a_graph_takes_its_memory_while_another_thread_captures() {
    let settings = "graph=2MiB,graph-nodes=2MiB";
    in_process("a_graph_takes_its_memory_while_another_thread_captures", settings, || {
        let (d, stream, other) = captured(GLOBAL);
        let d = &d;
        let mut graph = null_mut();
        ok!(d.cuStreamEndCapture(stream, &mut graph));
        ok!(d.cuStreamBeginCapture_v2(other, GLOBAL));
        let [graph, launched] = [graph.addr(), stream.addr()];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                d.enter(0);
                let mut executable = null_mut();
                ok!(d.cuGraphInstantiateWithFlags(
                    &mut executable,
                    std::ptr::without_provenance_mut(graph),
                    0
                ));
                ok!(d.cuGraphLaunch(executable, std::ptr::without_provenance_mut(launched)));
                ok!(d.cuGraphExecDestroy(executable));
            });
        });
        let mut captured = null_mut();
        ok!(d.cuStreamEndCapture(other, &mut captured));
    });
}
