//! Streams.

use super::{Device, Event, Label};
use alloc_core::backend::{Backend, HostFunction, Readiness, Result};
use alloc_core::types;
use std::marker::PhantomData;
use std::sync::Arc;

/// A stream. One that was created here is destroyed with its last clone; work queued on it still runs.
#[derive(Clone, Debug)]
pub struct Stream<L: Label> {
    inner: Arc<Inner>,
    label: PhantomData<L>,
}

#[derive(Debug)]
struct Inner {
    backend: Arc<dyn Backend>,
    handle: types::Stream,
    owned: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: rule 1: this backend made the handle, and the last user of it is gone.
        if let Err(error) = unsafe { self.backend.destroy_stream(self.handle) } {
            tracing::error!(%error, "a stream could not be destroyed");
        }
    }
}

impl<L: Label> Stream<L> {
    pub(super) fn owned(backend: Arc<dyn Backend>, handle: types::Stream) -> Self {
        Self { inner: Arc::new(Inner { backend, handle, owned: true }), label: PhantomData }
    }

    pub(super) fn borrowed(backend: Arc<dyn Backend>, handle: types::Stream) -> Self {
        Self { inner: Arc::new(Inner { backend, handle, owned: false }), label: PhantomData }
    }

    /// A stream that other code created and will destroy (`CUstream`, `hipStream_t` as a number).
    /// PyTorch: `getStreamFromExternal`.
    ///
    /// # Safety
    /// Rule 1: `raw` is a stream of this driver and of `device`, and lives as long as this value, its clones and
    /// the memory allocated for it.
    #[must_use]
    pub unsafe fn from_external(device: &Device<L>, raw: u64) -> Self {
        let handle = types::Stream { raw, device: device.index(), backend: device.backend.id() };
        Self::borrowed(Arc::clone(&device.backend), handle)
    }

    /// The handle that the allocator and the backend take.
    #[must_use]
    pub fn handle(&self) -> types::Stream {
        self.inner.handle
    }

    /// Whether all work queued so far is done. Does not block.
    ///
    /// # Errors
    /// What the driver says.
    pub fn query(&self) -> Result<Readiness> {
        self.inner.backend.query_stream(self.inner.handle)
    }

    /// Waits for all work queued so far. **Blocks.**
    ///
    /// # Errors
    /// What the driver says.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.backend.synchronize_stream(self.inner.handle)
    }

    /// Makes later work wait for what `event` stands for now. Does not block.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait(&self, event: &Event<L>) -> Result<()> {
        self.inner.backend.wait_event(self.inner.handle, event.handle())
    }

    /// Runs `function` on the host when the stream reaches it; it must not call the driver. Does not block.
    ///
    /// # Errors
    /// What the driver says.
    pub fn launch_host_function(&self, function: HostFunction) -> Result<()> {
        self.inner.backend.launch_host_function(self.inner.handle, function)
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.backend
    }
}
