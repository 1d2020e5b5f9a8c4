//! Devices.

use super::{Label, Stream};
use alloc_core::backend::{Backend, BackendError, DeviceProperties, ErrorKind, MemoryInfo, Result};
use alloc_core::types::{DeviceIndex, DeviceKind};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// One device of a label's backend.
#[derive(Clone)]
pub struct Device<L: Label> {
    pub(super) backend: Arc<dyn Backend>,
    index: DeviceIndex,
    label: PhantomData<L>,
}

impl<L: Label> Device<L> {
    /// The device with this index. Starts the backend at the first use, which may block.
    ///
    /// # Errors
    /// What the backend says when it starts; `InvalidValue` where there is no such device.
    pub fn new(index: u16) -> Result<Self> {
        let backend = L::backend()?;
        let count = backend.device_count()?;
        if index >= count {
            let detail = format!("there are {count} devices, numbered from 0");
            return Err(BackendError::new(
                ErrorKind::InvalidValue,
                0,
                "Device::new",
                DeviceIndex(index),
                detail,
            ));
        }
        Ok(Self { backend, index: DeviceIndex(index), label: PhantomData })
    }

    /// Every device.
    ///
    /// # Errors
    /// What the backend says when it starts.
    pub fn all() -> Result<Vec<Self>> {
        (0..L::backend()?.device_count()?).map(Self::new).collect()
    }

    /// Its index.
    #[must_use]
    pub fn index(&self) -> DeviceIndex {
        self.index
    }

    /// The label that frameworks know it by.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.backend.kind()
    }

    /// Name, ids and total memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn properties(&self) -> Result<DeviceProperties> {
        self.backend.properties(self.index)
    }

    /// Free and total memory as the driver sees them, in bytes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        self.backend.memory_info(self.index)
    }

    /// Makes it the calling thread's device, for other code that asks the driver for the current device. Nothing here
    /// needs that. May create its context, which blocks.
    ///
    /// # Errors
    /// What the driver says.
    pub fn make_current(&self) -> Result<()> {
        self.backend.set_device(self.index)
    }

    /// Waits for all its work. **Blocks.**
    ///
    /// # Errors
    /// What the driver says.
    pub fn synchronize(&self) -> Result<()> {
        self.backend.synchronize_device(self.index)
    }

    /// The stream that exists without being created.
    #[must_use]
    pub fn default_stream(&self) -> Stream<L> {
        Stream::borrowed(Arc::clone(&self.backend), self.backend.default_stream(self.index))
    }

    /// A stream that nobody else has; `priority` 0 is normal, negative is more urgent. May block. Work of an earlier
    /// user may still be queued on it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn create_stream(&self, priority: i32) -> Result<Stream<L>> {
        Stream::create(self, priority)
    }
}

impl<L: Label> fmt::Debug for Device<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.index)
    }
}
