//! The table of blocks for many threads, and those who look on: contexts of calls, histories, snapshots.

use super::pinned_block::{Phase, PinnedBlock};
use super::sizing::HostSizing;
use super::table::{BlockTable, TableLeftovers};
use super::trace::entries;
use crate::config::Settings;
use crate::process::callbacks::{CallbackScope, Callbacks, Gathered, HeldBack};
use crate::sync::{Arc, AtomicBool, Guard, Mutex, Ordering, Rank};
use crate::types::{DevicePtr, PoolId};
use crate::watch::history::{
    Context, HistoryOptions, RecordContext, SegmentContexts, SnapshotContexts, resolve,
};
use crate::watch::snapshot::{BlockInfo, BlockState, SegmentInfo, Snapshot};

/// The table, under one lock.
#[derive(Debug)]
pub(super) struct SharedTable {
    table: Mutex<BlockTable>,
    callbacks: Arc<Callbacks>,
    /// Contexts are gathered.
    gathers: AtomicBool,
}

/// The table, locked. What it leaves over ends after the lock.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    /// There until this is dropped.
    guard: Option<Guard<'a, BlockTable>>,
    callbacks: &'a Callbacks,
}

impl std::ops::Deref for Locked<'_> {
    type Target = BlockTable;
    fn deref(&self) -> &BlockTable {
        self.guard.as_ref().expect("it is there until it is dropped")
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut BlockTable {
        self.guard.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.has_leftovers() {
            return;
        }
        let TableLeftovers { contexts, users } = self.take_leftovers();
        drop(self.guard.take());
        self.callbacks.end(contexts);
        drop(users);
    }
}

impl SharedTable {
    pub(super) fn new(settings: &Settings, sizing: HostSizing, callbacks: Arc<Callbacks>) -> Self {
        let table = Mutex::new(Rank::Device, BlockTable::new(settings, sizing));
        Self { table, callbacks, gathers: AtomicBool::new(false) }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { guard: Some(self.table.lock()), callbacks: &self.callbacks }
    }

    /// Calls of the program's code; see [`Callbacks::calls`].
    pub(super) fn calls(&self) -> CallbackScope<'_> {
        self.callbacks.calls()
    }

    /// Holds destructors of the program's back; see [`Callbacks::hold_back`].
    pub(super) fn hold_back(&self) -> HeldBack<'_> {
        self.callbacks.hold_back()
    }

    /// The calling thread's context, where contexts are gathered at this level. Hold no lock.
    #[inline(always)]
    pub(super) fn gather<'a>(
        &self,
        level: RecordContext,
        calls: &CallbackScope<'a>,
    ) -> Option<Gathered<'a, Context>> {
        if !self.gathers.load(Ordering::Acquire) {
            return None;
        }
        let recorder = self.lock().trace().recorder(level)?;
        calls.gather(|| recorder())
    }

    /// See [`HostAllocator::record_history`](super::HostAllocator::record_history).
    pub(super) fn record_history(&self, options: &HistoryOptions) {
        let (contexts, recorder) = {
            let mut table = self.lock();
            let leftovers = table.trace_mut().configure(options);
            self.gathers.store(table.trace().recorder(RecordContext::State).is_some(), Ordering::Release);
            leftovers
        };
        self.callbacks.end(contexts);
        self.callbacks.end(recorder);
    }

    /// See [`HostAllocator::add_to_snapshot`](super::HostAllocator::add_to_snapshot).
    pub(super) fn add_to_snapshot(&self, snapshot: &mut Snapshot, traces: bool) {
        let (mut seen, contexts) = self.observe(traces);
        resolve(&mut seen, contexts, &self.callbacks.calls());
        snapshot.host_segments.append(&mut seen.segments);
        snapshot.host_traces.extend(seen.device_traces.into_iter().flatten());
    }

    /// See [`HostAllocator::snapshot_with_contexts`](super::HostAllocator::snapshot_with_contexts).
    pub(super) fn observe(&self, traces: bool) -> (Snapshot, SnapshotContexts) {
        let table = self.lock();
        let (mut snapshot, mut contexts) = (Snapshot::default(), SnapshotContexts::default());
        // As in PyTorch, segments show while history is on, entries also after.
        if table.trace().is_on() {
            let blocks = table.by_address().map(|block| (segment(block), block.context.clone()));
            let own = table.registered().map(|(ptr, bytes, context)| {
                (shown(ptr, bytes, bytes, PoolId::DEFAULT, Phase::HandedOut), context)
            });
            for (segment, context) in blocks.chain(own) {
                snapshot.segments.push(segment);
                contexts.segments.push(SegmentContexts { segment: context.clone(), blocks: vec![context] });
            }
        }
        if traces {
            let (entries, of_entries) = entries(table.trace().records()).unzip();
            snapshot.device_traces.push(entries);
            contexts.traces.push(of_entries);
        }
        (snapshot, contexts)
    }
}

/// A block as snapshots have it: a segment of its own.
fn segment(block: &PinnedBlock) -> SegmentInfo {
    let PinnedBlock { ptr, size, requested, pool, phase, .. } = *block;
    shown(ptr, size, requested, pool, phase)
}

fn shown(ptr: DevicePtr, size: u64, requested: u64, pool: PoolId, phase: Phase) -> SegmentInfo {
    let (state, allocated, active) = match phase {
        Phase::HandedOut => (BlockState::ActiveAllocated, size, size),
        Phase::Waiting | Phase::Kept => (BlockState::ActivePendingFree, 0, size),
        Phase::Cached | Phase::Leaving => (BlockState::Inactive, 0, 0),
    };
    SegmentInfo {
        device: -1,
        address: ptr.0,
        total_size: size,
        allocated_size: allocated,
        active_size: active,
        requested_size: if active > 0 { requested } else { 0 },
        stream: 0,
        segment_type: "small".into(),
        pool_id: pool,
        is_expandable: false,
        registration: None,
        frames: Some(Arc::default()),
        blocks: vec![BlockInfo {
            address: ptr.0,
            size,
            requested_size: requested,
            state,
            frames: Some(Arc::default()),
            extra: Vec::new(),
        }],
        extra: Vec::new(),
    }
}
