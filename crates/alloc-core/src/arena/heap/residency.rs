//! Blocks whose memory sleeps. The granules' states are the truth; blocks follow them.
//!
//! A live block is asleep while some granule under it has no memory; free memory without granules is
//! [`BlockPhase::FreeAsleep`], in no index.

use super::Heap;
use crate::features::sleep::KeptBecause;
use crate::memory::block::{BlockId, BlockPhase, Live, SegmentId};
use crate::memory::region::{GranuleState, Region};
use std::ops::Range;

/// Parts of a segment that can sleep: ranges of mapped granules; and parts that cannot, with reasons.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) kept: Vec<(u64, KeptBecause)>,
}

impl Sleepers {
    /// Parts of a growable segment that can sleep. Blocks in the program's hands sleep as a whole or not at all; with
    /// `free_too`, so do free ones, else they stay.
    pub(crate) fn of(
        heap: &Heap,
        segment: SegmentId,
        region: &Region,
        has_aliases: impl Fn(u64) -> bool,
        free_too: bool,
    ) -> Self {
        let groups = Self::groups(heap, segment, region, free_too);
        let mut found = Self::default();
        for (group, mut why) in groups {
            for (at, _, state) in region.granules(group.clone()) {
                let of_granule = match state {
                    // Another mapping would show what is gone.
                    _ if has_aliases(at) => Some(KeptBecause::Busy),
                    GranuleState::Mapped | GranuleState::Asleep | GranuleState::Free => None,
                    GranuleState::Exported => Some(KeptBecause::Shared),
                    GranuleState::Pending | GranuleState::Alias => Some(KeptBecause::Busy),
                };
                why = why.or(of_granule);
            }
            match why {
                None => {
                    for run in region.runs(group, GranuleState::Mapped) {
                        match found.ranges.last_mut().filter(|range| range.end == run.start) {
                            Some(range) => range.end = run.end,
                            None => found.ranges.push(run),
                        }
                    }
                }
                Some(because) => {
                    let awake = region.granules(group).filter(|(.., state)| state.is_backed());
                    found.kept.push((awake.map(|(_, bytes, _)| bytes).sum(), because));
                }
            }
        }
        found
    }

    /// Granules that blocks of a segment hold together, and the reason why these stay awake, if they do.
    fn groups(
        heap: &Heap,
        segment: SegmentId,
        region: &Region,
        free_too: bool,
    ) -> Vec<(Range<u64>, Option<KeptBecause>)> {
        let mut groups: Vec<(Range<u64>, Option<KeptBecause>)> = Vec::new();
        for (_, block) in heap.layout.of_segment(segment) {
            let why = match block.state {
                BlockPhase::Unmapped | BlockPhase::FreeAsleep | BlockPhase::Alias | BlockPhase::Unused => {
                    continue;
                }
                BlockPhase::Free if !free_too => continue,
                BlockPhase::Free | BlockPhase::Live(_) => None,
                BlockPhase::Pending => Some(KeptBecause::Pending),
                BlockPhase::Busy | BlockPhase::Lent => Some(KeptBecause::Busy),
            };
            let granules = region.around(block.addr..block.end());
            match groups.last_mut().filter(|(group, _)| granules.start < group.end) {
                Some((group, known)) => {
                    group.end = group.end.max(granules.end);
                    *known = known.or(why);
                }
                None => groups.push((granules, why)),
            }
        }
        groups
    }
}

/// A growable segment with sleeping blocks.
pub(crate) struct Bed<'a> {
    heap: &'a mut Heap,
    segment: SegmentId,
}

impl<'a> Bed<'a> {
    pub(crate) fn of(heap: &'a mut Heap, segment: SegmentId) -> Self {
        Self { heap, segment }
    }

    /// The blocks that lie on a range of addresses.
    pub(crate) fn on(&self, range: &Range<u64>) -> Vec<BlockId> {
        let below = self.heap.memory().and_then(|memory| memory.below(self.segment, range.start));
        self.heap.layout.on(below.unwrap_or(self.heap.layout.segments()[self.segment].first), range)
    }

    /// Puts the blocks on a range of granules, which are about to lose their memory, to sleep.
    pub(crate) fn lie_down(&mut self, range: &Range<u64>) {
        for id in self.on(range) {
            match self.heap.layout.blocks()[id].state {
                BlockPhase::Live(live) => self.set(id, BlockPhase::Live(Live::new(live.is_owned(), true))),
                BlockPhase::Free => {
                    self.heap.take_free(id);
                    let id = self.trim_free(id, range);
                    free_asleep(self.heap, id);
                }
                _ => {}
            }
        }
    }

    fn set(&mut self, id: BlockId, state: BlockPhase) {
        self.heap.layout.blocks_mut()[id].state = state;
    }

    /// Cuts the parts outside of `range` off a block that is in no index, and puts them among the free ones.
    fn trim_free(&mut self, mut id: BlockId, range: &Range<u64>) -> BlockId {
        let below = range.start.saturating_sub(self.heap.layout.blocks()[id].addr);
        if below > 0 {
            let upper = self.heap.cut_above(id, below, BlockPhase::Busy);
            self.heap.insert_free(id);
            id = upper;
        }
        let block = &self.heap.layout.blocks()[id];
        if block.end() > range.end {
            let size = range.end - block.addr;
            self.heap.cut_above(id, size, BlockPhase::Free);
        }
        id
    }

    /// Sets each block to the state of its granules, after these changed.
    pub(crate) fn follow(&mut self, region: &Region, range: &Range<u64>) {
        for id in self.on(range) {
            let block = &self.heap.layout.blocks()[id];
            match block.state {
                BlockPhase::Live(live)
                    if live.is_asleep() && !region.states(block.addr..block.end()).any(sleeps) =>
                {
                    self.set(id, BlockPhase::Live(Live::new(live.is_owned(), false)));
                }
                BlockPhase::FreeAsleep => self.wake_pieces(region, id),
                _ => {}
            }
        }
    }

    /// Cuts free memory that sleeps into pieces, each on granules that are all awake or all asleep. The former are free.
    fn wake_pieces(&mut self, region: &Region, mut piece: BlockId) {
        loop {
            let block = &self.heap.layout.blocks()[piece];
            let (addr, end) = (block.addr, block.end());
            let around = region.around(addr..end);
            let mut granules = region.granules(around).map(|(at, bytes, state)| (at + bytes, sleeps(state)));
            let (mut border, asleep) = granules.next().unwrap_or((end, false));
            for (next, _) in granules.take_while(|(_, sleeps)| *sleeps == asleep) {
                border = next;
            }
            let rest = (border < end).then(|| self.heap.cut_above(piece, border - addr, BlockPhase::Busy));
            if asleep {
                self.set(piece, BlockPhase::FreeAsleep);
            } else {
                self.set(piece, BlockPhase::Busy);
                self.heap.return_free(piece);
            }
            let Some(rest) = rest else { break };
            piece = rest;
        }
    }

    /// Turns free memory that sleeps into address space without memory, by whole granules: it need not be woken.
    /// Returns the ranges, and the segment's one block, busy, if nothing else is left of the segment.
    pub(crate) fn drop_free_asleep(&mut self, region: &Region) -> (Vec<Range<u64>>, Option<BlockId>) {
        let asleep = self.heap.layout.of_segment(self.segment);
        let asleep = asleep.filter(|(_, block)| block.state == BlockPhase::FreeAsleep);
        let asleep: Vec<BlockId> = asleep.map(|(id, _)| id).collect();
        let mut dropped = Vec::new();
        let mut whole = None;
        for id in asleep {
            let block = &self.heap.layout.blocks()[id];
            let (addr, end) = (block.addr, block.end());
            let inner = region.within(addr..end);
            // Granules that another thread is waking are left to it.
            let is_asleep = |(.., state): (u64, u64, GranuleState)| state == GranuleState::Asleep;
            if inner.is_empty() || !region.granules(inner.clone()).all(is_asleep) {
                continue;
            }
            let mut middle = id;
            if addr < inner.start {
                middle = self.heap.cut_above(id, inner.start - addr, BlockPhase::Busy);
            }
            if inner.end < end {
                self.heap.cut_above(middle, inner.end - inner.start, BlockPhase::FreeAsleep);
            }
            self.set(middle, BlockPhase::Busy);
            if let Some((_, block)) = self.heap.commit_evict(middle, inner.end - inner.start) {
                whole = Some(block);
            }
            dropped.push(inner);
        }
        (dropped, whole)
    }
}

fn sleeps(state: GranuleState) -> bool {
    matches!(state, GranuleState::Asleep | GranuleState::Pending)
}

/// Turns a busy or sleeping block into free memory that sleeps, joined with neighbours of its kind.
pub(in crate::arena) fn free_asleep(heap: &mut Heap, id: BlockId) {
    let id = heap.layout.join(id, BlockPhase::FreeAsleep);
    let block = &mut heap.layout.blocks_mut()[id];
    (block.state, block.requested) = (BlockPhase::FreeAsleep, 0);
}
