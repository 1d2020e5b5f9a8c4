//! Streams, and events: points in them.

use super::{Device, Label};
use alloc_core::backend::{Backend, CaptureStatus, EventFlags, HostFunction, Readiness, Result};
use alloc_core::types::{self, DeviceIndex};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream. One that was created here is kept when its last clone is dropped, and handed out again; work queued on
/// it still runs.
#[derive(Clone, Debug)]
pub struct Stream<L: Label> {
    inner: Arc<Inner>,
    label: PhantomData<L>,
}

#[derive(Debug)]
struct Inner {
    backend: Arc<dyn Backend>,
    handle: types::Stream,
    /// Where it was created here: what it was asked for with.
    priority: Option<i32>,
}

/// A stream that nobody has.
struct Unused {
    handle: types::Stream,
    priority: i32,
}

/// Streams created here are never destroyed: an allocator that served one waits for it by its handle for as long as
/// it caches memory freed on it, and a driver may crash on the handle of a stream that is gone. PyTorch's streams
/// come from pools, too. The oldest is first.
static UNUSED: Mutex<Vec<Unused>> = Mutex::new(Vec::new());

fn unused() -> MutexGuard<'static, Vec<Unused>> {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that was given up, if there is one that would do.
fn take_unused(backend: &dyn Backend, device: DeviceIndex, priority: i32) -> Option<types::Stream> {
    loop {
        let mut all = unused();
        let at = all.iter().position(|one| {
            let of = (one.handle.backend, one.handle.device, one.priority);
            of == (backend.id(), device, priority)
        })?;
        let handle = all.remove(at).handle;
        drop(all);
        // Given up in the middle of a capture, it would record its next user's work. It is left alone.
        match backend.capture().map(|capture| capture.status(handle)) {
            Err(_) | Ok(Ok(CaptureStatus::None)) => return Some(handle),
            Ok(status) => tracing::debug!(?handle, ?status, "a stream cannot be handed out again"),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(priority) = self.priority {
            unused().push(Unused { handle: self.handle, priority });
        }
    }
}

impl<L: Label> Stream<L> {
    pub(super) fn create(device: &Device<L>, priority: i32) -> Result<Self> {
        let backend = Arc::clone(&device.backend);
        let handle = match take_unused(&*backend, device.index(), priority) {
            Some(handle) => handle,
            None => backend.create_stream(device.index(), priority)?,
        };
        Ok(Self { inner: Arc::new(Inner { backend, handle, priority: Some(priority) }), label: PhantomData })
    }

    pub(super) fn borrowed(backend: Arc<dyn Backend>, handle: types::Stream) -> Self {
        Self { inner: Arc::new(Inner { backend, handle, priority: None }), label: PhantomData }
    }

    /// A stream that other code created and will destroy (`CUstream`, `hipStream_t` as a number).
    /// PyTorch: `getStreamFromExternal`.
    ///
    /// # Safety
    /// Rule 1: `raw` is a stream of this driver and of `device`. It lives as long as this value, its clones and the
    /// memory that was allocated for it or recorded as used by it. After that it lives until the allocator has been
    /// told ([`retire_stream`](super::CachingAllocator::retire_stream)) or is gone.
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
}

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
