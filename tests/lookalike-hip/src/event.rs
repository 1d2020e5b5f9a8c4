//! Events.

use crate::entry::here;
use crate::personality::{Release, personality};
use alloc_core::backend::{Backend, EventFlags, Readiness};
use alloc_core::types::Event;
use granule_hip_sys::abi6::*;
use lookalike::argument::Out;
use lookalike::{Answer, Code, contexts, events};
use std::ffi::c_uint;
use std::ptr::without_provenance_mut;

fn flags(number: c_uint) -> Answer<EventFlags> {
    let fences = hipEventReleaseToDevice | hipEventReleaseToSystem | hipEventDisableSystemFence;
    let known = hipEventBlockingSync | hipEventDisableTiming | fences;
    if number & !known != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::TIMING, number & hipEventDisableTiming == 0);
    flags.set(EventFlags::BLOCKING_SYNC, number & hipEventBlockingSync != 0);
    Ok(flags)
}

fn create(event: &Out<hipEvent_t>, options: c_uint) -> Answer {
    let here = here()?;
    let wanted = flags(options)?;
    event.wanted()?;
    event.put(without_provenance_mut(events::create(here.machine, here.device, wanted)?))
}

fn record(event: hipEvent_t, stream: hipStream_t) -> Answer {
    let here = here()?;
    let stream = here.work_stream(stream)?;
    events::record(here.machine, event.addr(), stream)
}

fn known(event: hipEvent_t) -> Answer<Event> {
    let known = events::resolve(event.addr())?.event;
    contexts::usable(known.device)?;
    Ok(known)
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
        events::destroy(here()?.machine, event.addr())
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
        let here = here()?;
        match here.machine.query_event(known(event)?)? {
            Readiness::Ready => Ok(()),
            Readiness::NotReady => Err(Code::NOT_READY),
        }
    }

    /// Waits until an event was passed.
    fn hipEventSynchronize as hipEventSynchronize_t(val event: hipEvent_t) {
        let here = here()?;
        Ok(here.machine.synchronize_event(known(event)?)?)
    }

    /// Milliseconds between two events.
    fn hipEventElapsedTime as hipEventElapsedTime_t(out time: *mut f32, val start: hipEvent_t, val end: hipEvent_t) {
        let here = here()?;
        time.wanted()?;
        time.put(events::elapsed(here.machine, start.addr(), end.addr())?)
    }
}
