//! Blocks whose memory sleeps. The granules' states are the truth; blocks follow them.
//!
//! A block that is in the program's hands is [`State::Asleep`] while some granule under it has no memory; free memory without
//! granules is [`State::Dormant`], in no index.

use super::ArenaState;
use crate::features::sleep::KeptBecause;
use crate::lifetimes::uses::Use;
use crate::memory::address_map::AddressMap;
use crate::memory::block::{Block, BlockId, SegmentId, State};
use crate::memory::region::{GranuleState, Region, RegionId};
use crate::memory::segment::Origin;
use crate::types::DevicePtr;
use smallvec::SmallVec;
use std::ops::Range;

/// What of a segment can go to sleep: ranges of mapped granules, and what cannot, with reasons.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) kept: Vec<(u64, KeptBecause)>,
}

impl ArenaState {
    /// The block at `ptr`, if it is in the program's hands, awake or asleep.
    pub(crate) fn live(&self, ptr: DevicePtr, id: BlockId) -> Option<BlockId> {
        let block = self.blocks.get(id)?;
        (block.addr == ptr.0 && block.state.is_live()).then_some(id)
    }

    /// A value takes the live block at `ptr`, or gives it up. `false` where it has one, or has none, already, or that is no
    /// live block.
    pub(crate) fn set_owned(&mut self, ptr: DevicePtr, id: BlockId, owned: bool) -> bool {
        let Some(id) = self.live(ptr, id) else { return false };
        let state = &mut self.blocks[id].state;
        let changes = state.is_owned() != owned;
        *state = state.owned(owned);
        changes
    }

    /// Whether a value has the live block at `ptr`.
    pub(crate) fn is_owned(&self, ptr: DevicePtr, id: BlockId) -> bool {
        self.live(ptr, id).is_some_and(|id| self.blocks[id].state.is_owned())
    }

    /// Growable segments with their region.
    pub(crate) fn growable_segments(&self) -> Vec<(SegmentId, RegionId)> {
        let region = |origin| match origin {
            Origin::Growable { region, .. } => Some(region),
            Origin::Fixed | Origin::View => None,
        };
        self.segments.iter().filter_map(|(id, segment)| Some((id, region(segment.origin)?))).collect()
    }

    /// Whether some block sleeps.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.blocks.iter().any(|(_, block)| block.state.is_asleep() || block.state == State::Dormant)
    }

    /// What of a growable segment can go to sleep. Blocks in the program's hands sleep as a whole or not at all; with
    /// `free_too`, so do free ones, else they stay.
    pub(crate) fn sleepers(&self, segment: SegmentId, region: &Region, free_too: bool) -> Sleepers {
        // Granules that blocks hold together, and why these stay awake, if they do.
        let mut groups: Vec<(Range<u64>, Option<KeptBecause>)> = Vec::new();
        for (_, block) in self.segment_blocks(segment) {
            let why = match block.state {
                State::Unmapped | State::Dormant | State::Blank | State::Vacant => continue,
                State::Free if !free_too => continue,
                State::Free | State::Allocated | State::Owned | State::Asleep | State::OwnedAsleep => None,
                State::Pending => Some(KeptBecause::Pending),
                State::Busy | State::Lent => Some(KeptBecause::Busy),
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
        let mut found = Sleepers::default();
        for (group, mut why) in groups {
            for at in group.clone().step_by(region.granule as usize) {
                let of_granule = match region.state_at(at) {
                    // Another place shows the same memory, and would show what is gone.
                    _ if self.remembered.hooks().keeps(segment, at) => Some(KeptBecause::Busy),
                    GranuleState::Mapped | GranuleState::Asleep | GranuleState::Free => None,
                    GranuleState::Pinned => Some(KeptBecause::Pinned),
                    GranuleState::Exported => Some(KeptBecause::Shared),
                    GranuleState::Pending => Some(KeptBecause::Busy),
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
                    let awake = |at: &u64| region.state_at(*at).is_backed();
                    let count = group.step_by(region.granule as usize).filter(awake).count() as u64;
                    found.kept.push((count * region.granule, because));
                }
            }
        }
        found
    }

    /// The blocks on a range of granules, which are about to lose their memory, sleep from here on.
    pub(crate) fn lie_down(&mut self, segment: SegmentId, range: &Range<u64>) {
        for id in self.blocks_on(segment, range) {
            match self.blocks[id].state {
                awake if awake.is_awake() => self.blocks[id].state = awake.asleep(true),
                State::Free => {
                    self.take_from_index(id);
                    let id = self.trim_free(id, range);
                    self.make_dormant(id);
                }
                _ => {}
            }
        }
    }

    fn blocks_on(&self, segment: SegmentId, range: &Range<u64>) -> Vec<BlockId> {
        let on = |block: &Block| block.addr < range.end && range.start < block.end();
        self.segment_blocks(segment).filter(|(_, block)| on(block)).map(|(id, _)| id).collect()
    }

    /// The blocks in the program's hands that sleep on a range.
    pub(crate) fn asleep_on(&self, segment: SegmentId, range: &Range<u64>) -> Vec<DevicePtr> {
        let asleep = |id: &BlockId| self.blocks[*id].state.is_asleep();
        let found = self.blocks_on(segment, range).into_iter().filter(asleep);
        found.map(|id| DevicePtr(self.blocks[id].addr)).collect()
    }

    /// Cuts what lies outside of `range` off a block that is in no index, and puts that among the free ones.
    fn trim_free(&mut self, mut id: BlockId, range: &Range<u64>) -> BlockId {
        let below = range.start.saturating_sub(self.blocks[id].addr);
        if below > 0 {
            let upper = self.cut_above(id, below, State::Busy);
            self.insert_free(id);
            id = upper;
        }
        if self.blocks[id].end() > range.end {
            let size = range.end - self.blocks[id].addr;
            self.cut_above(id, size, State::Free);
        }
        id
    }

    /// Free memory that sleeps; joined with what sleeps beside it.
    pub(super) fn make_dormant(&mut self, mut id: BlockId) {
        let dormant =
            |arena: &Self, id: BlockId| id.some().filter(|id| arena.blocks[*id].state == State::Dormant);
        if let Some(below) = dormant(self, self.blocks[id].prev) {
            self.blocks.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = dormant(self, self.blocks[id].next) {
            self.blocks.absorb_above(id, above);
        }
        let block = &mut self.blocks[id];
        (block.state, block.requested) = (State::Dormant, 0);
    }

    /// Takes a sleeping block back from the program; returns where it was, and its uses, which are over, to be dropped
    /// without a lock. `None` where that is no sleeping block.
    pub(crate) fn free_asleep(
        &mut self,
        map: &AddressMap,
        ptr: DevicePtr,
        id: BlockId,
    ) -> Option<(SegmentId, Range<u64>, SmallVec<[Use; 4]>)> {
        let is_mine = |block: &&Block| block.addr == ptr.0 && block.state == State::Asleep;
        let block = self.blocks.get(id).filter(is_mine)?;
        let (segment, range) = (block.segment, block.addr..block.end());
        let uses = self.forget_uses(id);
        self.take_back_asleep(map, id);
        Some((segment, range, uses))
    }

    /// After granules of a range changed, each block is what its granules say.
    pub(crate) fn follow(&mut self, segment: SegmentId, region: &Region, range: &Range<u64>) {
        let sleeps = |at: u64| matches!(region.state_at(at), GranuleState::Asleep | GranuleState::Pending);
        for id in self.blocks_on(segment, range) {
            let block = &self.blocks[id];
            let (addr, end) = (block.addr, block.end());
            match block.state {
                asleep if asleep.is_asleep() => {
                    let mut granules = region.around(addr..end).step_by(region.granule as usize);
                    if !granules.any(sleeps) {
                        self.blocks[id].state = asleep.asleep(false);
                    }
                }
                State::Dormant => {
                    // Pieces, each on granules that are all awake or all asleep.
                    let mut piece = id;
                    loop {
                        let Block { addr, .. } = self.blocks[piece];
                        let end = self.blocks[piece].end();
                        let asleep = sleeps(addr);
                        let mut border = region.around(addr..addr + 1).end;
                        while border < end && sleeps(border) == asleep {
                            border += region.granule;
                        }
                        let rest = (border < end).then(|| self.cut_above(piece, border - addr, State::Busy));
                        if asleep {
                            self.blocks[piece].state = State::Dormant;
                        } else {
                            self.blocks[piece].state = State::Busy;
                            self.return_free(piece);
                        }
                        let Some(rest) = rest else { break };
                        piece = rest;
                    }
                }
                _ => {}
            }
        }
    }

    /// Free memory that sleeps becomes address space without memory, by whole granules: it need not be woken. Returns the
    /// ranges, and the block that is all there is of the segment then, busy, if that is so.
    pub(crate) fn drop_dormant(
        &mut self,
        segment: SegmentId,
        region: &Region,
    ) -> (Vec<Range<u64>>, Option<BlockId>) {
        let dormant: Vec<BlockId> = self
            .segment_blocks(segment)
            .filter(|(_, block)| block.state == State::Dormant)
            .map(|(id, _)| id)
            .collect();
        let mut dropped = Vec::new();
        let mut whole = None;
        for id in dormant {
            let (addr, end) = (self.blocks[id].addr, self.blocks[id].end());
            let inner = region.within(addr..end);
            let settled = |at| region.state_at(at) == GranuleState::Asleep;
            // Those that a thread is waking are its business.
            if inner.is_empty() || !inner.clone().step_by(region.granule as usize).all(settled) {
                continue;
            }
            let mut middle = id;
            if addr < inner.start {
                middle = self.cut_above(id, inner.start - addr, State::Busy);
            }
            if inner.end < end {
                self.cut_above(middle, inner.end - inner.start, State::Dormant);
            }
            self.blocks[middle].state = State::Busy;
            if let Some((_, block)) = self.commit_vacate(middle, inner.end - inner.start) {
                whole = Some(block);
            }
            dropped.push(inner);
        }
        (dropped, whole)
    }
}
