//! The program's code that an allocator calls.

use super::CachingAllocator;
use crate::device::{budget_events, recorder};
use crate::error::Result;
use crate::features::budget::{BudgetEvent, BudgetObserver, SpillHook, SpillRequest};
use crate::sync::Arc;
use crate::types::DeviceIndex;
use crate::watch::history::{Context, TraceTracker};
use crate::watch::observers::{
    FreeMemoryCallback, OutOfMemoryObserver, ProcessMemorySource, RejectionObserver, SegmentEvent,
    SegmentObserver,
};
use crate::watch::oom::ProcessMemory;
use crate::watch::snapshot::TraceEntry;

/// The program's code that an allocator calls: [`CachingAllocator::hooks`]. See
/// [code of the program](crate#code-of-the-program).
#[derive(Clone, Copy, Debug)]
pub struct Hooks<'a>(&'a CachingAllocator);

impl<'a> Hooks<'a> {
    pub(super) fn of(allocator: &'a CachingAllocator) -> Self {
        Self(allocator)
    }

    /// Runs `callback` when memory is short, before the device is asked for more. It may free memory through this
    /// allocator; it returns whether it did. PyTorch: `FreeMemoryCallback`.
    pub fn on_low_memory(self, callback: impl Fn() -> bool + Send + Sync + 'static) {
        let callback: FreeMemoryCallback = Arc::new(callback);
        for device in self.0.reachable() {
            device.observers.add_low_memory(Arc::clone(&callback));
        }
    }

    /// Tells `observer` of soft limits of pools and tenants that are crossed, once for each crossing. It is called with
    /// no lock held, and may use the allocator. It is called before the call that crossed the limit returns. If another
    /// thread is telling observers of the device at that moment, that thread calls it instead.
    pub fn on_budget(self, observer: impl Fn(&BudgetEvent) + Send + Sync + 'static) {
        let observer: BudgetObserver = Arc::new(observer);
        for device in self.0.reachable() {
            budget_events::add_observer(device, Arc::clone(&observer));
        }
    }

    /// Asks `hook` to make room, by freeing things or putting them to sleep. It is asked when a request would be
    /// refused otherwise, after all cached memory was given back. Pools that [`wake`](super::SleepMode::wake) and find
    /// no room ask, too; a hook cannot put a waking pool to sleep.
    ///
    /// Hooks run in the order of their priority, the lowest first. Hooks of equal priority run in the order in which
    /// they were added. After each the free memory is searched, whatever the hook says. A hook is called with no lock
    /// held, never for a request that is made inside a hook, and never while the request's stream is captured. It
    /// returns the bytes it made free, for the statistics.
    ///
    /// A hook lives as long as the allocator. A hook that uses the allocator holds it by a `Weak`, or neither of them
    /// ever goes.
    pub fn on_spill(self, priority: i32, hook: impl Fn(&SpillRequest) -> u64 + Send + Sync + 'static) {
        let hook: SpillHook = Arc::new(hook);
        for device in self.0.reachable() {
            budget_events::add_spill_hook(device, priority, Arc::clone(&hook));
        }
    }

    /// Shows every entry to `tracker`, whether history is on or not, in order. It is called with no lock held, after
    /// the operation. It is called before the operation's call returns, unless another thread is handing entries over
    /// at that moment. PyTorch: `attachAllocatorTraceTracker`.
    pub fn on_trace(self, tracker: impl Fn(&TraceEntry, Option<&Context>) + Send + Sync + 'static) {
        let tracker: TraceTracker = Arc::new(tracker);
        for device in self.0.reachable() {
            recorder::add_trace_tracker(device, Arc::clone(&tracker));
        }
    }

    /// [`on_trace`](Self::on_trace) for the entries of one device.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn on_trace_of(
        self,
        device: DeviceIndex,
        tracker: impl Fn(&TraceEntry, Option<&Context>) + Send + Sync + 'static,
    ) -> Result<()> {
        recorder::add_trace_tracker(self.0.seen_device(device)?, Arc::new(tracker));
        Ok(())
    }

    /// Tells `observer` of memory that was taken from a device, before it is handed out, and of memory that goes back,
    /// before it leaves. It is for libraries that register memory (NCCL, RDMA). Memory that is held already is in a
    /// [`snapshot`](CachingAllocator::snapshot).
    pub fn on_segment(self, observer: impl Fn(&SegmentEvent) + Send + Sync + 'static) {
        let observer: SegmentObserver = Arc::new(observer);
        for device in self.0.reachable() {
            device.observers.add_segment(Arc::clone(&observer));
        }
    }

    /// Tells `observer` of requests refused before the driver was asked (`throw_on_cudamalloc_oom`): the device, the
    /// bytes wanted, the bytes held, the limit. PyTorch: `attachOomRejectionObserver`.
    pub fn on_rejection(self, observer: impl Fn(DeviceIndex, u64, u64, u64) + Send + Sync + 'static) {
        let observer: RejectionObserver = Arc::new(observer);
        for device in self.0.reachable() {
            device.observers.add_rejection(Arc::clone(&observer));
        }
    }

    /// Runs `observer` with the report before an out-of-memory error is returned.
    /// PyTorch: `attachOutOfMemoryObserver`.
    pub fn on_out_of_memory(self, observer: impl Fn(&crate::watch::oom::OomReport) + Send + Sync + 'static) {
        let observer: OutOfMemoryObserver = Arc::new(observer);
        for device in self.0.reachable() {
            device.observers.add_out_of_memory(Arc::clone(&observer));
        }
    }

    /// Sets the source of the memory that processes use of a device, for out-of-memory errors: the vendor's management
    /// library, for example. `source` is called with no lock held, once for each error; it replaces an earlier one.
    pub fn set_process_memory_source(
        self,
        source: impl Fn(DeviceIndex) -> Vec<ProcessMemory> + Send + Sync + 'static,
    ) {
        let source: ProcessMemorySource = Arc::new(source);
        for device in self.0.reachable() {
            device.observers.set_process_source(Arc::clone(&source));
        }
    }
}
