//! The allocator and its memory.

use super::{Label, Stream};
use alloc_core::backend::CopyKind;
use alloc_core::config::Settings;
use alloc_core::error::{AllocError, Result};
use alloc_core::types::DevicePtr;
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
    /// What the backend says when it starts; [`AllocError::Settings`] for settings that cannot be honoured.
    pub fn new(settings: Settings) -> Result<Self> {
        let inner = alloc_core::CachingAllocator::new(L::backend()?, settings)?;
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

impl<L: Label> Deref for CachingAllocator<L> {
    type Target = Arc<alloc_core::CachingAllocator>;

    fn deref(&self) -> &Self::Target {
        &self.inner
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
        let host = DevicePtr(bytes.as_ptr().expose_provenance() as u64);
        self.copy(self.ptr(), host, bytes.len() as u64, CopyKind::HostToDevice)
    }

    /// Copies its beginning to `bytes`, in the order of its stream's work, and waits. **Blocks.**
    ///
    /// # Errors
    /// What the driver says; `InvalidValue` where `bytes` are more than it holds.
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        let host = DevicePtr(bytes.as_mut_ptr().expose_provenance() as u64);
        self.copy(host, self.ptr(), bytes.len() as u64, CopyKind::DeviceToHost)
    }

    fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        use alloc_core::backend::{BackendError, ErrorKind};
        if bytes > self.len() {
            let detail = format!("{bytes} bytes do not fit into a buffer of {}", self.len());
            let device = self.stream.handle().device;
            return Err(AllocError::Backend(BackendError::new(
                ErrorKind::InvalidValue,
                0,
                "DeviceBuffer",
                device,
                detail,
            )));
        }
        if bytes == 0 {
            return Ok(());
        }
        let (backend, stream) = (self.stream.backend(), self.stream.handle());
        // SAFETY: rule 2: the device range was checked above and is live; the host range is borrowed until the
        // stream has passed the copy, which is waited for below.
        let queued = unsafe { backend.copy_async(to, from, bytes, kind, stream) };
        // Also after a failure: nothing may use the host's bytes when this returns.
        let waited = backend.synchronize_stream(stream);
        queued?;
        Ok(waited?)
    }
}
