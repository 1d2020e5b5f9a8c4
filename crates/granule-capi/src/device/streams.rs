//! Streams and events of the device, for shims of accelerators that have no runtime of their own in the program.

use crate::allocator::granule_allocator;
use crate::boundary::callback::{User, call_at_end};
use crate::boundary::guard::{answer, guard};
use crate::boundary::pass::given;
use crate::error::{Failure, GRANULE_NOT_READY, GRANULE_OK, granule_status};
use granule::backend::{EventFlags, Readiness};
use granule::types::{Event, Stream};
use std::ffi::c_void;

impl granule_allocator {
    /// A stream, for calls that go to the driver by themselves.
    pub(crate) fn usable_stream(&self, device: i32, raw: u64) -> Result<Stream, Failure> {
        let device = self.usable_device(device)?;
        Ok(Stream { raw, device, backend: self.backend().id() })
    }

    fn usable_event(&self, device: i32, raw: u64) -> Result<Event, Failure> {
        let device = self.usable_device(device)?;
        Ok(Event { raw, device, backend: self.backend().id() })
    }
}

fn readiness(readiness: Readiness) -> granule_status {
    if readiness.is_ready() { GRANULE_OK } else { GRANULE_NOT_READY }
}

/// The priorities of streams that make a difference: least is 0 or more, greatest 0 or less.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stream_priority_range(
    a: *mut granule_allocator,
    device: i32,
    least: *mut i32,
    greatest: *mut i32,
) -> granule_status {
    guard(|| {
        let (a, least, greatest) = (given!(handle a), given!(out least), given!(out greatest));
        let range = a.backend().priority_range(a.usable_device(device)?)?;
        least.set(range.least);
        greatest.set(range.greatest);
        Ok(())
    })
}

/// Makes a stream. 0 is the usual priority, lower is more urgent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stream_create(
    a: *mut granule_allocator,
    device: i32,
    priority: i32,
    out: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.backend().create_stream(a.usable_device(device)?, priority)?.raw);
        Ok(())
    })
}

/// Retires a stream from the allocator and destroys it. Host allocators that know it are told before
/// (granule_host_retire_stream).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stream_destroy(
    a: *mut granule_allocator,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let stream = a.usable_stream(device, stream)?;
        // SAFETY: callers promise that the stream is given no more work: it is about to be destroyed.
        unsafe { a.engine.retire_stream(stream) }?;
        // SAFETY: rule 1, by what callers promise: the handle is not used again.
        unsafe { a.backend().destroy_stream(stream) }?;
        Ok(())
    })
}

/// Whether all work of a stream is done: GRANULE_OK or GRANULE_NOT_READY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stream_query(
    a: *mut granule_allocator,
    device: i32,
    stream: u64,
) -> granule_status {
    answer(|| {
        let a = given!(handle a);
        Ok(readiness(a.backend().query_stream(a.usable_stream(device, stream)?)?))
    })
}

/// Waits for all work of a stream. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stream_synchronize(
    a: *mut granule_allocator,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        Ok(a.backend().synchronize_stream(a.usable_stream(device, stream)?)?)
    })
}

/// Makes later work of a stream wait for what an event stands for now. The event may be another device's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stream_wait_event(
    a: *mut granule_allocator,
    device: i32,
    stream: u64,
    event_device: i32,
    event: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let stream = a.usable_stream(device, stream)?;
        Ok(a.backend().wait_event(stream, a.usable_event(event_device, event)?)?)
    })
}

/// Runs function on the host when a stream reaches it, on some thread. It must not call the library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stream_launch_host(
    a: *mut granule_allocator,
    device: i32,
    stream: u64,
    function: Option<unsafe extern "C-unwind" fn(user: *mut c_void)>,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let function = function.ok_or_else(|| Failure::argument("function is null"))?;
        let stream = a.usable_stream(device, stream)?;
        // SAFETY: what callers promise: the function is good for this `user`, once.
        let work = move || call_at_end(|| unsafe { function(user.get()) });
        Ok(a.backend().launch_host_function(stream, Box::new(work))?)
    })
}

/// Makes an event, complete until it is first recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_event_create(
    a: *mut granule_allocator,
    device: i32,
    timing: bool,
    out: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let flags = if timing { EventFlags::TIMING } else { EventFlags::empty() };
        out.set(a.backend().create_event(a.usable_device(device)?, flags)?.raw);
        Ok(())
    })
}

/// Destroys an event; waits that are queued on it still hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_event_destroy(
    a: *mut granule_allocator,
    device: i32,
    event: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let event = a.usable_event(device, event)?;
        // SAFETY: rule 1, by what callers promise: the handle is not used again.
        unsafe { a.backend().destroy_event(event) }?;
        Ok(())
    })
}

/// Sets an event to the end of what is queued on a stream of its device now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_event_record(
    a: *mut granule_allocator,
    device: i32,
    event: u64,
    stream: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let stream = a.usable_stream(device, stream)?;
        Ok(a.backend().record_event(a.usable_event(device, event)?, stream)?)
    })
}

/// Whether an event's last record has been passed: GRANULE_OK or GRANULE_NOT_READY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_event_query(
    a: *mut granule_allocator,
    device: i32,
    event: u64,
) -> granule_status {
    answer(|| {
        let a = given!(handle a);
        Ok(readiness(a.backend().query_event(a.usable_event(device, event)?)?))
    })
}

/// Waits until an event's last record has been passed. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_event_synchronize(
    a: *mut granule_allocator,
    device: i32,
    event: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        Ok(a.backend().synchronize_event(a.usable_event(device, event)?)?)
    })
}

/// Milliseconds between two completed events that were made with timing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_event_elapsed_ms(
    a: *mut granule_allocator,
    device: i32,
    start: u64,
    end: u64,
    out: *mut f32,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let start = a.usable_event(device, start)?;
        out.set(a.backend().elapsed_ms(start, a.usable_event(device, end)?)?);
        Ok(())
    })
}
