//! Where the calling thread is.

use crate::{Answer, contexts};
use backend_api::types::DeviceIndex;
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
}
