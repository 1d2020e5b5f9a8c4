//! Blocks handed out and taken back: what a request that is served from the cache goes through, and a free.
//!
//! All of it is compiled for each policy: which one an arena has is asked once.

use super::ledger::{Splits, signed};
use super::rules::Rules;
use super::{ArenaOf, ArenaState, FreeStep, granule};
use crate::base::ids::PoolSlot;
use crate::memory::block::{Block, BlockId, BlockPhase, NO_USES, SegmentId};
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
            && !self.tenure.pool().no_split
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
        let ptr = self.give(id, requested);
        self.map.insert(ptr, self.tenure.location(id));
        ptr
    }

    /// Gives a block that is in no index to the program, as it is. The address map is the caller's business.
    #[inline(always)]
    fn give(&mut self, id: BlockId, requested: u64) -> DevicePtr {
        let block = self.heap.give(id, requested);
        self.ledger.gave(id, block);
        DevicePtr(block.addr)
    }

    /// Takes the block that serves `request` out of the free ones.
    #[inline(always)]
    pub(crate) fn find(&mut self, request: &Request) -> Option<BlockId> {
        if self.heap.counts_ages() && self.tenure.slot() == PoolSlot::DEFAULT {
            self.heap.count_search(request.tier);
        }
        self.heap.find(request)
    }

    /// What is parked is free: in fixed segments it counts as what it is, a block beside others.
    #[inline(always)]
    fn count_parked(&mut self, id: BlockId, sign: i64) {
        if !self.heap.layout().segments().has_fixed() {
            return;
        }
        let block = self.block(id);
        if self.heap.layout().segments().is_fixed(block.segment) && block.is_split() {
            let (tier, bytes) = (block.tier, signed(block.size));
            self.ledger.change_splits(tier, (sign, sign * bytes));
        }
    }
}

impl<P: Rules> ArenaOf<P> {
    #[inline(always)]
    fn malloc(&mut self, bytes: u64) -> Option<DevicePtr> {
        if self.heap.rules.parks() {
            let size = self.heap.rules.request(bytes).size;
            if let Some(id) = self.heap.rules.take_parked(Some(size)) {
                self.count_parked(id, -1);
                return Some(self.give(id, bytes));
            }
        }
        self.malloc_from_index(bytes)
    }

    /// Apart, so that a request that is served before keeps few registers.
    #[inline(never)]
    fn malloc_from_index(&mut self, bytes: u64) -> Option<DevicePtr> {
        let request = self.heap.rules.request(bytes);
        self.join_parked();
        if let Some(block) = self.find_place(&request) {
            // It has the size of the request, and no fixed segment has such places.
            return Some(self.hand_out_whole(block, bytes));
        }
        let block = self.find(&request)?;
        Some(self.hand_out(block, &request))
    }

    #[inline(always)]
    fn find_remembered(&mut self, request: &Request) -> Option<BlockId> {
        self.find_place(request).or_else(|| self.find(request))
    }

    /// The bytes where the request was served before, if they are free.
    #[inline(always)]
    fn find_place(&mut self, request: &Request) -> Option<BlockId> {
        if self.heap.rules.follows(request.size) { self.find_followed(request.size) } else { None }
    }

    #[inline(never)]
    fn find_followed(&mut self, size: u64) -> Option<BlockId> {
        // Searches are counted, or blocks are handed out whole.
        if self.heap.counts_ages() || self.tenure.pool().no_split {
            return None;
        }
        P::take_place(self, size)
    }

    #[inline(always)]
    fn free_unused(&mut self, id: BlockId) {
        // Ages of free blocks count from their free.
        if !self.heap.rules.parks() || self.heap.counts_ages() {
            return self.free_and_join(id);
        }
        self.join_parked();
        let block = self.heap.park(id);
        self.ledger.took_back(id, block);
        self.count_parked(id, 1);
    }

    #[inline(always)]
    fn free_and_join(&mut self, id: BlockId) {
        // Both neighbours are looked at first: their records are cache misses that can be waited for together.
        let neighbours = self.heap.layout().neighbours_in(BlockPhase::Free, id);
        self.map.remove(DevicePtr(self.block(id).addr));
        self.ledger.took_back(id, &mut self.heap.layout_mut().blocks_mut()[id]);
        self.join_freed(id, neighbours, (0, 0));
    }

    /// Joins what is parked with its neighbours.
    #[inline(always)]
    fn join_parked(&mut self) {
        if self.heap.rules.has_parked() {
            self.join_what_is_parked();
        }
    }

    #[inline(never)]
    fn join_what_is_parked(&mut self) {
        let Some(id) = self.heap.rules.take_parked(None) else { return };
        let neighbours = self.heap.layout().neighbours_in(BlockPhase::Free, id);
        let Block { addr, size, segment, .. } = *self.block(id);
        self.map.remove(DevicePtr(addr));
        let counts = self.heap.layout().segments().is_fixed(segment) && self.block(id).is_split();
        let counted = if counts { (1, signed(size)) } else { (0, 0) };
        self.join_freed(id, neighbours, counted);
    }

    /// Returns a block to the free ones, joining it with free neighbours. `counted` is what it counts as among inactive
    /// splits already.
    #[inline(always)]
    fn join_freed(
        &mut self,
        mut id: BlockId,
        (below, above): (Option<BlockId>, Option<BlockId>),
        counted: Splits,
    ) {
        let Block { requested, tier, segment, .. } = *self.block(id);
        if self.heap.rules.lends(self.heap.layout.segments(), segment) {
            return P::take_back(self, id);
        }
        let (mut blocks, mut bytes) = (-counted.0, -counted.1);
        if let Some(below) = below {
            blocks -= 1;
            bytes -= signed(self.block(below).size);
            self.heap.take_out(below);
            let table = self.heap.layout_mut().blocks_mut();
            // The merged block is free: what it was last used for is the block's that was just freed.
            table[below].requested = requested;
            table.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = above {
            blocks -= 1;
            bytes -= signed(self.block(above).size);
            self.heap.take_from_index(above);
            self.heap.layout_mut().blocks_mut().absorb_above(id, above);
        }
        self.heap.put_free(id, below.is_some());
        if self.heap.layout().segments().is_fixed(segment) {
            let block = self.block(id);
            if block.is_split() {
                blocks += 1;
                bytes += signed(block.size);
            }
            self.ledger.change_splits(tier, (blocks, bytes));
        }
    }
}

impl ArenaState {
    /// The short way of a request: hands out a free block for `bytes`, if one serves them.
    #[inline(always)]
    pub(crate) fn malloc(&mut self, bytes: u64) -> Option<DevicePtr> {
        match self {
            Self::Pytorch(arena) => arena.malloc(bytes),
            Self::Granule(arena) => arena.malloc(bytes),
        }
    }

    /// The short way of a free: takes a block back that nobody uses besides its stream, and parks it where the
    /// policy wants that.
    #[inline(always)]
    pub(crate) fn free_unused(&mut self, id: BlockId) {
        match self {
            Self::Pytorch(arena) => arena.free_unused(id),
            Self::Granule(arena) => arena.free_unused(id),
        }
    }

    /// [`find`](ArenaOf::find) that looks where the request was served before, first: at home, or in a view. The block, in no
    /// index, is as large as the request there.
    pub(crate) fn find_remembered(&mut self, request: &Request) -> Option<BlockId> {
        match self {
            Self::Pytorch(arena) => arena.find_remembered(request),
            Self::Granule(arena) => arena.find_remembered(request),
        }
    }

    /// Takes the `size` bytes at `addr` of a view out of the free ones. Returns the block, in no index; nothing is taken where
    /// some of them are not free, or the segment is not there any more.
    pub(crate) fn take_at(&mut self, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        match self {
            Self::Pytorch(_) => None,
            Self::Granule(arena) => granule::take_at(arena, segment, addr, size),
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

    /// Joins what is parked with its neighbours.
    #[inline(always)]
    pub(crate) fn join_parked(&mut self) {
        match self {
            Self::Pytorch(arena) => arena.join_parked(),
            Self::Granule(arena) => arena.join_parked(),
        }
    }

    /// One of the events that a pending block waits for is complete.
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
            let neighbours = self.layout().neighbours_in(BlockPhase::Free, id);
            match self {
                Self::Pytorch(arena) => arena.join_freed(id, neighbours, (0, 0)),
                Self::Granule(arena) => arena.join_freed(id, neighbours, (0, 0)),
            }
        }
    }
}
