//! Looking at the allocator: statistics, snapshots, invariants.

use super::DeviceAllocator;
use super::record::Recording;
use crate::arena::ArenaState;
use crate::arena::directory::PoolSlot;
use crate::error::Result;
use crate::lifetimes::pending::Ask;
use crate::memory::address_map::Location;
use crate::memory::block::{State, Tier};
use crate::memory::region::Region;
use crate::policy::Drain;
use crate::process::stream_identity::shown_raw;
use crate::sync::Arc;
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::counters::{Count, Counters, Peaks};
use crate::watch::history::{
    Context, Details, Labelling, Owner, Record, RecordContext, Recorder, SegmentContexts, entry,
};
use crate::watch::snapshot::{Action, BlockInfo, BlockState, HistoryStatus, SegmentInfo, TraceEntry, Value};
use crate::watch::stats::{DeviceStats, GranuleStats, Stat};
use std::collections::BTreeMap;

/// What the growable segments of a stream and a tier hold. PyTorch: `StreamSegmentSize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowableSize {
    /// The stream's handle.
    pub stream: u64,
    /// Whether they serve small requests.
    pub is_small: bool,
    /// Bytes with memory behind them.
    pub bytes: u64,
}

/// A segment, and where it and its blocks came from.
type RawSegment = (SegmentInfo, SegmentContexts);

/// A record, copied out of its ring.
struct RawRecord {
    record: Record,
    owner: Owner,
    details: Option<Box<Details>>,
}

/// What is collected under the locks. The rest is done afterwards: it takes a while, and contexts are looked up by
/// foreign code.
#[derive(Default)]
struct Raw {
    segments: Vec<RawSegment>,
    records: Vec<RawRecord>,
    recording: Option<Recording>,
    status: HistoryStatus,
}

/// What a device has to show, with its contexts as they were gathered.
pub(crate) struct Observation {
    pub(crate) segments: Vec<RawSegment>,
    pub(crate) entries: Vec<(TraceEntry, Option<Context>)>,
    pub(crate) status: HistoryStatus,
}

impl Raw {
    fn finish(mut self) -> Observation {
        self.segments.sort_by_key(|(segment, _)| segment.address);
        let entries = match &self.recording {
            Some(recording) => entries(self.records, recording),
            None => Vec::new(),
        };
        Observation { segments: self.segments, entries, status: self.status }
    }
}

/// The newest entries that were asked for, oldest first.
fn entries(mut records: Vec<RawRecord>, recording: &Recording) -> Vec<(TraceEntry, Option<Context>)> {
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

impl DeviceAllocator {
    /// See [`CachingAllocator::stats`](crate::allocator::CachingAllocator::stats).
    pub(crate) fn stats(&self) -> DeviceStats {
        self.notice_finished();
        self.with_all(|peaks, arenas| {
            let counters: Vec<&Counters> = arenas.iter().map(|a| &a.counters).collect();
            let mut stats = DeviceStats::default();
            peaks.fill(&counters, &mut stats);
            let state = self.state.lock();
            let own = &state.counters;
            let events = own.events().since(own.at_reset);
            stats.num_alloc_retries = events.alloc_retries;
            stats.num_ooms = events.ooms;
            stats.num_sync_all_streams = events.sync_all_streams;
            stats.num_device_alloc = events.device_alloc;
            stats.num_device_free = events.device_free;
            stats.num_oom_rejections = events.oom_rejections;
            stats.max_split_size = state.max_split_size;
            stats.segment = own.segment;
            (stats.reserved_bytes, stats.reserved_bytes_by_private_pools) = state.accounts.figures();
            stats.oversize_segments = own.oversize_segments;
            let granules_moved = own.granules_moved;
            let asleep_bytes = i64::try_from(state.regions.asleep_bytes()).unwrap_or(i64::MAX);
            drop(state);
            stats.granule = GranuleStats {
                pending_bytes: stats.active_bytes.all.current - stats.allocated_bytes.all.current,
                unrecorded_frees: i64::try_from(self.pending.failures()).unwrap_or(i64::MAX),
                granules_moved,
                asleep_bytes,
            };
            stats
        })
    }

    /// Before figures are read: what streams have finished is not pending any more, where the policy says so.
    pub(super) fn notice_finished(&self) {
        if matches!(self.arenas.traits().drain, Drain::OnMissAndEvery(_))
            && self.edge().is_none()
            && let Err(error) = self.begin_call(None, RecordContext::All).and_then(|call| self.drain(&call))
        {
            tracing::warn!(%error, "finished frees could not be noticed; the figures still count them as pending");
        }
        self.tell_trackers();
    }

    /// All peaks become the current values (PyTorch: `resetPeakStats`).
    pub(crate) fn reset_peak_stats(&self) {
        self.with_all(|peaks, arenas| {
            self.cut_peaks(peaks, arenas, Peaks::reset);
            let mut state = self.state.lock();
            state.accounts.each(Stat::reset_peak);
            let own = &mut state.counters;
            own.segment.each(Stat::reset_peak);
            own.oversize_segments.reset_peak();
        });
    }

    /// Sums of increases and decreases and the event counters begin anew (PyTorch: `resetAccumulatedStats`).
    pub(crate) fn reset_accumulated_stats(&self) {
        self.with_all(|_, arenas| {
            for arena in arenas {
                arena.counters.reset_accumulated();
            }
            let mut state = self.state.lock();
            state.accounts.each(Stat::reset_accumulated);
            let own = &mut state.counters;
            own.segment.each(Stat::reset_accumulated);
            own.oversize_segments.reset_accumulated();
            own.at_reset = own.events();
        });
    }

    /// The largest free block in bytes.
    pub(crate) fn largest_free_block(&self) -> u64 {
        self.with_all(|_, arenas| {
            let blocks = arenas.iter().flat_map(|arena| arena.blocks.iter());
            blocks.filter(|(_, block)| block.state == State::Free).map(|(_, b)| b.size).max().unwrap_or(0)
        })
    }

    /// The most bytes that a large request of a stream finds free in one piece, or in pieces that a view shows in one.
    pub(crate) fn largest_in_one_piece(&self, stream: Stream) -> u64 {
        let Some(arena) = self.arenas.of_stream(PoolSlot::DEFAULT, stream) else { return 0 };
        self.most_in_one_piece(&arena.lock(), Tier::Large)
    }

    /// Records that a snapshot would have now.
    pub(super) fn history_kept(&self) -> usize {
        self.look_at_history(|recording, held| recording.kept(held)).unwrap_or(0)
    }

    /// Whether the history is complete, and what is missing.
    pub(crate) fn history_status(&self) -> HistoryStatus {
        self.look_at_history(Recording::status).unwrap_or_default()
    }

    /// What is so of the history and of how many records it holds; `None` where it is off.
    fn look_at_history<T>(&self, figure: impl FnOnce(&Recording, usize) -> T) -> Option<T> {
        self.with_all(|_, arenas| {
            let device = self.state.lock();
            let held = arenas.iter().map(|arena| arena.history.len()).sum::<usize>() + device.history.len();
            device.recording.as_ref().map(|recording| figure(recording, held))
        })
    }

    /// Start and length of the segment that holds the block at `ptr`; `None` where that is no block, and
    /// `Some(None)` where the segment is growable, whose parts come and go.
    pub(crate) fn base_allocation(&self, ptr: DevicePtr, at: Location) -> Option<Option<(DevicePtr, u64)>> {
        let state = self.arenas.get(at.arena)?.lock();
        let block = state.live(ptr, at.block)?;
        let segment = &state.segments[state.blocks[block].segment];
        Some(segment.is_fixed().then_some((DevicePtr(segment.base), segment.bytes)))
    }

    /// Block size of the live block at `ptr`.
    pub(crate) fn block_size(&self, ptr: DevicePtr, at: Location) -> Option<u64> {
        let state = self.arenas.get(at.arena)?.lock();
        let block = state.live(ptr, at.block)?;
        Some(state.blocks[block].size)
    }

    /// Segments by address, history oldest first, and whether it is complete; of one pool or of all. The cost without
    /// `traces` depends on the blocks alone.
    pub(crate) fn observe(&self, only: Option<PoolId>, traces: bool) -> Observation {
        let raw = self.with_all(|_, arenas| {
            let mine = arenas.iter().filter(|arena| only.is_none_or(|pool| arena.pool.id == pool));
            let mut raw =
                Raw { segments: mine.flat_map(|arena| self.segments(arena)).collect(), ..Raw::default() };
            let mut device = self.state.lock();
            let Some(recording) = device.recording.clone() else { return raw };
            let recorders = || arenas.iter().map(|arena| &arena.history).chain([&device.history]);
            let held = recorders().map(Recorder::len).sum();
            raw.status = recording.status(held);
            if traces {
                raw.records.reserve_exact(held);
                for recorder in recorders() {
                    raw.records.extend(recorder.iter().map(|(record, details)| RawRecord {
                        record: *record,
                        owner: recorder.owner_of(record),
                        details: details.filter(|details| !details.is_empty()).cloned().map(Box::new),
                    }));
                }
            }
            raw.recording = Some(recording);
            let active: i64 = arenas.iter().map(|a| a.counters.both(Count::ActiveBytes)).sum();
            let details = Details { pool: only, ..Details::default() };
            device.history.record_with(Action::Snapshot, 0, active.unsigned_abs(), details);
            raw
        });
        self.tell_trackers();
        raw.finish()
    }

    /// Bytes of growable segments that have memory behind them, by stream and tier.
    pub(crate) fn growable_sizes(&self) -> Vec<GrowableSize> {
        let mut sizes = BTreeMap::new();
        self.with_all(|_, arenas| {
            for (segment, _) in arenas.iter().flat_map(|arena| self.segments(arena)) {
                if segment.is_expandable {
                    let awake = |block: &&BlockInfo| block.extra.is_empty();
                    let bytes: u64 = segment.blocks.iter().filter(awake).map(|block| block.size).sum();
                    *sizes.entry((segment.stream, &*segment.segment_type == "small")).or_default() += bytes;
                }
            }
        });
        let size = |((stream, is_small), bytes)| GrowableSize { stream, is_small, bytes };
        sizes.into_iter().map(size).collect()
    }

    /// One entry for a fixed segment, one for each contiguous mapped range of a growable one.
    fn segments(&self, arena: &ArenaState) -> Vec<RawSegment> {
        let mut found = Vec::new();
        for (id, segment) in arena.segments.iter() {
            let mut open = false;
            for (block_id, block) in arena.segment_blocks(id) {
                let state = match block.state {
                    State::Allocated | State::Owned | State::Asleep | State::OwnedAsleep => {
                        BlockState::ActiveAllocated
                    }
                    State::Pending => BlockState::ActivePendingFree,
                    State::Free | State::Dormant => BlockState::Inactive,
                    State::Busy if segment.is_fixed() => BlockState::Inactive,
                    // What is lent shows where it is used.
                    State::Unmapped | State::Busy | State::Lent | State::Blank | State::Vacant => {
                        open = false;
                        continue;
                    }
                };
                if !open {
                    open = true;
                    let info = self.empty_segment(arena, segment, block.addr);
                    let contexts = SegmentContexts { segment: segment.context.clone(), blocks: Vec::new() };
                    found.push((info, contexts));
                }
                let Some((info, contexts)) = found.last_mut() else { continue };
                contexts.blocks.push(arena.history.of_block(block_id).cloned());
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
                    extra: if block.state.is_asleep() || block.state == State::Dormant {
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
        &self,
        arena: &ArenaState,
        segment: &crate::memory::segment::Segment,
        address: u64,
    ) -> SegmentInfo {
        SegmentInfo {
            device: i64::from(self.device.0),
            address,
            total_size: 0,
            allocated_size: 0,
            active_size: 0,
            requested_size: 0,
            stream: shown_raw(arena.id.stream.raw),
            segment_type: segment.tier.name().into(),
            pool_id: arena.pool.id,
            is_expandable: !segment.is_fixed(),
            registration: Some(segment.registration),
            frames: Some(Arc::default()),
            blocks: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Walks every structure and panics on the first that contradicts another.
    ///
    /// # Panics
    /// Where an invariant is broken; the text names it.
    pub(crate) fn check_invariants(&self) {
        self.with_all(|peaks, arenas| {
            let mut fixed = 0;
            let mut fixed_count = 0;
            let mut busy = false;
            for arena in arenas.iter() {
                let sums = crate::arena::invariants::check_arena(arena, &self.map);
                fixed += sums.fixed_bytes;
                fixed_count += sums.fixed_segments;
                busy |= sums.busy;
            }
            self.arenas.check(arenas);
            let counters: Vec<&Counters> = arenas.iter().map(|a| &a.counters).collect();
            peaks.check(&counters);
            let state = self.state.lock();
            state.accounts.check();
            state.regions.check_exports();
            // Blocks that fall asleep or wake are not busy, while their granules are on their way.
            busy |= state.regions.iter().any(Region::is_changing);
            // An arena made since then may hold memory that was not added up.
            let all = self.arenas.all().len() == arenas.len();
            if all && !busy && state.accounts.is_at_rest() {
                let backed: u64 = state.regions.iter().map(Region::backed_bytes).sum();
                let reserved = state.accounts.reserved();
                assert_eq!(fixed + backed, reserved, "reserved bytes are those of segments and granules");
                let segments = state.counters.segment.all.current.unsigned_abs();
                assert_eq!(fixed_count, segments, "the segment count is the number of fixed segments");
                let mut shown = 0;
                for arena in arenas.iter() {
                    crate::arena::invariants::check_regions(arena, &state.regions);
                    shown += arena.remembered.check_shown(&**arena, &state.regions);
                }
                assert_eq!(
                    shown,
                    state.regions.shown().len(),
                    "the device knows what is mapped in views, and no more"
                );
            }
        });
    }

    /// Waits for pending frees without giving anything back. Blocks.
    pub(crate) fn synchronise(&self) -> Result<()> {
        let call = self.begin_call(None, RecordContext::All)?;
        let outcome = self.synchronise_pending(&call);
        self.tell_trackers();
        outcome
    }

    /// Notices completed frees. Does not block.
    pub(crate) fn poll(&self) -> Result<()> {
        let call = self.begin_call(None, RecordContext::All)?;
        self.take_back_shared(Ask::Now, &call);
        self.exchange.imports().retry();
        let outcome = self.drain(&call);
        self.tell_trackers();
        outcome
    }
}
