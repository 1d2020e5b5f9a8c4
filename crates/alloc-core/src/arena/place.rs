//! Free bytes at a given address, at home or in a view.

use super::ArenaState;
use crate::memory::block::{BlockId, SegmentId, State, Tier};
use crate::memory::segment::Segment;

/// Blocks that are passed on the way to one inside a granule: whoever asks for a place has another way to be served.
const PASSED: usize = 128;

impl ArenaState {
    /// The segment in whose address space `addr` lies, where requests of `tier` may be served from it.
    pub(crate) fn segment_at(&self, tier: Tier, addr: u64) -> Option<SegmentId> {
        let holds = |segment: &Segment| segment.base <= addr && addr < segment.base + segment.bytes;
        let (id, segment) = self.segments.iter().find(|(_, segment)| holds(segment))?;
        // Without a place of its own a small request is served from the small tier only because that keeps small blocks out
        // of large holes. Who names a place knows better.
        (segment.tier == tier || self.traits.views).then_some(id)
    }

    /// The free block of a segment that holds the byte at `addr`. One with a granule's first or last byte is found at once;
    /// for others the blocks are gone through, from the nearest such one below.
    pub(crate) fn free_block_at(&self, segment: SegmentId, addr: u64) -> Option<BlockId> {
        self.free_block_near(segment, addr, usize::MAX)
    }

    /// [`free_block_at`](Self::free_block_at) that goes through so many blocks at most.
    fn free_block_near(&self, segment: SegmentId, addr: u64, most: usize) -> Option<BlockId> {
        let mut start = self.segments[segment].first;
        if let Some(borders) = self.views.borders.get(segment) {
            let number = borders.number(addr);
            let (first, last) = borders.holders(number);
            let holds = |id: &BlockId| self.blocks[*id].addr <= addr && addr < self.blocks[*id].end();
            if let Some(found) = first.filter(holds).or(last.filter(holds)) {
                return Some(found);
            }
            start = borders.nearest(number).unwrap_or(start);
        }
        let (id, block) = self.upwards(start).take(most).find(|(_, block)| block.end() > addr)?;
        (block.state == State::Free && block.addr <= addr).then_some(id)
    }

    /// The free block of a growable segment that holds all bytes from `low` to `high`. Inside a granule with very many blocks
    /// it may be missed.
    pub(crate) fn free_range(&self, segment: SegmentId, low: u64, high: u64) -> Option<BlockId> {
        let borders = self.views.borders.get(segment)?;
        let number = borders.number(low);
        let (start, end) = (borders.address(number), borders.address(number + 1));
        let found = if low == start {
            borders.first_holder(number)
        } else if high >= end {
            borders.last_holder(number)
        } else {
            self.free_block_near(segment, low, PASSED)
        }?;
        (self.blocks[found].addr <= low && high <= self.blocks[found].end()).then_some(found)
    }

    /// Takes the `size` bytes at `addr` out of the free ones of a growable segment or a view; what is beside them stays free.
    /// Returns the block, in no index; nothing is taken where some of them are not free, or the segment is not there any more.
    pub(crate) fn take_at(&mut self, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        if !self.blocks.may_cut() {
            return None;
        }
        if self.views.borders.get(segment).is_none() {
            return self.take_in_view(segment, addr, size);
        }
        let Segment { base, bytes, .. } = self.segments[segment];
        if addr < base || addr + size > base + bytes {
            return None;
        }
        let block = self.free_range(segment, addr, addr + size)?;
        Some(self.take_range(block, addr, addr + size))
    }
}
