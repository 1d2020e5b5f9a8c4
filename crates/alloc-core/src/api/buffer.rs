//! An owning piece of device memory.

use crate::api::allocator::CachingAllocator;
use crate::error::{AllocError, Result, log_end};
use crate::features::share::SharedBlock;
use crate::sync::Arc;
use crate::types::{DevicePtr, Stream};

/// Device memory that is freed, in the order of its stream's work, when this is dropped.
///
/// Nobody else frees it: [`CachingAllocator::free`] refuses its address, and so does every other call that would take the
/// memory away, but for those that are `unsafe`.
#[derive(Debug)]
pub struct DeviceBuffer {
    allocator: Arc<CachingAllocator>,
    ptr: DevicePtr,
    bytes: u64,
    stream: Stream,
}

impl DeviceBuffer {
    /// Memory of `bytes` for work of `stream`. Blocks as [`CachingAllocator::malloc`] does.
    ///
    /// # Errors
    /// Those of [`CachingAllocator::malloc`].
    pub fn new(allocator: &Arc<CachingAllocator>, bytes: u64, stream: Stream) -> Result<Self> {
        loop {
            let ptr = allocator.malloc(bytes, stream)?;
            match allocator.set_owned(ptr, Some(bytes)) {
                Ok(()) => return Ok(Self { allocator: Arc::clone(allocator), ptr, bytes, stream }),
                // Another thread freed it meanwhile, by an address that was not its own any more; a smaller block may be there.
                Err(AllocError::InvalidPointer(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Its address; null for 0 bytes.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Its length in bytes, as requested.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// True for a buffer of 0 bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The stream it belongs to.
    #[must_use]
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Says that work of `stream` uses it, too: it is not reused before that work is done.
    ///
    /// # Errors
    /// Those of [`CachingAllocator::record_stream`].
    pub fn record_stream(&self, stream: Stream) -> Result<()> {
        self.allocator.record_stream(self.ptr, stream)
    }

    /// Lets other processes open it; see [`Sharing::share`](crate::allocator::Sharing::share).
    ///
    /// # Errors
    /// Those of [`Sharing::share`](crate::allocator::Sharing::share).
    pub fn share(&self) -> Result<SharedBlock> {
        self.allocator.sharing().share_held_by(self.ptr, true)
    }

    /// Gives the memory up without freeing it; free the address through the allocator.
    #[must_use]
    pub fn into_raw(self) -> DevicePtr {
        log_end(self.allocator.set_owned(self.ptr, None), "a buffer's memory stays with it");
        let mut this = std::mem::ManuallyDrop::new(self);
        let allocator = std::mem::replace(&mut this.ptr, DevicePtr::NULL);
        // SAFETY: `this` is never dropped or used again, so the allocator's reference is taken out once.
        drop(unsafe { std::ptr::read(&raw const this.allocator) });
        allocator
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let given_up = self.allocator.set_owned(self.ptr, None);
        let freed = given_up.and_then(|()| self.allocator.free(self.ptr));
        log_end(freed, "a buffer's memory could not be given back");
    }
}
