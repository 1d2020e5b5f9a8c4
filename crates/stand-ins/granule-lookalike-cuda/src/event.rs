//! Events.

use crate::entry::here;
use crate::header::*;
use crate::personality::since;
use lookalike::{Answer, Code, events};
use std::ffi::c_uint;

fn record(event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    let here = here()?;
    if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
        return Err(Code::INVALID_VALUE);
    }
    events::record(here, event, here.work_stream(stream)?)
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// A new event.
    fn cuEventCreate as cuEventCreate_t(out event: *mut CUevent, val options: c_uint) {
        let here = here()?;
        let known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        let is_shared = options & CU_EVENT_INTERPROCESS != 0;
        if options & !known != 0 || (is_shared && options & CU_EVENT_DISABLE_TIMING == 0) {
            return Err(Code::INVALID_VALUE);
        }
        event.wanted()?;
        if is_shared { events::create_shared(here, &event) } else { events::create(here, &event, options) }
    }

    /// Destroys an event.
    fn cuEventDestroy_v2 as cuEventDestroy_v2_t(val event: CUevent) {
        events::destroy(here()?, event)
    }

    /// Sets an event to the end of what is queued.
    fn cuEventRecord as cuEventRecord_t(val event: CUevent, val stream: CUstream) {
        record(event, stream, 0)
    }

    /// The same with flags.
    fn cuEventRecordWithFlags as cuEventRecordWithFlags_t(val event: CUevent, val stream: CUstream, val options: c_uint) {
        record(event, stream, options)
    }

    /// Whether an event was passed.
    fn cuEventQuery as cuEventQuery_t(val event: CUevent) {
        events::query(here()?, event)
    }

    /// Waits until an event was passed.
    fn cuEventSynchronize as cuEventSynchronize_t(val event: CUevent) {
        events::synchronize(here()?, event)
    }

    /// Milliseconds between two events.
    fn cuEventElapsedTime as cuEventElapsedTime_t(out time: *mut f32, val start: CUevent, val end: CUevent) {
        events::elapsed(here()?, &time, start, end)
    }

    /// The same; for events of other contexts than the current.
    fn cuEventElapsedTime_v2 as cuEventElapsedTime_v2_t(out time: *mut f32, val start: CUevent, val end: CUevent) {
        since(12_080)?;
        events::elapsed(here()?, &time, start, end)
    }
}
