//! The block that was just freed, kept as it is for the next request of exactly its size.
//!
//! Programs often allocate what they have just freed. The last freed block of an arena is *parked*: not joined with its
//! neighbours, in no index, and still in the address map; it is [`State::Busy`], so that nobody touches it. Only the short
//! ways of `malloc` and `free` ever see it: whoever locks the arena for anything else, and a request of another size, first
//! [joins](ArenaState::settle) it with its neighbours. So parking decides which of several free places is taken, and nothing
//! else.

use super::{ArenaState, signed};
use crate::memory::block::BlockId;

/// The parked block of an arena.
#[derive(Debug)]
pub(super) struct Parked {
    /// 0 while there is none.
    pub(super) size: u64,
    pub(super) block: BlockId,
}

impl Default for Parked {
    fn default() -> Self {
        Self { size: 0, block: BlockId::NONE }
    }
}

impl ArenaState {
    /// What is parked is free: in fixed segments it counts as what it is, a block beside others.
    #[inline(always)]
    pub(super) fn count_parked(&mut self, id: BlockId, sign: i64) {
        let block = &self.blocks[id];
        if self.segments.is_fixed(block.segment) && block.is_split() {
            let (tier, bytes) = (block.tier, signed(block.size));
            self.change_splits(tier, (sign, sign * bytes));
        }
    }
}
