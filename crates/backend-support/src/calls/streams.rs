//! Streams and events.

use crate::driver::{Driver, Site};
use backend_api::types::{Event, Stream};
use backend_api::{EventFlags, PriorityRange, Readiness, Result};
use std::ffi::{c_uint, c_void};

/// A function of the host as drivers call it.
pub type HostEntry = unsafe extern "C" fn(*mut c_void);

/// Streams.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait StreamCalls: Driver {
    /// A new non-blocking stream of the current device.
    fn create_stream(site: Site<'_, Self>, priority: i32) -> Result<u64>;
    /// Destroys a stream that is not the default one.
    unsafe fn destroy_stream(site: Site<'_, Self>, stream: Stream) -> Result<()>;
    /// The priorities that make a difference, counted as the contract does: negative is more urgent.
    fn priority_range(site: Site<'_, Self>) -> Result<PriorityRange>;
    /// Whether all work is done.
    fn query_stream(site: Site<'_, Self>, stream: Stream) -> Result<Readiness>;
    /// Waits for all work.
    fn synchronize_stream(site: Site<'_, Self>, stream: Stream) -> Result<()>;
    /// Makes a stream wait for an event, perhaps of another device.
    fn wait_event(site: Site<'_, Self>, stream: Stream, event: Event) -> Result<()>;

    /// Queues a function.
    ///
    /// # Safety
    /// `function` can be called with `data`, from any thread and as often as the stream's work runs.
    unsafe fn launch_host_function(
        site: Site<'_, Self>,
        stream: Stream,
        function: HostEntry,
        data: *mut c_void,
    ) -> Result<()>;
}

/// Events.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait EventCalls: Driver {
    /// A new event of the current device.
    fn create_event(site: Site<'_, Self>, flags: EventFlags) -> Result<u64>;
    /// Destroys an event.
    unsafe fn destroy_event(site: Site<'_, Self>, event: Event) -> Result<()>;
    /// Sets an event to the end of a stream of the same device.
    fn record_event(site: Site<'_, Self>, event: Event, stream: Stream) -> Result<()>;
    /// Whether an event has been passed.
    fn query_event(site: Site<'_, Self>, event: Event) -> Result<Readiness>;
    /// Waits until an event has been passed.
    fn synchronize_event(site: Site<'_, Self>, event: Event) -> Result<()>;
    /// Milliseconds between two events of one device that keep time.
    fn elapsed_ms(site: Site<'_, Self>, start: Event, end: Event) -> Result<f32>;
}

/// What drivers call these flags.
#[must_use]
pub fn event_flags(flags: EventFlags) -> c_uint {
    let (blocking, untimed) =
        (flags.contains(EventFlags::BLOCKING_SYNC), !flags.contains(EventFlags::TIMING));
    c_uint::from(blocking) | c_uint::from(untimed) << 1
}

/// [`StreamCalls`] and [`EventCalls`] of a driver whose functions are those of CUDA under names of its own, in the order of the
/// traits.
#[macro_export]
macro_rules! stream_and_event_calls {
    ($driver:ty {
        streams: $create:ident, $destroy:ident, $range:ident, $query:ident, $synchronize:ident, $wait:ident, $launch:ident;
        events: $create_event:ident, $destroy_event:ident, $record:ident, $query_event:ident, $synchronize_event:ident, $elapsed:ident;
    }) => {
        impl $crate::StreamCalls for $driver {
            fn create_stream(site: Site<'_, Self>, priority: i32) -> Result<u64> {
                const NON_BLOCKING: c_uint = 1;
                let mut stream = ptr::null_mut();
                // SAFETY: the function writes one handle.
                unsafe { call!(site.$create(&raw mut stream, NON_BLOCKING, priority)) }?;
                Ok(number(stream))
            }

            unsafe fn destroy_stream(site: Site<'_, Self>, stream: Stream) -> Result<()> {
                // SAFETY: rule 1, and the caller uses the handle no more.
                unsafe { call!(site.$destroy(pointer(stream.raw))) }
            }

            fn priority_range(site: Site<'_, Self>) -> Result<PriorityRange> {
                let (mut least, mut greatest) = (0, 0);
                // SAFETY: the function writes two integers.
                unsafe { call!(site.$range(&raw mut least, &raw mut greatest)) }?;
                // Some drivers count from another number than 0.
                Ok(PriorityRange { least: least.max(0), greatest: greatest.min(0) })
            }

            fn query_stream(site: Site<'_, Self>, stream: Stream) -> Result<Readiness> {
                // SAFETY: rule 1.
                unsafe { query!(site.$query(pointer(stream.raw))) }
            }

            fn synchronize_stream(site: Site<'_, Self>, stream: Stream) -> Result<()> {
                // SAFETY: rule 1.
                unsafe { call!(site.$synchronize(pointer(stream.raw))) }
            }

            fn wait_event(site: Site<'_, Self>, stream: Stream, event: Event) -> Result<()> {
                // SAFETY: rule 1 for both; the event may be of another device.
                unsafe { call!(site.$wait(pointer(stream.raw), pointer(event.raw), 0)) }
            }

            unsafe fn launch_host_function(
                site: Site<'_, Self>,
                stream: Stream,
                function: HostEntry,
                data: *mut c_void,
            ) -> Result<()> {
                // SAFETY: rule 1; the caller answers for the function and its data.
                unsafe { call!(site.$launch(pointer(stream.raw), Some(function), data)) }
            }
        }

        impl $crate::EventCalls for $driver {
            fn create_event(site: Site<'_, Self>, flags: EventFlags) -> Result<u64> {
                let mut event = ptr::null_mut();
                // SAFETY: the function writes one handle.
                unsafe { call!(site.$create_event(&raw mut event, event_flags(flags))) }?;
                Ok(number(event))
            }

            unsafe fn destroy_event(site: Site<'_, Self>, event: Event) -> Result<()> {
                // SAFETY: rule 1, and the caller uses the handle no more.
                unsafe { call!(site.$destroy_event(pointer(event.raw))) }
            }

            fn record_event(site: Site<'_, Self>, event: Event, stream: Stream) -> Result<()> {
                // SAFETY: rule 1 for both.
                unsafe { call!(site.$record(pointer(event.raw), pointer(stream.raw))) }
            }

            fn query_event(site: Site<'_, Self>, event: Event) -> Result<Readiness> {
                // SAFETY: rule 1.
                unsafe { query!(site.$query_event(pointer(event.raw))) }
            }

            fn synchronize_event(site: Site<'_, Self>, event: Event) -> Result<()> {
                // SAFETY: rule 1.
                unsafe { call!(site.$synchronize_event(pointer(event.raw))) }
            }

            fn elapsed_ms(site: Site<'_, Self>, start: Event, end: Event) -> Result<f32> {
                let (mut elapsed, start, end) = (0.0, pointer(start.raw), pointer(end.raw));
                // SAFETY: rule 1 for both; the function writes one number.
                unsafe { call!(site.$elapsed(&raw mut elapsed, start, end)) }?;
                Ok(elapsed)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_drivers() {
        let timed = EventFlags::TIMING;
        let flags =
            [EventFlags::empty(), timed, EventFlags::BLOCKING_SYNC, timed | EventFlags::BLOCKING_SYNC];
        assert_eq!(flags.map(event_flags), [2, 0, 3, 1]);
    }
}
