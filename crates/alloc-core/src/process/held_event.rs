//! Events that the engine made, and destroys when nobody can ask for them any more.

use crate::backend::{Backend, EventFlags, Result};
use crate::process::state;
use crate::process::stream_identity::named;
use crate::sync::{Arc, assert_unlocked};
use crate::types::{DeviceIndex, Event, Stream};

/// Event that its last holder destroys, with no lock held. Threads that ask the driver about a shared one hold a share
/// of it meanwhile.
#[derive(Debug)]
pub(crate) struct HeldEvent {
    backend: Arc<dyn Backend>,
    event: Event,
}

impl HeldEvent {
    /// Makes an event. May block.
    pub(crate) fn new(backend: &Arc<dyn Backend>, device: DeviceIndex) -> Result<Self> {
        assert_unlocked();
        let event = backend.create_event(device, EventFlags::empty())?;
        Ok(Self { backend: Arc::clone(backend), event })
    }

    /// Records the end of all work `stream` was given so far. Does not block.
    pub(crate) fn record(&self, stream: Stream) -> Result<()> {
        self.backend.record_event(self.event, named(stream)?)
    }

    /// True if the device has reached it. Does not block.
    pub(crate) fn is_past(&self) -> Result<bool> {
        Ok(self.backend.query_event(self.event)?.is_ready())
    }

    /// Waits until the device has reached it. Blocks.
    pub(crate) fn wait(&self) -> Result<()> {
        self.backend.synchronize_event(self.event)
    }

    /// Orders later work of `stream` after it. Does not block.
    pub(crate) fn precede(&self, stream: Stream) -> Result<()> {
        self.backend.wait_event(named(stream)?, self.event)
    }

    pub(crate) fn device(&self) -> DeviceIndex {
        self.event.device
    }
}

impl Drop for HeldEvent {
    fn drop(&mut self) {
        assert_unlocked();
        if !state::may_destroy(self.backend.id()) {
            return;
        }
        // SAFETY: rule 1: made by `new`, and nobody has it any more.
        if let Err(error) = unsafe { self.backend.destroy_event(self.event) } {
            self.backend.clear_error();
            tracing::debug!(%error, "an event could not be destroyed");
        }
    }
}
