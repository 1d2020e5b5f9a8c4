//! Facts about the operation under way, gathered before any lock is taken.

use crate::backend::{Capture, CaptureMode, Result};
use crate::process::callbacks::Gathered;
use crate::watch::history::Context;

/// One call of the program.
#[derive(Debug, Default)]
pub(crate) struct Call<'b> {
    /// Place in the program that it came from.
    pub(crate) context: Option<Gathered<'b, Context>>,
    /// True if the stream of the request is being captured: nothing may be waited for, and no event queried.
    pub(crate) capturing: bool,
    /// Held while a capture is under way anywhere on the device.
    pub(crate) relaxed: Option<Relaxed<'b>>,
}

impl Call<'_> {
    /// A call without facts.
    pub(crate) const PLAIN: Self = Self { context: None, capturing: false, relaxed: None };

    /// Place in the program that it came from.
    pub(crate) fn context(&self) -> Option<&Context> {
        self.context.as_deref()
    }
}

/// The calling thread may make calls that a capture elsewhere would forbid, until this is dropped.
#[derive(Debug)]
pub(crate) struct Relaxed<'b> {
    capture: &'b dyn Capture,
    before: CaptureMode,
}

impl<'b> Relaxed<'b> {
    pub(crate) fn enter(capture: &'b dyn Capture) -> Result<Self> {
        Ok(Self { capture, before: capture.exchange_mode(CaptureMode::Relaxed)? })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        let restore = || self.capture.exchange_mode(self.before);
        // A driver that fails once is survived.
        if let Err(error) = restore().or_else(|_| restore()) {
            tracing::error!(%error, "the thread's capture mode could not be restored");
        }
    }
}
