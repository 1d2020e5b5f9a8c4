//! Records for snapshots: history, contexts, ranges, the log of calls.

use super::CachingAllocator;
use crate::backend::Backend;
use crate::config::Settings;
use crate::config::environment::{GRANULE_VARIABLE, PYTORCH_VARIABLES};
use crate::device::Observation;
use crate::device::recorder;
use crate::error::Result;
use crate::sync::Arc;
use crate::types::{DeviceIndex, DeviceKind, DevicePtr, PoolId};
use crate::watch::history::{CallLog, Context, HistoryOptions, SnapshotContexts, Stage};
use crate::watch::snapshot::{HistoryStatus, Snapshot, Value};

/// Records of an allocator: [`CachingAllocator::history`].
#[derive(Clone, Copy, Debug)]
pub struct History<'a>(&'a CachingAllocator);

impl<'a> History<'a> {
    pub(super) fn of(allocator: &'a CachingAllocator) -> Self {
        Self(allocator)
    }

    /// Records the newest `options.max_entries` operations of each device for snapshots; 0 turns history off
    /// and forgets it. PyTorch: `recordHistory`.
    pub fn record(self, options: &HistoryOptions) {
        for device in self.0.reachable() {
            recorder::record(device, options);
        }
        if self.0.is_forked() {
            return;
        }
        self.0.annotations.lock().configure(options.max_entries, options.clear);
    }

    /// True if history is on. PyTorch: `isHistoryEnabled`.
    #[must_use]
    pub fn is_enabled(self) -> bool {
        self.0.reachable().any(|device| recorder::time(device).is_some())
    }

    /// Completeness of a device's history, and the number of missing entries.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn status(self, device: DeviceIndex) -> Result<HistoryStatus> {
        Ok(recorder::status(self.0.seen_device(device)?))
    }

    /// Marks the begin or end of a range of the program for snapshots, while the device's history is on.
    /// PyTorch: `recordAnnotation`.
    pub fn mark_range(self, stage: Stage, name: &str, device: DeviceIndex) {
        if !self.0.is_forked() {
            let recording =
                self.0.devices.get(usize::from(device.0)).and_then(|device| recorder::time(device));
            if let Some(time_us) = recording {
                self.0.annotations.lock().mark(stage, name, device, time_us);
            }
        }
    }

    /// Context in which the live block at `ptr` was allocated, if contexts are recorded. PyTorch:
    /// `getContextForPointer`.
    #[must_use]
    pub fn context_of(self, ptr: DevicePtr) -> Option<Context> {
        let at = self.0.map.get(ptr).filter(|_| !self.0.is_forked())?;
        self.0.devices[at.device.0 as usize].arenas.context_of(ptr, at)
    }

    /// Writes `text` about a live block into the history, if it is on. PyTorch: `annotateMemory`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`](crate::AllocError::InvalidPointer) where `ptr` is no live block.
    pub fn annotate(self, ptr: DevicePtr, text: &str) -> Result<()> {
        if let Some(process_state) = self.0.process_state() {
            return Err(process_state.refusal());
        }
        match self.0.map.get(ptr) {
            Some(at) if recorder::annotate(&self.0.devices[at.device.0 as usize], ptr, at, text) => Ok(()),
            _ => Err(self.0.bad_pointer(ptr)),
        }
    }

    /// Notes the program's calls on a device, in the order in which they are served. The notes begin with a request for
    /// each block that the program has. Calls that are served while caching is off are not noted. `None` where calls
    /// are noted already.
    ///
    /// The caller reads the log, on a thread of its own that calls nothing of this allocator. Calls of the
    /// program wait while 65536 are unread.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn log_calls(self, device: DeviceIndex) -> Result<Option<Arc<CallLog>>> {
        Ok(recorder::log_calls(self.0.seen_device(device)?))
    }

    /// Ends what [`log_calls`](Self::log_calls) began. Calls that were noted can still be read.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`](crate::AllocError::InvalidDevice).
    pub fn end_call_log(self, device: DeviceIndex, log: &Arc<CallLog>) -> Result<()> {
        recorder::end_log(self.0.seen_device(device)?, log);
        Ok(())
    }

    /// A snapshot of one pool or of all, and the call contexts as they were gathered, place by place. It is for a
    /// program that looks contexts up itself. Where there is a context, the snapshot itself has no frames.
    #[must_use]
    pub fn snapshot_with_contexts(self, pool: Option<PoolId>, traces: bool) -> (Snapshot, SnapshotContexts) {
        let mut contexts = SnapshotContexts::default();
        if self.0.is_forked() {
            return (Snapshot::default(), contexts);
        }
        let mut snapshot = Snapshot {
            allocator_settings: describe(&self.0.settings(), &*self.0.backend),
            ..Snapshot::default()
        };
        let mut history = HistoryStatus { complete: true, ..HistoryStatus::default() };
        for device in self.0.reachable() {
            let Observation { segments, entries, status } = recorder::observe(device, pool, traces);
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
            snapshot.external_annotations = self.0.annotations.lock().values();
        }
        snapshot.history = Some(history);
        (snapshot, contexts)
    }
}

/// The settings as PyTorch's snapshots list them, and the backend. The settings' text has the name of the variable that
/// a program sets for such devices.
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
