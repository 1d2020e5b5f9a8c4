//! Granule behind CubeCL's storage trait.

use crate::resource::{Bindings, Resource};
use cubecl_environment::backtrace::BackTrace;
use cubecl_runtime::server::IoError;
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use granule::AllocError;
use granule::labelled::{CachingAllocator, DeviceBuffer, Label, Stream};
use std::collections::HashMap;
use std::fmt;

/// Memory of a Granule allocator for one of CubeCL's streams: `L` is `granule::cuda::Cuda` or `granule::hip::Hip`, and `R`
/// what kernels are given.
///
/// One that is dropped gives all its memory back, in the stream's order.
pub struct Storage<L: Label, R = Resource> {
    granule: CachingAllocator<L>,
    stream: Stream<L>,
    pages: HashMap<StorageId, DeviceBuffer<L>>,
    /// The bytes of `pages`.
    held: u64,
    bindings: Bindings,
    resource: fn(Resource) -> R,
}

impl<L: Label, R> fmt::Debug for Storage<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Storage");
        all.field("stream", &self.stream.handle())
            .field("pages", &self.pages.len())
            .field("held", &self.held);
        all.finish_non_exhaustive()
    }
}

impl<L: Label> Storage<L> {
    /// Memory of `granule` for work of `stream`. CubeCL's streams are named by
    /// [`Stream::from_external`](granule::labelled::Stream::from_external). Does not block.
    #[must_use]
    pub fn new(granule: &CachingAllocator<L>, stream: &Stream<L>) -> Self {
        Self::with_resource(granule, stream, |resource| resource)
    }
}

impl<L: Label, R> Storage<L, R> {
    /// How addresses of pages are aligned, in bytes: as CubeCL's CUDA runtime wants it.
    pub const ALIGNMENT: usize = 512;
    /// How many buffers a kernel may have (`CUDA_MAX_BINDINGS`, `AMD_MAX_BINDINGS`).
    pub const BINDINGS: usize = 1024;

    /// The same for a runtime that has a type of its own for resources: `resource` makes one of it.
    #[must_use]
    pub fn with_resource(
        granule: &CachingAllocator<L>,
        stream: &Stream<L>,
        resource: fn(Resource) -> R,
    ) -> Self {
        Self {
            granule: granule.clone(),
            stream: stream.clone(),
            pages: HashMap::new(),
            held: 0,
            bindings: Bindings::new(Self::BINDINGS),
            resource,
        }
    }

    /// Gives all memory back and says that the stream ends: its handle is never named again, and the next new stream takes
    /// over what the cache has of it. Call it before the stream is destroyed. Rarely **blocks**.
    ///
    /// # Errors
    /// Those of [`CachingAllocator::retire_stream`]; the stream is not retired then.
    ///
    /// # Safety
    /// That of [`CachingAllocator::retire_stream`]: nothing gives the stream work any more.
    pub unsafe fn retire(self) -> granule::error::Result<()> {
        let Self { granule, stream, pages, .. } = self;
        drop(pages);
        // SAFETY: the caller's promise; no buffer of this storage is left.
        unsafe { granule.retire_stream(&stream) }
    }
}

impl<L: Label, R: Send> ComputeStorage for Storage<L, R> {
    type Resource = R;

    fn alignment(&self) -> usize {
        Self::ALIGNMENT
    }

    /// Where a part of a page is. Does not block.
    fn get(&mut self, handle: &StorageHandle) -> Result<R, IoError> {
        let page = self.pages.get(&handle.id).ok_or_else(|| not_found(handle, "is not allocated"))?;
        let (offset, bytes) = (handle.offset(), handle.size());
        if offset.checked_add(bytes).is_none_or(|end| end > page.len()) {
            return Err(not_found(handle, "is shorter than that"));
        }
        let address = page.ptr().0 + offset;
        let binding = self.bindings.place(address);
        Ok((self.resource)(Resource { address, binding, bytes }))
    }

    /// A page, for work of the storage's stream. Blocks only where the cache has no fit.
    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let page = self.granule.allocate(size, &self.stream).map_err(|error| refused(size, &error))?;
        let id = StorageId::new();
        self.pages.insert(id, page);
        self.held += size;
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
    }

    /// Gives a page back, in the order of the storage's stream: that stream's next request may have it. Does not block.
    fn dealloc(&mut self, id: StorageId) {
        if let Some(page) = self.pages.remove(&id) {
            self.held -= page.len();
        }
    }

    /// Nothing: what was given back is so already.
    fn flush(&mut self) {}

    fn bytes_allocated(&self) -> u64 {
        self.held
    }
}

fn not_found(handle: &StorageHandle, why: &str) -> IoError {
    let StorageHandle { id, utilization } = handle;
    let reason = format!("{} bytes at {} of {id}, which {why}", utilization.size, utilization.offset);
    IoError::StorageHandleNotFound { reason: reason.into(), backtrace: BackTrace::capture() }
}

/// CubeCL gives back what it can and asks again after `OutOfMemory`, and after nothing else.
fn refused(size: u64, error: &AllocError) -> IoError {
    let backtrace = BackTrace::capture();
    match error {
        AllocError::MoreThanAnExabyte { .. } => IoError::BufferTooBig { size, backtrace },
        _ if error.is_out_of_memory() => {
            tracing::warn!(%error, size, "CubeCL gets no page");
            IoError::OutOfMemory { size, backtrace }
        }
        _ => IoError::Unknown { description: error.to_string(), backtrace },
    }
}
