//! Streams and events.

use crate::driver::{Driver, Site};
use crate::host_function::run_queued;
use backend_api::types::{Event, Stream};
use backend_api::{EventFlags, PriorityRange, Readiness, Result};
use std::ffi::c_void;

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

    /// Queues [`run_queued`] outside of a capture.
    ///
    /// # Safety
    /// `data` is for [`run_queued`].
    unsafe fn launch_queued(site: Site<'_, Self>, stream: Stream, data: *mut c_void) -> Result<()> {
        // SAFETY: the function takes any value, any number of times.
        unsafe { Self::launch_host_function(site, stream, run_queued, data) }
    }
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
