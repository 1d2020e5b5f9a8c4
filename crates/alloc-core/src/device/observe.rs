//! Looking at the allocator: statistics, snapshots, the out-of-memory report, invariants.

use super::DeviceAllocator;
use crate::address_map::Location;
use crate::arena::ArenaState;
use crate::block::{BlockId, State, Tier};
use crate::counters::{Count, Counters};
use crate::error::Result;
use crate::history::{Record, Stamps};
use crate::index::PlacementIndex;
use crate::oom::{Blocker, OomReport, Remedy};
use crate::policy::{Drain, Policy, Request};
use crate::snapshot::{Action, BlockInfo, BlockState, HistoryStatus, SegmentInfo, TraceEntry};
use crate::stats::{DeviceStats, GranuleStats, Stat};
use crate::sync::{Guard, OnceLock};
use crate::types::{DevicePtr, Stream};
use std::sync::Arc;

/// Blockers named in a report.
const BLOCKERS: usize = 5;

impl<P: Policy> DeviceAllocator<P> {
    /// See [`CachingAllocator::stats`](crate::allocator::CachingAllocator::stats).
    pub(crate) fn stats(&self) -> DeviceStats {
        if matches!(P::DRAIN, Drain::OnMissAndEvery(_))
            && let Err(error) = self.drain()
        {
            tracing::warn!(%error, "finished frees could not be noticed; the figures still count them as pending");
        }
        self.with_all(|peaks, arenas| {
            let counters: Vec<&Counters> = arenas.iter().map(|a| &a.counters).collect();
            let mut stats = DeviceStats::default();
            peaks.fill(&counters, &mut stats);
            let state = self.state.lock();
            let own = &state.counters;
            stats.num_alloc_retries = own.alloc_retries;
            stats.num_ooms = own.ooms;
            stats.num_sync_all_streams = own.sync_all_streams;
            stats.num_device_alloc = own.device_alloc;
            stats.num_device_free = own.device_free;
            stats.num_oom_rejections = own.oom_rejections;
            stats.max_split_size = state.max_split_size;
            stats.segment = own.segment;
            stats.reserved_bytes = own.reserved_bytes;
            stats.oversize_segments = own.oversize_segments;
            drop(state);
            stats.granule = GranuleStats {
                pending_bytes: stats.active_bytes.all.current - stats.allocated_bytes.all.current,
                unrecorded_frees: i64::try_from(self.pending.failures()).unwrap_or(i64::MAX),
                granules_moved: 0,
            };
            stats
        })
    }

    /// All peaks become the current values (PyTorch: `resetPeakStats`).
    pub(crate) fn reset_peak_stats(&self) {
        self.with_all(|peaks, arenas| {
            let mut counters: Vec<&mut Counters> = arenas.iter_mut().map(|a| &mut a.counters).collect();
            peaks.reset(&mut counters);
            let own = &mut self.state.lock().counters;
            own.segment.each(Stat::reset_peak);
            own.reserved_bytes.each(Stat::reset_peak);
            own.oversize_segments.reset_peak();
        });
    }

    /// Sums of increases and decreases and the event counters begin anew (PyTorch: `resetAccumulatedStats`).
    pub(crate) fn reset_accumulated_stats(&self) {
        self.with_all(|_, arenas| {
            for arena in arenas {
                arena.counters.reset_accumulated();
            }
            let own = &mut self.state.lock().counters;
            own.segment.each(Stat::reset_accumulated);
            own.reserved_bytes.each(Stat::reset_accumulated);
            own.oversize_segments.reset_accumulated();
            own.alloc_retries = 0;
            own.ooms = 0;
            own.sync_all_streams = 0;
            own.device_alloc = 0;
            own.device_free = 0;
            own.oom_rejections = 0;
        });
    }

    /// The largest free block in bytes, and the driver's free bytes.
    pub(crate) fn largest_free_block(&self) -> u64 {
        self.with_all(|_, arenas| arenas.iter().map(|a| largest(a, None)).max().unwrap_or(0))
    }

    /// Start and length of the segment that holds the block at `ptr`; `None` where that is no block, and
    /// `Some(None)` where the segment is growable, whose parts come and go.
    pub(crate) fn base_allocation(&self, ptr: DevicePtr, at: Location) -> Option<Option<(DevicePtr, u64)>> {
        let state = self.arenas.get(at.arena)?.lock();
        let block = state.handed_out(ptr, at.block)?;
        let segment = &state.segments[state.blocks[block].segment];
        Some((!segment.is_growable()).then_some((DevicePtr(segment.base), segment.bytes)))
    }

    /// Block size of the live block at `ptr`.
    pub(crate) fn block_size(&self, ptr: DevicePtr, at: Location) -> Option<u64> {
        let state = self.arenas.get(at.arena)?.lock();
        let block = state.handed_out(ptr, at.block)?;
        Some(state.blocks[block].size)
    }

    /// Segments by address, history oldest first, and whether it is complete.
    pub(crate) fn observe(&self, traces: bool) -> (Vec<SegmentInfo>, Vec<TraceEntry>, HistoryStatus) {
        self.with_all(|_, arenas| {
            let mut segments: Vec<_> = arenas.iter().flat_map(|arena| self.segments(arena)).collect();
            segments.sort_by_key(|segment| segment.address);
            let mut device = self.state.lock();
            let Some(recording) = device.recording.clone() else {
                return (segments, Vec::new(), HistoryStatus::default());
            };
            let held = arenas.iter().map(|a| a.history.len()).sum::<usize>() + device.history.len();
            let kept = held.min(recording.options.max_entries);
            let overwritten = recording.stamps.made().saturating_sub(kept as u64);
            let mut entries = Vec::new();
            if traces {
                let mut records: Vec<_> = arenas
                    .iter()
                    .flat_map(|a| a.history.iter().map(|r| (r, a.history.stream_of(r.0, a.id.stream.raw))))
                    .collect();
                records.extend(device.history.iter().map(|r| (r, 0)));
                records.sort_unstable_by_key(|((record, _), _)| record.sequence);
                let newest = records[held - kept..].iter();
                entries.extend(
                    newest.map(|((r, note), stream)| self.entry(r, *note, *stream, &recording.stamps)),
                );
            }
            let active: i64 = arenas.iter().map(|a| a.counters.both(Count::ActiveBytes)).sum();
            device.history.record(Action::Snapshot, 0, active.unsigned_abs());
            let status = HistoryStatus {
                recorded: true,
                complete: overwritten == 0 && recording.missed == 0,
                overwritten,
                before_recording: recording.missed,
            };
            (segments, entries, status)
        })
    }

    fn entry(&self, record: &Record, note: Option<&Arc<str>>, stream: u64, stamps: &Stamps) -> TraceEntry {
        static OUTSIDE: OnceLock<Arc<str>> = OnceLock::new();
        static NONE: OnceLock<Arc<str>> = OnceLock::new();
        TraceEntry {
            action: record.action,
            addr: record.addr,
            size: record.size,
            stream,
            time_us: stamps.microseconds(record),
            compile_context: Some(OUTSIDE.get_or_init(|| "N/A".into()).clone()),
            user_metadata: Some(note.unwrap_or_else(|| NONE.get_or_init(|| "".into())).clone()),
            pool_id: Some(Self::POOL),
            frames: None,
            extra: Vec::new(),
        }
    }

    /// One entry for a fixed segment, one for each contiguous mapped range of a growable one.
    fn segments(&self, arena: &ArenaState<P>) -> Vec<SegmentInfo> {
        let mut found = Vec::new();
        for (id, segment) in arena.segments.iter() {
            let mut open = false;
            for (_, block) in arena.segment_blocks(id) {
                let state = match block.state {
                    State::Allocated => BlockState::ActiveAllocated,
                    State::Pending => BlockState::ActivePendingFree,
                    State::Free => BlockState::Inactive,
                    State::Busy if !segment.is_growable() => BlockState::Inactive,
                    State::Unmapped | State::Busy | State::Vacant => {
                        open = false;
                        continue;
                    }
                };
                if !open {
                    open = true;
                    found.push(self.empty_segment(arena, segment, block.addr));
                }
                let Some(info) = found.last_mut() else { continue };
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
                    extra: Vec::new(),
                });
            }
        }
        found
    }

    fn empty_segment(
        &self,
        arena: &ArenaState<P>,
        segment: &crate::segment::Segment,
        address: u64,
    ) -> SegmentInfo {
        SegmentInfo {
            device: i64::from(self.device.0),
            address,
            total_size: 0,
            allocated_size: 0,
            active_size: 0,
            requested_size: 0,
            stream: arena.id.stream.raw,
            segment_type: segment.tier.name().into(),
            pool_id: Self::POOL,
            is_expandable: segment.is_growable(),
            frames: Some(Arc::default()),
            blocks: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Why `request` cannot be served on `stream`. Calls the driver.
    pub(super) fn explain(&self, stream: Stream, request: &Request) -> OomReport {
        let memory = self.backend.memory_info(self.device).ok();
        self.with_all(|_, arenas| {
            let own = arenas.iter().find(|a| a.serves(stream));
            let bytes =
                |count: Count| -> u64 { arenas.iter().map(|a| a.counters.both(count).unsigned_abs()).sum() };
            let (allocated, active) = (bytes(Count::AllocatedBytes), bytes(Count::ActiveBytes));
            let state = self.state.lock();
            let reserved = state.counters.reserved_bytes.all.current.unsigned_abs();
            let policy = own.map(|a| a.policy.clone());
            let growable = policy.as_ref().is_some_and(Policy::grows);
            let by_policy = policy.as_ref().map_or(u64::MAX, |p| p.reserve(self.total_memory));
            let reserve = state.class_reserve(stream, self.total_memory).unwrap_or(by_policy);
            let device_free = memory.map_or(0, |m| m.free);
            let mut remedies = Vec::new();
            let mut remedy = |what: &str, bytes: u64, enough: bool| {
                if bytes > 0 {
                    remedies.push(Remedy { what: what.into(), bytes, enough });
                }
            };
            let largest_anywhere = arenas.iter().map(|a| largest(a, Some(request.tier))).max().unwrap_or(0);
            let of_others = arenas.iter().filter(|a| !a.serves(stream));
            let of_others: u64 = of_others.map(|a| free_bytes(a, request.tier)).sum();
            remedy(
                "using what other streams have cached, on their streams",
                of_others,
                largest_anywhere >= request.size,
            );
            let pieces = own.map_or(0, |a| free_bytes(a, request.tier));
            if !growable && self.virtual_memory && pieces > 0 {
                let joined = pieces + device_free;
                remedy(
                    "expandable_segments:True, which joins free pieces with what the device has free,",
                    joined,
                    joined >= request.size,
                );
            }
            if let Some(allowed) = state.allowed {
                let above = device_free.min(self.total_memory.saturating_sub(allowed));
                remedy("raising the memory fraction", above, above >= request.segment_bytes);
            }
            remedies.sort_by_key(|r| (!r.enough, std::cmp::Reverse(r.bytes)));
            let mut blockers: Vec<_> = own.into_iter().flat_map(|a| blockers(a, request.tier)).collect();
            blockers.sort_by_key(|b| (std::cmp::Reverse(b.beside), b.ptr));
            blockers.truncate(BLOCKERS);
            OomReport {
                label: self.backend.kind().label(),
                device: self.device,
                stream,
                requested: request.requested,
                block_size: request.size,
                tried: request.segment_bytes,
                device_total: memory.map_or(self.total_memory, |m| m.total),
                device_free,
                allowed: state.allowed,
                allocated,
                reserved,
                pending: active - allocated,
                largest_fit: own.map_or(0, |a| largest(a, Some(request.tier))),
                largest_anywhere,
                blockers,
                remedies,
                growable,
                reserve_too_small: (growable && request.segment_bytes <= self.total_memory)
                    .then_some(reserve)
                    .filter(|reserve| *reserve < request.segment_bytes),
            }
        })
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
                let sums = crate::invariants::check_arena(arena, &self.map);
                fixed += sums.fixed_bytes;
                fixed_count += sums.fixed_segments;
                busy |= sums.busy;
            }
            self.arenas.check(arenas);
            let counters: Vec<&Counters> = arenas.iter().map(|a| &a.counters).collect();
            peaks.check(&counters);
            let state = self.state.lock();
            // An arena made since then may hold memory that was not added up.
            let all = self.arenas.all().len() == arenas.len();
            if all && !busy && state.intents == 0 {
                let backed: u64 = state.regions.iter().map(crate::region::Region::backed_bytes).sum();
                let reserved = state.counters.reserved_bytes.all.current.unsigned_abs();
                assert_eq!(fixed + backed, reserved, "reserved bytes are those of segments and granules");
                let segments = state.counters.segment.all.current.unsigned_abs();
                assert_eq!(fixed_count, segments, "the segment count is the number of fixed segments");
                for arena in arenas.iter() {
                    crate::invariants::check_regions(arena, &state.regions);
                }
            }
        });
    }

    /// Waits for pending frees without giving anything back. Blocks.
    pub(crate) fn synchronise(&self) -> Result<()> {
        self.synchronise_pending()
    }

    /// Notices completed frees. Does not block.
    pub(crate) fn poll(&self) -> Result<()> {
        self.drain()
    }
}

fn largest<P: Policy>(arena: &Guard<'_, ArenaState<P>>, tier: Option<Tier>) -> u64 {
    Tier::ALL
        .into_iter()
        .filter(|t| tier.is_none_or(|only| only == *t))
        .flat_map(|t| arena.tiers[t as usize].index.blocks())
        .map(|id| arena.blocks[id].size)
        .max()
        .unwrap_or(0)
}

fn free_bytes<P: Policy>(arena: &ArenaState<P>, tier: Tier) -> u64 {
    let free = arena.blocks.iter().filter(|(_, b)| b.state == State::Free && b.tier == tier);
    free.map(|(_, b)| b.size).sum()
}

/// Live blocks of a tier with free memory next to them.
fn blockers<P: Policy>(arena: &ArenaState<P>, tier: Tier) -> Vec<Blocker> {
    let free = |id: BlockId| {
        id.some().map(|id| &arena.blocks[id]).filter(|b| b.state == State::Free).map_or(0, |b| b.size)
    };
    arena
        .blocks
        .iter()
        .filter(|(_, b)| b.state == State::Allocated && b.tier == tier)
        .map(|(_, b)| Blocker { ptr: DevicePtr(b.addr), size: b.size, beside: free(b.prev) + free(b.next) })
        .filter(|b| b.beside > 0)
        .collect()
}
