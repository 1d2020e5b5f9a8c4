//! Streams.

use crate::driver::{Site, given_back, number, pointer};
use crate::hip::Hip;
use backend_api::types::{DeviceIndex, Event, Stream};
use backend_api::{PriorityRange, Readiness, Result};
use hip_sys::abi6::hipStreamNonBlocking;
use std::ptr;

impl Hip {
    pub(crate) fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let entered = self.enter(device, "hipStreamCreateWithPriority")?;
        let range = range(*entered)?;
        // The runtime counts as the contract does: 0 is normal, negative is more urgent.
        let priority = priority.min(range.least).max(range.greatest);
        let mut stream = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe {
            call!(entered.hipStreamCreateWithPriority(&raw mut stream, hipStreamNonBlocking, priority))
        }?;
        Ok(Stream { raw: number(stream), device, backend: self.id })
    }

    pub(crate) unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let destroy = || {
            let entered = self.enter_handle(stream.backend, stream.device, "hipStreamDestroy")?;
            if stream.raw == 0 {
                return Err(entered.invalid("hipStreamDestroy", "the default stream cannot be destroyed"));
            }
            // Before the runtime can give the same handle to a new stream.
            let capture = self.captures.forget(stream);
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { call!(entered.hipStreamDestroy(pointer(stream.raw))) }
                .inspect_err(|_| self.captures.put_back(stream, capture))
        };
        given_back(destroy())
    }

    pub(crate) fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        let entered = self.enter(device, "hipDeviceGetStreamPriorityRange")?;
        range(*entered)
    }

    pub(crate) fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipStreamQuery")?;
        // SAFETY: rule 1.
        unsafe { query!(entered.hipStreamQuery(pointer(stream.raw))) }
    }

    pub(crate) fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipStreamSynchronize")?;
        // SAFETY: rule 1.
        unsafe { call!(entered.hipStreamSynchronize(pointer(stream.raw))) }
    }

    pub(crate) fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipStreamWaitEvent")?;
        self.own(event.backend, event.device, "hipStreamWaitEvent")?;
        // SAFETY: rule 1 for both; the event may be of another device.
        unsafe { call!(entered.hipStreamWaitEvent(pointer(stream.raw), pointer(event.raw), 0)) }
    }
}

fn range(site: Site<'_>) -> Result<PriorityRange> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: the function writes two integers.
    unsafe { call!(site.hipDeviceGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
    // 1 and -1 on real devices; the contract's promise holds for others, too.
    Ok(PriorityRange { least: least.max(0), greatest: greatest.min(0) })
}
