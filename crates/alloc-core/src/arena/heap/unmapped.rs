//! Address space without memory, lowest first.

use crate::memory::block::{Block, BlockId, Tier};
use std::collections::BTreeSet;

/// Blocks without memory, by tier and address.
#[derive(Debug, Default)]
pub(super) struct Unmapped([BTreeSet<(u64, BlockId)>; 2]);

impl Unmapped {
    pub(super) fn insert(&mut self, block: &Block, id: BlockId) {
        self.0[block.tier as usize].insert((block.addr, id));
    }

    pub(super) fn remove(&mut self, block: &Block, id: BlockId) {
        self.0[block.tier as usize].remove(&(block.addr, id));
    }

    /// Blocks of a tier, each with its address.
    pub(super) fn of(&self, tier: Tier) -> impl Iterator<Item = (u64, BlockId)> {
        self.0[tier as usize].iter().copied()
    }
}
