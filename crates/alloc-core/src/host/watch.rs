//! Looking on: figures, history, snapshots.

use super::block::{Block, Phase};
use super::engine::Engine;
use super::stats::HostStats;
use super::trace::entries;
use crate::error::Result;
use crate::sync::{Arc, Ordering};
use crate::watch::history::{Context, HistoryOptions, RecordContext, Resolver};
use crate::watch::snapshot::{BlockInfo, BlockState, SegmentInfo, Snapshot};

impl Engine {
    pub(super) fn stats(&self) -> HostStats {
        let mut stats = self.lock().stats();
        let (reserve, free) = self.source.reserve_bytes();
        let signed = |figure: u64| i64::try_from(figure).unwrap_or(i64::MAX);
        stats.granule.reserve_bytes = signed(reserve);
        stats.granule.reserve_free_bytes = signed(free);
        stats.granule.unrecorded_frees = signed(self.pending.iter().map(|pending| pending.failures()).sum());
        stats
    }

    /// See [`HostAllocator::record_history`](super::HostAllocator::record_history).
    pub(super) fn record_history(&self, options: &HistoryOptions) -> Result<()> {
        self.reachable()?;
        let (contexts, recorder) = {
            let mut state = self.lock();
            let leftovers = state.trace.configure(options);
            self.contexts.store(state.trace.recorder(RecordContext::State).is_some(), Ordering::Release);
            leftovers
        };
        self.foreign.end(contexts);
        self.foreign.end(recorder);
        Ok(())
    }

    /// See [`HostAllocator::add_to_snapshot`](super::HostAllocator::add_to_snapshot).
    pub(super) fn add_to_snapshot(&self, snapshot: &mut Snapshot, traces: bool) {
        let (blocks, records) = {
            let state = self.lock();
            // As in PyTorch, segments show while history is on, entries also after.
            let blocks: Vec<(SegmentInfo, Option<Context>)> = if state.trace.is_on() {
                state.by_address().map(|block| (segment(block), block.context.clone())).collect()
            } else {
                Vec::new()
            };
            (blocks, if traces { state.trace.records() } else { Vec::new() })
        };
        let calls = self.foreign.calls();
        let mut resolver = Resolver::new(&calls);
        snapshot.host_segments.extend(blocks.into_iter().map(|(mut segment, context)| {
            if let Some(context) = context {
                let frames = resolver.frames(context);
                segment.blocks.iter_mut().for_each(|block| block.frames = Some(frames.clone()));
                segment.frames = Some(frames);
            }
            segment
        }));
        snapshot.host_traces.extend(entries(records, &mut resolver));
    }
}

/// A block as snapshots have it: a segment of its own.
fn segment(block: &Block) -> SegmentInfo {
    let Block { ptr, size, requested, pool, phase, .. } = *block;
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
