//! Last work of a retired stream: it stands for the stream once its handle may not be named any more.

use crate::backend::{Backend, BackendError, CaptureStatus, ErrorKind, Result};
use crate::process::held_event::HeldEvent;
use crate::process::state;
use crate::process::stream_identity::named;
use crate::sync::{Arc, AtomicBool, Ordering, assert_unlocked};
use crate::types::{DeviceIndex, Stream};

/// All work of a retired stream. Shared by everything that waits for it; its last holder destroys the event, with no
/// lock held.
#[derive(Debug)]
pub(crate) struct LastWork {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    /// Recorded at the stream's end; `None` where the work was done then, or only its device can be waited for.
    event: Option<HeldEvent>,
    /// Set once the work was seen to be done. The event, which may be broken, is not asked from then on.
    done: AtomicBool,
}

impl LastWork {
    /// The end of all work `stream` was given so far. Waits for the stream where no event can be recorded. A stream
    /// that is being captured has no end yet.
    pub(crate) fn of(backend: &Arc<dyn Backend>, stream: Stream) -> Result<Self> {
        refuse_captured(&**backend, stream)?;
        Self::so_far(backend, stream)
    }

    /// The end of a launch's work on `stream`. It cannot fail once the work is queued: at worst the whole device has to
    /// be waited for.
    pub(crate) fn of_launch(
        backend: &Arc<dyn Backend>,
        stream: Stream,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        refuse_captured(&**backend, stream)?;
        launch()?;
        Ok(Self::so_far(backend, stream).unwrap_or_else(|error| {
            backend.clear_error();
            tracing::warn!(%error, "the end of a launch is not known; it is over when its device has been waited for");
            let done = AtomicBool::new(false);
            Self { backend: Arc::clone(backend), device: stream.device, event: None, done }
        }))
    }

    fn so_far(backend: &Arc<dyn Backend>, stream: Stream) -> Result<Self> {
        assert_unlocked();
        let recorded = HeldEvent::new(backend, stream.device).and_then(|event| {
            event.record(stream)?;
            Ok(event)
        });
        let event = match recorded {
            Ok(event) => Some(event),
            Err(error) => {
                backend.clear_error();
                tracing::warn!(%error, "no event could be recorded on a stream that retires; waiting for it instead");
                wait_for_stream(&**backend, stream)?;
                None
            }
        };
        let done = AtomicBool::new(event.is_none());
        Ok(Self { backend: Arc::clone(backend), device: stream.device, event, done })
    }

    pub(crate) fn device(&self) -> DeviceIndex {
        self.device
    }

    /// True if the device is done with it. Does not block.
    pub(crate) fn is_done(&self) -> Result<bool> {
        if self.done.load(Ordering::Acquire) {
            return Ok(true);
        }
        let Some(event) = &self.event else { return Ok(false) };
        let done = event.is_past()?;
        self.done.fetch_or(done, Ordering::Release);
        Ok(done)
    }

    /// Waits until the device is done with it: for its whole device where the event is broken. Blocks.
    pub(crate) fn wait(&self) -> Result<()> {
        if self.done.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.event.as_ref().map(HeldEvent::wait) {
            Some(Ok(())) => {}
            Some(Err(error)) if error.kind == ErrorKind::DeviceLost => {
                self.backend.clear_error();
                return Err(error);
            }
            unknown => {
                self.backend.clear_error();
                let cause = unknown.and_then(Result::err);
                wait_for_device(&*self.backend, self.device, cause.as_ref())?;
            }
        }
        self.done.store(true, Ordering::Release);
        Ok(())
    }

    /// Orders later work of `stream` after it. Does not block.
    pub(crate) fn precede(&self, stream: Stream) -> Result<()> {
        match &self.event {
            _ if self.done.load(Ordering::Acquire) => Ok(()),
            Some(event) => event.precede(stream),
            None => {
                let detail = "it is not known when this work is done";
                Err(BackendError::new(ErrorKind::NotSupported, 0, "wait event", self.device, detail))
            }
        }
    }
}

/// Waits for a stream, or for its whole device where the stream is gone. Blocks. Does not wait for a stream that is
/// being captured, which would break the capture.
pub(crate) fn wait_for_stream(backend: &dyn Backend, stream: Stream) -> Result<()> {
    refuse_captured(backend, stream)?;
    let Err(error) = named(stream).and_then(|stream| backend.synchronize_stream(stream)) else {
        return Ok(());
    };
    backend.clear_error();
    if matches!(error.kind, ErrorKind::DeviceLost | ErrorKind::CaptureViolation) {
        return Err(error);
    }
    wait_for_device(backend, stream.device, Some(&error))
}

/// Waits for a whole device because one stream's work could not be waited for. Blocks. Refuses while a capture is under
/// way, which it could break.
fn wait_for_device(backend: &dyn Backend, device: DeviceIndex, cause: Option<&BackendError>) -> Result<()> {
    let cause = cause.map_or_else(|| "the end of a launch is not known".into(), ToString::to_string);
    if state::captures_over(backend.id()) {
        let detail = format!(
            "{cause}; waiting for the whole device instead would break the capture that is under way: the memory stays, \
             end the capture and synchronise again"
        );
        return Err(BackendError::new(ErrorKind::CaptureViolation, 0, "synchronize", device, detail));
    }
    tracing::warn!(%cause, %device, "a stream's work could not be waited for; waiting for its device instead");
    backend.synchronize_device(device)
}

/// Refuses a stream that is being captured: neither a wait for it nor an event on it says anything then.
fn refuse_captured(backend: &dyn Backend, stream: Stream) -> Result<()> {
    let Ok(capture) = backend.capture() else { return Ok(()) };
    match named(stream).and_then(|stream| capture.status(stream)) {
        Ok(CaptureStatus::None) => Ok(()),
        Ok(CaptureStatus::Active(_) | CaptureStatus::Invalidated) => {
            let detail = "the stream is being captured and cannot be waited for; its memory stays until the capture ends";
            Err(BackendError::new(ErrorKind::CaptureViolation, 0, "synchronize", stream.device, detail))
        }
        Err(_) => {
            backend.clear_error();
            Ok(())
        }
    }
}
