//! Words written by a stream.

use crate::driver::pointer;
use crate::hip::Hip;
use backend_api::types::{DevicePtr, Stream};
use backend_api::{Attribute, Result, StreamMemory};

impl Hip {
    pub(crate) fn probe_stream_memory(&self) -> Result<()> {
        needs!(self: hipStreamWriteValue32)?;
        self.every_device_has(Attribute::StreamMemoryOperations)?;
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

impl StreamMemory for Hip {
    unsafe fn write_value32(&self, stream: Stream, at: DevicePtr, value: u32) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipStreamWriteValue32")?;
        if at.is_null() || !at.0.is_multiple_of(4) {
            let detail = format!("{at} is no address of a word: it must be aligned to 4");
            return Err(entered.invalid("hipStreamWriteValue32", detail));
        }
        // SAFETY: rule 2 for the four bytes.
        unsafe { call!(entered.hipStreamWriteValue32(pointer(stream.raw), pointer(at.0), value, 0)) }
    }
}
