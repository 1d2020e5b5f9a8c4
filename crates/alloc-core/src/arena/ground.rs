//! What the policy of an arena may do with it.

use super::{ArenaState, Heap};
use crate::memory::block::{BlockId, Tier};
use crate::policy::{Grain, GranuleMemory, PolicyArena};
use crate::watch::snapshot::Action;

impl PolicyArena<GranuleMemory> for ArenaState {
    type Ground = Heap;

    #[inline]
    fn ground(&self) -> &Heap {
        &self.heap
    }

    #[inline]
    fn ground_mut(&mut self) -> &mut Heap {
        &mut self.heap
    }

    fn is_past(&self, epoch: u64) -> bool {
        self.ledger.epochs().is_closed(epoch)
    }

    fn note_change(&mut self, action: Action, id: BlockId) {
        let block = &self.heap.layout().blocks()[id];
        self.ledger.history_mut().record(action, block.addr, block.size);
    }

    fn is_movable(&self) -> bool {
        self.tenure.grows() && !self.tenure.stays()
    }

    fn next_granule(&mut self, tier: Tier, minimum: u64, size: u64) -> Grain {
        let holding = self.ledger.holding(size);
        self.tenure.policy().granule(tier, minimum, &holding)
    }
}
