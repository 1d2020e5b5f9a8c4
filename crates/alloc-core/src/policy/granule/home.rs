//! Free bytes at home.

use super::borders::{Borders, FreePart};
use super::memory::Memory;
use super::shown::Shown;
use crate::memory::block::{BlockId, SegmentId};
use crate::policy::ground::Ground;

/// What is free of a granule.
pub(super) fn free_part(ground: &impl Ground<Memory>, borders: &Borders, number: usize) -> FreePart {
    let (blocks, granule) = (ground.layout().blocks(), borders.granule());
    let (low, high) = (borders.address(number), borders.address(number) + granule);
    let (first, last) = borders.holders(number);
    let prefix = first.map_or(0, |id| (blocks[id].end() - low).min(granule));
    let suffix = last.map_or(0, |id| high - blocks[id].addr.max(low));
    FreePart { prefix, suffix }
}

pub(super) fn free_part_of(ground: &impl Ground<Memory>, shown: &Shown) -> FreePart {
    let none = FreePart { prefix: 0, suffix: 0 };
    ground
        .memory()
        .borders()
        .get(shown.segment)
        .map_or(none, |borders| free_part(ground, borders, shown.number))
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
