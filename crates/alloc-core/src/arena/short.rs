//! Blocks handed out and taken back: what a request that is served from the cache goes through, and a free.
//!
//! All of it depends on the policy, and is compiled for each [kind](Kind) of policy: which one an arena has is asked once.

use super::kind::{Custom, Kind};
use super::{ArenaState, FreeStep, signed};
use crate::base::ids::PoolSlot;
use crate::lifetimes::uses::Use;
use crate::memory::address_map::AddressMap;
use crate::memory::block::{Block, BlockId, NO_USES, SegmentId, State};
use crate::policy::{GranulePolicy, Hooks, Placement, Placing, PytorchPolicy, Remembered, Request};
use crate::sync::Ordering;
use crate::types::DevicePtr;
use crate::watch::counters::Count;
use crate::watch::history::Recorder;
use smallvec::SmallVec;
use std::marker::PhantomData;

/// An arena whose policy is of a kind.
struct Short<'a, K> {
    state: &'a mut ArenaState,
    kind: PhantomData<K>,
}

impl<'a, K: Kind> Short<'a, K> {
    /// # Safety
    /// The arena's policy is of this kind.
    #[inline(always)]
    unsafe fn new(state: &'a mut ArenaState) -> Self {
        Self { state, kind: PhantomData }
    }

    #[inline(always)]
    fn placed(placement: &mut Placement) -> &mut K::Placed {
        // SAFETY: the promise that [`new`](Self::new) was given.
        unsafe { K::placed(placement) }
    }

    #[inline(always)]
    fn memory(remembered: &mut Remembered) -> &mut K::Memory {
        // SAFETY: as above.
        unsafe { K::memory(remembered) }
    }

    #[inline(always)]
    fn malloc(&mut self, map: &AddressMap, bytes: u64) -> Option<DevicePtr> {
        let memory = Self::memory(&mut self.state.remembered);
        if memory.parks() {
            let size = Self::placed(&mut self.state.placement).request(bytes).size;
            if let Some(id) = memory.take_parked(Some(size)) {
                self.state.count_parked(id, -1);
                return Some(self.give(id, bytes));
            }
        }
        // SAFETY: this is of the kind.
        unsafe { Self::malloc_from_index(self.state, map, bytes) }
    }

    /// Apart, and of the arena alone, so that a request that is served before keeps few registers.
    ///
    /// # Safety
    /// That of [`new`](Self::new).
    #[inline(never)]
    unsafe fn malloc_from_index(state: &mut ArenaState, map: &AddressMap, bytes: u64) -> Option<DevicePtr> {
        // SAFETY: the caller's promise.
        let mut short = unsafe { Short::<K>::new(state) };
        let request = Self::placed(&mut short.state.placement).request(bytes);
        short.settle();
        let block = short.find_remembered(&request)?;
        Some(short.hand_out(map, block, &request))
    }

    #[inline(always)]
    fn find_remembered(&mut self, request: &Request) -> Option<BlockId> {
        if Self::memory(&mut self.state.remembered).follows(request.size)
            // SAFETY: this is of the kind.
            && let Some(found) = unsafe { Self::find_followed(self.state, request.size) }
        {
            return Some(found);
        }
        self.find(request)
    }

    /// # Safety
    /// That of [`new`](Self::new).
    #[inline(never)]
    unsafe fn find_followed(state: &mut ArenaState, size: u64) -> Option<BlockId> {
        // Searches are counted, or blocks are handed out whole.
        if state.ages || state.pool.no_split {
            return None;
        }
        let (segment, addr) = Self::memory(&mut state.remembered).place(size)?;
        K::take_at(state, segment, addr, size)
    }

    fn take_at(&mut self, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        K::take_at(self.state, segment, addr, size)
    }

    #[inline(always)]
    fn find(&mut self, request: &Request) -> Option<BlockId> {
        let state = &*self.state;
        if state.ages && state.pool.slot == PoolSlot::DEFAULT {
            state.searches[request.tier as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.find_again(request)
    }

    #[inline(always)]
    fn find_again(&mut self, request: &Request) -> Option<BlockId> {
        let state = &mut *self.state;
        let found = Self::placed(&mut state.placement).take_fit(&state.blocks, &state.segments, request)?;
        Self::memory(&mut state.remembered).removed(&state.blocks, found);
        Some(found)
    }

    #[inline(always)]
    fn splits(&mut self, block: u64, request: &Request) -> bool {
        let state = &mut *self.state;
        Self::placed(&mut state.placement).splits(block, request) && !state.pool.no_split
    }

    #[inline(always)]
    fn hand_out(&mut self, map: &AddressMap, id: BlockId, request: &Request) -> DevicePtr {
        let block = &self.state.blocks[id];
        let (was_split, whole, tier, segment) = (block.is_split(), block.size, block.tier, block.segment);
        let cuts = self.splits(whole, request) && self.state.blocks.may_cut();
        if cuts {
            self.cut_above(id, request.size, State::Free);
        }
        if (cuts || was_split) && self.state.segments.is_fixed(segment) {
            let change = match (cuts, was_split) {
                (true, true) => (0, -signed(request.size)),
                (true, false) => (1, signed(whole - request.size)),
                (false, _) => (-1, -signed(whole)),
            };
            self.state.change_splits(tier, change);
        }
        let ptr = self.give(id, request.requested);
        map.insert(ptr, self.state.location(id));
        ptr
    }

    #[inline(always)]
    fn give(&mut self, id: BlockId, requested: u64) -> DevicePtr {
        let state = &mut *self.state;
        let block = &mut state.blocks[id];
        block.state = State::Allocated;
        block.requested = requested;
        let Block { addr, tier, size, .. } = *block;
        Self::memory(&mut state.remembered).gave(block);
        state.counters.give(tier, size, requested);
        if size >= state.oversize {
            state.counters.change(tier, Count::OversizeAllocations, 1);
        }
        if state.history.is_on() {
            state.note(id, Recorder::allocated);
        }
        DevicePtr(addr)
    }

    #[inline(always)]
    fn free(&mut self, map: &AddressMap, id: BlockId) {
        // Ages of free blocks count from their free.
        if !Self::memory(&mut self.state.remembered).parks() || self.state.ages {
            return self.free_and_join(map, id);
        }
        self.settle();
        let state = &mut *self.state;
        state.take_back(id);
        let block = &mut state.blocks[id];
        block.state = State::Busy;
        Self::memory(&mut state.remembered).park(block, id);
        state.count_parked(id, 1);
    }

    #[inline(always)]
    fn free_and_join(&mut self, map: &AddressMap, id: BlockId) {
        // Both neighbours are looked at first: their records are cache misses that can be waited for together.
        let neighbours = self.state.free_neighbours(id);
        map.remove(DevicePtr(self.state.blocks[id].addr));
        self.state.take_back(id);
        self.join_freed(id, neighbours, (0, 0));
    }

    /// Joins what is parked with its neighbours.
    #[inline(always)]
    fn settle(&mut self) {
        if Self::memory(&mut self.state.remembered).has_parked() {
            // SAFETY: this is of the kind.
            unsafe { Self::join_parked(self.state) };
        }
    }

    /// # Safety
    /// That of [`new`](Self::new).
    #[inline(never)]
    unsafe fn join_parked(state: &mut ArenaState) {
        let Some(id) = Self::memory(&mut state.remembered).take_parked(None) else { return };
        let neighbours = state.free_neighbours(id);
        let Block { addr, size, segment, .. } = state.blocks[id];
        state.map.remove(DevicePtr(addr));
        let counts = state.segments.is_fixed(segment) && state.blocks[id].is_split();
        let counted = if counts { (1, signed(size)) } else { (0, 0) };
        // SAFETY: the caller's promise.
        unsafe { Short::<K>::new(state) }.join_freed(id, neighbours, counted);
    }

    /// Returns a block to the free ones, joining it with free neighbours. `counted` is what it counts as among inactive
    /// splits already.
    #[inline(always)]
    fn join_freed(
        &mut self,
        mut id: BlockId,
        (below, above): (Option<BlockId>, Option<BlockId>),
        counted: (i64, i64),
    ) {
        let Block { requested, tier, segment, .. } = self.state.blocks[id];
        if Self::memory(&mut self.state.remembered).lends(&self.state.segments, segment) {
            return K::take_back(self.state, id);
        }
        let (mut blocks, mut bytes) = (-counted.0, -counted.1);
        if let Some(below) = below {
            blocks -= 1;
            bytes -= signed(self.state.blocks[below].size);
            self.take_from_index(below);
            // The merged block is free: what it was last used for is the block's that was just freed.
            self.state.blocks[below].requested = requested;
            self.state.blocks.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = above {
            blocks -= 1;
            bytes -= signed(self.state.blocks[above].size);
            self.take_from_index(above);
            self.state.blocks.absorb_above(id, above);
        }
        self.insert_free(id);
        if self.state.segments.is_fixed(segment) {
            let block = &self.state.blocks[id];
            if block.is_split() {
                blocks += 1;
                bytes += signed(block.size);
            }
            self.state.change_splits(tier, (blocks, bytes));
        }
    }

    #[inline(always)]
    fn insert_free(&mut self, id: BlockId) {
        let state = &mut *self.state;
        let block = &mut state.blocks[id];
        block.state = State::Free;
        if state.ages {
            block.born = state.searches[block.tier as usize].load(Ordering::Relaxed);
        }
        Self::placed(&mut state.placement).insert(block, id);
        Self::memory(&mut state.remembered).inserted(block, id);
    }

    #[inline(always)]
    fn take_from_index(&mut self, id: BlockId) {
        let state = &mut *self.state;
        Self::placed(&mut state.placement).remove(&state.blocks[id], id);
        Self::memory(&mut state.remembered).removed(&state.blocks, id);
    }

    #[inline(always)]
    fn cut_above(&mut self, id: BlockId, size: u64, upper_state: State) -> BlockId {
        let state = &mut *self.state;
        let block = &mut state.blocks[id];
        debug_assert!(size > 0 && size < block.size, "both parts keep something");
        let upper = Block {
            addr: block.addr + size,
            size: block.size - size,
            uses: NO_USES,
            pending: 0,
            state: State::Busy,
            ..block.clone()
        };
        block.size = size;
        let upper = state.blocks.add(upper);
        state.blocks.link_above(id, upper);
        match upper_state {
            State::Free => self.insert_free(upper),
            State::Unmapped => self.state.insert_unmapped(upper),
            _ => self.state.blocks[upper].state = upper_state,
        }
        upper
    }
}

/// Does it for the kind of policy that an arena has.
macro_rules! short {
    ($state:expr, $short:ident => $do:expr) => {
        match $state.placement {
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
    /// What is parked is free: in fixed segments it counts as what it is, a block beside others.
    #[inline(always)]
    fn count_parked(&mut self, id: BlockId, sign: i64) {
        let block = &self.blocks[id];
        if self.segments.is_fixed(block.segment) && block.is_split() {
            let (tier, bytes) = (block.tier, signed(block.size));
            self.change_splits(tier, (sign, sign * bytes));
        }
    }

    /// The short way of a request: hands out a free block for `bytes`, if one serves them.
    #[inline(always)]
    pub(crate) fn malloc(&mut self, map: &AddressMap, bytes: u64) -> Option<DevicePtr> {
        short!(self, short => short.malloc(map, bytes))
    }

    /// The short way of a free: takes a block back that nobody uses besides its stream, and parks it where the
    /// policy wants that.
    #[inline(always)]
    pub(crate) fn free_unused(&mut self, map: &AddressMap, id: BlockId) {
        short!(self, short => short.free(map, id))
    }

    /// Takes a block back that others use, which it waits for.
    pub(crate) fn free_and_wait(&mut self, map: &AddressMap, id: BlockId) -> SmallVec<[Use; 4]> {
        map.remove(DevicePtr(self.blocks[id].addr));
        self.suspend(id)
    }

    /// Takes the block that serves `request` out of the free ones.
    pub(crate) fn find(&mut self, request: &Request) -> Option<BlockId> {
        short!(self, short => short.find(request))
    }

    /// [`find`](Self::find) that does not age the free blocks.
    pub(crate) fn find_again(&mut self, request: &Request) -> Option<BlockId> {
        short!(self, short => short.find_again(request))
    }

    /// [`find`](Self::find) that looks where the request was served before, first: at home, or in a view. The block, in no
    /// index, is as large as the request there.
    pub(crate) fn find_remembered(&mut self, request: &Request) -> Option<BlockId> {
        short!(self, short => short.find_remembered(request))
    }

    /// Takes the `size` bytes at `addr` out of the free ones, where the policy remembers places. Returns the block, in no
    /// index; nothing is taken where some of them are not free, or the segment is not there any more.
    pub(crate) fn take_at(&mut self, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        short!(self, short => short.take_at(segment, addr, size))
    }

    /// Whether a block of `block` bytes is cut for `request`.
    pub(crate) fn splits(&mut self, block: u64, request: &Request) -> bool {
        short!(self, short => short.splits(block, request))
    }

    /// Hands out a block that is in no index, cutting it if the policy says so. Returns its address.
    pub(crate) fn hand_out(&mut self, map: &AddressMap, id: BlockId, request: &Request) -> DevicePtr {
        short!(self, short => short.hand_out(map, id, request))
    }

    /// Gives a block that is in no index to the program, as it is. The address map is the caller's business.
    pub(super) fn give(&mut self, id: BlockId, requested: u64) -> DevicePtr {
        short!(self, short => short.give(id, requested))
    }

    /// Takes a block back from the program.
    pub(crate) fn free(&mut self, map: &AddressMap, id: BlockId) -> FreeStep {
        if self.blocks[id].uses != NO_USES {
            return FreeStep::Wait(self.free_and_wait(map, id));
        }
        short!(self, short => short.free_and_join(map, id));
        FreeStep::Done
    }

    /// Joins what is parked with its neighbours.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        short!(self, short => short.settle());
    }

    /// Returns a block to the free ones, joining it with free neighbours.
    pub(super) fn rejoin(&mut self, id: BlockId) {
        let neighbours = self.free_neighbours(id);
        short!(self, short => short.join_freed(id, neighbours, (0, 0)));
    }

    /// Puts a block that is in no index among the free ones, as it is.
    pub(crate) fn insert_free(&mut self, id: BlockId) {
        short!(self, short => short.insert_free(id));
    }

    /// Takes a free block out of its index; its state is the caller's business.
    pub(crate) fn take_from_index(&mut self, id: BlockId) {
        short!(self, short => short.take_from_index(id));
    }

    /// Cuts a block after `size` bytes. The lower part keeps the record and the state; the upper part
    /// gets `upper_state` and goes into the list of that state.
    pub(crate) fn cut_above(&mut self, id: BlockId, size: u64, upper_state: State) -> BlockId {
        short!(self, short => short.cut_above(id, size, upper_state))
    }

    /// Takes back a block that nobody else uses; where it goes is the caller's business.
    #[inline(always)]
    pub(super) fn take_back(&mut self, id: BlockId) {
        self.leave_program(id);
        if self.history.is_on() {
            self.note(id, Recorder::freed);
        }
        let Block { size, requested, tier, .. } = self.blocks[id];
        self.counters.take_back(tier, size, requested);
    }
}
