//! Cutting and joining blocks, and the two-step changes of growable segments: take blocks out as
//! [`State::Busy`], let the caller talk to the driver, then commit or undo.

use super::ArenaState;
use crate::memory::block::{BlockId, SegmentId, State, Tier};
use crate::memory::region::RegionId;
use crate::memory::segment::Origin;
use crate::policy::Holding;
use crate::watch::counters::Count;
use smallvec::SmallVec;
use std::ops::Range;

/// A part of a growth: from the candidate upwards.
#[derive(Clone, Copy, Debug)]
enum Link {
    /// Free memory that is there already.
    Mapped(BlockId),
    /// Address space of which the first bytes get memory.
    ToMap(BlockId, u64),
}

/// Memory to be mapped so that one free block serves a request. Its blocks are busy until
/// [`ArenaState::commit_growth`].
#[derive(Debug)]
pub(crate) struct Growth {
    pub(crate) region: RegionId,
    chain: Vec<Link>,
}

impl Growth {
    /// What to map, in order: address and bytes, each whole granules.
    pub(crate) fn maps(&self, arena: &ArenaState) -> Vec<(u64, u64)> {
        let to_map = |link: &Link| match link {
            Link::ToMap(id, bytes) => Some((arena.blocks[*id].addr, *bytes)),
            Link::Mapped(_) => None,
        };
        self.chain.iter().filter_map(to_map).collect()
    }
}

impl ArenaState {
    /// A growable segment got memory: the first operation that did so is where it came from.
    pub(crate) fn note_segment_context(&mut self, region: RegionId) {
        if let Some(call) = self.history.call() {
            let of_region = |origin| matches!(origin, Origin::Growable { region: own, .. } if own == region);
            if let Some(segment) = self.segments.find_mut(|segment| of_region(segment.origin)) {
                segment.context.get_or_insert(call);
            }
        }
    }

    pub(crate) fn insert_unmapped(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = State::Unmapped;
        let (tier, addr) = (block.tier, block.addr);
        self.unmapped[tier as usize].insert((addr, id));
    }

    fn take_unmapped(&mut self, id: BlockId) {
        let (tier, addr) = (self.blocks[id].tier, self.blocks[id].addr);
        self.unmapped[tier as usize].remove(&(addr, id));
    }

    /// Joins a busy block that has memory with free neighbours; it stays busy, possibly under the lower
    /// neighbour's id.
    pub(crate) fn join_free(&mut self, mut id: BlockId) -> BlockId {
        if let Some(below) = self.neighbour_in(State::Free, self.blocks[id].prev) {
            self.take_from_index(below);
            self.blocks.absorb_above(below, id);
            self.blocks[below].state = State::Busy;
            id = below;
        }
        if let Some(above) = self.neighbour_in(State::Free, self.blocks[id].next) {
            self.take_from_index(above);
            self.blocks.absorb_above(id, above);
        }
        id
    }

    /// Makes a busy block without memory part of the unmapped address space around it, which keeps its requested size: what is
    /// mapped there again shows that, as in PyTorch.
    fn join_unmapped(&mut self, mut id: BlockId) -> BlockId {
        let requested = self.blocks[id].requested;
        if let Some(below) = self.neighbour_in(State::Unmapped, self.blocks[id].prev) {
            self.take_unmapped(below);
            self.blocks.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = self.neighbour_in(State::Unmapped, self.blocks[id].next) {
            self.take_unmapped(above);
            self.blocks.absorb_above(id, above);
        }
        self.blocks[id].requested = requested;
        self.insert_unmapped(id);
        id
    }

    fn neighbour_in(&self, state: State, id: BlockId) -> Option<BlockId> {
        id.some().filter(|id| self.blocks[*id].state == state)
    }

    /// The granules of a new growable segment for a request of `size` bytes.
    pub(crate) fn next_granule(&mut self, tier: Tier, minimum: u64, size: u64) -> u64 {
        let in_use = self.counters.both(Count::ActiveBytes).unsigned_abs();
        // The request itself may be refused, and then was not needed.
        self.most_needed = self.most_needed.max(in_use);
        let most = self.most_needed.max(in_use.saturating_add(size));
        let holding = Holding { most, in_use, taken_back: self.counters.bytes_taken_back() };
        self.policy.granule(tier, minimum, &holding)
    }

    /// Bytes to be mapped where [`plan_growth`](Self::plan_growth) would find room.
    pub(crate) fn missing_memory(&self, tier: Tier, size: u64, of: u64) -> Option<u64> {
        let growth = self.room_for(tier, size, of)?;
        Some(growth.maps(self).iter().map(|(_, bytes)| bytes).sum())
    }

    /// Finds room for `size` bytes in the growable segments of `tier` (reference §5.2) whose granules have `of` bytes, or any
    /// where that is 0, and takes it out.
    pub(crate) fn plan_growth(&mut self, tier: Tier, size: u64, of: u64) -> Option<Growth> {
        let growth = self.room_for(tier, size, of)?;
        Some(self.take_out(growth))
    }

    /// As [`plan_growth`](Self::plan_growth), for `bytes` of new memory whatever is free beside it.
    pub(crate) fn plan_stock(&mut self, tier: Tier, bytes: u64, of: u64) -> Option<Growth> {
        let (region, link) = self.unmapped[tier as usize].iter().find_map(|(_, id)| {
            let block = &self.blocks[*id];
            let (region, granule) = self.region_of(block.segment, of)?;
            let bytes = bytes.next_multiple_of(granule);
            (block.size >= bytes).then_some((region, Link::ToMap(*id, bytes)))
        })?;
        Some(self.take_out(Growth { region, chain: vec![link] }))
    }

    /// Region and granule of a growable segment whose granules have `of` bytes, or any where that is 0.
    fn region_of(&self, segment: SegmentId, of: u64) -> Option<(RegionId, u64)> {
        match self.segments[segment].origin {
            Origin::Growable { region, granule } if of == 0 || granule == of => Some((region, granule)),
            _ => None,
        }
    }

    fn take_out(&mut self, growth: Growth) -> Growth {
        for link in &growth.chain {
            match link {
                Link::Mapped(id) => self.take_from_index(*id),
                Link::ToMap(id, _) => self.take_unmapped(*id),
            }
            let (Link::Mapped(id) | Link::ToMap(id, _)) = *link;
            self.blocks[id].state = State::Busy;
        }
        growth
    }

    fn room_for(&self, tier: Tier, size: u64, of: u64) -> Option<Growth> {
        let start = self.unmapped[tier as usize].iter().find_map(|(_, unmapped)| {
            self.region_of(self.blocks[*unmapped].segment, of)?;
            let candidate = self.neighbour_in(State::Free, self.blocks[*unmapped].prev).unwrap_or(*unmapped);
            let mut room = 0;
            for (_, block) in self.blocks.upwards(candidate) {
                if !matches!(block.state, State::Free | State::Unmapped) {
                    break;
                }
                room += block.size;
                if room >= size {
                    return Some(candidate);
                }
            }
            None
        })?;
        let segment = &self.segments[self.blocks[start].segment];
        let Origin::Growable { region, granule } = segment.origin else { return None };
        let base = segment.base;
        let mut chain = Vec::new();
        let mut have = 0;
        for (id, block) in self.blocks.upwards(start) {
            if have >= size {
                break;
            }
            if block.state == State::Free {
                chain.push(Link::Mapped(id));
                have += block.size;
            } else {
                let wanted = block.size.min(size - have);
                let end = (block.addr - base + wanted).next_multiple_of(granule) + base;
                let bytes = (end - block.addr).min(block.size);
                chain.push(Link::ToMap(id, bytes));
                have += bytes;
            }
        }
        Some(Growth { region, chain })
    }

    /// Commits a growth of which the first `mapped` maps succeeded. Returns the block that now has room for
    /// the request, in no index, if all did; otherwise what was mapped is free, the rest is as before.
    pub(crate) fn commit_growth(&mut self, growth: Growth, mapped: usize) -> Option<BlockId> {
        let mut maps = 0;
        let mut run: Option<BlockId> = None;
        let mut requested = None;
        let mut complete = true;
        for link in growth.chain {
            let id = match link {
                Link::Mapped(id) => id,
                Link::ToMap(id, bytes) if maps < mapped => {
                    maps += 1;
                    requested = Some(self.blocks[id].requested);
                    if bytes < self.blocks[id].size {
                        let rest = self.cut_above(id, bytes, State::Busy);
                        self.blocks[rest].requested = 0;
                        self.join_unmapped(rest);
                    }
                    id
                }
                Link::ToMap(id, _) => {
                    complete = false;
                    if let Some(run) = run.take() {
                        self.return_free(run);
                    }
                    self.join_unmapped(id);
                    continue;
                }
            };
            match run {
                Some(lower) => self.blocks.absorb_above(lower, id),
                None => run = Some(id),
            }
        }
        let run = self.join_free(run?);
        if let Some(requested) = requested {
            self.blocks[run].requested = requested;
        }
        if complete {
            return Some(run);
        }
        self.insert_free(run);
        None
    }

    /// Returns a busy block with memory to the free ones.
    pub(crate) fn return_free(&mut self, id: BlockId) {
        let id = self.join_free(id);
        self.insert_free(id);
    }

    /// Takes a range out of a free block, as busy; what is left at either end stays free, and nobody asked for it as it is.
    pub(crate) fn take_range(&mut self, id: BlockId, low: u64, high: u64) -> BlockId {
        let (addr, end) = (self.blocks[id].addr, self.blocks[id].end());
        self.take_from_index(id);
        let requested = std::mem::take(&mut self.blocks[id].requested);
        let mut middle = id;
        if addr < low {
            middle = self.cut_above(id, low - addr, State::Busy);
            self.insert_free(id);
        }
        if high < end {
            self.cut_above(middle, high - low, State::Free);
        }
        self.blocks[middle].requested = requested;
        self.blocks[middle].state = State::Busy;
        middle
    }

    /// Takes the whole granules of a free block of a growable segment that the policy does not keep out, as busy; the rest stays
    /// free.
    pub(crate) fn begin_vacate(&mut self, id: BlockId) -> SmallVec<[BlockId; 2]> {
        let block = &self.blocks[id];
        let number = block.segment;
        let segment = &self.segments[number];
        let Origin::Growable { granule, .. } = segment.origin else { return SmallVec::new() };
        let base = segment.base;
        let low = (block.addr - base).next_multiple_of(granule) + base;
        let high = (block.end() - base) / granule * granule + base;
        let mut runs: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        for at in (low..high.max(low)).step_by(granule as usize) {
            if self.remembered.hooks().keeps(number, at) {
                continue;
            }
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end = at + granule,
                None => runs.push(at..at + granule),
            }
        }
        let mut holder = id;
        runs.into_iter()
            .map(|run| {
                let part = self.take_range(holder, run.start, run.end);
                holder = self.blocks[part].next;
                part
            })
            .collect()
    }

    /// Takes out, as busy, the block of every growable segment of `tier` that has no memory at all.
    pub(crate) fn take_empty_regions(&mut self, tier: Tier) -> Vec<(SegmentId, BlockId, RegionId)> {
        let whole = self.unmapped[tier as usize].iter().map(|(_, id)| *id);
        let whole: Vec<BlockId> = whole.filter(|id| !self.blocks[*id].is_split()).collect();
        let mut empty = Vec::new();
        for id in whole {
            let segment = self.blocks[id].segment;
            let Origin::Growable { region, .. } = self.segments[segment].origin else { continue };
            self.take_unmapped(id);
            self.blocks[id].state = State::Busy;
            empty.push((segment, id, region));
        }
        empty
    }

    /// Commits a vacating of which the first `bytes` lost their memory. Returns the segment if nothing of
    /// it has memory any more; its one block is busy then, ready to be given back.
    pub(crate) fn commit_vacate(&mut self, id: BlockId, bytes: u64) -> Option<(SegmentId, BlockId)> {
        if bytes == 0 {
            self.return_free(id);
            return None;
        }
        if bytes < self.blocks[id].size {
            let rest = self.cut_above(id, bytes, State::Busy);
            self.return_free(rest);
        }
        self.blocks[id].epoch = 0;
        let id = self.join_unmapped(id);
        if self.blocks[id].is_split() {
            return None;
        }
        self.take_unmapped(id);
        self.blocks[id].state = State::Busy;
        Some((self.blocks[id].segment, id))
    }
}
