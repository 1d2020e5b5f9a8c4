//! An owning piece of pinned host memory.

use super::{HostAllocator, HostBlock};
use crate::error::{Result, log_end};
use crate::sync::Arc;
use crate::types::{DevicePtr, Stream};

/// Pinned host memory that is given back when this is dropped. It is reused after the work of the streams that were
/// [recorded](Self::record_stream).
///
/// It is ordinary memory to the program, which reads and writes it as a slice. Whoever queues device work on its
/// address (`copy_async`, which is unsafe) sees to it that no slice of it is used until that work is done.
#[derive(Debug)]
pub struct PinnedBuffer {
    allocator: Arc<HostAllocator>,
    block: HostBlock,
}

impl PinnedBuffer {
    /// Memory of `bytes`, all zero. Blocks as [`HostAllocator::allocate`] does.
    ///
    /// # Errors
    /// Those of [`HostAllocator::allocate`].
    pub fn zeroed(allocator: &Arc<HostAllocator>, bytes: u64) -> Result<Self> {
        let buffer = Self::take(allocator, bytes)?;
        // SAFETY: the whole of a block that nobody else has.
        unsafe { buffer.address().write_bytes(0, buffer.length()) };
        Ok(buffer)
    }

    /// A copy of `bytes`. Blocks as [`HostAllocator::allocate`] does.
    ///
    /// # Errors
    /// Those of [`HostAllocator::allocate`].
    pub fn copied(allocator: &Arc<HostAllocator>, bytes: &[u8]) -> Result<Self> {
        let buffer = Self::take(allocator, bytes.len() as u64)?;
        // SAFETY: the block has room for all, and nobody else has it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.address(), bytes.len()) };
        Ok(buffer)
    }

    /// Memory of `bytes` with whatever its last owner left there: for those who write all of it anyway.
    ///
    /// # Safety
    /// Nobody ever wrote uninitialised bytes (the padding of structures, say) to memory of this allocator.
    ///
    /// # Errors
    /// Those of [`HostAllocator::allocate`].
    pub unsafe fn stale(allocator: &Arc<HostAllocator>, bytes: u64) -> Result<Self> {
        Self::take(allocator, bytes)
    }

    fn take(allocator: &Arc<HostAllocator>, bytes: u64) -> Result<Self> {
        let block = allocator.allocate(bytes)?;
        allocator.set_buffered(block.id, true)?;
        Ok(Self { allocator: Arc::clone(allocator), block })
    }

    /// Its address, for the host and for devices; null for 0 bytes.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.block.ptr
    }

    /// Its length in bytes, as requested.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.block.bytes
    }

    /// True for a buffer of 0 bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.block.bytes == 0
    }

    /// The block, as its allocator knows it, which refuses to free it while the buffer lives.
    #[must_use]
    pub fn block(&self) -> HostBlock {
        self.block
    }

    /// Says that work of `stream` uses it: it is not reused before that work is done.
    ///
    /// # Errors
    /// Those of [`HostAllocator::record_event`].
    pub fn record_stream(&self, stream: Stream) -> Result<()> {
        self.allocator.record_event(self.block.ptr, self.block.id, stream).map(drop)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: initialised by the constructors, this buffer's alone while it lives, and not written meanwhile: `self` is
        // borrowed, and queued work keeps away as the type's documentation says.
        unsafe { std::slice::from_raw_parts(self.address(), self.length()) }
    }

    /// Its bytes, to be written.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_slice`, and `self` is borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.length()) }
    }

    /// Gives the memory up without freeing it; free the block through the allocator.
    #[must_use]
    pub fn into_raw(self) -> HostBlock {
        log_end(self.allocator.set_buffered(self.block.id, false), "a pinned buffer's memory stays with it");
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the allocator's reference is taken out once.
        drop(unsafe { std::ptr::read(&raw const this.allocator) });
        this.block
    }

    fn length(&self) -> usize {
        // It is memory of this machine, so its length is a `usize`.
        self.block.bytes as usize
    }

    /// Never null, also for 0 bytes.
    fn address(&self) -> *mut u8 {
        if self.is_empty() {
            return std::ptr::NonNull::dangling().as_ptr();
        }
        std::ptr::with_exposed_provenance_mut(self.block.ptr.0 as usize)
    }
}

impl AsRef<[u8]> for PinnedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsMut<[u8]> for PinnedBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let Self { allocator, block } = self;
        let freed = allocator.set_buffered(block.id, false).and_then(|()| allocator.free(block.id));
        log_end(freed, "a pinned buffer's memory could not be given back");
    }
}
