//! The driver, as pinned memory needs it: whether it may be called at all, which streams are its own, what captures forbid.

use crate::backend::{self, Backend, CaptureStatus};
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Relaxed;
use crate::process::attention::{Attention, ProcessState};
use crate::process::state;
use crate::process::stream_identity::{named, resolve};
use crate::sync::Arc;
use crate::types::{DeviceIndex, Stream};

/// A backend, and the word that says whether its driver may be called.
#[derive(Debug)]
pub(super) struct DriverAccess {
    backend: Arc<dyn Backend>,
    attention: &'static Attention,
    devices: u16,
    /// The engine is told of every capture.
    told: bool,
}

impl Drop for DriverAccess {
    /// The last that looks at the word is gone: a backup may have outlived its allocator.
    fn drop(&mut self) {
        state::take_back(self.attention);
    }
}

impl DriverAccess {
    /// For a process that the backend [admits](state::admit).
    pub(super) fn new(backend: Arc<dyn Backend>, told: bool) -> Result<Self> {
        let devices = backend.device_count()?;
        let attention = state::lend(backend.id(), None);
        Ok(Self { backend, attention, devices, told })
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(super) fn attention(&self) -> &'static Attention {
        self.attention
    }

    pub(super) fn devices(&self) -> impl Iterator<Item = DeviceIndex> {
        (0..self.devices).map(DeviceIndex)
    }

    /// State that forbids driver calls, if any.
    pub(super) fn process_state(&self) -> Option<ProcessState> {
        self.attention.process_state()
    }

    /// True if nothing may be given back, or even be looked at.
    pub(super) fn is_forked(&self) -> bool {
        self.process_state() == Some(ProcessState::Forked)
    }

    /// Looks at what an operation came to: was it that the driver is unloading?
    pub(super) fn noticing<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(AllocError::Backend(error)) = &outcome {
            state::notice(self.attention, &*self.backend, error);
        }
        outcome
    }

    /// Answer of a call. Nothing of its failure is left to later calls.
    pub(super) fn answered<T>(&self, answer: backend::Result<T>) -> Result<T> {
        Ok(answer.inspect_err(|_| self.backend.clear_error())?)
    }

    /// The engine's one name for a stream of this backend.
    pub(super) fn own(&self, stream: Stream) -> Result<Stream> {
        if stream.backend != self.backend.id() {
            return Err(AllocError::ForeignStream);
        }
        if stream.device.0 >= self.devices {
            return Err(AllocError::InvalidDevice { device: stream.device, count: self.devices });
        }
        Ok(resolve(stream, self.backend.kind()))
    }

    /// Lets the calling thread do what captures of others would forbid, also of those that begin meanwhile. Calls the driver.
    pub(super) fn relaxed(&self) -> Result<Option<Relaxed<'_>>> {
        let Ok(capture) = self.backend.capture() else { return Ok(None) };
        self.answered(Relaxed::enter(capture).map(Some))
    }

    /// False if no capture is under way whose begin was marked, and all begins are.
    pub(super) fn may_be_capturing(&self) -> bool {
        !self.told || state::captures_over(self.backend.id())
    }

    /// The capture that a stream is part of, also a broken one. Calls the driver.
    pub(super) fn capture_id(&self, stream: Stream) -> Result<Option<u64>> {
        let Ok(capture) = self.backend.capture() else { return Ok(None) };
        // Another thread's default stream cannot be asked about here, and is not captured from here.
        let Ok(stream) = named(stream) else { return Ok(None) };
        Ok(match self.answered(capture.status(stream))? {
            CaptureStatus::Active(id) => Some(id),
            CaptureStatus::Invalidated => Some(u64::MAX),
            CaptureStatus::None => None,
        })
    }
}
