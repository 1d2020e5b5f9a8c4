//! What a check holds, and what cleans up after itself.

use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::{Backend, HostFunction};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Holds a stream still while closed; opens when dropped.
#[expect(missing_debug_implementations, reason = "a function shows nothing")]
pub struct Gate(pub(super) Mutex<Option<HostFunction>>);

impl Gate {
    /// Lets the stream go on.
    pub fn open(&self) {
        if let Some(open) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            open();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// Device memory that is freed when dropped. Drop gates before it.
#[derive(Debug)]
pub struct Buffer {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) device: DeviceIndex,
    pub(super) ptr: DevicePtr,
    pub(super) bytes: u64,
    /// Not yet freed.
    pub(super) live: bool,
}

impl Buffer {
    /// Its address.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frees it now, with the backend's answer.
    ///
    /// # Errors
    /// What the backend says.
    pub fn free(mut self) -> backend_api::Result<()> {
        self.live = false;
        // SAFETY: rule 3: a live base, freed once because the drop is told; the check has ended its work.
        unsafe { self.backend.free(self.device, self.ptr) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.live {
            return;
        }
        clean_up(|| {
            // A check that ends early may have work queued: memory must not leave under it.
            let _ = self.backend.synchronize_device(self.device);
            // SAFETY: rule 3: a live base, freed once; the device has finished.
            let _ = unsafe { self.backend.free(self.device, self.ptr) };
        });
    }
}

/// Host memory that is freed when dropped: page-locked, or the process's own.
#[derive(Debug)]
pub struct HostBuffer {
    backend: Arc<dyn Backend>,
    ptr: DevicePtr,
    bytes: usize,
    /// What holds it, unless it is page-locked.
    own: Option<Vec<Line>>,
}

/// Memory of the process, aligned as page-locked memory is.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl HostBuffer {
    /// Page-locked memory that the caller was handed, zeroed.
    pub(super) fn pinned(backend: Arc<dyn Backend>, ptr: DevicePtr, bytes: usize) -> Self {
        let mut buffer = Self { backend, ptr, bytes, own: None };
        buffer.bytes_mut().fill(0);
        buffer
    }

    /// Memory of the process, zeroed.
    pub(super) fn of_the_process(backend: Arc<dyn Backend>, bytes: usize) -> Self {
        let mut lines = vec![Line([0; 64]); bytes.div_ceil(size_of::<Line>())];
        let ptr = DevicePtr(lines.as_mut_ptr().expose_provenance() as u64);
        Self { backend, ptr, bytes, own: Some(lines) }
    }

    /// Its address.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Its bytes; only while no queued work writes them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let address = std::ptr::with_exposed_provenance::<u8>(self.ptr.0 as usize);
        // SAFETY: I1, or lines of this many bytes: memory that lives as long as `self`; checks read it when the
        // work is done.
        unsafe { std::slice::from_raw_parts(address, self.bytes) }
    }

    /// Its bytes, for writing; only while no queued work uses them.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let address = std::ptr::with_exposed_provenance_mut::<u8>(self.ptr.0 as usize);
        // SAFETY: as above, and `&mut self` makes it the only view; checks write it when no work is queued.
        unsafe { std::slice::from_raw_parts_mut(address, self.bytes) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        clean_up(|| {
            // As for device memory; a copy on any device may use it.
            for device in 0..self.backend.device_count().unwrap_or(0) {
                let _ = self.backend.synchronize_device(DeviceIndex(device));
            }
            if self.own.is_none()
                && let Ok(pinned) = self.backend.pinned_host()
            {
                // SAFETY: rule 3: a live base, freed once; the devices have finished.
                let _ = unsafe { pinned.host_free(self.ptr) };
            }
        });
    }
}

/// A stream that is destroyed when dropped.
#[derive(Debug)]
pub struct LocalStream {
    pub(super) backend: Arc<dyn Backend>,
    /// The handle.
    pub handle: Stream,
    /// Not yet destroyed.
    pub(super) live: bool,
}

impl LocalStream {
    /// Destroys it now, with the backend's answer.
    ///
    /// # Errors
    /// What the backend says.
    pub fn destroy(mut self) -> backend_api::Result<()> {
        self.live = false;
        // SAFETY: rule 1: made by this backend, destroyed once because the drop is told.
        unsafe { self.backend.destroy_stream(self.handle) }
    }
}

impl Drop for LocalStream {
    fn drop(&mut self) {
        if self.live {
            clean_up(|| {
                // SAFETY: rule 1: made by this backend, destroyed once, here.
                let _ = unsafe { self.backend.destroy_stream(self.handle) };
            });
        }
    }
}

/// An event that is destroyed when dropped.
#[derive(Debug)]
pub struct LocalEvent {
    pub(super) backend: Arc<dyn Backend>,
    /// The handle.
    pub handle: Event,
    /// Not yet destroyed.
    pub(super) live: bool,
}

impl LocalEvent {
    /// Destroys it now, with the backend's answer.
    ///
    /// # Errors
    /// What the backend says.
    pub fn destroy(mut self) -> backend_api::Result<()> {
        self.live = false;
        // SAFETY: rule 1: made by this backend, destroyed once because the drop is told.
        unsafe { self.backend.destroy_event(self.handle) }
    }
}

impl Drop for LocalEvent {
    fn drop(&mut self) {
        if self.live {
            clean_up(|| {
                // SAFETY: rule 1: made by this backend, destroyed once, here.
                let _ = unsafe { self.backend.destroy_event(self.handle) };
            });
        }
    }
}

/// Does the work of a drop that calls the backend. A backend that panics there fails the check, like anywhere;
/// the next drops of the same unwinding, which may panic as well, must not end the process.
pub(crate) fn clean_up(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work))
        && !std::thread::panicking()
    {
        resume_unwind(panic);
    }
}
