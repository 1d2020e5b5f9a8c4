//! Snapshot of a device: its segments and its history.

use crate::arena::ArenaState;
use crate::device::accounting::recording::RecordingState;
use crate::memory::block::{BlockPhase, Live};
use crate::process::stream_identity::shown_raw;
use crate::sync::Arc;
use crate::types::DeviceIndex;
use crate::watch::history::{Context, Details, Labelling, Record, RecordOwner, SegmentContexts, entry};
use crate::watch::snapshot::{BlockInfo, BlockState, HistoryStatus, SegmentInfo, TraceEntry, Value};

/// A segment, and the contexts of it and its blocks.
pub(in crate::device) type RawSegment = (SegmentInfo, SegmentContexts);

/// A record, copied out of its ring.
pub(super) struct RawRecord {
    pub(super) record: Record,
    pub(super) owner: RecordOwner,
    pub(super) details: Option<Box<Details>>,
}

/// Data collected under the locks. The rest is slow, and foreign code resolves contexts, so both follow afterwards.
#[derive(Default)]
pub(super) struct Raw {
    pub(super) segments: Vec<RawSegment>,
    pub(super) records: Vec<RawRecord>,
    pub(super) recording: Option<RecordingState>,
    pub(super) status: HistoryStatus,
}

/// Snapshot of a device, with contexts as they were gathered.
pub(crate) struct Observation {
    pub(crate) segments: Vec<RawSegment>,
    pub(crate) entries: Vec<(TraceEntry, Option<Context>)>,
    pub(crate) status: HistoryStatus,
}

impl Raw {
    pub(super) fn finish(mut self) -> Observation {
        self.segments.sort_by_key(|(segment, _)| segment.address);
        let entries = match &self.recording {
            Some(recording) => entries(self.records, recording),
            None => Vec::new(),
        };
        Observation { segments: self.segments, entries, status: self.status }
    }
}

/// The newest entries, as many as were asked for, oldest first.
fn entries(mut records: Vec<RawRecord>, recording: &RecordingState) -> Vec<(TraceEntry, Option<Context>)> {
    records.sort_unstable_by_key(|raw| raw.record.sequence);
    let excess = records.len().saturating_sub(recording.max_entries);
    let mut labelling = Labelling::default();
    let finish = |RawRecord { record, owner: (stream, pool), details }: RawRecord| {
        let labels = labelling.labels(details.as_deref(), pool);
        let time = recording.stamps.microseconds(&record);
        let entry = entry(&record, details.as_deref(), stream, time, labels);
        (entry, details.and_then(|details| details.context))
    };
    records.into_iter().skip(excess).map(finish).collect()
}

/// One entry for a fixed segment, one for each contiguous mapped range of a growable one.
pub(in crate::device) fn segments(device: DeviceIndex, arena: &ArenaState) -> Vec<RawSegment> {
    let mut found = Vec::new();
    for (id, segment) in arena.layout().segments().iter() {
        let mut open = false;
        for (block_id, block) in arena.layout().of_segment(id) {
            let state = match block.state {
                BlockPhase::Live(_) => BlockState::ActiveAllocated,
                BlockPhase::Pending => BlockState::ActivePendingFree,
                BlockPhase::Free | BlockPhase::FreeAsleep => BlockState::Inactive,
                BlockPhase::Busy if segment.is_fixed() => BlockState::Inactive,
                // Lent memory shows where it is used.
                BlockPhase::Unmapped
                | BlockPhase::Busy
                | BlockPhase::Lent
                | BlockPhase::Alias
                | BlockPhase::Unused => {
                    open = false;
                    continue;
                }
            };
            if !open {
                open = true;
                let info = empty_segment(device, arena, segment, block.addr);
                let contexts = SegmentContexts { segment: segment.context.clone(), blocks: Vec::new() };
                found.push((info, contexts));
            }
            let Some((info, contexts)) = found.last_mut() else { continue };
            contexts.blocks.push(arena.ledger().history().of_block(block_id).cloned());
            info.total_size += block.size;
            if state == BlockState::ActiveAllocated {
                info.allocated_size += block.size;
            }
            if state != BlockState::Inactive {
                info.active_size += block.size;
                info.requested_size += block.requested;
            }
            info.blocks.push(BlockInfo {
                address: block.addr,
                size: block.size,
                requested_size: block.requested,
                state,
                frames: Some(Arc::default()),
                extra: if block.live().is_some_and(Live::is_asleep) || block.state == BlockPhase::FreeAsleep {
                    vec![("asleep".into(), Value::Bool(true))]
                } else {
                    Vec::new()
                },
            });
        }
    }
    found
}

fn empty_segment(
    device: DeviceIndex,
    arena: &ArenaState,
    segment: &crate::memory::segment::Segment,
    address: u64,
) -> SegmentInfo {
    SegmentInfo {
        device: i64::from(device.0),
        address,
        total_size: 0,
        allocated_size: 0,
        active_size: 0,
        requested_size: 0,
        stream: shown_raw(arena.binding().stream().raw),
        segment_type: segment.tier.name().into(),
        pool_id: arena.binding().pool().id,
        is_expandable: !segment.is_fixed(),
        registration: Some(segment.registration),
        frames: Some(Arc::default()),
        blocks: Vec::new(),
        extra: Vec::new(),
    }
}
