//! Fast path of requests and frees: blocks are handed out and taken back.
//!
//! All of it is compiled for each policy: the arena is asked once which one it has.
//!
//! Programs often allocate a size that they have just freed. The last freed block of an arena is *parked*: not
//! coalesced, in no index, still in the address map, and [`BlockPhase::Busy`], so that nobody touches it. Only the fast
//! paths of `malloc` and `free` ever see it. Any other lock of the arena, and a request that does not take it, first
//! coalesces it. Counters show it as coalesced from the start. Under `pytorch` a request takes it only where best fit
//! would give the same bytes; under `granule` wherever it has the size, and lies where requests may be served.

use super::notes::{Splits, signed};
use super::rules::Rules;
use super::{ArenaOf, ArenaState, FreeStep};
use crate::base::ids::PoolSlot;
use crate::memory::block::{Block, BlockId, BlockPhase, NO_USES};
use crate::memory::layout::Neighbours;
use crate::policy::Request;
use crate::types::DevicePtr;

impl<P: Rules + ?Sized> ArenaOf<P> {
    #[inline(always)]
    fn block(&self, id: BlockId) -> &Block {
        &self.heap.layout().blocks()[id]
    }

    /// Hands out a block that is in no index, cutting it if the policy says so. Returns its address.
    #[inline(always)]
    pub(crate) fn hand_out(&mut self, id: BlockId, request: &Request) -> DevicePtr {
        let block = self.block(id);
        let (was_split, whole, tier, segment) = (block.is_split(), block.size, block.tier, block.segment);
        let cuts = self.heap.splits(whole, request)
            && !self.binding.pool().no_split
            && self.heap.layout().blocks().may_cut();
        if cuts {
            self.heap.cut(id, request.size, BlockPhase::Free);
        }
        if (cuts || was_split) && self.heap.layout().segments().is_fixed(segment) {
            let change = match (cuts, was_split) {
                (true, true) => (0, -signed(request.size)),
                (true, false) => (1, signed(whole - request.size)),
                (false, _) => (-1, -signed(whole)),
            };
            self.ledger.change_splits(tier, change);
        }
        self.hand_out_whole(id, request.requested)
    }

    /// Hands out a block that is in no index, as it is.
    #[inline(always)]
    pub(crate) fn hand_out_whole(&mut self, id: BlockId, requested: u64) -> DevicePtr {
        let ptr = self.give(id, requested, None);
        self.map.insert(ptr, self.binding.location(id));
        ptr
    }

    /// Gives a block that is in no index to the program, as it is; the one that came back last was used for `before`
    /// bytes. The caller changes the address map.
    #[inline(always)]
    fn give(&mut self, id: BlockId, requested: u64, before: Option<u64>) -> DevicePtr {
        let block = self.heap.give(id, requested);
        self.ledger.gave(id, block, before);
        DevicePtr(block.addr)
    }

    /// Takes the block that serves `request` out of the free ones.
    #[inline(always)]
    pub(crate) fn find(&mut self, request: &Request) -> Option<BlockId> {
        if self.heap.counts_ages() && self.binding.slot() == PoolSlot::DEFAULT {
            self.heap.count_search(request.tier);
        }
        self.heap.find(request)
    }

    /// Counts the change of inactive splits where a block that is in no index joins its free neighbours. Returns it.
    #[inline(always)]
    fn count_joined(&mut self, id: BlockId, (below, above): Neighbours) -> Splits {
        let segments = self.heap.layout().segments();
        if !segments.has_fixed() || !segments.is_fixed(self.block(id).segment) {
            return (0, 0);
        }
        let Block { size, mut prev, mut next, .. } = *self.block(id);
        let (mut blocks, mut bytes, mut joined) = (0, 0, signed(size));
        if let Some(below) = below.map(|below| self.block(below)) {
            (blocks, bytes, joined) = (blocks - 1, bytes - signed(below.size), joined + signed(below.size));
            prev = below.prev;
        }
        if let Some(above) = above.map(|above| self.block(above)) {
            (blocks, bytes, joined) = (blocks - 1, bytes - signed(above.size), joined + signed(above.size));
            next = above.next;
        }
        if prev.some().is_some() || next.some().is_some() {
            (blocks, bytes) = (blocks + 1, bytes + joined);
        }
        self.ledger.change_splits(self.block(id).tier, (blocks, bytes));
        (blocks, bytes)
    }
}

/// The parked block of an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    /// 0 while there is none.
    size: u64,
    block: BlockId,
    /// Change of inactive splits when it was freed.
    splits: Splits,
    /// It was taken, and since then no other block came or went, and the arena's binding is the same: once freed, it
    /// lies as before.
    comes_back: bool,
}

impl Parked {
    pub(super) const NONE: Self = Self { size: 0, block: BlockId::NONE, splits: (0, 0), comes_back: false };

    /// Asks anew if it is taken.
    pub(super) fn looks_again(&mut self) {
        self.comes_back = false;
    }
}

impl<P: Rules> ArenaOf<P> {
    #[inline(always)]
    fn malloc(&mut self, bytes: u64) -> Option<DevicePtr> {
        if self.parked.size != 0 {
            let (request, id) = (self.heap.rules.request(bytes), self.parked.block);
            if self.parked.size == request.size
                && (self.parked.comes_back || self.heap.rules.takes_parked(&self.heap.layout, id, &request))
            {
                self.heap.rules.took_parked(&mut self.heap.layout, id);
                (self.parked.size, self.parked.comes_back) = (0, true);
                let ((blocks, split_bytes), tier) = (self.parked.splits, self.block(id).tier);
                self.ledger.change_splits(tier, (-blocks, -split_bytes));
                let before = self.block(id).requested;
                return Some(self.give(id, bytes, Some(before)));
            }
        }
        self.malloc_from_index(bytes)
    }

    /// Apart from `malloc`, so that a hit on the parked block needs few registers.
    #[inline(never)]
    fn malloc_from_index(&mut self, bytes: u64) -> Option<DevicePtr> {
        let request = self.heap.rules.request(bytes);
        self.settle();
        let block = self.find(&request)?;
        Some(self.hand_out(block, &request))
    }

    #[inline(always)]
    fn free_unused(&mut self, id: BlockId) {
        self.join_parked();
        self.ledger.took_back(id, &mut self.heap.layout.blocks_mut()[id]);
        if self.parked.comes_back && self.parked.block == id {
            self.ledger.change_splits(self.block(id).tier, self.parked.splits);
            return self.park(id, self.parked.splits);
        }
        let neighbours = self.heap.rules.neighbours_of_freed(self.heap.layout(), id);
        let splits = neighbours.map_or((0, 0), |neighbours| self.count_joined(id, neighbours));
        // Ages of free blocks count from their free, and a pool that cuts nothing would not cut the parked block again.
        let may_park = !self.heap.counts_ages() && !self.binding.pool().no_split;
        if !may_park || !self.heap.rules.parks(neighbours) {
            let neighbours =
                neighbours.unwrap_or_else(|| self.heap.layout().neighbours_in(BlockPhase::Free, id));
            return self.join(id, neighbours);
        }
        self.parked.comes_back = false;
        self.park(id, splits);
    }

    #[inline(always)]
    fn park(&mut self, id: BlockId, splits: Splits) {
        let block = &mut self.heap.layout.blocks_mut()[id];
        block.state = BlockPhase::Busy;
        (self.parked.size, self.parked.block, self.parked.splits) = (block.size, id, splits);
    }

    #[inline(always)]
    fn free_and_join(&mut self, id: BlockId) {
        self.ledger.took_back(id, &mut self.heap.layout.blocks_mut()[id]);
        self.count_and_join(id);
    }

    /// Returns a block to the free ones, coalesced with free neighbours.
    #[inline(always)]
    fn count_and_join(&mut self, id: BlockId) {
        let neighbours = self.heap.layout().neighbours_in(BlockPhase::Free, id);
        self.count_joined(id, neighbours);
        self.join(id, neighbours);
    }

    /// Coalesces the parked block.
    #[inline(always)]
    fn join_parked(&mut self) {
        if self.parked.size != 0 {
            self.join_what_is_parked();
        }
    }

    /// Coalesces the parked block before anything else may change in the arena.
    #[inline(always)]
    fn settle(&mut self) {
        self.parked.comes_back = false;
        self.join_parked();
    }

    #[inline(never)]
    fn join_what_is_parked(&mut self) {
        self.parked.size = 0;
        let id = self.parked.block;
        self.join(id, self.heap.layout().neighbours_in(BlockPhase::Free, id));
    }

    /// Coalesces a block that is [counted](ArenaOf::count_joined) already, among the free ones.
    #[inline(always)]
    fn join(&mut self, mut id: BlockId, (below, above): Neighbours) {
        let Block { addr, requested, .. } = *self.block(id);
        self.parked.comes_back = false;
        self.map.remove(DevicePtr(addr));
        if P::end_loan(self, id) {
            return;
        }
        if let Some(below) = below {
            self.heap.take_out(below);
            let table = self.heap.layout_mut().blocks_mut();
            // The merged block is free: it shows the size for which the block just freed was last used.
            table[below].requested = requested;
            table.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = above {
            self.heap.take_from_index(above);
            self.heap.layout_mut().blocks_mut().absorb_above(id, above);
        }
        self.heap.put_free(id, below.is_some());
    }
}

impl ArenaState {
    /// Fast path of a request: hands out a free block for `bytes`, if there is a fit.
    #[inline(always)]
    pub(crate) fn malloc(&mut self, bytes: u64) -> Option<DevicePtr> {
        match self {
            Self::Pytorch(arena) => arena.malloc(bytes),
            Self::Granule(arena) => arena.malloc(bytes),
        }
    }

    /// Fast path of a free: takes a block back that has no further users, and parks it where the policy wants that.
    #[inline(always)]
    pub(crate) fn free_unused(&mut self, id: BlockId) {
        match self {
            Self::Pytorch(arena) => arena.free_unused(id),
            Self::Granule(arena) => arena.free_unused(id),
        }
    }

    /// Takes a block back from the program.
    pub(crate) fn free(&mut self, id: BlockId) -> FreeStep {
        if self.layout().blocks()[id].uses != NO_USES {
            return FreeStep::Wait(self.free_and_wait(id));
        }
        match self {
            Self::Pytorch(arena) => arena.free_and_join(id),
            Self::Granule(arena) => arena.free_and_join(id),
        }
        FreeStep::Done
    }

    /// Coalesces the parked block, before anything else may change.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        match self {
            Self::Pytorch(arena) => arena.settle(),
            Self::Granule(arena) => arena.settle(),
        }
    }

    /// Ends one wait of a pending block: its event is complete.
    pub(crate) fn event_done(&mut self, id: BlockId) {
        let ArenaOf { heap, ledger, .. } = &mut **self;
        let block = &mut heap.layout_mut().blocks_mut()[id];
        debug_assert!(
            block.state == BlockPhase::Pending && block.pending > 0,
            "queued events belong to pending blocks"
        );
        block.pending -= 1;
        if block.pending == 0 {
            ledger.released(id, block);
            match self {
                Self::Pytorch(arena) => arena.count_and_join(id),
                Self::Granule(arena) => arena.count_and_join(id),
            }
        }
    }
}
