//! The allocator and its memory.

use super::{Label, PinnedBuffer, Stream};
use alloc_core::allocator::{History, Hooks, Statistics};
use alloc_core::backend::CopyKind;
use alloc_core::config::Settings;
use alloc_core::error::{AllocError, Result};
use alloc_core::share::SharedBlock;
use alloc_core::snapshot::Snapshot;
use alloc_core::stats::DeviceStats;
use alloc_core::types::{DeviceIndex, DevicePtr};
use std::marker::PhantomData;
use std::sync::Arc;

/// The caching allocator over a label's backend; its statistics, snapshots and settings are those of
/// [`alloc_core::CachingAllocator`].
#[derive(Clone, Debug)]
pub struct CachingAllocator<L: Label> {
    inner: Arc<alloc_core::CachingAllocator>,
    label: PhantomData<L>,
}

impl<L: Label> CachingAllocator<L> {
    /// An allocator for every device. Starts the backend at the first use, which may block.
    ///
    /// # Errors
    /// What the backend says when it starts; [`AllocError::Settings`] for settings that cannot be honoured.
    pub fn new(settings: Settings) -> Result<Self> {
        let inner = alloc_core::CachingAllocator::new(L::backend()?, settings)?;
        Ok(Self { inner: Arc::new(inner), label: PhantomData })
    }

    /// [`new`](Self::new) with the settings that the environment asks for: `PYTORCH_CUDA_ALLOC_CONF` and its like, then
    /// `GRANULE_CONF`.
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::from_env`], and what the backend says when it starts.
    pub fn from_env() -> Result<Self> {
        let inner = alloc_core::CachingAllocator::from_env(L::backend()?)?;
        Ok(Self { inner: Arc::new(inner), label: PhantomData })
    }

    /// Memory of `bytes` for work of `stream`. Blocks only where the cache has no fit.
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::malloc`].
    pub fn allocate(&self, bytes: u64, stream: &Stream<L>) -> Result<DeviceBuffer<L>> {
        let memory = alloc_core::DeviceBuffer::new(&self.inner, bytes, stream.handle())?;
        Ok(DeviceBuffer { memory, stream: stream.clone() })
    }
}

impl<L: Label> CachingAllocator<L> {
    /// Copies all of `from` to the beginning of `to`, in the order of `stream`'s work, also from one device to another. Does not
    /// block: neither buffer's memory is reused before the copy is done.
    ///
    /// # Errors
    /// Those of [`Peers::copy_async`](alloc_core::allocator::Peers::copy_async); `InvalidValue` where `from` is longer than `to`.
    ///
    /// # Safety
    /// Both buffers are this allocator's. `stream` may be another stream than a buffer's own. Then the copy comes after
    /// the work that the buffer's stream was given for that buffer. And later work of the buffer's stream comes after
    /// the copy ([`Stream::wait`]).
    pub unsafe fn copy(
        &self,
        to: &mut DeviceBuffer<L>,
        from: &DeviceBuffer<L>,
        stream: &Stream<L>,
    ) -> Result<()> {
        to.holds(from.len())?;
        to.record_stream(stream)?;
        from.record_stream(stream)?;
        let place = |buffer: &DeviceBuffer<L>| (buffer.stream.handle().device, buffer.ptr());
        // SAFETY: rule 2: both are live, as long as this, and stay until the stream has passed the copy; the rest is the caller's
        // promise.
        unsafe { self.inner.peers().copy_async(place(to), place(from), from.len(), stream.handle()) }
    }

    /// The engine itself, for calls that have no labelled form: checkpoints, pools by id, sleep, sharing. Its handles
    /// are plain handles ([`Stream::handle`]). Its safe calls never take away the memory of a live [`DeviceBuffer`].
    #[must_use]
    pub fn engine(&self) -> &Arc<alloc_core::CachingAllocator> {
        &self.inner
    }
}

/// As [`alloc_core::CachingAllocator`] does it.
impl<L: Label> CachingAllocator<L> {
    /// Gives all cached memory of all devices back. **Blocks.**
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::empty_cache`].
    pub fn empty_cache(&self) -> Result<()> {
        self.inner.empty_cache()
    }

    /// Says that a stream of other code is about to be destroyed. Its handle is never named again, and the next new
    /// stream takes over the memory it leaves. Rarely **blocks**.
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::retire_stream`].
    ///
    /// # Safety
    /// As there: the stream is given no work from here on, not by a [`DeviceBuffer`] of it either.
    ///
    /// ```
    /// # use granule::labelled::{CachingAllocator, Label, Stream};
    /// fn ends<L: Label>(allocator: &CachingAllocator<L>, stream: &Stream<L>) {
    ///     // SAFETY: no buffer of the stream is left, and nothing queues work on it any more.
    ///     let _ = unsafe { allocator.retire_stream(stream) };
    /// }
    /// ```
    ///
    /// ```compile_fail,E0133
    /// # use granule::labelled::{CachingAllocator, Label, Stream};
    /// fn ends<L: Label>(allocator: &CachingAllocator<L>, stream: &Stream<L>) {
    ///     let _ = allocator.retire_stream(stream);
    /// }
    /// ```
    pub unsafe fn retire_stream(&self, stream: &Stream<L>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.retire_stream(stream.handle()) }
    }

    /// Waits for all pending frees of a device; gives nothing back. **Blocks.**
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::synchronise`].
    pub fn synchronise(&self, device: DeviceIndex) -> Result<()> {
        self.inner.synchronise(device)
    }

    /// Statistics of a device: exact, and of one moment.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn stats(&self, device: DeviceIndex) -> Result<DeviceStats> {
        self.inner.stats(device)
    }

    /// Limits the memory held on a device to a share of the device's memory; 1 lifts the limit.
    ///
    /// # Errors
    /// [`AllocError::InvalidFraction`] outside 0 to 1.
    pub fn set_memory_fraction(&self, fraction: f64, device: DeviceIndex) -> Result<()> {
        self.inner.set_memory_fraction(fraction, device)
    }

    /// Replaces the settings of all devices.
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::configure`].
    pub fn configure(&self, settings: Settings) -> Result<()> {
        self.inner.configure(settings)
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.inner.settings()
    }

    /// Held memory and past operations, for PyTorch's tools. Without `traces` the history is left out.
    #[must_use]
    pub fn snapshot(&self, traces: bool) -> Snapshot {
        self.inner.snapshot(traces)
    }

    /// What is recorded for snapshots.
    #[must_use]
    pub fn history(&self) -> History<'_> {
        self.inner.history()
    }

    /// Peaks, sums, and how much memory could be had.
    #[must_use]
    pub fn statistics(&self) -> Statistics<'_> {
        self.inner.statistics()
    }

    /// The program's code that is called when something happens.
    #[must_use]
    pub fn hooks(&self) -> Hooks<'_> {
        self.inner.hooks()
    }
}

/// Device memory that is freed, in the order of its stream's work, when this is dropped.
#[derive(Debug)]
pub struct DeviceBuffer<L: Label> {
    // Freed before its stream may go.
    memory: alloc_core::DeviceBuffer,
    stream: Stream<L>,
}

impl<L: Label> DeviceBuffer<L> {
    /// Its address; null for 0 bytes.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.memory.ptr()
    }

    /// Its length in bytes, as requested.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// True for a buffer of 0 bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The stream it belongs to.
    #[must_use]
    pub fn stream(&self) -> &Stream<L> {
        &self.stream
    }

    /// Says that work of `stream` uses it, too: it is not reused before that work is done.
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::record_stream`].
    pub fn record_stream(&self, stream: &Stream<L>) -> Result<()> {
        self.memory.record_stream(stream.handle())
    }

    /// Lets other processes open it; see [`Sharing::share`](alloc_core::allocator::Sharing::share).
    ///
    /// # Errors
    /// Those of [`Sharing::share`](alloc_core::allocator::Sharing::share).
    pub fn share(&self) -> Result<SharedBlock> {
        self.memory.share()
    }

    /// Sets every byte, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill(&mut self, value: u8) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let (ptr, bytes, stream) = (self.ptr(), self.len(), self.stream.handle());
        // SAFETY: rule 2: the whole of this live buffer, in the order of its own stream, in which it is freed too.
        unsafe { self.stream.backend().memset_async(ptr, value, bytes, stream)? };
        Ok(())
    }

    /// Copies `bytes` to its beginning, in the order of its stream's work, and waits. **Blocks.**
    ///
    /// # Errors
    /// What the driver says; `InvalidValue` where `bytes` are more than it holds.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.holds(bytes.len() as u64)?;
        self.copy(bytes.to_vec(), CopyKind::HostToDevice).map(drop)
    }

    /// Copies all of `from` to its beginning, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// What the driver says; `InvalidValue` where `from` is longer.
    ///
    /// # Safety
    /// Nobody writes `from` before the stream has passed the copy, nor while a graph that recorded it runs.
    pub unsafe fn write_async(&mut self, from: &PinnedBuffer<L>) -> Result<()> {
        self.holds(from.len())?;
        from.record_stream(&self.stream)?;
        // SAFETY: rule 2: this buffer is freed in its stream's order, pinned memory is kept for the stream; the rest is the
        // caller's promise.
        unsafe { self.queue(self.ptr(), from.ptr(), from.len(), CopyKind::HostToDevice) }
    }

    /// Copies its beginning to all of `to`, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// What the driver says; `InvalidValue` where `to` is longer.
    ///
    /// # Safety
    /// Nobody reads or writes `to` before the stream has passed the copy, nor while a graph that recorded it runs.
    pub unsafe fn read_async(&self, to: &mut PinnedBuffer<L>) -> Result<()> {
        self.holds(to.len())?;
        to.record_stream(&self.stream)?;
        // SAFETY: as above.
        unsafe { self.queue(to.ptr(), self.ptr(), to.len(), CopyKind::DeviceToHost) }
    }

    /// # Safety
    /// That of `Backend::copy_async`.
    unsafe fn queue(&self, to: DevicePtr, from: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        if bytes > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.stream.backend().copy_async(to, from, bytes, kind, self.stream.handle())? };
        }
        Ok(())
    }

    /// Copies its beginning to `bytes`, in the order of its stream's work, and waits. **Blocks.**
    ///
    /// # Errors
    /// What the driver says, and `bytes` are unchanged; `InvalidValue` where they are more than it holds.
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        self.holds(bytes.len() as u64)?;
        let read = self.copy(vec![0; bytes.len()], CopyKind::DeviceToHost)?;
        bytes.copy_from_slice(&read);
        Ok(())
    }

    fn holds(&self, bytes: u64) -> Result<()> {
        use alloc_core::backend::{BackendError, ErrorKind};
        if bytes <= self.len() {
            return Ok(());
        }
        let detail = format!("{bytes} bytes do not fit into a buffer of {}", self.len());
        let device = self.stream.handle().device;
        Err(AllocError::Backend(BackendError::new(
            ErrorKind::InvalidValue,
            0,
            "DeviceBuffer",
            device,
            detail,
        )))
    }

    /// Copies between the beginning and `host`, which is no longer than the buffer. It owns the host's bytes, for
    /// where the wait fails nobody knows when the driver is done with them: they are leaked.
    fn copy(&self, host: Vec<u8>, kind: CopyKind) -> Result<Vec<u8>> {
        let bytes = host.len() as u64;
        if bytes == 0 {
            return Ok(host);
        }
        let mut host = std::mem::ManuallyDrop::new(host);
        let at = DevicePtr(host.as_mut_ptr().expose_provenance() as u64);
        let (to, from) = if kind == CopyKind::HostToDevice { (self.ptr(), at) } else { (at, self.ptr()) };
        let (backend, stream) = (self.stream.backend(), self.stream.handle());
        // SAFETY: rule 2: the buffer is live and at least as long; the host's bytes stay until the stream has
        // passed the copy: it is waited for, or they stay for good.
        let queued = unsafe { backend.copy_async(to, from, bytes, kind, stream) };
        // Also after a failure: what it left behind may still run.
        backend.synchronize_stream(stream)?;
        let host = std::mem::ManuallyDrop::into_inner(host);
        queued?;
        Ok(host)
    }
}
