//! Granules that are in use in part: what of them is free and could lose its memory.

use super::Heap;
use crate::memory::block::{Block, BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::region::{Mapping, RegionId};
use crate::memory::segment::{Origin, Segment};
use crate::policy::Ground;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A granule that is in use in part.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    pub(crate) segment: SegmentId,
    pub(crate) region: RegionId,
    /// Its addresses.
    pub(crate) granule: Range<u64>,
    /// What is free of it, in whole units, ascending.
    pub(crate) free: Vec<Range<u64>>,
    /// Views show it, where no block uses it.
    pub(crate) shown: bool,
}

impl Sparse {
    /// What is not free of it, in whole units, ascending.
    pub(crate) fn stays(&self) -> Vec<Range<u64>> {
        let mut from = self.granule.start;
        let end = self.granule.end..self.granule.end;
        let between = self.free.iter().cloned().chain([end]).map(|free| {
            let before = from..free.start;
            from = free.end;
            before
        });
        between.filter(|range| !range.is_empty()).collect()
    }

    /// Bytes of what is free.
    pub(crate) fn gain(&self) -> u64 {
        self.free.iter().map(|range| range.end - range.start).sum()
    }

    /// Bytes of what is not.
    pub(crate) fn rest(&self) -> u64 {
        self.granule.end - self.granule.start - self.gain()
    }
}

/// A growable segment, granules of which are in use in part.
pub(crate) struct Sparses<'a> {
    heap: &'a mut Heap,
    segment: SegmentId,
    region: RegionId,
    unit: u64,
}

impl<'a> Sparses<'a> {
    /// `None` where the segment does not grow.
    pub(crate) fn of(heap: &'a mut Heap, segment: SegmentId) -> Option<Self> {
        let Origin::Growable { region, unit } = heap.layout.segments()[segment].origin else {
            return None;
        };
        Some(Self { heap, segment, region, unit })
    }

    /// That of the segment.
    pub(crate) fn tier(&self) -> Tier {
        self.record().tier
    }

    fn record(&self) -> &Segment {
        &self.heap.layout.segments()[self.segment]
    }

    /// The granules that are in use in part, of which whole units are free. Those are left out that a block touches which is
    /// neither free nor at rest in the program's hands, or of which `is_fixed` says that it is not to be moved. What a block in a
    /// view uses is lent, and so at rest in nobody's.
    pub(crate) fn find(&self, is_fixed: impl Fn(&Block) -> bool) -> Vec<Sparse> {
        let granules = &self.record().granules;
        let mut free: BTreeMap<u64, Sparse> = BTreeMap::new();
        let mut fixed: BTreeSet<u64> = BTreeSet::new();
        for (_, block) in self.heap.layout.of_segment(self.segment) {
            match block.state {
                BlockPhase::Unmapped => {}
                BlockPhase::Free => {
                    let ends = [granules.at(block.addr), granules.at(block.end() - 1)];
                    let count = if ends[0] == ends[1] { 1 } else { 2 };
                    for granule in ends.into_iter().take(count) {
                        self.note_free(&mut free, granule, block);
                    }
                }
                BlockPhase::Allocated | BlockPhase::Owned if !is_fixed(block) => {}
                _ => {
                    let touched = granules.each(granules.around(block.addr..block.end()));
                    fixed.extend(touched.map(|granule| granule.start));
                }
            }
        }
        let hooks = self.heap.hooks();
        let movable = free.into_values().filter(|found| !fixed.contains(&found.granule.start));
        movable
            .map(|found| Sparse { shown: hooks.keeps(self.segment, found.granule.start), ..found })
            .collect()
    }

    /// A free block holds the beginning or the end of a granule, or something in between.
    fn note_free(&self, free: &mut BTreeMap<u64, Sparse>, granule: Range<u64>, block: &Block) {
        let inside = |addr: u64| addr.clamp(granule.start, granule.end) - granule.start;
        let low = inside(block.addr).next_multiple_of(self.unit) + granule.start;
        let high = inside(block.end()) / self.unit * self.unit + granule.start;
        if low >= high || (low..high) == granule {
            return;
        }
        let (segment, region) = (self.segment, self.region);
        let new = || Sparse { segment, region, granule: granule.clone(), free: Vec::new(), shown: false };
        free.entry(granule.start).or_insert_with(new).free.push(low..high);
    }

    /// Takes what is free of a granule out, as busy, and lets no view show it meanwhile. `None` where some of it is not free.
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
        self.set_moving(&sparse.granule, true);
        Some(taken)
    }

    fn set_moving(&mut self, granule: &Range<u64>, moving: bool) {
        self.heap.remembered.hooks_mut().set_moving(self.segment, granule, moving);
    }

    /// This memory is behind a granule now, which may be several. The busy blocks have lost theirs, or are free again where some
    /// is behind them.
    pub(crate) fn settle(&mut self, granule: &Range<u64>, blocks: Vec<BlockId>, memory: &[Mapping]) {
        if let Some(granules) = self.heap.layout.granules_mut(self.segment) {
            granules.clear(granule.clone());
            for mapping in memory {
                granules.set(mapping.addr, [mapping.bytes]);
            }
        }
        for id in blocks {
            let block = &mut self.heap.layout.blocks_mut()[id];
            let range = block.addr..block.end();
            if memory.iter().any(|mapping| mapping.addr <= range.start && range.end <= mapping.end()) {
                self.heap.return_free(id);
            } else {
                (block.requested, block.epoch) = (0, 0);
                self.heap.join_unmapped(id);
            }
        }
        self.set_moving(granule, false);
    }
}
