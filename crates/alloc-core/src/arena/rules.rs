//! Decisions of the policy where requests are served and memory comes back.
//!
//! Hits and frees come here a few times each: their code is compiled for each policy. All others that look at an arena
//! call through a table.

use super::ArenaOf;
use super::granule::Memory;
use crate::memory::block::{Block, BlockId, BlockPhase, BlockTable, Tier};
use crate::memory::index::BestFitIndex;
use crate::memory::layout::{Layout, Neighbours};
use crate::memory::segment::SegmentTable;
use crate::policy::{Policy, PytorchPolicy, Request};
use std::fmt::Debug;

/// Free blocks of an arena, in the index of its policy, with the policy's state.
pub(crate) trait Rules: Debug + Send + 'static {
    /// Rounds a request of `bytes` to what serves it.
    fn request(&self, bytes: u64) -> Request;
    /// True if a block of `block` bytes is cut for `request`.
    fn splits(&self, block: u64, request: &Request) -> bool;
    /// Takes out the free block for `request`.
    fn take_fit(
        &mut self,
        blocks: &BlockTable,
        segments: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId>;
    /// Adds a free block.
    fn insert(&mut self, block: &Block, id: BlockId);
    /// Removes a block that is not free any more.
    fn remove(&mut self, block: &Block, id: BlockId);
    /// Takes a free block out of the index for a moment: it stays free from its first byte on, and is [put
    /// back](Self::put_back).
    fn take_out(&mut self, block: &Block, id: BlockId);
    /// Puts a block back that has become longer or shorter at its end.
    fn put_back(&mut self, block: &Block, id: BlockId);
    /// True if a free block has at least `bytes`.
    fn has(&self, tier: Tier, bytes: u64) -> bool;
    /// Free blocks of at least `bytes`, in the index's order.
    fn at_least(&self, tier: Tier, bytes: u64) -> Box<dyn Iterator<Item = BlockId> + '_>;
    /// Decides by `policy`, of the same name, from here on.
    fn follow(&mut self, policy: &Policy);
    /// Forgets everything, as at first.
    fn clear(&mut self);
    /// Panics where an index is wrong.
    fn check(&self, tier: Tier);

    /// State of the `granule` policy for the arena.
    fn memory(&self) -> Option<&Memory> {
        None
    }

    fn memory_mut(&mut self) -> Option<&mut Memory> {
        None
    }

    /// Free neighbours of a block that is being freed, where they are needed before it is coalesced: in fixed segments
    /// they are counted.
    #[inline(always)]
    fn neighbours_of_freed(&self, layout: &Layout, id: BlockId) -> Option<Neighbours> {
        layout.segments().has_fixed().then(|| layout.neighbours_in(BlockPhase::Free, id))
    }

    /// Tests if a block that is being freed, with these [neighbours](Self::neighbours_of_freed), is parked.
    #[inline(always)]
    fn parks(&mut self, _: Option<Neighbours>) -> bool {
        true
    }

    /// True if the policy would hand out just the parked block for a request of its size.
    fn takes_parked(&self, layout: &Layout, id: BlockId, request: &Request) -> bool;
    /// Notes that the parked block is handed out.
    #[inline(always)]
    fn took_parked(&mut self, _: &mut Layout, _: BlockId) {}

    /// Takes a free block back that lies in a view; `false` where it does not.
    #[inline(always)]
    fn end_loan(_: &mut ArenaOf<Self>, _: BlockId) -> bool
    where
        Self: Sized,
    {
        false
    }
}

/// The free blocks of an arena under the `pytorch` policy, by tier.
#[derive(Debug)]
pub(crate) struct Pytorch {
    policy: PytorchPolicy,
    free: [BestFitIndex; 2],
    /// Frees that could have parked their block, since a parked one was taken.
    in_vain: u32,
}

impl Pytorch {
    pub(super) fn new(policy: &PytorchPolicy) -> Self {
        Self { policy: policy.clone(), free: Default::default(), in_vain: 0 }
    }
}

impl Rules for Pytorch {
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
        self.policy.take_fit(&mut self.free[request.tier as usize], blocks, segments, request)
    }

    /// Both are looked at together: their records are cache misses that overlap.
    #[inline(always)]
    fn neighbours_of_freed(&self, layout: &Layout, id: BlockId) -> Option<Neighbours> {
        Some(layout.neighbours_in(BlockPhase::Free, id))
    }

    /// With a free block below, best fit would cut the request from the start of that one. Where parked blocks are not
    /// taken, few are parked: a free that has to coalesce a parked block costs more than one that coalesces at once.
    #[inline(always)]
    fn parks(&mut self, neighbours: Option<Neighbours>) -> bool {
        let can_be_taken = matches!(neighbours, Some((None, _)));
        self.in_vain = self.in_vain.wrapping_add(u32::from(can_be_taken));
        can_be_taken && (self.in_vain <= 4 || self.in_vain.is_multiple_of(13))
    }

    #[inline(always)]
    fn takes_parked(&self, layout: &Layout, id: BlockId, request: &Request) -> bool {
        let above = layout.neighbour_in(BlockPhase::Free, layout.blocks()[id].next);
        self.policy.would_take(&self.free[request.tier as usize], layout, (id, above), request)
    }

    /// The free memory above is as if it had been cut off anew.
    #[inline(always)]
    fn took_parked(&mut self, layout: &mut Layout, id: BlockId) {
        self.in_vain = 0;
        let Block { requested, epoch, next, .. } = layout.blocks()[id];
        if let Some(above) = layout.neighbour_in(BlockPhase::Free, next) {
            let rest = &mut layout.blocks_mut()[above];
            (rest.requested, rest.epoch) = (requested, rest.epoch.max(epoch));
        }
    }

    #[inline(always)]
    fn insert(&mut self, block: &Block, id: BlockId) {
        self.free[block.tier as usize].insert(block, id);
    }

    #[inline(always)]
    fn remove(&mut self, block: &Block, _: BlockId) {
        self.free[block.tier as usize].remove(block);
    }

    #[inline(always)]
    fn take_out(&mut self, block: &Block, id: BlockId) {
        self.remove(block, id);
    }

    #[inline(always)]
    fn put_back(&mut self, block: &Block, id: BlockId) {
        self.insert(block, id);
    }

    fn has(&self, tier: Tier, bytes: u64) -> bool {
        self.free[tier as usize].has(bytes)
    }

    fn at_least(&self, tier: Tier, bytes: u64) -> Box<dyn Iterator<Item = BlockId> + '_> {
        Box::new(self.free[tier as usize].at_least(bytes))
    }

    fn follow(&mut self, policy: &Policy) {
        match policy {
            Policy::Pytorch(policy) => self.policy = policy.clone(),
            Policy::Granule(_) => unreachable!("an allocator keeps its policy"),
        }
    }

    fn clear(&mut self) {
        self.free = Default::default();
    }

    fn check(&self, tier: Tier) {
        self.free[tier as usize].check();
    }
}
