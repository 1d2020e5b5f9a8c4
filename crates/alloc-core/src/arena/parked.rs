//! The block that was just freed, kept as it is for the next request of exactly its size.
//!
//! Programs often allocate what they have just freed. The last freed block of an arena is *parked*: not joined with its
//! neighbours, in no index, and still in the address map; it is [`State::Busy`], so that nobody touches it. Only the short
//! ways of `malloc` and `free` ever see it: whoever locks the arena for anything else, and a request of another size, first
//! [joins](ArenaState::settle) it with its neighbours. So parking decides which of several free places is taken, and nothing
//! else.

use super::{ArenaState, FreeStep, signed};
use crate::memory::address_map::AddressMap;
use crate::memory::block::{Block, BlockId, NO_USES, State};
use crate::policy::Request;
use crate::types::DevicePtr;

/// The parked block of an arena.
#[derive(Debug)]
pub(super) struct Parked {
    /// 0 while there is none.
    size: u64,
    block: BlockId,
}

impl Default for Parked {
    fn default() -> Self {
        Self { size: 0, block: BlockId::NONE }
    }
}

impl ArenaState {
    /// Hands out the parked block, if it has exactly the size of `request`.
    #[inline(always)]
    pub(crate) fn hand_out_parked(&mut self, request: &Request) -> Option<DevicePtr> {
        if !self.traits.parks || self.parked.size != request.size {
            return None;
        }
        self.parked.size = 0;
        let id = self.parked.block;
        self.count_parked(id, -1);
        Some(self.give(id, request.requested))
    }

    /// [`free`](Self::free) for the short way: parks the block where the policy wants that.
    #[inline(always)]
    pub(crate) fn free_shortly(&mut self, map: &AddressMap, id: BlockId) -> FreeStep {
        // Ages of free blocks count from their free.
        if !self.traits.parks || self.ages || self.blocks[id].uses != NO_USES {
            return self.free(map, id);
        }
        self.settle();
        self.take_back(id);
        let block = &mut self.blocks[id];
        block.state = State::Busy;
        self.parked = Parked { size: block.size, block: id };
        self.count_parked(id, 1);
        FreeStep::Done
    }

    /// What is parked is free: in fixed segments it counts as what it is, a block beside others.
    #[inline(always)]
    fn count_parked(&mut self, id: BlockId, sign: i64) {
        let block = &self.blocks[id];
        if self.segments.is_fixed(block.segment) && block.is_split() {
            let (tier, bytes) = (block.tier, signed(block.size));
            self.change_splits(tier, (sign, sign * bytes));
        }
    }

    /// Joins what is parked with its neighbours.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        if self.traits.parks && self.parked.size != 0 {
            self.join_parked();
        }
    }

    #[inline(never)]
    fn join_parked(&mut self) {
        self.parked.size = 0;
        let id = self.parked.block;
        let neighbours = self.free_neighbours(id);
        let Block { addr, size, segment, .. } = self.blocks[id];
        self.map.remove(DevicePtr(addr));
        let counts = self.segments.is_fixed(segment) && self.blocks[id].is_split();
        let counted = if counts { (1, signed(size)) } else { (0, 0) };
        self.join_freed(id, neighbours, counted);
    }
}
