//! Private pools, memory from them, and memory functions of a program.

use crate::Allocator;
use crate::rig::DEVICE;
use alloc_core::AllocError;
use alloc_core::backend::{Backend, HandleType, Result as DriverResult};
use alloc_core::pool::{Filter, MemoryPool, PhysicalSource, PoolOptions, SegmentSource};
use alloc_core::types::{DeviceIndex, DevicePtr, PhysicalHandle, Stream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A pool over the driver's memory.
///
/// # Panics
/// Where it is refused, as the functions below.
#[must_use]
pub fn new_pool(allocator: &Allocator) -> MemoryPool {
    MemoryPool::new(allocator, DEVICE, PoolOptions::default()).expect("a pool can be made")
}

/// A pool over a source of the program.
///
/// # Panics
/// As above.
#[must_use]
pub fn pool_over(allocator: &Allocator, source: Option<Arc<dyn SegmentSource>>) -> MemoryPool {
    let options = PoolOptions { source, ..PoolOptions::default() };
    MemoryPool::new(allocator, DEVICE, options).expect("a pool can be made")
}

/// Memory of the pool.
///
/// # Errors
/// What the allocator says.
///
/// # Panics
/// Where a scope of it is open.
pub fn take(
    allocator: &Allocator,
    pool: &MemoryPool,
    bytes: u64,
    stream: Stream,
) -> Result<DevicePtr, AllocError> {
    let _scope = pool.enter(Filter::this_thread()).expect("no scope of it is open");
    allocator.malloc(bytes, stream)
}

/// A program's own memory functions: the driver's, with a record of what was asked.
#[derive(Debug)]
pub struct Own {
    backend: Arc<dyn Backend>,
    grows: bool,
    most: u64,
    /// Sizes that were asked for, given or not.
    pub asked: Mutex<Vec<u64>>,
    /// Sizes that came back.
    pub returned: Mutex<Vec<u64>>,
    /// Handles of physical memory that are out.
    pub handles: AtomicU64,
    held: AtomicU64,
}

impl Own {
    /// Functions that offer physical memory, too, where a pool `grows`.
    #[must_use]
    pub fn new(backend: &Arc<dyn Backend>, grows: bool) -> Arc<Self> {
        Self::up_to(backend, grows, u64::MAX)
    }

    /// The same, which give at most so many bytes.
    #[must_use]
    pub fn up_to(backend: &Arc<dyn Backend>, grows: bool, most: u64) -> Arc<Self> {
        let (asked, returned) = (Mutex::default(), Mutex::default());
        let (handles, held) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { backend: Arc::clone(backend), grows, most, asked, returned, handles, held })
    }

    /// Bytes that are out, but for physical memory.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

// SAFETY: the driver's memory is disjoint, large enough and aligned (I1), and nothing else frees it.
unsafe impl SegmentSource for Own {
    fn alloc(&self, bytes: u64, stream: Stream) -> Option<DevicePtr> {
        self.asked.lock().expect("no test fails under it").push(bytes);
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.most);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        self.backend.malloc(stream.device, bytes).ok()
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, stream: Stream) {
        self.returned.lock().expect("no test fails under it").push(bytes);
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: rule 3, by this function's contract.
        unsafe { self.backend.free(stream.device, ptr) }.expect("the driver takes it back");
    }

    fn physical(&self) -> Option<&dyn PhysicalSource> {
        self.grows.then_some(self)
    }
}

// SAFETY: handles that the device has just made, each handed out once.
unsafe impl PhysicalSource for Own {
    fn create(&self, device: DeviceIndex, bytes: u64) -> Option<PhysicalHandle> {
        let handle =
            self.backend.virtual_memory().ok()?.create_physical(device, bytes, HandleType::None).ok()?;
        self.handles.fetch_add(1, Ordering::Relaxed);
        Some(handle)
    }

    fn release(&self, handle: PhysicalHandle) -> DriverResult<()> {
        let memory = self.backend.virtual_memory().expect("it made the handle");
        // SAFETY: rule 1: made by `create`, released once.
        unsafe { memory.release_physical(handle) }?;
        self.handles.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}
