//! Events.

pub(crate) mod lag;

use crate::entry::here;
use crate::header::*;
use crate::personality::since;
use backend_api::{Backend, EventFlags, Readiness};
use lookalike::{Answer, Code, contexts, events};
use std::ffi::c_uint;
use std::ptr::without_provenance_mut;

/// How an event is made, and whether another process can open it.
fn flags(number: c_uint) -> Answer<(EventFlags, bool)> {
    let known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    let is_timed = number & CU_EVENT_DISABLE_TIMING == 0;
    let is_shared = number & CU_EVENT_INTERPROCESS != 0;
    if number & !known != 0 || (is_shared && is_timed) {
        return Err(Code::INVALID_VALUE);
    }
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::TIMING, is_timed);
    flags.set(EventFlags::BLOCKING_SYNC, number & CU_EVENT_BLOCKING_SYNC != 0);
    Ok((flags, is_shared))
}

fn record(event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    let here = here()?;
    if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let stream = here.work_stream(stream)?;
    events::record(here.machine, event.addr(), stream)?;
    lag::recorded(event.addr(), stream);
    Ok(())
}

fn known(event: CUevent) -> Answer<backend_api::types::Event> {
    let known = events::resolve(event.addr())?.event;
    contexts::usable(known.device)?;
    Ok(known)
}

fn elapsed(start: CUevent, end: CUevent) -> Answer<f32> {
    events::elapsed(here()?.machine, start.addr(), end.addr())
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// A new event.
    fn cuEventCreate as cuEventCreate_t(out event: *mut CUevent, val options: c_uint) {
        let here = here()?;
        let (wanted, is_shared) = flags(options)?;
        event.wanted()?;
        let made = if is_shared {
            events::create_shared(here.machine, here.device)
        } else {
            events::create(here.machine, here.device, wanted)
        };
        event.put(without_provenance_mut(made?))
    }

    /// Destroys an event.
    fn cuEventDestroy_v2 as cuEventDestroy_v2_t(val event: CUevent) {
        events::destroy(here()?.machine, event.addr())?;
        lag::forget(event.addr());
        Ok(())
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
        let here = here()?;
        match here.machine.query_event(known(event)?)? {
            Readiness::Ready if lag::is_over(event.addr()) => Ok(()),
            _ => Err(Code::NOT_READY),
        }
    }

    /// Waits until an event was passed.
    fn cuEventSynchronize as cuEventSynchronize_t(val event: CUevent) {
        let here = here()?;
        here.machine.synchronize_event(known(event)?)?;
        lag::forget(event.addr());
        Ok(())
    }

    /// Milliseconds between two events.
    fn cuEventElapsedTime as cuEventElapsedTime_t(out time: *mut f32, val start: CUevent, val end: CUevent) {
        time.wanted()?;
        time.put(elapsed(start, end)?)
    }

    /// The same; for events of other contexts than the current.
    fn cuEventElapsedTime_v2 as cuEventElapsedTime_v2_t(out time: *mut f32, val start: CUevent, val end: CUevent) {
        since(12_080)?;
        time.wanted()?;
        time.put(elapsed(start, end)?)
    }
}
