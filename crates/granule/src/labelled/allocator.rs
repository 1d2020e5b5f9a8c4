//! The allocator and its memory.

use super::{Label, PinnedBuffer, Stream};
use alloc_core::allocator::{History, Hooks, Statistics};
use alloc_core::config::Settings;
use alloc_core::error::Result;
use alloc_core::snapshot::Snapshot;
use alloc_core::stats::DeviceStats;
use alloc_core::types::DeviceIndex;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Deref;
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
    /// What the backend says when it starts; [`AllocError::Settings`](alloc_core::AllocError::Settings) for settings that cannot be honoured.
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

    /// Memory of `len` values for work of `stream`. Blocks only where the cache has no fit.
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::malloc`].
    pub fn allocate<T: Pod>(&self, len: usize, stream: &Stream<L>) -> Result<DeviceBuffer<L, T>> {
        let memory = alloc_core::DeviceBuffer::new(&self.inner, len, stream.handle())?;
        Ok(DeviceBuffer { memory, stream: stream.clone() })
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
    /// [`AllocError::InvalidDevice`](alloc_core::AllocError::InvalidDevice).
    pub fn stats(&self, device: DeviceIndex) -> Result<DeviceStats> {
        self.inner.stats(device)
    }

    /// Limits the memory held on a device to a share of the device's memory; 1 lifts the limit.
    ///
    /// # Errors
    /// [`AllocError::InvalidFraction`](alloc_core::AllocError::InvalidFraction) outside 0 to 1.
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

/// Device memory for values of one type, freed in the order of its stream's work when this is dropped. What only looks at
/// it is [`alloc_core::DeviceBuffer`]'s.
#[derive(Debug)]
pub struct DeviceBuffer<L: Label, T> {
    // Freed before its stream may go.
    memory: alloc_core::DeviceBuffer<T>,
    stream: Stream<L>,
}

// No `DerefMut`: swapped, the memory could outlive its stream.
impl<L: Label, T> Deref for DeviceBuffer<L, T> {
    type Target = alloc_core::DeviceBuffer<T>;

    fn deref(&self) -> &Self::Target {
        &self.memory
    }
}

impl<L: Label, T: Pod> DeviceBuffer<L, T> {
    /// The stream it belongs to.
    #[must_use]
    pub fn stream(&self) -> &Stream<L> {
        &self.stream
    }

    /// Copies all of `from` to its beginning: [`alloc_core::DeviceBuffer::copy_from`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there. [`Stream::wait`] orders streams.
    pub unsafe fn copy_from(&mut self, from: &Self, stream: &Stream<L>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.memory.copy_from(&from.memory, stream.handle()) }
    }

    /// Says that work of `stream` uses it, too: it is not reused before that work is done.
    ///
    /// # Errors
    /// Those of [`alloc_core::CachingAllocator::record_stream`].
    pub fn record_stream(&self, stream: &Stream<L>) -> Result<()> {
        self.memory.record_stream(stream.handle())
    }

    /// Sets every byte, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill_bytes(&mut self, value: u8) -> Result<()> {
        self.memory.fill_bytes(value)
    }

    /// Copies `values` to its beginning, in the order of its stream's work, and waits. **Blocks.**
    ///
    /// # Errors
    /// Those of [`alloc_core::DeviceBuffer::write`].
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        self.memory.write(values)
    }

    /// Copies all of `from` to its beginning, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Safety
    /// Nobody writes `from` before the stream has passed the copy, nor while a graph that recorded it runs.
    pub unsafe fn write_async(&mut self, from: &PinnedBuffer<L>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.memory.write_async(&from.memory) }
    }

    /// Copies its beginning to all of `to`, in the order of its stream's work. Does not block.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Safety
    /// Nobody reads or writes `to` before the stream has passed the copy, nor while a graph that recorded it runs.
    pub unsafe fn read_async(&self, to: &mut PinnedBuffer<L>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.memory.read_async(&mut to.memory) }
    }
}
