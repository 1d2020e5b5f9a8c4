//! Streams and events.

use crate::library::HipDriver;
use backend_api::types::{Event, Stream};
use backend_api::{EventFlags, PriorityRange, Readiness, Result};
use backend_support::host_function::run_queued;
use backend_support::{EventCalls, HostEntry, Site, StreamCalls, call, number, pointer, query};
use granule_hip_sys::abi6::{
    hipError_t, hipEventBlockingSync, hipEventDefault, hipEventDisableTiming, hipStream_t,
    hipStreamNonBlocking,
};
use std::ffi::{c_uint, c_void};
use std::ptr;

/// [`run_queued`] as a callback of runtimes that have no `hipLaunchHostFunc` (before 5.3).
extern "C" fn run_queued_callback(_stream: hipStream_t, _status: hipError_t, data: *mut c_void) {
    run_queued(data);
}

impl StreamCalls for HipDriver {
    fn create_stream(site: Site<'_, Self>, priority: i32) -> Result<u64> {
        let mut stream = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe { call!(site.hipStreamCreateWithPriority(&raw mut stream, hipStreamNonBlocking, priority)) }?;
        Ok(number(stream))
    }

    unsafe fn destroy_stream(site: Site<'_, Self>, stream: Stream) -> Result<()> {
        // SAFETY: rule 1, and the caller uses the handle no more.
        unsafe { call!(site.hipStreamDestroy(pointer(stream.raw))) }
    }

    fn priority_range(site: Site<'_, Self>) -> Result<PriorityRange> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(site.hipDeviceGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
        // 1 and -1 on real devices; the contract's promise holds for others, too.
        Ok(PriorityRange { least: least.max(0), greatest: greatest.min(0) })
    }

    fn query_stream(site: Site<'_, Self>, stream: Stream) -> Result<Readiness> {
        // SAFETY: rule 1.
        unsafe { query!(site.hipStreamQuery(pointer(stream.raw))) }
    }

    fn synchronize_stream(site: Site<'_, Self>, stream: Stream) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { call!(site.hipStreamSynchronize(pointer(stream.raw))) }
    }

    fn wait_event(site: Site<'_, Self>, stream: Stream, event: Event) -> Result<()> {
        // SAFETY: rule 1 for both; the event may be of another device.
        unsafe { call!(site.hipStreamWaitEvent(pointer(stream.raw), pointer(event.raw), 0)) }
    }

    unsafe fn launch_host_function(
        site: Site<'_, Self>,
        stream: Stream,
        function: HostEntry,
        data: *mut c_void,
    ) -> Result<()> {
        // SAFETY: rule 1; the caller answers for the function and its data.
        unsafe { call!(site.hipLaunchHostFunc(pointer(stream.raw), Some(function), data)) }
    }

    unsafe fn launch_queued(site: Site<'_, Self>, stream: Stream, data: *mut c_void) -> Result<()> {
        if site.driver().functions.hipLaunchHostFunc.is_some() {
            // SAFETY: the function takes any value, any number of times.
            return unsafe { Self::launch_host_function(site, stream, run_queued, data) };
        }
        let (queue, callback) = (pointer(stream.raw), Some(run_queued_callback as _));
        // SAFETY: rule 1; the callback takes any value, any number of times.
        unsafe { call!(site.hipStreamAddCallback(queue, callback, data, 0)) }
    }
}

fn driver_flags(flags: EventFlags) -> c_uint {
    let mut bits = hipEventDefault;
    if !flags.contains(EventFlags::TIMING) {
        bits |= hipEventDisableTiming;
    }
    if flags.contains(EventFlags::BLOCKING_SYNC) {
        bits |= hipEventBlockingSync;
    }
    bits
}

impl EventCalls for HipDriver {
    fn create_event(site: Site<'_, Self>, flags: EventFlags) -> Result<u64> {
        let mut event = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe { call!(site.hipEventCreateWithFlags(&raw mut event, driver_flags(flags))) }?;
        Ok(number(event))
    }

    unsafe fn destroy_event(site: Site<'_, Self>, event: Event) -> Result<()> {
        // SAFETY: rule 1, and the caller uses the handle no more.
        unsafe { call!(site.hipEventDestroy(pointer(event.raw))) }
    }

    fn record_event(site: Site<'_, Self>, event: Event, stream: Stream) -> Result<()> {
        // SAFETY: rule 1 for both.
        unsafe { call!(site.hipEventRecord(pointer(event.raw), pointer(stream.raw))) }
    }

    fn query_event(site: Site<'_, Self>, event: Event) -> Result<Readiness> {
        // SAFETY: rule 1.
        unsafe { query!(site.hipEventQuery(pointer(event.raw))) }
    }

    fn synchronize_event(site: Site<'_, Self>, event: Event) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { call!(site.hipEventSynchronize(pointer(event.raw))) }
    }

    fn elapsed_ms(site: Site<'_, Self>, start: Event, end: Event) -> Result<f32> {
        let mut elapsed = 0.0;
        // SAFETY: rule 1 for both; the function writes one number.
        unsafe { call!(site.hipEventElapsedTime(&raw mut elapsed, pointer(start.raw), pointer(end.raw))) }?;
        Ok(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_runtimes() {
        assert_eq!(driver_flags(EventFlags::empty()), 2);
        assert_eq!(driver_flags(EventFlags::TIMING), 0);
        assert_eq!(driver_flags(EventFlags::BLOCKING_SYNC), 3);
    }
}
