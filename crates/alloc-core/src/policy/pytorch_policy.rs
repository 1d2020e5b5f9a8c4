//! PyTorch's decisions, exactly (section numbers are those of the behaviour reference, which is of 2.15).
//!
//! Releases decide alike but for two things: the order of free blocks of one size, and the release of addresses that
//! could not be mapped.

mod remedies;

pub(crate) use remedies::{Cached, enough, oldest};

use super::{Request, TieBreak};
use crate::base::round::{MIN_BLOCK, SMALL_LIMIT, SMALL_SEGMENT, round_size, segment_size};
use crate::config::{PytorchRelease, Settings};
use crate::memory::block::{BlockId, BlockPhase, BlockTable, Tier};
use crate::memory::index::{BestFitIndex, Cursor, FitKey};
use crate::memory::layout::Layout;
use crate::memory::segment::SegmentTable;

/// The `pytorch` policy.
#[derive(Clone, Debug)]
pub struct PytorchPolicy {
    divisions: [u64; 16],
    large_segment: u64,
    max_split: u64,
    max_non_split_rounding: u64,
    garbage_threshold: f64,
    grows: bool,
    reserve: Option<crate::config::ReserveSize>,
    release: PytorchRelease,
}

impl PytorchPolicy {
    /// The policy under `settings`, on a device that has virtual memory or not.
    pub(super) fn new(settings: &Settings, virtual_memory: bool) -> Self {
        Self {
            divisions: settings.roundup_power2_divisions,
            large_segment: settings.large_segment_size,
            max_split: settings.max_split_size,
            max_non_split_rounding: settings.max_non_split_rounding,
            garbage_threshold: settings.garbage_collection_threshold,
            grows: settings.expandable_segments && virtual_memory,
            reserve: settings.expandable_segments_reserve,
            release: settings.pytorch_release(),
        }
    }

    /// Room of a growable block: itself and the unmapped block right after it.
    fn room(blocks: &BlockTable, id: BlockId) -> u64 {
        let block = &blocks[id];
        let above = block.next.some().map(|next| &blocks[next]);
        block.size + above.filter(|next| next.state == BlockPhase::Unmapped).map_or(0, |next| next.size)
    }

    /// Of the candidates in order, the one after which room stops shrinking: an almost full segment is
    /// preferred to one that could still grow, and a block of a fixed segment, which ends the search, to both.
    fn least_room(
        index: &BestFitIndex,
        blocks: &BlockTable,
        segments: &SegmentTable,
        from: Cursor,
    ) -> Cursor {
        let mut best = from;
        let mut room = Self::room(blocks, index.block(best));
        while segments.is_growable(blocks[index.block(best)].segment) {
            let Some(next) = index.next(best) else { break };
            let next_room = Self::room(blocks, index.block(next));
            if next_room >= room {
                break;
            }
            (best, room) = (next, next_room);
        }
        best
    }

    #[inline]
    pub(crate) fn request(&self, bytes: u64) -> Request {
        let size = round_size(bytes, &self.divisions);
        Request {
            requested: bytes,
            size,
            tier: if size <= SMALL_LIMIT { Tier::Small } else { Tier::Large },
            segment_bytes: segment_size(size, self.large_segment),
        }
    }

    pub(super) fn grows(&self) -> bool {
        self.grows
    }

    pub(super) fn growing(&self) -> Self {
        Self { grows: true, ..self.clone() }
    }

    pub(super) fn granule(&self, tier: Tier, minimum: u64) -> u64 {
        let wanted = match tier {
            Tier::Small => SMALL_SEGMENT,
            Tier::Large => self.large_segment,
        };
        wanted.next_multiple_of(minimum)
    }

    pub(super) fn reserve(&self, total: u64) -> u64 {
        let full = total + total / 8;
        self.reserve.map_or(full, |reserve| reserve.bytes(total))
    }

    /// §3.3.
    #[inline(always)]
    pub(crate) fn take_fit(
        &self,
        index: &mut BestFitIndex,
        blocks: &BlockTable,
        segments: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId> {
        let mut at = index.lower_bound(FitKey::at_least(request.size))?;
        if segments.is_growable(blocks[index.block(at)].segment) {
            if self.grows {
                at = Self::least_room(index, blocks, segments, at);
            } else {
                // Growable blocks are reused only while the option is on.
                while segments.is_growable(blocks[index.block(at)].segment) {
                    at = index.next(at)?;
                }
            }
        }
        let found = blocks[index.block(at)].size;
        let oversize_for_a_normal_request = request.size < self.max_split && found >= self.max_split;
        let too_large_for_an_oversize_request = request.size >= self.max_split
            && found >= request.size.saturating_add(self.max_non_split_rounding);
        if oversize_for_a_normal_request || too_large_for_an_oversize_request {
            return None;
        }
        Some(index.remove_at(at))
    }

    /// True if [`take_fit`](Self::take_fit) would find a block that is in no index, once coalesced with the free one
    /// above, and the request would be cut from the two as just this block.
    #[inline]
    pub(crate) fn would_take(
        &self,
        index: &BestFitIndex,
        layout: &Layout,
        (id, above): (BlockId, Option<BlockId>),
        request: &Request,
    ) -> bool {
        let blocks = layout.blocks();
        let block = &blocks[id];
        debug_assert_eq!((block.size, block.tier), (request.size, request.tier), "it was asked for before");
        let size = block.size + above.map_or(0, |above| blocks[above].size);
        let is_growable = layout.segments().is_growable(block.segment);
        if size >= self.max_split
            || size > block.size && !self.splits(size, request)
            || is_growable && !self.grows
        {
            return false;
        }
        let top = above.unwrap_or(id);
        let Some((key, rival)) = index.first_but(request.size, top) else { return true };
        let room = || size - blocks[top].size + Self::room(blocks, top);
        key > FitKey::new(size, block.order, block.addr)
            && (!is_growable || Self::room(blocks, rival) >= room())
    }

    pub(super) fn tie_break(&self) -> TieBreak {
        match self.release {
            PytorchRelease::V2_11 => TieBreak::LowestAddress,
            PytorchRelease::V2_13 | PytorchRelease::V2_14 | PytorchRelease::V2_15 => TieBreak::OldestSegment,
        }
    }

    pub(super) fn gives_empty_addresses_back(&self) -> bool {
        self.release >= PytorchRelease::V2_15
    }

    /// §1.4.
    #[inline]
    pub(crate) fn splits(&self, block: u64, request: &Request) -> bool {
        let rest = block - request.size;
        if request.tier == Tier::Small || self.grows {
            rest >= MIN_BLOCK
        } else {
            request.size < self.max_split && rest > SMALL_LIMIT
        }
    }

    pub(super) fn oversize(&self) -> u64 {
        self.max_split
    }

    pub(super) fn garbage_threshold(&self) -> f64 {
        self.garbage_threshold
    }
}
