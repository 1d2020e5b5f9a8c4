//! Captures and graphs.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use granule_hip_sys::abi6::*;
use std::ptr::null_mut;
use support::{Runtime, SAMPLE, in_process};

fn each(test: &str, body: impl Fn(&Runtime)) {
    for name in ["rocm6", "rocm70", "rocm7"] {
        in_process(test, &format!("personality={name}"), &body);
    }
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
