//! The device guard: makes a device current and puts the previous one back on every exit.

use crate::types::DeviceIndex;
use crate::{Backend, Result};

/// While this lives, `device` is the calling thread's current device; dropping it (a panic included)
/// restores the one before.
#[derive(Debug)]
#[must_use = "the previous device comes back when the guard is dropped"]
pub struct DeviceGuard<'b> {
    backend: &'b dyn Backend,
    previous: DeviceIndex,
    device: DeviceIndex,
    // The current device is a property of the thread: a guard must not travel.
    _thread: std::marker::PhantomData<*const ()>,
}

impl<'b> DeviceGuard<'b> {
    /// Makes `device` current.
    ///
    /// # Errors
    /// The error of [`Backend::set_device`]; the current device is unchanged then.
    pub fn new(backend: &'b dyn Backend, device: DeviceIndex) -> Result<Self> {
        let previous = backend.current_device()?;
        if previous != device {
            backend.set_device(device)?;
        }
        Ok(Self { backend, previous, device, _thread: std::marker::PhantomData })
    }

    /// The device that was current before.
    #[must_use]
    pub fn previous(&self) -> DeviceIndex {
        self.previous
    }
}

impl Drop for DeviceGuard<'_> {
    fn drop(&mut self) {
        if self.previous != self.device
            && let Err(error) = self.backend.set_device(self.previous)
        {
            tracing::error!(%error, device = %self.previous, "could not restore the current device");
        }
    }
}
