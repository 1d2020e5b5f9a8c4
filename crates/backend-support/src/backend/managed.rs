//! Memory that migrates between host and devices, and words written by a stream.

use super::{DriverBackend, devices, graphs, memory};
use crate::calls::Calls;
use crate::driver::Family;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Attribute, Backend, ManagedMemory, Result, StreamMemory};

pub(super) fn probe<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::ManagedMemory)?;
    devices::every_device_has(backend, Attribute::ManagedMemory)?;
    let _relaxed = graphs::relaxed(backend)?;
    let device = backend.context.device_of_thread()?;
    let memory = backend.malloc_managed(device, 1)?;
    // SAFETY: the memory is this probe's, and nothing uses it.
    unsafe { backend.free(device, memory) }
}

impl<D: Calls> ManagedMemory for DriverBackend<D> {
    fn malloc_managed(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let call = D::NAMES.malloc_managed;
        let entered = self.context.enter(device, call)?;
        entered.positive(call, bytes)?;
        let ptr = D::malloc_managed(*entered, bytes as usize)?;
        // SAFETY: nobody knows the address yet.
        memory::aligned(*entered, ptr, call, || unsafe { D::free(*entered, ptr) })
    }

    unsafe fn prefetch_async(
        &self,
        ptr: DevicePtr,
        bytes: u64,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()> {
        let call = D::NAMES.prefetch;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        entered.positive(call, bytes)?;
        if let Some(device) = to {
            self.context.exists(device, call)?;
        }
        // SAFETY: rule 2 for the range.
        unsafe { D::prefetch_async(*entered, ptr, bytes as usize, to, stream) }
    }
}

pub(super) fn probe_words<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::StreamMemory)?;
    devices::every_device_has(backend, Attribute::StreamMemoryOperations)?;
    let _relaxed = graphs::relaxed(backend)?;
    let device = backend.context.device_of_thread()?;
    let word = backend.malloc(device, 4)?;
    let tried = backend.create_stream(device, 0).and_then(|stream| {
        // SAFETY: the word is this probe's, and is freed after the stream has written it.
        let written = unsafe { backend.write_value32(stream, word, 0) };
        let waited = backend.synchronize_stream(stream);
        // SAFETY: the stream is this probe's and is not used again.
        let destroyed = unsafe { backend.destroy_stream(stream) };
        written.and(waited).and(destroyed)
    });
    // SAFETY: the word is this probe's, and the stream has passed its write.
    let freed = unsafe { backend.free(device, word) };
    tried.and(freed)
}

impl<D: Calls> StreamMemory for DriverBackend<D> {
    unsafe fn write_value32(&self, stream: Stream, at: DevicePtr, value: u32) -> Result<()> {
        let call = D::NAMES.write_value;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        if at.is_null() || !at.0.is_multiple_of(4) {
            let detail = format!("{at} is no address of a word: it must be aligned to 4");
            return Err(entered.invalid(call, detail));
        }
        // SAFETY: rule 2 for the four bytes.
        unsafe { D::write_value32(*entered, stream, at.0, value) }
    }
}
