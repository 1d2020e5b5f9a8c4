//! The program's code that a device's allocator calls: it sees segments come and go, hears of refusals and
//! out-of-memory errors, tells which processes use the device, or frees memory. Observers of budgets and history are
//! with those.

use crate::process::callbacks::{CallbackScope, Callbacks, Kind};
use crate::sync::{Arc, Mutex, Rank};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::oom::{OomReport, ProcessMemory};
use std::time::{Duration, Instant};

/// Called when memory is short; returns true if it freed something through this allocator.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type FreeMemoryCallback = Arc<dyn Fn() -> bool + Send + Sync>;
/// Called with the report before an out-of-memory error is returned.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type OutOfMemoryObserver = Arc<dyn Fn(&OomReport) + Send + Sync>;

/// Change of a range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentChange {
    /// It was taken from the device and has not been handed out yet.
    Attached,
    /// It is about to be given back: the device is done with it, and nobody else has it.
    Detaching,
}

/// Memory that comes or goes, as a library that registers memory (NCCL, RDMA) needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEvent {
    /// The change.
    pub change: SegmentChange,
    /// The device.
    pub device: DeviceIndex,
    /// The pool.
    pub pool: PoolId,
    /// The stream it serves.
    pub stream: Stream,
    /// First address.
    pub addr: DevicePtr,
    /// Length in bytes.
    pub bytes: u64,
    /// Part of a growable segment.
    pub growable: bool,
}

/// Sees memory come and go. Called before the memory is used or leaves; it may call the driver. It must not wait for a
/// thread that may be inside the allocator (one that has the interpreter's lock, say): others may wait for this memory.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type SegmentObserver = Arc<dyn Fn(&SegmentEvent) + Send + Sync>;
/// Sees a request that was refused before the driver was asked: device, bytes wanted, bytes held, the limit.
/// PyTorch: `OomRejectionObserver`. It may panic and use the allocator: see
/// [code of the program](crate#code-of-the-program).
pub type RejectionObserver = Arc<dyn Fn(DeviceIndex, u64, u64, u64) + Send + Sync>;
/// Says which processes use how much of a device's memory.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type ProcessMemorySource = Arc<dyn Fn(DeviceIndex) -> Vec<ProcessMemory> + Send + Sync>;

/// Rejections are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Registered {
    low_memory: Arc<Vec<FreeMemoryCallback>>,
    out_of_memory: Arc<Vec<OutOfMemoryObserver>>,
    rejections: Arc<Vec<RejectionObserver>>,
    segments: Arc<Vec<SegmentObserver>>,
    processes: Option<ProcessMemorySource>,
    /// Time of the last logged rejection.
    logged: Option<Instant>,
}

/// Callbacks of a device's allocator. They are called with no lock held.
pub(crate) struct Observers {
    device: DeviceIndex,
    callbacks: Arc<Callbacks>,
    registered: Mutex<Registered>,
}

impl Observers {
    pub(crate) fn new(device: DeviceIndex, callbacks: Arc<Callbacks>) -> Self {
        Self { device, callbacks, registered: Mutex::new(Rank::Registry, Registered::default()) }
    }

    pub(crate) fn add_low_memory(&self, callback: FreeMemoryCallback) {
        Arc::make_mut(&mut self.registered.lock().low_memory).push(callback);
    }

    pub(crate) fn add_out_of_memory(&self, observer: OutOfMemoryObserver) {
        Arc::make_mut(&mut self.registered.lock().out_of_memory).push(observer);
    }

    pub(crate) fn add_rejection(&self, observer: RejectionObserver) {
        Arc::make_mut(&mut self.registered.lock().rejections).push(observer);
    }

    pub(crate) fn add_segment(&self, observer: SegmentObserver) {
        Arc::make_mut(&mut self.registered.lock().segments).push(observer);
    }

    pub(crate) fn set_process_source(&self, source: ProcessMemorySource) {
        let former = self.registered.lock().processes.replace(source);
        self.callbacks.end(former);
    }

    /// Runs all free-memory callbacks, whatever the first ones return. True if one freed something.
    pub(crate) fn ask_for_memory(&self) -> bool {
        let callbacks = Arc::clone(&self.registered.lock().low_memory);
        let calls = self.callbacks.calls();
        let freed =
            |callback: &FreeMemoryCallback| calls.call(Kind::FreeMemoryCallback, || callback()) == Some(true);
        callbacks.iter().fold(false, |any, callback| freed(callback) | any)
    }

    pub(crate) fn tell_out_of_memory(&self, report: &OomReport, calls: &CallbackScope<'_>) {
        let observers = Arc::clone(&self.registered.lock().out_of_memory);
        for observer in observers.iter() {
            calls.call(Kind::OutOfMemoryObserver, || observer(report));
        }
    }

    /// Tells observers of memory that comes or goes.
    pub(crate) fn tell(&self, event: SegmentEvent, calls: &CallbackScope<'_>) {
        let observers = Arc::clone(&self.registered.lock().segments);
        for observer in observers.iter() {
            calls.call(Kind::SegmentObserver, || observer(&event));
        }
    }

    pub(crate) fn tell_rejected(&self, requested: u64, wanted: u64, held: u64, limit: u64) {
        let (observers, log) = {
            let mut registered = self.registered.lock();
            let log = registered.logged.is_none_or(|last| last.elapsed() >= LOG_EVERY);
            if log {
                registered.logged = Some(Instant::now());
            }
            (Arc::clone(&registered.rejections), log)
        };
        if log {
            tracing::warn!(
                requested,
                held,
                limit,
                "request rejected before the driver was asked; set throw_on_cudamalloc_oom:False to disable"
            );
        }
        let calls = self.callbacks.calls();
        for observer in observers.iter() {
            calls.call(Kind::RejectionObserver, || observer(self.device, wanted, held, limit));
        }
    }

    /// Memory of the device by process; empty without a source.
    pub(crate) fn process_memory(&self, calls: &CallbackScope<'_>) -> Vec<ProcessMemory> {
        let source = self.registered.lock().processes.clone();
        let told = source.and_then(|source| calls.call(Kind::ProcessSource, || source(self.device)));
        told.unwrap_or_default()
    }
}
