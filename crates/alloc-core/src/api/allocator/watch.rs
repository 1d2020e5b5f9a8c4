//! Looking on: history, contexts, trackers, observers, snapshots.

use super::CachingAllocator;
use crate::backend::Backend;
use crate::config::Settings;
use crate::config::environment::{GRANULE_VARIABLE, PYTORCH_VARIABLES};
use crate::device::{
    DeviceAllocator, GrowableSize, Observation, OutOfMemoryObserver, ProcessMemorySource, RejectionObserver,
    SegmentEvent, SegmentObserver,
};
use crate::error::Result;
use crate::features::hardened::{CorruptionObserver, CorruptionReport, HardenedStats};
use crate::sync::Arc;
use crate::types::{DeviceIndex, DeviceKind, DevicePtr, PoolId, Stream};
use crate::watch::history::{
    CallLog, Context, HistoryOptions, SnapshotContexts, Stage, TraceTracker, resolve,
};
use crate::watch::oom::ProcessMemory;
use crate::watch::snapshot::{HistoryStatus, Snapshot, TraceEntry, Value};

impl CachingAllocator {
    /// Records the newest `options.max_entries` operations of each device for snapshots; 0 turns history off
    /// and forgets it. PyTorch: `recordHistory`.
    pub fn record_history(&self, options: &HistoryOptions) {
        for device in self.reachable() {
            device.record_history(options);
        }
        if self.is_forked() {
            return;
        }
        self.annotations.lock().configure(options.max_entries, options.clear);
    }

    /// Whether history is on. PyTorch: `isHistoryEnabled`.
    #[must_use]
    pub fn is_history_enabled(&self) -> bool {
        self.reachable().any(DeviceAllocator::is_recording)
    }

    /// Whether a device's history is complete, and what is missing in it.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn history_status(&self, device: DeviceIndex) -> Result<HistoryStatus> {
        Ok(self.seen_device(device)?.history_status())
    }

    /// The largest free block that a device has cached, in bytes. Takes time with the number of blocks.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn largest_free_block(&self, device: DeviceIndex) -> Result<u64> {
        Ok(self.seen_device(device)?.largest_free_block())
    }

    /// The most bytes, above 1 MiB, that a stream could be given in one piece from what it has free in the default pool, in
    /// bytes: with a policy that shows free memory side by side more than the largest free block. 0 where it has none. Takes
    /// time with the number of blocks and granules; calls no driver.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn largest_in_one_piece(&self, stream: Stream) -> Result<u64> {
        let stream = self.own(stream)?;
        Ok(self.seen_device(stream.device)?.largest_in_one_piece(stream))
    }

    /// What growable segments hold, by stream and tier. Takes time with the number of blocks.
    /// PyTorch: `getExpandableSegmentSizes`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn growable_sizes(&self, device: DeviceIndex) -> Result<Vec<GrowableSize>> {
        Ok(self.seen_device(device)?.growable_sizes())
    }

    /// Marks the begin or end of a range of the program for snapshots, while the device's history is on.
    /// PyTorch: `recordAnnotation`.
    pub fn mark_range(&self, stage: Stage, name: &str, device: DeviceIndex) {
        if !self.is_forked() {
            let recording = self.devices.get(usize::from(device.0)).and_then(DeviceAllocator::history_time);
            if let Some(time_us) = recording {
                self.annotations.lock().mark(stage, name, device, time_us);
            }
        }
    }

    /// Where the live block at `ptr` was allocated, if contexts are recorded. PyTorch: `getContextForPointer`.
    #[must_use]
    pub fn context_of(&self, ptr: DevicePtr) -> Option<Context> {
        let at = self.map.get(ptr).filter(|_| !self.is_forked())?;
        self.devices[at.device.0 as usize].context_of(ptr, at)
    }

    /// Shows every entry to `tracker`, whether history is on or not, in order. It is called with no lock held, after
    /// the operation and, unless another thread is handing entries over at that moment, before the call returns.
    /// PyTorch: `attachAllocatorTraceTracker`.
    pub fn add_trace_tracker(&self, tracker: impl Fn(&TraceEntry, Option<&Context>) + Send + Sync + 'static) {
        let tracker: TraceTracker = Arc::new(tracker);
        for device in self.reachable() {
            device.add_trace_tracker(Arc::clone(&tracker));
        }
    }

    /// Notes the program's calls on a device, in the order in which they are served, beginning with a request for each block
    /// that it has. Reading is the caller's business, on a thread of its own that calls nothing of this allocator: calls of the
    /// program wait while 65536 are unread. What is served while caching is off is not noted. `None` where calls are noted
    /// already.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn log_calls(&self, device: DeviceIndex) -> Result<Option<Arc<CallLog>>> {
        Ok(self.seen_device(device)?.log_calls())
    }

    /// Ends what [`log_calls`](Self::log_calls) began. What was noted can still be read.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn end_call_log(&self, device: DeviceIndex, log: &Arc<CallLog>) -> Result<()> {
        self.seen_device(device)?.end_log(log);
        Ok(())
    }

    /// [`add_trace_tracker`](Self::add_trace_tracker) for the entries of one device.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn add_trace_tracker_on(
        &self,
        device: DeviceIndex,
        tracker: impl Fn(&TraceEntry, Option<&Context>) + Send + Sync + 'static,
    ) -> Result<()> {
        self.seen_device(device)?.add_trace_tracker(Arc::new(tracker));
        Ok(())
    }

    /// Tells `observer` of memory that was taken from a device, before it is handed out, and of memory that goes back,
    /// before it leaves: for libraries that register memory (NCCL, RDMA). What is held already is in a
    /// [`snapshot`](Self::snapshot).
    pub fn add_segment_observer(&self, observer: impl Fn(&SegmentEvent) + Send + Sync + 'static) {
        let observer: SegmentObserver = Arc::new(observer);
        for device in self.reachable() {
            device.add_segment_observer(Arc::clone(&observer));
        }
    }

    /// Tells `observer` of requests refused before the driver was asked (`throw_on_cudamalloc_oom`): the device, the
    /// bytes wanted, the bytes held, the limit. PyTorch: `attachOomRejectionObserver`.
    pub fn add_rejection_observer(
        &self,
        observer: impl Fn(DeviceIndex, u64, u64, u64) + Send + Sync + 'static,
    ) {
        let observer: RejectionObserver = Arc::new(observer);
        for device in self.reachable() {
            device.add_rejection_observer(Arc::clone(&observer));
        }
    }

    /// Where out-of-memory errors learn which processes use how much of a device, from the vendor's management library for
    /// example. `source` is called with no lock held, once for each error; it replaces an earlier one.
    pub fn set_process_memory_source(
        &self,
        source: impl Fn(DeviceIndex) -> Vec<ProcessMemory> + Send + Sync + 'static,
    ) {
        let source: ProcessMemorySource = Arc::new(source);
        for device in self.reachable() {
            device.set_process_memory_source(Arc::clone(&source));
        }
    }

    /// Writes `text` about a live block into the history, if it is on. PyTorch: `annotateMemory`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`](crate::AllocError::InvalidPointer) where `ptr` is no live block.
    pub fn annotate(&self, ptr: DevicePtr, text: &str) -> Result<()> {
        if let Some(edge) = self.edge() {
            return Err(edge.refusal());
        }
        match self.map.get(ptr) {
            Some(at) if self.devices[at.device.0 as usize].annotate(ptr, at, text) => Ok(()),
            _ => Err(self.bad_pointer(ptr)),
        }
    }

    /// Tells `observer` of memory that was written by somebody who must not; see [`crate::hardened`]. It is called with no
    /// lock held, by the call in which a block left the quarantine.
    pub fn add_corruption_observer(&self, observer: impl Fn(&CorruptionReport) + Send + Sync + 'static) {
        let observer: CorruptionObserver = Arc::new(observer);
        for device in self.reachable() {
            device.add_corruption_observer(Arc::clone(&observer));
        }
    }

    /// What hardened mode has done on a device.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn hardened_stats(&self, device: DeviceIndex) -> Result<HardenedStats> {
        Ok(self.seen_device(device)?.hardened_stats())
    }

    /// Runs `observer` with the report before an out-of-memory error is returned.
    /// PyTorch: `attachOutOfMemoryObserver`.
    pub fn add_out_of_memory_observer(
        &self,
        observer: impl Fn(&crate::watch::oom::OomReport) + Send + Sync + 'static,
    ) {
        let observer = Arc::new(observer);
        for device in self.reachable() {
            let observer = Arc::clone(&observer);
            let boxed: OutOfMemoryObserver = Box::new(move |report| observer(report));
            device.add_out_of_memory_observer(boxed);
        }
    }

    /// What is held and what was done, for PyTorch's tools; nothing in a forked child. Without `traces` the history is left out, and the cost
    /// depends on the blocks alone.
    #[must_use]
    pub fn snapshot(&self, traces: bool) -> Snapshot {
        self.snapshot_of(None, traces)
    }

    /// [`snapshot`](Self::snapshot) of one pool's segments; none where there is no such pool. The history is that of
    /// all pools, as in PyTorch. (PyTorch takes the id of the default pool for all pools: that is `snapshot`.)
    #[must_use]
    pub fn snapshot_pool(&self, pool: PoolId, traces: bool) -> Snapshot {
        self.snapshot_of(Some(pool), traces)
    }

    fn snapshot_of(&self, pool: Option<PoolId>, traces: bool) -> Snapshot {
        let (mut snapshot, contexts) = self.snapshot_with_contexts(pool, traces);
        resolve(&mut snapshot, contexts, &self.foreign.calls());
        snapshot
    }

    /// A snapshot of one pool or of all, and the call contexts as they were gathered, place by place: for a program that
    /// looks them up itself. Where there is a context, the snapshot itself has no frames.
    #[must_use]
    pub fn snapshot_with_contexts(&self, pool: Option<PoolId>, traces: bool) -> (Snapshot, SnapshotContexts) {
        let mut contexts = SnapshotContexts::default();
        if self.is_forked() {
            return (Snapshot::default(), contexts);
        }
        let mut snapshot = Snapshot {
            allocator_settings: describe(&self.settings(), &*self.backend),
            ..Snapshot::default()
        };
        let mut history = HistoryStatus { complete: true, ..HistoryStatus::default() };
        for device in self.reachable() {
            let Observation { segments, entries, status } = device.observe(pool, traces);
            for (segment, of_segment) in segments {
                snapshot.segments.push(segment);
                contexts.segments.push(of_segment);
            }
            if traces {
                let (entries, of_entries) = entries.into_iter().unzip();
                snapshot.device_traces.push(entries);
                contexts.traces.push(of_entries);
            }
            history.recorded |= status.recorded;
            history.complete &= status.complete;
            history.overwritten += status.overwritten;
            history.before_recording += status.before_recording;
        }
        if traces {
            snapshot.external_annotations = self.annotations.lock().values();
        }
        snapshot.history = Some(history);
        (snapshot, contexts)
    }
}

/// The settings as PyTorch's snapshots list them, and whose devices these are. The settings' text has the name of the
/// variable that a program sets for such devices.
fn describe(settings: &Settings, backend: &dyn Backend) -> Vec<(Arc<str>, Value)> {
    let variable = match backend.kind() {
        DeviceKind::PrivateUse1 => GRANULE_VARIABLE,
        _ => PYTORCH_VARIABLES[0],
    };
    let limited = |bytes: u64| Value::Int(i64::try_from(bytes).unwrap_or(-1));
    let divisions = settings
        .roundup_power2_divisions
        .iter()
        .enumerate()
        .map(|(n, d)| (Value::Str((1u64 << n).to_string().into()), limited(*d)))
        .collect();
    [
        (variable, Value::Str(settings.text.as_str().into())),
        ("backend", Value::Str(backend.name().into())),
        ("label", Value::Str(backend.label().into())),
        ("max_split_size", limited(settings.max_split_size)),
        ("garbage_collection_threshold", Value::Float(settings.garbage_collection_threshold)),
        ("expandable_segments", Value::Bool(settings.expandable_segments)),
        ("pinned_num_register_threads", limited(settings.pinned_num_register_threads)),
        ("release_lock_on_cudamalloc", Value::Bool(settings.release_lock_on_malloc)),
        ("pinned_use_cuda_host_register", Value::Bool(settings.pinned_use_host_register)),
        ("graph_capture_record_stream_reuse", Value::Bool(settings.graph_capture_record_stream_reuse)),
        ("max_round_threshold", limited(settings.pinned_max_round_threshold)),
        ("max_cached_size", limited(settings.pinned_max_cached_size)),
        ("roundup_power2_divisions", Value::Dict(divisions)),
    ]
    .into_iter()
    .map(|(key, value)| (key.into(), value))
    .collect()
}
