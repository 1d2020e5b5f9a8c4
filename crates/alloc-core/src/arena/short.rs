//! Blocks handed out and taken back: what a request that is served from the cache goes through, and a free.
//!
//! All of it depends on the policy, and is compiled for each [kind](Kind) of policy: which one an arena has is asked once.

use super::ledger::{Splits, signed};
use super::{ArenaState, FreeStep};
use crate::arena::heap::kind::{Custom, Kind, OfKind};
use crate::base::ids::PoolSlot;
use crate::memory::block::{Block, BlockId, BlockPhase, NO_USES, SegmentId};
use crate::policy::{GranulePolicy, Hooks, Placement, PytorchPolicy, Remembered, Request, granule};
use crate::types::DevicePtr;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What a kind of policy does with an arena when it serves requests.
trait Serving: Kind + Sized {
    /// Takes the bytes at a [place](Hooks::place) out of the free ones. Returns the block, in no index.
    fn take_at(state: &mut ArenaState, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId>;

    /// Takes a block back whose segment the policy [lends](Hooks::lends), and that is free.
    fn take_back(state: &mut ArenaState, id: BlockId);

    /// Whether the policy cuts a block of `bytes` that is in no index.
    #[inline(always)]
    fn cuts(short: &mut Short<'_, Self>, _: BlockId, bytes: u64, request: &Request) -> bool {
        short.heap().splits(bytes, request)
    }
}

impl Serving for PytorchPolicy {
    #[inline(always)]
    fn take_at(_: &mut ArenaState, _: SegmentId, _: u64, _: u64) -> Option<BlockId> {
        None
    }

    #[inline(always)]
    fn take_back(_: &mut ArenaState, _: BlockId) {}
}

impl Serving for GranulePolicy {
    #[inline(always)]
    fn take_at(state: &mut ArenaState, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        granule::take_at(state, segment, addr, size)
    }

    #[inline(always)]
    fn take_back(state: &mut ArenaState, id: BlockId) {
        granule::end_loan(state, id);
    }
}

impl Serving for Custom {
    fn take_at(state: &mut ArenaState, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        match state.heap.remembered() {
            Remembered::Nothing(()) => None,
            Remembered::Granule(_) => granule::take_at(state, segment, addr, size),
        }
    }

    fn take_back(state: &mut ArenaState, id: BlockId) {
        match state.heap.remembered() {
            Remembered::Nothing(()) => {}
            Remembered::Granule(_) => granule::end_loan(state, id),
        }
    }

    /// A program's policy may panic: the block is free then, as before.
    fn cuts(short: &mut Short<'_, Self>, id: BlockId, bytes: u64, request: &Request) -> bool {
        let asked = catch_unwind(AssertUnwindSafe(|| short.heap().splits(bytes, request)));
        asked.unwrap_or_else(|panic| {
            let neighbours = short.state.heap.layout().neighbours_in(BlockPhase::Free, id);
            short.join_free(id, neighbours);
            resume_unwind(panic)
        })
    }
}

/// An arena whose policy is of a kind.
struct Short<'a, K> {
    state: &'a mut ArenaState,
    kind: PhantomData<K>,
}

impl<'a, K: Serving> Short<'a, K> {
    /// # Safety
    /// The arena's policy is of this kind.
    #[inline(always)]
    unsafe fn new(state: &'a mut ArenaState) -> Self {
        Self { state, kind: PhantomData }
    }

    #[inline(always)]
    fn heap(&mut self) -> OfKind<'_, K> {
        // SAFETY: the promise that [`new`](Self::new) was given.
        unsafe { OfKind::new(&mut self.state.heap) }
    }

    #[inline(always)]
    fn block(&self, id: BlockId) -> &Block {
        &self.state.heap.layout().blocks()[id]
    }

    #[inline(always)]
    fn malloc(&mut self, bytes: u64) -> Option<DevicePtr> {
        let mut heap = self.heap();
        if heap.memory().parks() {
            let size = heap.request(bytes).size;
            if let Some(id) = heap.memory().take_parked(Some(size)) {
                self.count_parked(id, -1);
                return Some(self.give(id, bytes));
            }
        }
        // SAFETY: this is of the kind.
        unsafe { Self::malloc_from_index(self.state, bytes) }
    }

    /// Apart, and of the arena alone, so that a request that is served before keeps few registers.
    ///
    /// # Safety
    /// That of [`new`](Self::new).
    #[inline(never)]
    unsafe fn malloc_from_index(state: &mut ArenaState, bytes: u64) -> Option<DevicePtr> {
        // SAFETY: the caller's promise.
        let mut short = unsafe { Short::<K>::new(state) };
        let request = short.heap().request(bytes);
        short.join_parked();
        if let Some(block) = short.find_place(&request) {
            // It has the size of the request, and no fixed segment has such places.
            return Some(short.hand_out_whole(block, bytes));
        }
        let block = short.find(&request)?;
        Some(short.hand_out(block, &request))
    }

    #[inline(always)]
    fn find_remembered(&mut self, request: &Request) -> Option<BlockId> {
        self.find_place(request).or_else(|| self.find(request))
    }

    /// The bytes where the request was served before, if they are free.
    #[inline(always)]
    fn find_place(&mut self, request: &Request) -> Option<BlockId> {
        if !self.heap().memory().follows(request.size) {
            return None;
        }
        // SAFETY: this is of the kind.
        unsafe { Self::find_followed(self.state, request.size) }
    }

    /// # Safety
    /// That of [`new`](Self::new).
    #[inline(never)]
    unsafe fn find_followed(state: &mut ArenaState, size: u64) -> Option<BlockId> {
        // Searches are counted, or blocks are handed out whole.
        if state.heap.counts_ages() || state.tenure.pool().no_split {
            return None;
        }
        // SAFETY: the caller's promise.
        let (segment, addr) = unsafe { Short::<K>::new(state) }.heap().memory().place(size)?;
        K::take_at(state, segment, addr, size)
    }

    #[inline(always)]
    fn find(&mut self, request: &Request) -> Option<BlockId> {
        if self.state.heap.counts_ages() && self.state.tenure.slot() == PoolSlot::DEFAULT {
            self.state.heap.count_search(request.tier);
        }
        self.heap().find(request)
    }

    #[inline(always)]
    fn hand_out(&mut self, id: BlockId, request: &Request) -> DevicePtr {
        let block = self.block(id);
        let (was_split, whole, tier, segment) = (block.is_split(), block.size, block.tier, block.segment);
        let cuts = K::cuts(self, id, whole, request)
            && !self.state.tenure.pool().no_split
            && self.state.heap.layout().blocks().may_cut();
        if cuts {
            self.heap().cut_above(id, request.size, BlockPhase::Free);
        }
        if (cuts || was_split) && self.state.heap.layout().segments().is_fixed(segment) {
            let change = match (cuts, was_split) {
                (true, true) => (0, -signed(request.size)),
                (true, false) => (1, signed(whole - request.size)),
                (false, _) => (-1, -signed(whole)),
            };
            self.state.ledger.change_splits(tier, change);
        }
        self.hand_out_whole(id, request.requested)
    }

    #[inline(always)]
    fn hand_out_whole(&mut self, id: BlockId, requested: u64) -> DevicePtr {
        let ptr = self.give(id, requested);
        self.state.map.insert(ptr, self.state.tenure.location(id));
        ptr
    }

    /// Gives a block that is in no index to the program, as it is. The address map is the caller's business.
    #[inline(always)]
    fn give(&mut self, id: BlockId, requested: u64) -> DevicePtr {
        let ArenaState { heap, ledger, .. } = &mut *self.state;
        // SAFETY: this is of the kind.
        let block = unsafe { OfKind::<K>::new(heap) }.give(id, requested);
        ledger.gave(id, block);
        DevicePtr(block.addr)
    }

    #[inline(always)]
    fn free(&mut self, id: BlockId) {
        // Ages of free blocks count from their free.
        if !self.heap().memory().parks() || self.state.heap.counts_ages() {
            return self.free_and_join(id);
        }
        self.join_parked();
        let ArenaState { heap, ledger, .. } = &mut *self.state;
        // SAFETY: this is of the kind.
        let block = unsafe { OfKind::<K>::new(heap) }.park(id);
        ledger.took_back(id, block);
        self.count_parked(id, 1);
    }

    #[inline(always)]
    fn free_and_join(&mut self, id: BlockId) {
        // Both neighbours are looked at first: their records are cache misses that can be waited for together.
        let neighbours = self.state.heap.layout().neighbours_in(BlockPhase::Free, id);
        self.state.map.remove(DevicePtr(self.block(id).addr));
        let ArenaState { heap, ledger, .. } = &mut *self.state;
        ledger.took_back(id, &mut heap.layout_mut().blocks_mut()[id]);
        self.join_freed(id, neighbours, (0, 0));
    }

    /// What is parked is free: in fixed segments it counts as what it is, a block beside others.
    #[inline(always)]
    fn count_parked(&mut self, id: BlockId, sign: i64) {
        if !self.state.heap.layout().segments().has_fixed() {
            return;
        }
        let block = self.block(id);
        if self.state.heap.layout().segments().is_fixed(block.segment) && block.is_split() {
            let (tier, bytes) = (block.tier, signed(block.size));
            self.state.ledger.change_splits(tier, (sign, sign * bytes));
        }
    }

    /// Joins what is parked with its neighbours.
    #[inline(always)]
    fn join_parked(&mut self) {
        if self.heap().memory().has_parked() {
            // SAFETY: this is of the kind.
            unsafe { Self::join_what_is_parked(self.state) };
        }
    }

    /// # Safety
    /// That of [`new`](Self::new).
    #[inline(never)]
    unsafe fn join_what_is_parked(state: &mut ArenaState) {
        // SAFETY: the caller's promise.
        let mut short = unsafe { Short::<K>::new(state) };
        let Some(id) = short.heap().memory().take_parked(None) else { return };
        let neighbours = short.state.heap.layout().neighbours_in(BlockPhase::Free, id);
        short.state.map.remove(DevicePtr(short.block(id).addr));
        short.join_free(id, neighbours);
    }

    /// Puts a block that is in no index, and counts as free, among the free ones, joined with its neighbours.
    #[inline(always)]
    fn join_free(&mut self, id: BlockId, neighbours: (Option<BlockId>, Option<BlockId>)) {
        let Block { size, segment, .. } = *self.block(id);
        let counts = self.state.heap.layout().segments().is_fixed(segment) && self.block(id).is_split();
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
        if self.heap().lends(segment) {
            return K::take_back(self.state, id);
        }
        let (mut blocks, mut bytes) = (-counted.0, -counted.1);
        if let Some(below) = below {
            blocks -= 1;
            bytes -= signed(self.block(below).size);
            self.heap().take_out(below);
            let table = self.state.heap.layout_mut().blocks_mut();
            // The merged block is free: what it was last used for is the block's that was just freed.
            table[below].requested = requested;
            table.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = above {
            blocks -= 1;
            bytes -= signed(self.block(above).size);
            self.heap().take_from_index(above);
            self.state.heap.layout_mut().blocks_mut().absorb_above(id, above);
        }
        self.heap().put_joined(id, below.is_some());
        if self.state.heap.layout().segments().is_fixed(segment) {
            let block = self.block(id);
            if block.is_split() {
                blocks += 1;
                bytes += signed(block.size);
            }
            self.state.ledger.change_splits(tier, (blocks, bytes));
        }
    }
}

/// Does it for the kind of policy that an arena has.
macro_rules! short {
    ($state:expr, $short:ident => $do:expr) => {
        match $state.heap.placement() {
            Placement::Granule(_) => {
                // SAFETY: it is of the kind that was just found.
                let mut $short = unsafe { Short::<GranulePolicy>::new($state) };
                $do
            }
            Placement::Pytorch(_) => {
                // SAFETY: as above.
                let mut $short = unsafe { Short::<PytorchPolicy>::new($state) };
                $do
            }
            Placement::Custom(_) => {
                // SAFETY: as above.
                let mut $short = unsafe { Short::<Custom>::new($state) };
                $do
            }
        }
    };
}

impl ArenaState {
    /// The short way of a request: hands out a free block for `bytes`, if one serves them.
    #[inline(always)]
    pub(crate) fn malloc(&mut self, bytes: u64) -> Option<DevicePtr> {
        short!(self, short => short.malloc(bytes))
    }

    /// The short way of a free: takes a block back that nobody uses besides its stream, and parks it where the
    /// policy wants that.
    #[inline(always)]
    pub(crate) fn free_unused(&mut self, id: BlockId) {
        short!(self, short => short.free(id))
    }

    /// Takes the block that serves `request` out of the free ones.
    pub(crate) fn find(&mut self, request: &Request) -> Option<BlockId> {
        short!(self, short => short.find(request))
    }

    /// [`find`](Self::find) that looks where the request was served before, first: at home, or in a view. The block, in no
    /// index, is as large as the request there.
    pub(crate) fn find_remembered(&mut self, request: &Request) -> Option<BlockId> {
        short!(self, short => short.find_remembered(request))
    }

    /// Takes the `size` bytes at `addr` out of the free ones, where the policy remembers places. Returns the block, in no
    /// index; nothing is taken where some of them are not free, or the segment is not there any more.
    pub(crate) fn take_at(&mut self, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        Custom::take_at(self, segment, addr, size)
    }

    /// Hands out a block that is in no index, cutting it if the policy says so. Returns its address.
    pub(crate) fn hand_out(&mut self, id: BlockId, request: &Request) -> DevicePtr {
        short!(self, short => short.hand_out(id, request))
    }

    /// Hands out a block that is in no index, as it is.
    pub(crate) fn hand_out_whole(&mut self, id: BlockId, requested: u64) -> DevicePtr {
        short!(self, short => short.hand_out_whole(id, requested))
    }

    /// Takes a block back from the program.
    pub(crate) fn free(&mut self, id: BlockId) -> FreeStep {
        if self.layout().blocks()[id].uses != NO_USES {
            return FreeStep::Wait(self.free_and_wait(id));
        }
        short!(self, short => short.free_and_join(id));
        FreeStep::Done
    }

    /// Joins what is parked with its neighbours.
    #[inline(always)]
    pub(crate) fn join_parked(&mut self) {
        short!(self, short => short.join_parked());
    }

    /// One of the events that a pending block waits for is complete.
    pub(crate) fn event_done(&mut self, id: BlockId) {
        let block = &mut self.heap.layout_mut().blocks_mut()[id];
        debug_assert!(
            block.state == BlockPhase::Pending && block.pending > 0,
            "queued events belong to pending blocks"
        );
        block.pending -= 1;
        if block.pending == 0 {
            self.ledger.released(id, block);
            let neighbours = self.layout().neighbours_in(BlockPhase::Free, id);
            short!(self, short => short.join_freed(id, neighbours, (0, 0)));
        }
    }
}
