//! Streams.

use crate::cuda::Cuda;
use crate::driver::{Site, given_back, number, pointer};
use backend_api::types::{DeviceIndex, Event, Stream};
use backend_api::{PriorityRange, Readiness, Result};
use cudarc::driver::sys::CUstream_flags;
use std::ffi::c_uint;
use std::ptr;

impl Cuda {
    pub(crate) fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let entered = self.enter(device, "cuStreamCreateWithPriority")?;
        let range = range(*entered)?;
        // The driver counts as the contract does: 0 is normal, negative is more urgent.
        let priority = priority.min(range.least).max(range.greatest);
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        let mut stream = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe { call!(entered.cuStreamCreateWithPriority(&raw mut stream, flags, priority)) }?;
        Ok(Stream { raw: number(stream), device, backend: self.id })
    }

    pub(crate) unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let destroy = || {
            let entered = self.enter_handle(stream.backend, stream.device, "cuStreamDestroy")?;
            if stream.raw == 0 {
                return Err(entered.invalid("cuStreamDestroy", "the default stream cannot be destroyed"));
            }
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { call!(entered.cuStreamDestroy_v2(pointer(stream.raw))) }
        };
        given_back(destroy())
    }

    pub(crate) fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        let entered = self.enter(device, "cuCtxGetStreamPriorityRange")?;
        range(*entered)
    }

    pub(crate) fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuStreamQuery")?;
        // SAFETY: rule 1.
        unsafe { query!(entered.cuStreamQuery(pointer(stream.raw))) }
    }

    pub(crate) fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuStreamSynchronize")?;
        // SAFETY: rule 1.
        unsafe { call!(entered.cuStreamSynchronize(pointer(stream.raw))) }
    }

    pub(crate) fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuStreamWaitEvent")?;
        self.own(event.backend, event.device, "cuStreamWaitEvent")?;
        // SAFETY: rule 1 for both; the event may be of another device.
        unsafe { call!(entered.cuStreamWaitEvent(pointer(stream.raw), pointer(event.raw), 0)) }
    }
}

fn range(site: Site<'_>) -> Result<PriorityRange> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: the function writes two integers.
    unsafe { call!(site.cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
    Ok(PriorityRange { least, greatest })
}
