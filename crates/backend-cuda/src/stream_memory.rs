//! Words written by a stream.

use crate::cuda::Cuda;
use crate::driver::pointer;
use backend_api::types::{DevicePtr, Stream};
use backend_api::{Result, StreamMemory};
use cudarc::driver::sys::CUstreamWriteValue_flags;
use std::ffi::c_uint;

impl Cuda {
    pub(crate) fn probe_stream_memory(&self) -> Result<()> {
        needs!(self: cuStreamWriteValue32_v2)?;
        let _relaxed = self.relaxed()?;
        let device = self.device_of_thread()?;
        let word = self.malloc(device, 4)?;
        let tried = self.create_stream(device, 0).and_then(|stream| {
            // SAFETY: the word is this probe's, and is freed after the stream has written it.
            let written = unsafe { self.write_value32(stream, word, 0) };
            let waited = self.synchronize_stream(stream);
            // SAFETY: the stream is this probe's and is not used again.
            let destroyed = unsafe { self.destroy_stream(stream) };
            written.and(waited).and(destroyed)
        });
        // SAFETY: the word is this probe's, and the stream has passed its write.
        let freed = unsafe { self.free(device, word) };
        tried.and(freed)
    }
}

impl StreamMemory for Cuda {
    unsafe fn write_value32(&self, stream: Stream, at: DevicePtr, value: u32) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuStreamWriteValue32")?;
        if at.is_null() || !at.0.is_multiple_of(4) {
            let detail = format!("{at} is no address of a word: it must be aligned to 4");
            return Err(entered.invalid("cuStreamWriteValue32", detail));
        }
        let flags = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as c_uint;
        // SAFETY: rule 2 for the four bytes.
        unsafe { call!(entered.cuStreamWriteValue32_v2(pointer(stream.raw), at.0, value, flags)) }
    }
}
