//! Streams. There is no default stream: null is an error everywhere.

use super::{given, put};
use crate::event::EVENTS;
use crate::status::{Answer, Refused, Status, query, status};
use crate::stream::{PRIORITIES, STREAMS, Stream};
use std::ffi::{c_int, c_uint, c_void};

fn create(place: *mut *mut c_void, priority: c_int) -> Answer {
    given(place)?;
    if !PRIORITIES.contains(&priority) {
        return Err(Refused);
    }
    let stream = STREAMS.insert(Stream::start(priority)?);
    // SAFETY: our two callers' callers promise that a place that is not null is writable.
    unsafe { put(place, stream) }
}

/// Makes a stream on the calling thread's device. `orErrorUnknown` for a priority that is not 0 or 1. Flags
/// and priorities change nothing.
///
/// # Safety
/// `stream` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orStreamCreateWithPriority(
    stream: *mut *mut c_void,
    _flags: c_uint,
    priority: c_int,
) -> Status {
    status(|| create(stream, priority))
}

/// Makes a stream that nobody asked a priority for. It tells 0, as PyTorch's test programs want it.
///
/// # Safety
/// `stream` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orStreamCreate(stream: *mut *mut c_void) -> Status {
    status(|| create(stream, *PRIORITIES.start()))
}

/// Tells a stream's priority.
///
/// # Safety
/// `priority` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orStreamGetPriority(stream: *mut c_void, priority: *mut c_int) -> Status {
    status(|| {
        let stream = STREAMS.get(stream)?;
        // SAFETY: the caller's promise.
        unsafe { put(priority, stream.priority()) }
    })
}

/// Does what is queued, blocks until then, and ends the stream.
#[unsafe(no_mangle)]
pub extern "C" fn orStreamDestroy(stream: *mut c_void) -> Status {
    status(|| {
        STREAMS.get(stream)?.not_from_a_task()?;
        STREAMS.remove(stream)?.end()
    })
}

/// `orErrorNotReady` until all that was queued has ended.
#[unsafe(no_mangle)]
pub extern "C" fn orStreamQuery(stream: *mut c_void) -> Status {
    query(|| Ok(STREAMS.get(stream)?.is_idle()))
}

/// Blocks until the stream has done what is queued now.
#[unsafe(no_mangle)]
pub extern "C" fn orStreamSynchronize(stream: *mut c_void) -> Status {
    status(|| STREAMS.get(stream)?.synchronize())
}

/// Lets the stream wait for an event, of any device. Flags change nothing.
#[unsafe(no_mangle)]
pub extern "C" fn orStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) -> Status {
    status(|| EVENTS.get(event)?.hold_back(&STREAMS.get(stream)?))
}
