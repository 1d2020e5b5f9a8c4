//! What the policy of an arena may do with it.

use super::ArenaState;
use crate::base::ids::PoolSlot;
use crate::memory::block::{BlockId, BlockTable, SegmentId, State, Tier};
use crate::memory::segment::{Segment, SegmentTable};
use crate::policy::{GranuleMemory, Ground, Remembered};
use crate::watch::snapshot::Action;
use smallvec::SmallVec;

impl Ground<GranuleMemory> for ArenaState {
    #[inline]
    fn memory(&self) -> &GranuleMemory {
        match &self.remembered {
            Remembered::Granule(memory) => memory,
            Remembered::Nothing(()) => unreachable!("only who remembers is asked"),
        }
    }

    #[inline]
    fn memory_mut(&mut self) -> &mut GranuleMemory {
        match &mut self.remembered {
            Remembered::Granule(memory) => memory,
            Remembered::Nothing(()) => unreachable!("only who remembers is asked"),
        }
    }

    #[inline]
    fn blocks(&self) -> &BlockTable {
        &self.blocks
    }

    #[inline]
    fn blocks_mut(&mut self) -> &mut BlockTable {
        &mut self.blocks
    }

    #[inline]
    fn segments(&self) -> &SegmentTable {
        &self.segments
    }

    fn is_past(&self, epoch: u64) -> bool {
        self.epochs.is_closed(epoch)
    }

    fn note_change(&mut self, action: Action, id: BlockId) {
        if self.history.is_on() {
            let (addr, size) = (self.blocks[id].addr, self.blocks[id].size);
            self.history.record(action, addr, size);
        }
    }

    fn add_segment(&mut self, segment: Segment, state: State) -> (SegmentId, BlockId) {
        self.add_segment(segment, state)
    }

    fn remove_segment(&mut self, id: SegmentId, only: BlockId) -> Option<Segment> {
        self.remove_segment(id, only)
    }

    fn has_free(&self, tier: Tier, bytes: u64) -> bool {
        self.placement.placed().has(tier, bytes)
    }

    fn free(&self, tier: Tier, bytes: u64) -> Vec<BlockId> {
        self.placement.placed().at_least(tier, bytes).collect()
    }

    fn begin_vacate(&mut self, id: BlockId) -> SmallVec<[BlockId; 2]> {
        self.begin_vacate(id)
    }

    fn is_movable(&self) -> bool {
        self.pool.slot == PoolSlot::DEFAULT && self.grows()
    }

    fn next_granule(&mut self, tier: Tier, minimum: u64, size: u64) -> u64 {
        self.next_granule(tier, minimum, size)
    }

    fn missing_memory(&self, tier: Tier, size: u64, of: u64) -> Option<u64> {
        self.missing_memory(tier, size, of)
    }

    fn cut_above(&mut self, id: BlockId, size: u64, upper_state: State) -> BlockId {
        self.cut_above(id, size, upper_state)
    }

    fn take_range(&mut self, id: BlockId, low: u64, high: u64) -> BlockId {
        self.take_range(id, low, high)
    }

    fn return_free(&mut self, id: BlockId) {
        self.return_free(id);
    }
}
