//! Free bytes at home.

use super::Granule;
use super::borders::{Borders, FreePart};
use super::shown::Shown;
use crate::arena::Heap;
use crate::memory::block::{BlockId, SegmentId};
use std::ops::Range;

/// The granule that begins at `addr` of a segment, if that is watched and has one there. Between two locks the segment may become
/// another one, and granules others.
pub(crate) fn granule_at(heap: &Heap<Granule>, id: SegmentId, addr: u64) -> Option<Range<u64>> {
    let borders = heap.known().borders().get(id)?;
    let granules = &heap.layout().segments()[id].granules;
    let is_known = (borders.base()..borders.highest()).contains(&addr) && granules.begins_at(addr);
    is_known.then(|| granules.at(addr))
}

/// Free part of a granule.
pub(crate) fn free_part(heap: &Heap<Granule>, borders: &Borders, granule: &Range<u64>) -> FreePart {
    let (blocks, &Range { start, end }) = (heap.layout().blocks(), granule);
    let (first, last) = borders.holders(granule);
    let prefix = first.map_or(0, |id| blocks[id].end().min(end) - start);
    let suffix = last.map_or(0, |id| end - blocks[id].addr.max(start));
    FreePart { prefix, suffix }
}

pub(crate) fn free_part_of(heap: &Heap<Granule>, shown: &Shown) -> FreePart {
    let none = FreePart { prefix: 0, suffix: 0 };
    let borders = heap.known().borders().get(shown.segment);
    borders.map_or(none, |borders| free_part(heap, borders, &shown.range()))
}

/// The free block of a growable segment that holds all bytes from `low` to `high`.
pub(crate) fn free_range(heap: &Heap<Granule>, segment: SegmentId, low: u64, high: u64) -> Option<BlockId> {
    heap.known().borders().get(segment)?.holder(low, high)
}
