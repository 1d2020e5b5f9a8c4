//! An allocator over the backend under check, and hooks that watch it or let it fail.

use crate::context::clean_up;
use crate::interpose::{Hook, Interposed};
use crate::{Context, Stop, Verdict};
use alloc_core::config::Settings;
use alloc_core::{AllocError, CachingAllocator};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Backend, BackendError, ErrorKind, Result};
use std::collections::HashSet;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An allocator's answer as a check's.
pub(super) fn done<T>(answer: std::result::Result<T, AllocError>) -> std::result::Result<T, Stop> {
    answer.map_err(|error| Stop::Failed(error.to_string()))
}

/// An allocator of a check, whose end is not the process's where the backend panics.
#[derive(Debug)]
pub(super) struct Desk(Option<CachingAllocator>);

impl Desk {
    fn open(backend: Arc<dyn Backend>, settings: Settings) -> std::result::Result<Self, Stop> {
        Ok(Self(Some(done(CachingAllocator::new(backend, settings))?)))
    }
}

impl Deref for Desk {
    type Target = CachingAllocator;

    fn deref(&self) -> &CachingAllocator {
        self.0.as_ref().expect("it is there until the drop")
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let Some(allocator) = self.0.take().map(ManuallyDrop::new) else { return };
        clean_up(move || {
            // Where this panics the allocator is leaked: its own drop would make the same calls again.
            let _ = allocator.empty_cache();
            drop(ManuallyDrop::into_inner(allocator));
        });
    }
}

/// An allocator with the default settings.
pub(super) fn allocator(cx: &Context) -> std::result::Result<Desk, Stop> {
    Desk::open(cx.shared(), Settings::default())
}

/// An allocator with growable segments.
pub(super) fn growing(cx: &Context) -> std::result::Result<Desk, Stop> {
    cx.backend().virtual_memory()?;
    Desk::open(cx.shared(), Settings { expandable_segments: true, ..Settings::default() })
}

/// An allocator that may hold about `bytes` of the first device.
pub(super) fn limited(cx: &Context, bytes: u64) -> std::result::Result<Desk, Stop> {
    let allocator = allocator(cx)?;
    let device = cx.device()?;
    let total = cx.backend().memory_info(device)?.total;
    #[allow(clippy::cast_precision_loss)]
    done(allocator.set_memory_fraction((bytes as f64 / total as f64).min(1.0), device))?;
    Ok(allocator)
}

/// Ends an allocator: everything was freed, and nothing stays behind.
pub(super) fn end(allocator: &CachingAllocator, device: DeviceIndex) -> Verdict {
    done(allocator.empty_cache())?;
    allocator.check_invariants();
    let stats = done(allocator.stats(device))?;
    let left = (stats.allocated_bytes.all.current, stats.reserved_bytes.all.current);
    crate::check::ensure_eq!(left, (0, 0), "bytes allocated and reserved at the end");
    Ok(())
}

/// Keeps the names of calls and what `malloc` handed out, and lets the `k`-th call fail.
#[derive(Debug, Default)]
pub(super) struct Watch {
    calls: Mutex<Vec<&'static str>>,
    live: Mutex<HashSet<DevicePtr>>,
    /// Calls until the one that fails; 0 for none.
    countdown: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// The calls since the last look.
    pub(super) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut lock(&self.calls))
    }

    /// How many allocations of the driver are live.
    pub(super) fn live(&self) -> usize {
        lock(&self.live).len()
    }

    /// Lets the `k`-th call from now on fail; 0 for none.
    pub(super) fn fail(&self, k: u64) {
        self.countdown.store(k, Ordering::SeqCst);
    }

    /// Whether the call that was to fail has come.
    pub(super) fn has_failed(&self) -> bool {
        self.countdown.load(Ordering::SeqCst) == 0
    }
}

impl Hook for Watch {
    fn enter(&self, method: &'static str) -> Result<()> {
        lock(&self.calls).push(method);
        let step = |left: u64| left.checked_sub(1);
        if self.countdown.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step) == Ok(1) {
            let detail = "this call was made to fail";
            return Err(BackendError::new(ErrorKind::Other, 999, method, DeviceIndex(0), detail));
        }
        Ok(())
    }

    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let ptr = inner.malloc(device, bytes)?;
        lock(&self.live).insert(ptr);
        Ok(ptr)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.free(device, ptr)? };
        lock(&self.live).remove(&ptr);
        Ok(())
    }
}

/// A watched backend, and an allocator over it.
pub(super) fn watched(cx: &Context) -> std::result::Result<(Arc<Interposed<Watch>>, Desk), Stop> {
    let backend = Arc::new(Interposed::new(cx.shared(), Watch::default()));
    let shared: Arc<dyn Backend> = Arc::clone(&backend) as Arc<dyn Backend>;
    Ok((backend, Desk::open(shared, Settings::default())?))
}
