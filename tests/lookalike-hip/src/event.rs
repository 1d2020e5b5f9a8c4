//! Events.

use crate::entry::here;
use crate::personality::{Release, personality};
use granule_hip_sys::abi6::*;
use lookalike::argument::Out;
use lookalike::{Answer, Code, events};
use std::ffi::c_uint;

fn create(event: &Out<hipEvent_t>, options: c_uint) -> Answer {
    let here = here()?;
    let fences = hipEventReleaseToDevice | hipEventReleaseToSystem | hipEventDisableSystemFence;
    if options & !(hipEventBlockingSync | hipEventDisableTiming | fences) != 0 {
        return Err(Code::INVALID_VALUE);
    }
    event.wanted()?;
    events::create(here, event, options)
}

fn record(event: hipEvent_t, stream: hipStream_t) -> Answer {
    let here = here()?;
    events::record(here, event, here.work_stream(stream)?)
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// A new event.
    fn hipEventCreate as hipEventCreate_t(out event: *mut hipEvent_t) {
        create(&event, hipEventDefault)
    }

    /// A new event with flags.
    fn hipEventCreateWithFlags as hipEventCreateWithFlags_t(out event: *mut hipEvent_t, val options: c_uint) {
        create(&event, options)
    }

    /// Destroys an event.
    fn hipEventDestroy as hipEventDestroy_t(val event: hipEvent_t) {
        events::destroy(here()?, event)
    }

    /// Sets an event to the end of what is queued.
    fn hipEventRecord as hipEventRecord_t(val event: hipEvent_t, val stream: hipStream_t) {
        record(event, stream)
    }

    /// The same with flags. Before 7.0 there are no external events.
    fn hipEventRecordWithFlags as hipEventRecordWithFlags_t(
        val event: hipEvent_t, val stream: hipStream_t, val options: c_uint,
    ) {
        match options {
            hipEventRecordDefault => record(event, stream),
            hipEventRecordExternal if personality()?.release >= Release::V7_0 => record(event, stream),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Whether an event was passed.
    fn hipEventQuery as hipEventQuery_t(val event: hipEvent_t) {
        events::query(here()?, event)
    }

    /// Waits until an event was passed.
    fn hipEventSynchronize as hipEventSynchronize_t(val event: hipEvent_t) {
        events::synchronize(here()?, event)
    }

    /// Milliseconds between two events.
    fn hipEventElapsedTime as hipEventElapsedTime_t(out time: *mut f32, val start: hipEvent_t, val end: hipEvent_t) {
        events::elapsed(here()?, &time, start, end)
    }
}
