//! Captures and graphs.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use granule_hip_sys::abi6::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::{Runtime, SAMPLE, in_process};

fn each(test: &str, body: impl Fn(&Runtime)) {
    for name in ["rocm6", "rocm70", "rocm7"] {
        in_process(test, &format!("personality={name}"), &body);
    }
}

static RELEASED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn release(_data: *mut c_void) {
    RELEASED.fetch_add(1, Ordering::Release);
}

unsafe extern "C" fn count_up(calls: *mut c_void) {
    // SAFETY: the counter lives until the stream was waited for.
    unsafe { &*calls.cast::<AtomicU32>() }.fetch_add(1, Ordering::Release);
}

#[test]
fn captured_work_runs_at_every_launch() {
    each("captured_work_runs_at_every_launch", |h| {
        let (from, to, stream) = (h.memory(SAMPLE), h.memory(SAMPLE), h.stream());
        h.write(from, 1);
        let calls = AtomicU32::new(0);
        ok!(h.hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
        ok!(h.hipMemcpyAsync(to, from, SAMPLE, hipMemcpyDeviceToDevice, stream));
        let place = (&raw const calls).cast_mut().cast();
        ok!(h.hipLaunchHostFunc(stream, Some(count_up), place));
        let (mut status, mut id, mut graph) = (9, 0, null_mut());
        let (mut nodes, mut count) = (null(), 0);
        ok!(h.hipStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count));
        assert_eq!((status, count), (hipStreamCaptureStatusActive, 1), "each node depends on the one before");
        let mut object = null_mut();
        ok!(h.hipUserObjectCreate(&mut object, null_mut(), Some(release), 1, hipUserObjectNoDestructorSync));
        ok!(h.hipGraphRetainUserObject(graph, object, 1, hipGraphUserObjectMove));
        let (mut ended, mut executable) = (null_mut(), null_mut());
        ok!(h.hipStreamEndCapture(stream, &mut ended));
        assert_eq!(ended, graph);
        ok!(h.hipGraphGetNodes(graph, null_mut(), &mut count));
        assert_eq!(count, 2);
        ok!(h.hipGraphInstantiate(&mut executable, graph, null_mut(), null_mut(), 0));
        ok!(h.hipGraphDestroy(graph));
        for seed in [2, 3] {
            h.write(from, seed);
            ok!(h.hipGraphLaunch(executable, stream));
            ok!(h.hipStreamSynchronize(stream));
            assert!(h.holds(to, seed));
        }
        assert_eq!(calls.load(Ordering::Acquire), 2, "at each launch");
        assert_eq!(RELEASED.load(Ordering::Acquire), 0);
        ok!(h.hipGraphExecDestroy(executable));
        // The thread that did the last launch's work may hold the graph a little longer.
        let late = Instant::now() + Duration::from_secs(10);
        while RELEASED.load(Ordering::Acquire) == 0 {
            assert!(Instant::now() < late, "the graph's end releases its objects");
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_capture_forbids_memory_but_not_copies() {
    each("a_capture_forbids_memory_but_not_copies", |h| {
        let (memory, stream) = (h.memory(SAMPLE), h.stream());
        assert_eq!(hip!(h.hipStreamBeginCapture(null_mut(), 0)), hipErrorStreamCaptureUnsupported);
        ok!(h.hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
        // Before 7.14 the runtime does not object.
        h.write(memory, 1);
        assert!(h.holds(memory, 1));
        let mut mode = hipStreamCaptureModeRelaxed;
        ok!(h.hipThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, hipStreamCaptureModeGlobal);
        let taken = h.memory(512);
        ok!(h.hipThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, hipStreamCaptureModeRelaxed);
        assert_eq!(hip!(h.hipFree(taken)), hipErrorStreamCaptureUnsupported);
        let (mut status, mut graph) = (0, null_mut());
        ok!(h.hipStreamIsCapturing(stream, &mut status));
        assert_eq!(status, hipStreamCaptureStatusInvalidated);
        assert_eq!(hip!(h.hipStreamEndCapture(stream, &mut graph)), hipErrorStreamCaptureInvalidated);
        assert_eq!(hip!(h.hipStreamEndCapture(stream, &mut graph)), hipErrorIllegalState);
    });
}
