//! Where the calling thread is, and which stream it means.

use crate::streams::{self, StreamInfo};
use crate::{Answer, contexts, graphs};
use backend_api::types::{DeviceIndex, Stream};
use backend_openreg::OpenReg;
use std::sync::Arc;

/// Where the calling thread is: the machine, and its device.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// The machine.
    pub machine: &'static Arc<OpenReg>,
    /// The current device.
    pub device: DeviceIndex,
}

impl Here {
    /// On a device whose context is to be used.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED`, or the fatal error that the context met.
    pub fn new(machine: &'static Arc<OpenReg>, device: DeviceIndex) -> Answer<Self> {
        contexts::usable(device)?;
        Ok(Self { machine, device })
    }

    /// What a stream's handle stands for.
    ///
    /// # Errors
    /// `INVALID_HANDLE`, or what its context answers.
    pub fn stream<T>(&self, handle: *mut T) -> Answer<StreamInfo> {
        let known = streams::resolve(self.machine, self.device, handle.addr())?;
        contexts::usable(known.stream.device)?;
        Ok(known)
    }

    /// A stream to queue work on.
    ///
    /// # Errors
    /// As [`Here::stream`]; `CAPTURE_IMPLICIT` for a default stream that a captured stream waits for.
    pub fn work_stream<T>(&self, handle: *mut T) -> Answer<Stream> {
        let known = self.stream(handle)?;
        graphs::default_stream_is_free(self.machine, known.stream)?;
        streams::wait_by_default(self.machine, &known);
        Ok(known.stream)
    }
}
