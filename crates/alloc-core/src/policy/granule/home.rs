//! Free bytes at home.

use super::borders::{Borders, FreePart};
use super::memory::Memory;
use super::shown::Shown;
use crate::memory::block::{BlockId, SegmentId};
use crate::policy::ground::Ground;
use crate::policy::hooks::Hooks;

/// Blocks that are passed on the way to one inside a granule: whoever asks for a place has another way to be served.
const PASSED: usize = 128;

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

/// The free block of a growable segment that holds all bytes from `low` to `high`. Inside a granule with very many blocks
/// it may be missed.
pub(super) fn free_range(
    ground: &impl Ground<Memory>,
    segment: SegmentId,
    low: u64,
    high: u64,
) -> Option<BlockId> {
    let borders = ground.memory().borders().get(segment)?;
    let number = borders.number(low);
    let (start, end) = (borders.address(number), borders.address(number + 1));
    let found = if low == start {
        borders.first_holder(number)
    } else if high >= end {
        borders.last_holder(number)
    } else {
        free_block_near(ground, segment, low)
    }?;
    let block = &ground.layout().blocks()[found];
    (block.addr <= low && high <= block.end()).then_some(found)
}

/// The free block that holds the byte at `addr`, if it is found soon.
fn free_block_near(ground: &impl Ground<Memory>, segment: SegmentId, addr: u64) -> Option<BlockId> {
    let layout = ground.layout();
    let below = ground.memory().below(layout.blocks(), segment, addr);
    layout.free_at(below.unwrap_or(layout.segments()[segment].first), addr, PASSED)
}
