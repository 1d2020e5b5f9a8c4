//! Pinned host memory.

use super::{Label, Stream};
use alloc_core::config::Settings;
use alloc_core::error::Result;
use alloc_core::host::{HostOptions, HostStats};
use alloc_core::types::DevicePtr;
use std::marker::PhantomData;
use std::sync::Arc;

/// The allocator of pinned host memory over a label's backend, for all its devices; see [`alloc_core::host`].
#[derive(Clone, Debug)]
pub struct HostAllocator<L: Label> {
    inner: Arc<alloc_core::HostAllocator>,
    label: PhantomData<L>,
}

impl<L: Label> HostAllocator<L> {
    /// An allocator with the settings' `pinned_...` options. Starts the backend at the first use, which may block.
    ///
    /// # Errors
    /// What the backend says when it starts; those of [`alloc_core::HostAllocator::new`].
    pub fn new(settings: &Settings, options: HostOptions) -> Result<Self> {
        let inner = alloc_core::HostAllocator::new(L::backend()?, settings, options)?;
        Ok(Self { inner: Arc::new(inner), label: PhantomData })
    }

    /// Memory of `bytes`, all zero. Blocks where the cache has no fit.
    ///
    /// # Errors
    /// Those of [`alloc_core::HostAllocator::allocate`].
    pub fn zeroed(&self, bytes: u64) -> Result<PinnedBuffer<L>> {
        let memory = alloc_core::PinnedBuffer::zeroed(&self.inner, bytes)?;
        Ok(PinnedBuffer { memory, label: PhantomData })
    }

    /// A copy of `bytes`. Blocks where the cache has no fit.
    ///
    /// # Errors
    /// Those of [`alloc_core::HostAllocator::allocate`].
    pub fn copied(&self, bytes: &[u8]) -> Result<PinnedBuffer<L>> {
        let memory = alloc_core::PinnedBuffer::copied(&self.inner, bytes)?;
        Ok(PinnedBuffer { memory, label: PhantomData })
    }

    /// Gives cached blocks back to the driver. **Blocks.**
    ///
    /// # Errors
    /// Those of [`alloc_core::HostAllocator::empty_cache`].
    pub fn empty_cache(&self) -> Result<()> {
        self.inner.empty_cache()
    }

    /// All figures, of one moment.
    #[must_use]
    pub fn stats(&self) -> HostStats {
        self.inner.stats()
    }

    /// The engine itself, for calls that have no labelled form: pools, history, raw blocks. Its handles are plain
    /// handles ([`Stream::handle`]).
    #[must_use]
    pub fn engine(&self) -> &Arc<alloc_core::HostAllocator> {
        &self.inner
    }
}

/// Pinned host memory that is given back when this is dropped; see [`alloc_core::PinnedBuffer`].
#[derive(Debug)]
pub struct PinnedBuffer<L: Label> {
    pub(super) memory: alloc_core::PinnedBuffer,
    label: PhantomData<L>,
}

impl<L: Label> PinnedBuffer<L> {
    /// Its address, for the host and for devices; null for 0 bytes.
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

    /// Says that work of `stream` uses it: it is not reused before that work is done.
    ///
    /// # Errors
    /// Those of [`alloc_core::HostAllocator::record_event`].
    pub fn record_stream(&self, stream: &Stream<L>) -> Result<()> {
        self.memory.record_stream(stream.handle())
    }

    /// Its bytes. No queued work writes them meanwhile.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.memory.as_slice()
    }

    /// Its bytes, to be written. No queued work uses them meanwhile.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory.as_mut_slice()
    }
}
