//! The free blocks of an arena under the `granule` policy, and what that remembers of the arena.

mod borders;
mod checks;
mod home;
mod pieces;
mod remembered;
mod shown;
mod views;

pub(crate) use borders::{Borders, FreePart, Parts};
pub(crate) use checks::{check_shown, check_views};
pub(crate) use home::{free_range, granule_at};
pub(crate) use pieces::Plan;
pub(crate) use remembered::Memory;
pub(crate) use shown::{Blocks, Shown, Slot, SlotState};
pub(crate) use views::{add_view, give_home_back, run_for, take_home, take_in_view, take_run};

use super::rules::Rules;
use super::{ArenaOf, Heap};
use crate::memory::block::{Block, BlockId, BlockTable, Tier};
use crate::memory::index::SegregatedIndex;
use crate::memory::layout::Layout;
use crate::memory::segment::SegmentTable;
use crate::policy::{GranulePolicy, Policy, Request};

/// The free blocks of an arena under the `granule` policy, by tier, and what it remembers.
#[derive(Debug)]
pub(crate) struct Granule {
    policy: GranulePolicy,
    free: [SegregatedIndex; 2],
    memory: Memory,
}

impl Granule {
    pub(super) fn new(policy: &GranulePolicy) -> Self {
        Self { policy: policy.clone(), free: Default::default(), memory: Memory::default() }
    }
}

impl Heap<Granule> {
    pub(crate) fn known(&self) -> &Memory {
        &self.rules.memory
    }

    pub(crate) fn known_mut(&mut self) -> &mut Memory {
        &mut self.rules.memory
    }

    /// Both at once.
    pub(crate) fn known_and_segments(&mut self) -> (&mut Memory, &SegmentTable) {
        (&mut self.rules.memory, self.layout.segments())
    }
}

impl Rules for Granule {
    #[inline(always)]
    fn request(&self, bytes: u64) -> Request {
        self.policy.request(bytes)
    }

    #[inline(always)]
    fn splits(&self, block: u64, request: &Request) -> bool {
        self.policy.splits(block, request)
    }

    #[inline(always)]
    fn take_fit(
        &mut self,
        blocks: &BlockTable,
        segments: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId> {
        let found = self.policy.take_fit(&mut self.free[request.tier as usize], blocks, segments, request)?;
        self.memory.removed(&blocks[found], found);
        Some(found)
    }

    #[inline(always)]
    fn insert(&mut self, block: &Block, id: BlockId) {
        self.free[block.tier as usize].insert(block, id);
        self.memory.inserted(block, id);
    }

    #[inline(always)]
    fn remove(&mut self, block: &Block, id: BlockId) {
        self.free[block.tier as usize].remove(block, id);
        self.memory.removed(block, id);
    }

    #[inline(always)]
    fn take_out(&mut self, block: &Block, id: BlockId) {
        self.free[block.tier as usize].remove(block, id);
    }

    #[inline(always)]
    fn put_back(&mut self, block: &Block, id: BlockId) {
        self.free[block.tier as usize].insert(block, id);
        self.memory.resized(block, id);
    }

    fn has(&self, tier: Tier, bytes: u64) -> bool {
        self.free[tier as usize].has(bytes)
    }

    fn at_least(&self, tier: Tier, bytes: u64) -> Box<dyn Iterator<Item = BlockId> + '_> {
        Box::new(self.free[tier as usize].at_least(bytes))
    }

    fn follow(&mut self, policy: &Policy) {
        match policy {
            Policy::Granule(policy) => self.policy = policy.clone(),
            Policy::Pytorch(_) => unreachable!("an allocator keeps its policy"),
        }
    }

    fn clear(&mut self) {
        (self.free, self.memory) = Default::default();
    }

    fn check(&self, tier: Tier) {
        self.free[tier as usize].check();
    }

    fn memory(&self) -> Option<&Memory> {
        Some(&self.memory)
    }

    fn memory_mut(&mut self) -> Option<&mut Memory> {
        Some(&mut self.memory)
    }

    /// Wherever it has the size: but nothing is served from views any more where the places of blocks count.
    #[inline(always)]
    fn takes_parked(&self, layout: &Layout, id: BlockId, _: &Request) -> bool {
        !(self.memory.stays_at_home() && layout.segments().is_view(layout.blocks()[id].segment))
    }

    #[inline(always)]
    fn end_loan(arena: &mut ArenaOf<Self>, id: BlockId) -> bool {
        let layout = arena.layout();
        let is_lent = layout.segments().is_view(layout.blocks()[id].segment);
        if is_lent {
            views::end_loan(arena, id);
        }
        is_lent
    }
}
