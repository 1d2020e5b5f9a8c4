//! Calls that fail on demand, and errors that stay.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use std::ptr::null_mut;
use support::header::*;
use support::{Driver, in_process, library};

#[test]
fn the_call_that_was_ordered_fails_and_changes_nothing() {
    in_process("the_call_that_was_ordered_fails_and_changes_nothing", "", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let before = cu!(d.granule_lookalike_calls());
        let pointer = d.memory(512);
        ok!(d.cuMemFree_v2(pointer));
        assert_eq!(cu!(d.granule_lookalike_calls()), before + 2);
        cu!(d.granule_lookalike_fail(2, 2));
        let pointer = d.memory(512);
        let used = cu!(d.granule_lookalike_used(0));
        let mut other = 0;
        assert_eq!(cu!(d.cuMemAlloc_v2(&mut other, 512)), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!((other, cu!(d.granule_lookalike_used(0))), (0, used));
        ok!(d.cuMemAlloc_v2(&mut other, 512));
        // Counted by name.
        cu!(d.granule_lookalike_fail_function(c"cuMemFree_v2".as_ptr(), 2, 999));
        ok!(d.cuMemFree_v2(pointer));
        ok!(d.cuCtxSynchronize());
        assert_eq!(cu!(d.cuMemFree_v2(other)), CUDA_ERROR_UNKNOWN);
        ok!(d.cuMemFree_v2(other));
        // Taken back.
        cu!(d.granule_lookalike_fail(1, 2));
        cu!(d.granule_lookalike_fail(0, 0));
        ok!(d.cuCtxSynchronize());
    });
}

#[test]
fn a_fatal_error_stays_with_its_context() {
    in_process("a_fatal_error_stays_with_its_context", "", || {
        let d = &Driver::load(&library());
        let (well, ill) = (d.enter(1), d.enter(0));
        let stream = d.stream();
        cu!(d.granule_lookalike_fail_function(c"cuCtxSynchronize".as_ptr(), 1, 700));
        assert_eq!(cu!(d.cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
        let mut pointer = 0;
        assert_eq!(cu!(d.cuMemAlloc_v2(&mut pointer, 512)), CUDA_ERROR_ILLEGAL_ADDRESS);
        // The other context is well, except for the ill one's stream.
        ok!(d.cuCtxSetCurrent(well));
        ok!(d.cuMemAlloc_v2(&mut pointer, 512));
        assert_eq!(cu!(d.cuStreamSynchronize(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        ok!(d.cuCtxSetCurrent(ill));
        assert_eq!(cu!(d.cuStreamCreateWithPriority(&mut null_mut(), 0, 0)), CUDA_ERROR_ILLEGAL_ADDRESS);
        ok!(d.cuCtxSetCurrent(well));
        cu!(d.granule_lookalike_lose_device(1));
        assert_eq!(cu!(d.cuMemFree_v2(pointer)), CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(cu!(d.cuCtxSynchronize()), CUDA_ERROR_LAUNCH_FAILED);
    });
}
