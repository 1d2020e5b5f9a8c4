//! The `granule` policy: everything is cut to size, and found in constant time.

mod fixed;

pub(crate) use fixed::{SegmentPlan, Situation, choose};

use super::{GranuleSizes, Holding, Request};
use crate::base::round::{MIN_BLOCK, SMALL_LIMIT, SMALL_SEGMENT, segment_size};
use crate::config::Settings;
use crate::memory::block::{BlockId, BlockTable, Tier};
use crate::memory::index::SegregatedIndex;
use crate::memory::segment::SegmentTable;
use crate::types::MIB;

/// Fewest and most granules that held memory consists of, from the start on.
const FEWEST: u64 = 16;
const MOST: u64 = 512;
/// Granule size in between: fewer driver calls, against memory lost in granules in use only in part.
const USUAL_GRANULE: u64 = 24 * MIB;
/// A region reserves addresses for this many granules of their size at that time; a full one is followed by another. If
/// each of many streams reserved a whole device, addresses would run out.
const RESERVED: u64 = 2048;
/// A program loads memory that it will keep while it has given back less than 1/`LOADING` of the bytes in use. Such
/// memory is in use as a whole, so it is taken in larger granules: 1/`LOADED` of the most needed, up to
/// `LARGEST_LOADED`.
const LOADING: u64 = 2;
const LOADED: u64 = 8;
const LARGEST_LOADED: u64 = 64 * MIB;
/// Number of size classes whose best fits are compared, where segments are fixed.
const COMPARED: usize = 8;

/// The `granule` policy.
#[derive(Clone, Debug)]
pub struct GranulePolicy {
    large_segment: u64,
    garbage_threshold: f64,
    /// Size of all granules, if it is not 0.
    granule: u64,
    grows: bool,
    reserve: Option<crate::config::ReserveSize>,
}

impl GranulePolicy {
    /// The policy under `settings`, on a device that has virtual memory or not.
    pub(super) fn new(settings: &Settings, virtual_memory: bool) -> Self {
        Self {
            large_segment: settings.large_segment_size,
            garbage_threshold: settings.garbage_collection_threshold,
            granule: settings.granule_size,
            grows: virtual_memory,
            reserve: settings.expandable_segments_reserve,
        }
    }

    #[inline(always)]
    pub(crate) fn request(&self, bytes: u64) -> Request {
        let size = bytes.next_multiple_of(MIN_BLOCK);
        // Small requests have memory of their own: they must not take holes that large ones need. Where segments are
        // fixed they fill the rest of large ones.
        let tier = if self.grows & (size <= SMALL_LIMIT) { Tier::Small } else { Tier::Large };
        let segment_bytes =
            if self.grows { segment_size(size, self.large_segment) } else { fixed::least(size) };
        Request { requested: bytes, size, tier, segment_bytes }
    }

    pub(super) fn grows(&self) -> bool {
        self.grows
    }

    pub(super) fn growing(&self) -> Self {
        Self { grows: true, ..self.clone() }
    }

    /// The sizes of new granules: the last of several has the rest.
    pub(super) fn granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> GranuleSizes {
        let usual = self.usual_granule(tier, minimum, holding);
        // A program that loads fills the rest of the last granule next. Later that rest may be all that ever is free
        // there.
        let least = if is_loading(holding) { usual } else { SMALL_SEGMENT.next_multiple_of(minimum) };
        GranuleSizes { usual, least: least.min(usual) }
    }

    fn usual_granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> u64 {
        let smallest = SMALL_SEGMENT.next_multiple_of(minimum);
        if tier == Tier::Small {
            return smallest;
        }
        let share = |of: u64| 1 << (holding.most / of).max(1).ilog2();
        let bytes: u64 = if self.granule > 0 {
            self.granule
        } else if is_loading(holding) {
            share(LOADED).min(LARGEST_LOADED)
        } else {
            share(FEWEST).min(USUAL_GRANULE).max(share(MOST))
        };
        bytes.max(smallest).next_multiple_of(smallest)
    }

    pub(super) fn growth(&self, request: &Request, situation: &Situation) -> SegmentPlan {
        fixed::growth(request, situation, self.large_segment)
    }

    pub(super) fn reserve(&self, total: u64, granule: u64) -> u64 {
        let full = (total + total / 8).min(granule.saturating_mul(RESERVED));
        self.reserve.map_or(full, |reserve| reserve.bytes(total))
    }

    #[inline(always)]
    pub(crate) fn take_fit(
        &self,
        index: &mut SegregatedIndex,
        blocks: &BlockTable,
        segments: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId> {
        if !self.grows {
            return take_from_smallest(index, blocks, segments, request.size);
        }
        index.take_fit(request.size, |block| blocks[block].size >= request.size)
    }

    #[inline(always)]
    pub(crate) fn splits(&self, block: u64, request: &Request) -> bool {
        block > request.size
    }

    pub(super) fn garbage_threshold(&self) -> f64 {
        self.garbage_threshold
    }
}

/// Of segments that cannot grow, the small ones fill first: the large ones stay whole for large requests.
#[inline(never)]
fn take_from_smallest(
    index: &mut SegregatedIndex,
    blocks: &BlockTable,
    segments: &SegmentTable,
    size: u64,
) -> Option<BlockId> {
    let order = |block: BlockId| {
        let segment = &segments[blocks[block].segment];
        (segment.bytes, segment.registration)
    };
    index
        .take_first(size, COMPARED, order)
        .or_else(|| index.take_fit(size, |block| blocks[block].size >= size))
}

/// True while a program loads memory that it will keep.
fn is_loading(holding: &Holding) -> bool {
    holding.taken_back < holding.in_use / LOADING
}

#[cfg(test)]
mod tests {
    use super::{GranulePolicy, Holding, MIB, Settings, Tier};

    #[test]
    fn a_size_that_is_set_is_that_of_all_granules_but_small_ones() {
        let of = |granule_size| GranulePolicy::new(&Settings { granule_size, ..Settings::default() }, true);
        let loading = Holding { most: 40 << 30, in_use: 40 << 30, ..Holding::default() };
        let running = Holding { taken_back: 40 << 30, ..loading };
        for held in [Holding::default(), loading, running] {
            assert_eq!(of(8 * MIB).granule(Tier::Large, 2 * MIB, &held).usual, 8 * MIB);
            assert_eq!(of(MIB).granule(Tier::Large, 2 * MIB, &held).usual, 2 * MIB, "the unit at least");
            assert_eq!(of(3 * MIB).granule(Tier::Large, 2 * MIB, &held).usual, 4 * MIB, "whole units");
            assert_eq!(of(8 * MIB).granule(Tier::Small, 2 * MIB, &held).usual, 2 * MIB);
        }
        let sizes = [loading, running].map(|held| of(0).granule(Tier::Large, 2 * MIB, &held).usual);
        assert_eq!(sizes, [64 * MIB, 64 * MIB], "by what is held");
        assert_eq!(
            of(0)
                .granule(
                    Tier::Large,
                    2 * MIB,
                    &Holding { most: 1 << 30, taken_back: 1 << 30, in_use: 1 << 30 }
                )
                .usual,
            24 * MIB
        );
    }
}
