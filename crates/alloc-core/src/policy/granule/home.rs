//! Free bytes at home.

use super::borders::{Borders, FreePart};
use super::memory::Memory;
use super::shown::Shown;
use crate::memory::block::{BlockId, SegmentId};
use crate::policy::ground::Ground;
use std::ops::Range;

/// The granule that begins at `addr` of a segment, if that is watched and has one there. Between two locks the segment may become
/// another one, and granules others.
pub(super) fn granule_at(ground: &impl Ground<Memory>, id: SegmentId, addr: u64) -> Option<Range<u64>> {
    let borders = ground.memory().borders().get(id)?;
    let granules = &ground.layout().segments()[id].granules;
    let is_known = (borders.base()..borders.highest()).contains(&addr) && granules.begins_at(addr);
    is_known.then(|| granules.at(addr))
}

/// What is free of a granule.
pub(super) fn free_part(ground: &impl Ground<Memory>, borders: &Borders, granule: &Range<u64>) -> FreePart {
    let (blocks, &Range { start, end }) = (ground.layout().blocks(), granule);
    let (first, last) = borders.holders(granule);
    let prefix = first.map_or(0, |id| blocks[id].end().min(end) - start);
    let suffix = last.map_or(0, |id| end - blocks[id].addr.max(start));
    FreePart { prefix, suffix }
}

pub(super) fn free_part_of(ground: &impl Ground<Memory>, shown: &Shown) -> FreePart {
    let none = FreePart { prefix: 0, suffix: 0 };
    let borders = ground.memory().borders().get(shown.segment);
    borders.map_or(none, |borders| free_part(ground, borders, &shown.range()))
}

/// The free block of a growable segment that holds all bytes from `low` to `high`.
pub(super) fn free_range(
    ground: &impl Ground<Memory>,
    segment: SegmentId,
    low: u64,
    high: u64,
) -> Option<BlockId> {
    ground.memory().borders().get(segment)?.holder(low, high)
}
