//! Events.

use super::{Device, Label, Stream};
use alloc_core::backend::{Backend, EventFlags, Readiness, Result};
use alloc_core::types;
use std::marker::PhantomData;
use std::sync::Arc;

/// A point in a stream; destroyed when dropped.
#[derive(Debug)]
pub struct Event<L: Label> {
    backend: Arc<dyn Backend>,
    handle: types::Event,
    label: PhantomData<L>,
}

impl<L: Label> Event<L> {
    /// A new event, complete until it is recorded. May block.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Device<L>, flags: EventFlags) -> Result<Self> {
        let handle = device.backend.create_event(device.index(), flags)?;
        Ok(Self { backend: Arc::clone(&device.backend), handle, label: PhantomData })
    }

    /// The handle that the backend takes.
    #[must_use]
    pub fn handle(&self) -> types::Event {
        self.handle
    }

    /// Sets it to the end of what is queued on `stream` now. Does not block.
    ///
    /// # Errors
    /// What the driver says; `InvalidValue` where they are of different devices.
    pub fn record(&self, stream: &Stream<L>) -> Result<()> {
        self.backend.record_event(self.handle, stream.handle())
    }

    /// Whether its last record has been passed. Does not block.
    ///
    /// # Errors
    /// What the driver says.
    pub fn query(&self) -> Result<Readiness> {
        self.backend.query_event(self.handle)
    }

    /// Waits until its last record has been passed. **Blocks.**
    ///
    /// # Errors
    /// What the driver says.
    pub fn synchronize(&self) -> Result<()> {
        self.backend.synchronize_event(self.handle)
    }

    /// Milliseconds from this event to `end`; both are complete and were made with [`EventFlags::TIMING`].
    ///
    /// # Errors
    /// What the driver says.
    pub fn elapsed_ms(&self, end: &Self) -> Result<f32> {
        self.backend.elapsed_ms(self.handle, end.handle)
    }
}

impl<L: Label> Drop for Event<L> {
    fn drop(&mut self) {
        // SAFETY: rule 1: this backend made the handle, and its only owner is going.
        if let Err(error) = unsafe { self.backend.destroy_event(self.handle) } {
            tracing::error!(%error, "an event could not be destroyed");
        }
    }
}
