//! Memory that libraries register: windows of NCCL and symmetric memory, network cards.

use super::mapping::Undo;
use crate::backend::{Backend, BackendError, Granularity, HandleType, ShareableHandle};
use crate::error::{AllocError, Result};
use crate::memory::source::SegmentSource;
use crate::process::attention::ProcessState;
use crate::process::state;
use crate::sync::{Arc, Mutex, Rank};
use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle, Stream};
use crate::watch::pointer::{BadPointer, Problem};
use std::collections::BTreeMap;

/// Wishes for memory that is to be registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredOptions {
    /// Devices of this process that reach the memory, besides its own.
    pub reached_by: Vec<DeviceIndex>,
    /// Bytes of one physical handle, at least; rounded up to the driver's unit. Libraries register whole handles, so a
    /// larger one is registered less often.
    pub chunk: u64,
}

/// One physical handle, with its free bytes.
#[derive(Debug)]
struct Extent {
    bytes: u64,
    handle: PhysicalHandle,
    mapping: Undo,
    /// Free ranges: first byte to length.
    free: BTreeMap<u64, u64>,
    windows: usize,
}

impl Extent {
    fn is_unused(&self) -> bool {
        self.windows == 0 && self.free.first_key_value().is_some_and(|(_, bytes)| *bytes == self.bytes)
    }

    /// Takes the lowest range that is long enough.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (at, length) =
            self.free.iter().find(|(_, length)| **length >= bytes).map(|(at, length)| (*at, *length))?;
        self.free.remove(&at);
        if length > bytes {
            self.free.insert(at + bytes, length - bytes);
        }
        Some(at)
    }

    /// Gives a range back, as one with its free neighbours.
    fn give(&mut self, mut at: u64, mut bytes: u64) {
        if let Some(after) = self.free.remove(&(at + bytes)) {
            bytes += after;
        }
        let before = self.free.range(..at).next_back().map(|(start, length)| (*start, *length));
        if let Some((start, length)) = before.filter(|(start, length)| start + length == at) {
            (at, bytes) = (start, bytes + length);
        }
        self.free.insert(at, bytes);
    }
}

#[derive(Debug, Default)]
struct Extents {
    /// Chunks by first address.
    in_use: BTreeMap<u64, Extent>,
    /// Mappings that the driver did not take back; tried again.
    leftovers: Vec<Undo>,
}

impl Extents {
    fn holding(&mut self, ptr: DevicePtr) -> Option<(u64, &mut Extent)> {
        let (base, chunk) = self.in_use.range_mut(..=ptr.0).next_back()?;
        (ptr.0 < base + chunk.bytes).then_some((*base, chunk))
    }

    /// Takes an unused chunk out.
    fn take_unused(&mut self, base: u64) -> Option<Undo> {
        self.in_use.get(&base).filter(|chunk| chunk.is_unused())?;
        self.in_use.remove(&base).map(|chunk| chunk.mapping)
    }
}

/// Memory of a device for a pool whose segments libraries register, as `ncclMemAlloc` makes it: physical handles that
/// others can be given. Made by [`Pools::registered`](crate::allocator::Pools::registered), and given to a pool as its
/// [source](crate::pool::PoolOptions::source). Several segments share a handle, so a large one wastes little.
///
/// A registered range must not leave while the library knows it. A [`Window`] sees to that.
///
/// ```
/// use alloc_core::pool::{MemoryPool, PoolOptions};
/// use alloc_core::share::{RegisteredOptions, Window};
/// use alloc_core::types::{DeviceIndex, DevicePtr};
/// use alloc_core::{AllocError, CachingAllocator};
/// use std::sync::Arc;
///
/// fn pool_for_libraries(allocator: &Arc<CachingAllocator>) -> Result<MemoryPool, AllocError> {
///     let memory = allocator.pools().registered(DeviceIndex(0), &RegisteredOptions::default())?;
///     let options = PoolOptions { source: Some(memory), no_split: true, ..PoolOptions::default() };
///     MemoryPool::new(allocator, DeviceIndex(0), options)
/// }
/// ```
#[derive(Debug)]
pub struct RegisteredMemory {
    backend: Arc<dyn Backend>,
    /// Device of the memory, and those that reach it.
    devices: Vec<DeviceIndex>,
    /// Unit of the sizes and addresses of handles.
    unit: u64,
    chunk: u64,
    handle_type: HandleType,
    chunks: Mutex<Extents>,
}

impl RegisteredMemory {
    /// For a device whose memory others are given by handles of this type. Asks the driver.
    pub(crate) fn new(
        backend: &Arc<dyn Backend>,
        device: DeviceIndex,
        handle_type: HandleType,
        options: &RegisteredOptions,
    ) -> Result<Self> {
        let vm = backend.virtual_memory().map_err(BackendError::from)?;
        let unit = vm.granularity(device, Granularity::Recommended)?;
        let others = options.reached_by.iter().copied().filter(|other| *other != device);
        let devices = std::iter::once(device).chain(others).collect();
        let chunks = Mutex::new(Rank::Registry, Extents::default());
        let chunk = options.chunk.max(1).next_multiple_of(unit);
        Ok(Self { backend: Arc::clone(backend), devices, unit, chunk, handle_type, chunks })
    }

    /// Unit of the sizes and addresses of its handles, in bytes.
    #[must_use]
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Handle type by which other processes can be given its handles.
    #[must_use]
    pub fn handle_type(&self) -> HandleType {
        self.handle_type
    }

    /// Bytes taken from the device: those of pools, and the rest of their handles.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.chunks.lock().in_use.values().map(|chunk| chunk.bytes).sum()
    }

    /// Keeps the memory around a live block in place while the window lives: the pool may hand it out again, and does
    /// not give it back. Register [`Window::base`] and [`Window::bytes`], once for all blocks in it. Does not call the
    /// driver.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`](crate::AllocError::InvalidPointer) where `ptr` is not of this memory.
    pub fn window(self: &Arc<Self>, ptr: DevicePtr) -> Result<Window> {
        state::admit(self.backend.id()).map_err(ProcessState::refusal)?;
        let mut chunks = self.chunks.lock();
        let Some((base, chunk)) = chunks.holding(ptr) else {
            let wrong = BadPointer { ptr, problem: Problem::NotRegistered, history: Vec::new() };
            return Err(AllocError::InvalidPointer(Box::new(wrong)));
        };
        chunk.windows += 1;
        let (bytes, physical) = (chunk.bytes, chunk.handle);
        drop(chunks);
        Ok(Window { memory: Arc::clone(self), base: DevicePtr(base), bytes, physical })
    }

    /// A new chunk with room for `bytes`, and nothing else in it. Calls the driver.
    fn make(&self, bytes: u64) -> crate::backend::Result<(u64, Extent)> {
        self.give_back(None);
        let bytes = bytes.next_multiple_of(self.unit).max(self.chunk);
        let mut mapping = Undo::default();
        let made = self
            .backend
            .virtual_memory()
            .map_err(BackendError::from)
            .and_then(|vm| mapping.create(vm, &self.devices, (bytes, self.unit), self.handle_type));
        match made {
            Ok((base, handle)) => {
                let free = BTreeMap::from([(base.0, bytes)]);
                Ok((base.0, Extent { bytes, handle, mapping, free, windows: 0 }))
            }
            Err(error) => {
                self.backend.clear_error();
                self.give_back(Some(mapping));
                Err(error)
            }
        }
    }

    /// Undoes a mapping that nobody uses, and leftovers. Calls the driver, unless it is gone.
    fn give_back(&self, mapping: Option<Undo>) {
        let mut left = std::mem::take(&mut self.chunks.lock().leftovers);
        left.extend(mapping);
        if left.is_empty() || !state::may_destroy(self.backend.id()) {
            return;
        }
        left.retain_mut(|mapping| {
            let undone = mapping.undo(&*self.backend);
            if let Err(error) = &undone {
                self.backend.clear_error();
                tracing::warn!(%error, "registered memory could not be given back; it is tried again later");
            }
            undone.is_err()
        });
        self.chunks.lock().leftovers.extend(left);
    }
}

// SAFETY: ranges of mapped handles, each handed out once until it is given back. Units are at least pages, and segments
// are asked for in multiples of 512 bytes, to which sizes are rounded here.
unsafe impl SegmentSource for RegisteredMemory {
    fn alloc(&self, bytes: u64, _: Stream) -> Option<DevicePtr> {
        let bytes = rounded(bytes);
        let there = self.chunks.lock().in_use.values_mut().find_map(|chunk| chunk.take(bytes));
        if let Some(at) = there {
            return Some(DevicePtr(at));
        }
        match self.make(bytes) {
            Ok((base, mut chunk)) => {
                let at = chunk.take(bytes);
                self.chunks.lock().in_use.insert(base, chunk);
                at.map(DevicePtr)
            }
            Err(error) => {
                tracing::debug!(%error, bytes, "no registered memory");
                None
            }
        }
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, _: Stream) {
        let mut chunks = self.chunks.lock();
        let Some((base, chunk)) = chunks.holding(ptr) else { return };
        chunk.give(ptr.0, rounded(bytes));
        let unused = chunks.take_unused(base);
        drop(chunks);
        if unused.is_some() {
            self.give_back(unused);
        }
    }

    fn may_leave(&self, ptr: DevicePtr, _: u64) -> bool {
        self.chunks.lock().holding(ptr).is_none_or(|(_, chunk)| chunk.windows == 0)
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(512)
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        if self.backend.id().is_inherited() {
            return;
        }
        // No pool and no window is left. This includes memory of an allocator that ended before its windows.
        let chunks = std::mem::take(&mut *self.chunks.lock());
        self.chunks.lock().leftovers = chunks.leftovers;
        chunks.in_use.into_values().for_each(|chunk| self.give_back(Some(chunk.mapping)));
        self.give_back(None);
    }
}

/// A range of registered memory that stays while this lives, even if blocks in it are freed: one physical handle.
#[derive(Debug)]
pub struct Window {
    memory: Arc<RegisteredMemory>,
    base: DevicePtr,
    bytes: u64,
    physical: PhysicalHandle,
}

impl Window {
    /// Its first address.
    #[must_use]
    pub fn base(&self) -> DevicePtr {
        self.base
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The physical memory behind it. The window owns it.
    #[must_use]
    pub fn physical(&self) -> PhysicalHandle {
        self.physical
    }

    /// A handle with which another process maps the same memory. CUDA `cuMemExportToShareableHandle`, HIP
    /// `hipMemExportToShareableHandle`.
    ///
    /// # Errors
    /// The driver's; that it cannot share physical memory.
    pub fn share(&self) -> Result<ShareableHandle> {
        let RegisteredMemory { backend, handle_type, .. } = &*self.memory;
        state::admit(backend.id()).map_err(ProcessState::refusal)?;
        let sharing = backend.physical_sharing().map_err(BackendError::from)?;
        Ok(sharing.export_physical(self.physical, *handle_type)?)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // A thread of the parent's may have had the lock when a child was forked.
        if self.memory.backend.id().is_inherited() {
            return;
        }
        let mut chunks = self.memory.chunks.lock();
        let DevicePtr(base) = self.base;
        let unused = chunks.in_use.get_mut(&base).and_then(|chunk| {
            chunk.windows -= 1;
            chunk.is_unused().then_some(base)
        });
        let unused = unused.and_then(|base| chunks.take_unused(base));
        drop(chunks);
        if unused.is_some() {
            self.memory.give_back(unused);
        }
    }
}
