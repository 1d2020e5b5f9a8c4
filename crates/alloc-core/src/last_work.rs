//! The end of a retired stream's work: what stands for the stream once its handle may not be named any more.

use crate::backend::{Backend, ErrorKind, EventFlags, Result};
use crate::pending::wait_for_stream;
use crate::sync::{Arc, assert_unlocked};
use crate::types::{DeviceIndex, Event, Stream};

/// All that a retired stream was given. Shared by everything that waits for it; whoever lets go of it last, with
/// no lock held, destroys the event.
#[derive(Debug)]
pub(crate) struct LastWork {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    /// Recorded at the stream's end; `None` where the work is known to be done.
    event: Option<Event>,
}

impl LastWork {
    /// The end of what `stream` was given so far. Waits for the stream where no event can be recorded.
    pub(crate) fn of(backend: &Arc<dyn Backend>, stream: Stream) -> Result<Self> {
        assert_unlocked();
        let mut work = Self { backend: Arc::clone(backend), device: stream.device, event: None };
        let recorded = backend.create_event(stream.device, EventFlags::empty()).and_then(|event| {
            // Held by `work` from here on, which destroys it if recording fails.
            work.event = Some(event);
            backend.record_event(event, stream)
        });
        if let Err(error) = recorded {
            backend.clear_error();
            tracing::warn!(%error, "no event could be recorded on a stream that retires; waiting for it instead");
            wait_for_stream(&**backend, stream)?;
            work.destroy();
        }
        Ok(work)
    }

    pub(crate) fn device(&self) -> DeviceIndex {
        self.device
    }

    /// Whether the device is done with it. Does not block.
    pub(crate) fn is_done(&self) -> Result<bool> {
        self.event.map_or(Ok(true), |event| Ok(self.backend.query_event(event)?.is_ready()))
    }

    /// Waits until the device is done with it: for its whole device where the event is broken. Blocks.
    pub(crate) fn wait(&self) -> Result<()> {
        let Some(event) = self.event else { return Ok(()) };
        let Err(error) = self.backend.synchronize_event(event) else { return Ok(()) };
        self.backend.clear_error();
        if error.kind == ErrorKind::DeviceLost {
            return Err(error);
        }
        tracing::warn!(%error, "a retired stream's event could not be waited for; waiting for its device instead");
        self.backend.synchronize_device(self.device)
    }

    /// Orders later work of `stream` after it. Does not block.
    pub(crate) fn precede(&self, stream: Stream) -> Result<()> {
        self.event.map_or(Ok(()), |event| self.backend.wait_event(stream, event))
    }

    fn destroy(&mut self) {
        let Some(event) = self.event.take() else { return };
        // SAFETY: rule 1: made by `of` and known to this value only, which has just forgotten it.
        if let Err(error) = unsafe { self.backend.destroy_event(event) } {
            self.backend.clear_error();
            tracing::debug!(%error, "an event could not be destroyed");
        }
    }
}

impl Drop for LastWork {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// A stream that uses memory of another's: by its handle, or, once it is retired, by its last work.
#[derive(Clone, Debug)]
pub(crate) enum User {
    Live(Stream),
    Retired(Arc<LastWork>),
}

impl User {
    /// Whether this is the stream, and it is not retired: a later stream with the same handle is another.
    pub(crate) fn is(&self, stream: Stream) -> bool {
        matches!(self, Self::Live(live) if *live == stream)
    }

    /// Whether both are one stream.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Live(one), Self::Live(other)) => one == other,
            (Self::Retired(one), Self::Retired(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}
