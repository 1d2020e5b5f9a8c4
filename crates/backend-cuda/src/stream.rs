//! Streams and events.

use crate::library::CudaDriver;
use backend_api::types::{Event, Stream};
use backend_api::{EventFlags, PriorityRange, Readiness, Result};
use backend_support::{EventCalls, HostEntry, Site, StreamCalls, call, number, pointer, query};
use cudarc::driver::sys::{CUevent_flags, CUstream_flags};
use std::ffi::{c_uint, c_void};
use std::ptr;

impl StreamCalls for CudaDriver {
    fn create_stream(site: Site<'_, Self>, priority: i32) -> Result<u64> {
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        let mut stream = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe { call!(site.cuStreamCreateWithPriority(&raw mut stream, flags, priority)) }?;
        Ok(number(stream))
    }

    unsafe fn destroy_stream(site: Site<'_, Self>, stream: Stream) -> Result<()> {
        // SAFETY: rule 1, and the caller uses the handle no more.
        unsafe { call!(site.cuStreamDestroy_v2(pointer(stream.raw))) }
    }

    fn priority_range(site: Site<'_, Self>) -> Result<PriorityRange> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(site.cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
        Ok(PriorityRange { least, greatest })
    }

    fn query_stream(site: Site<'_, Self>, stream: Stream) -> Result<Readiness> {
        // SAFETY: rule 1.
        unsafe { query!(site.cuStreamQuery(pointer(stream.raw))) }
    }

    fn synchronize_stream(site: Site<'_, Self>, stream: Stream) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { call!(site.cuStreamSynchronize(pointer(stream.raw))) }
    }

    fn wait_event(site: Site<'_, Self>, stream: Stream, event: Event) -> Result<()> {
        // SAFETY: rule 1 for both; the event may be of another device.
        unsafe { call!(site.cuStreamWaitEvent(pointer(stream.raw), pointer(event.raw), 0)) }
    }

    unsafe fn launch_host_function(
        site: Site<'_, Self>,
        stream: Stream,
        function: HostEntry,
        data: *mut c_void,
    ) -> Result<()> {
        // SAFETY: rule 1; the caller answers for the function and its data.
        unsafe { call!(site.cuLaunchHostFunc(pointer(stream.raw), Some(function), data)) }
    }
}

fn driver_flags(flags: EventFlags) -> c_uint {
    let mut bits = CUevent_flags::CU_EVENT_DEFAULT as c_uint;
    if !flags.contains(EventFlags::TIMING) {
        bits |= CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
    }
    if flags.contains(EventFlags::BLOCKING_SYNC) {
        bits |= CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint;
    }
    bits
}

impl EventCalls for CudaDriver {
    fn create_event(site: Site<'_, Self>, flags: EventFlags) -> Result<u64> {
        let mut event = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe { call!(site.cuEventCreate(&raw mut event, driver_flags(flags))) }?;
        Ok(number(event))
    }

    unsafe fn destroy_event(site: Site<'_, Self>, event: Event) -> Result<()> {
        // SAFETY: rule 1, and the caller uses the handle no more.
        unsafe { call!(site.cuEventDestroy_v2(pointer(event.raw))) }
    }

    fn record_event(site: Site<'_, Self>, event: Event, stream: Stream) -> Result<()> {
        // SAFETY: rule 1 for both.
        unsafe { call!(site.cuEventRecord(pointer(event.raw), pointer(stream.raw))) }
    }

    fn query_event(site: Site<'_, Self>, event: Event) -> Result<Readiness> {
        // SAFETY: rule 1.
        unsafe { query!(site.cuEventQuery(pointer(event.raw))) }
    }

    fn synchronize_event(site: Site<'_, Self>, event: Event) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { call!(site.cuEventSynchronize(pointer(event.raw))) }
    }

    fn elapsed_ms(site: Site<'_, Self>, start: Event, end: Event) -> Result<f32> {
        let mut elapsed = 0.0;
        // SAFETY: rule 1 for both; the function writes one number.
        unsafe { call!(site.cuEventElapsedTime(&raw mut elapsed, pointer(start.raw), pointer(end.raw))) }?;
        Ok(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_drivers() {
        assert_eq!(driver_flags(EventFlags::empty()), 2);
        assert_eq!(driver_flags(EventFlags::TIMING), 0);
        assert_eq!(driver_flags(EventFlags::BLOCKING_SYNC), 3);
    }
}
