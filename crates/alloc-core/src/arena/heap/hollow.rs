//! Blocks on granules that are backed in parts: what of a granule is free and could lose its memory, and what has lost it.
//!
//! Address space inside a granule whose memory is gone is [`BlockPhase::Hollow`]. It stays so until all of the granule is free,
//! which then is [address space without memory](BlockPhase::Unmapped) as a whole.

use super::Heap;
use crate::memory::block::{Block, BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::region::{Part, RegionId};
use crate::memory::segment::{Origin, Segment};
use crate::policy::Ground;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A granule that is in use in part.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    pub(crate) segment: SegmentId,
    pub(crate) region: RegionId,
    /// First address.
    pub(crate) at: u64,
    /// What is free of it, in whole units, ascending.
    pub(crate) free: Vec<Range<u64>>,
}

impl Sparse {
    /// What of a part is not free, ascending.
    pub(crate) fn stays(&self, part: &Part) -> Vec<Range<u64>> {
        let mut stays = Vec::new();
        let mut from = part.addr;
        for Range { start, end } in self.free.iter().cloned() {
            if start >= part.end() || end <= part.addr {
                continue;
            }
            if from < start {
                stays.push(from..start);
            }
            from = end;
        }
        if from < part.end() {
            stays.push(from..part.end());
        }
        stays
    }
}

/// A growable segment, granules of which may be backed in parts.
pub(crate) struct Hollows<'a> {
    heap: &'a mut Heap,
    segment: SegmentId,
    region: RegionId,
    granule: u64,
}

impl<'a> Hollows<'a> {
    /// `None` where the segment does not grow.
    pub(crate) fn of(heap: &'a mut Heap, segment: SegmentId) -> Option<Self> {
        let Origin::Growable { region, granule } = heap.layout.segments()[segment].origin else {
            return None;
        };
        Some(Self { heap, segment, region, granule })
    }

    /// Bytes of a granule.
    pub(crate) fn granule(&self) -> u64 {
        self.granule
    }

    /// That of the segment.
    pub(crate) fn tier(&self) -> Tier {
        self.record().tier
    }

    fn record(&self) -> &Segment {
        &self.heap.layout.segments()[self.segment]
    }

    /// First addresses of the granules that a block touches.
    fn touched(&self, block: &Block) -> impl Iterator<Item = u64> + use<> {
        let range = self.record().around(self.granule, block.addr..block.end());
        range.step_by(self.granule as usize)
    }

    /// The granules that are in use in part, of which whole units of `unit` bytes are free. Those are left out that a block
    /// touches which is neither free nor at rest in the program's hands, or of which `is_fixed` says that it is not to be moved;
    /// and those that are mapped in a view.
    pub(crate) fn sparse(&self, unit: u64, is_fixed: impl Fn(&Block) -> bool) -> Vec<Sparse> {
        let mut free: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
        let mut fixed: BTreeSet<u64> = BTreeSet::new();
        for (_, block) in self.heap.layout.of_segment(self.segment) {
            match block.state {
                BlockPhase::Unmapped | BlockPhase::Hollow => {}
                BlockPhase::Free => {
                    let range = self.record().around(self.granule, block.addr..block.end());
                    for at in [range.start, range.end - self.granule] {
                        let inside = block.addr.max(at)..block.end().min(at + self.granule);
                        let low = (inside.start - at).next_multiple_of(unit) + at;
                        let high = (inside.end - at) / unit * unit + at;
                        let is_whole = high.saturating_sub(low) == self.granule;
                        let ranges = free.entry(at).or_default();
                        if low < high && !is_whole && ranges.last().is_none_or(|last| last.end <= low) {
                            ranges.push(low..high);
                        }
                    }
                }
                BlockPhase::Allocated | BlockPhase::Owned if !is_fixed(block) => {}
                _ => fixed.extend(self.touched(block)),
            }
        }
        let (segment, region) = (self.segment, self.region);
        let sparse = |(at, free)| Sparse { segment, region, at, free };
        let may_move = |found: &Sparse| {
            !found.free.is_empty()
                && !fixed.contains(&found.at)
                && !self.heap.hooks().keeps(segment, found.at)
        };
        free.into_iter().map(sparse).filter(may_move).collect()
    }

    /// Takes what is free of a granule out, as busy, and lets no view show it any more. `None` where some of it is not free.
    pub(crate) fn begin(&mut self, sparse: &Sparse) -> Option<Vec<BlockId>> {
        let mut taken = Vec::with_capacity(sparse.free.len());
        for range in &sparse.free {
            let holder = self.heap.free_at(self.segment, range.start);
            match holder.filter(|id| range.end <= self.heap.layout.blocks()[*id].end()) {
                Some(holder) => taken.push(self.heap.take_range(holder, range.start, range.end)),
                None => {
                    taken.into_iter().for_each(|id| self.heap.return_free(id));
                    return None;
                }
            }
        }
        self.set_partial(sparse.at, true);
        Some(taken)
    }

    fn set_partial(&mut self, at: u64, partial: bool) {
        self.heap.remembered.hooks_mut().set_partial(self.segment, at, partial);
    }

    /// Busy blocks of a granule are free where these parts are behind them, and hollow elsewhere: each lies on one part, or on
    /// none.
    pub(crate) fn settle(&mut self, at: u64, blocks: Vec<BlockId>, parts: &[Part]) {
        for id in blocks {
            let block = &self.heap.layout.blocks()[id];
            if parts.iter().any(|part| part.addr <= block.addr && block.end() <= part.end()) {
                self.heap.return_free(id);
            } else {
                self.empty(id);
            }
        }
        self.set_partial(at, !matches!(parts, [part] if part.bytes == self.granule));
    }

    fn empty(&mut self, id: BlockId) {
        let block = &mut self.heap.layout.blocks_mut()[id];
        (block.state, block.requested, block.epoch) = (BlockPhase::Hollow, 0, 0);
    }

    /// The granules that are backed in parts of which no block is in use.
    pub(crate) fn unused(&self) -> Vec<u64> {
        let (mut hollow, mut used) = (BTreeSet::new(), BTreeSet::new());
        for (_, block) in self.heap.layout.of_segment(self.segment) {
            match block.state {
                BlockPhase::Hollow => hollow.extend(self.touched(block)),
                BlockPhase::Free | BlockPhase::Unmapped => {}
                _ => used.extend(self.touched(block)),
            }
        }
        hollow.difference(&used).copied().collect()
    }

    /// Takes a granule of which no block is in use out, as one busy block.
    pub(crate) fn gather(&mut self, at: u64) -> BlockId {
        let range = at..at + self.granule;
        let mut whole: Option<BlockId> = None;
        for id in self.heap.layout.on(self.segment, &range) {
            let block = &self.heap.layout.blocks()[id];
            let id = if block.state == BlockPhase::Hollow {
                self.heap.layout.blocks_mut()[id].state = BlockPhase::Busy;
                id
            } else {
                let (low, high) = (block.addr.max(range.start), block.end().min(range.end));
                self.heap.take_range(id, low, high)
            };
            match whole {
                Some(whole) => self.heap.layout.blocks_mut().absorb_above(whole, id),
                None => whole = Some(id),
            }
        }
        let Some(whole) = whole else { unreachable!("blocks cover their segment") };
        whole
    }

    /// A granule that was [gathered](Self::gather) has these parts behind it: it is free there, and hollow elsewhere.
    pub(crate) fn spread(&mut self, mut id: BlockId, parts: &[Part]) {
        let at = self.heap.layout.blocks()[id].addr;
        let mut blocks = Vec::new();
        let borders = parts.iter().flat_map(|part| [part.addr, part.end()]);
        for border in borders {
            let block = &self.heap.layout.blocks()[id];
            if block.addr < border && border < block.end() {
                let upper = self.heap.cut_above(id, border - block.addr, BlockPhase::Busy);
                blocks.push(id);
                id = upper;
            }
        }
        blocks.push(id);
        self.settle(at, blocks, parts);
    }

    /// A granule that was [gathered](Self::gather) has no memory any more. Returns the segment, with its one block, if nothing of
    /// it has.
    pub(crate) fn vacate(&mut self, id: BlockId) -> Option<(SegmentId, BlockId)> {
        self.set_partial(self.heap.layout.blocks()[id].addr, false);
        self.heap.commit_vacate(id, self.granule)
    }
}
