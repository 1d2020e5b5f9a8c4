//! Events. They belong to the device that was current when they were made, and begin completed.

use super::{given, put};
use crate::device;
use crate::event::{EVENTS, Event};
use crate::status::{Answer, Status, query, status};
use crate::stream::STREAMS;
use std::ffi::{c_uint, c_void};

/// `orEventEnableTiming`.
const ENABLE_TIMING: c_uint = 1;

fn create(place: *mut *mut c_void, flags: c_uint) -> Answer {
    given(place)?;
    let event = EVENTS.insert(Event::new(device::current(), flags & ENABLE_TIMING != 0));
    // SAFETY: our two callers' callers promise that a place that is not null is writable.
    unsafe { put(place, event) }
}

/// Makes an event; with the flag 1 it measures time.
///
/// # Safety
/// `event` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orEventCreateWithFlags(event: *mut *mut c_void, flags: c_uint) -> Status {
    status(|| create(event, flags))
}

/// Makes an event that does not measure time.
///
/// # Safety
/// `event` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orEventCreate(event: *mut *mut c_void) -> Status {
    status(|| create(event, 0))
}

/// Ends an event. What is queued with it goes on as if it lived.
#[unsafe(no_mangle)]
pub extern "C" fn orEventDestroy(event: *mut c_void) -> Status {
    status(|| EVENTS.remove(event).map(drop))
}

/// Queues a record; `orErrorUnknown` where event and stream are of different devices.
#[unsafe(no_mangle)]
pub extern "C" fn orEventRecord(event: *mut c_void, stream: *mut c_void) -> Status {
    status(|| EVENTS.get(event)?.record(&*STREAMS.get(stream)?))
}

/// Blocks until the records made so far are passed.
#[unsafe(no_mangle)]
pub extern "C" fn orEventSynchronize(event: *mut c_void) -> Status {
    status(|| {
        EVENTS.get(event)?.synchronize();
        Ok(())
    })
}

/// `orErrorNotReady` until the last record is passed.
#[unsafe(no_mangle)]
pub extern "C" fn orEventQuery(event: *mut c_void) -> Status {
    query(|| Ok(EVENTS.get(event)?.is_complete()))
}

/// Tells the milliseconds between two events. `orErrorUnknown` where they are of different devices, do not
/// both measure time, are not both recorded, or are not both complete.
///
/// # Safety
/// `ms` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orEventElapsedTime(ms: *mut f32, start: *mut c_void, end: *mut c_void) -> Status {
    status(|| {
        let elapsed = Event::elapsed_ms(&*EVENTS.get(start)?, &*EVENTS.get(end)?)?;
        // SAFETY: the caller's promise.
        unsafe { put(ms, elapsed) }
    })
}
