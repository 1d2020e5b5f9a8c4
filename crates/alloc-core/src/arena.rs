//! Arena level: the blocks of one pool and one stream, under one lock.
//!
//! Everything here is bookkeeping on offsets and sizes; no driver is called.

mod binding;
pub(crate) mod directory;
pub(crate) mod granule;
mod heap;
pub(crate) mod invariants;
mod notes;
pub(crate) mod pool_table;
mod rules;
mod short;

pub(crate) use binding::{ArenaPool, Binding, Vacated};
pub(crate) use heap::growth::{Growth, Map};
pub(crate) use heap::residency::{Bed, Sleepers};
pub(crate) use heap::{ArenaShared, Heap};
pub(crate) use notes::Ledger;

use crate::lifetimes::uses::{BlockUse, UseLists, UsesOf};
use crate::memory::address_map::AddressMap;
use crate::memory::block::{Block, BlockId, BlockPhase, Live, SegmentId, Tier};
use crate::memory::layout::Layout;
use crate::memory::region::{Place, RegionId};
use crate::memory::segment::Origin;
use crate::policy::{GranuleSizes, Policy};
use crate::sync::{Arc, Guard, Mutex, Rank};
use crate::types::{DevicePtr, Stream};
use crate::watch::counters::Peaks;
use crate::watch::snapshot::Action;
use granule::Granule;
use notes::signed;
use rules::{Pytorch, Rules};
use short::Parked;
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut, Range};

/// State under an arena's lock, under either policy. Hits and frees ask once which policy it is; all others need not
/// know.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // it is where it is, which is one load less on a hit
pub(crate) enum ArenaState {
    Pytorch(ArenaOf<Pytorch>),
    Granule(ArenaOf<Granule>),
}

/// An arena: its binding, its blocks, and their ledger.
#[derive(Debug)]
pub(crate) struct ArenaOf<P: ?Sized = dyn Rules> {
    binding: Binding,
    ledger: Ledger,
    /// Further users of its blocks.
    uses: UseLists,
    map: Arc<AddressMap>,
    parked: Parked,
    heap: Heap<P>,
}

/// An arena, under its lock. It shares no cache line with another, nor a pair of lines that is fetched at once.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Arena(Mutex<ArenaState>);

impl Arena {
    pub(crate) fn new(state: ArenaState) -> Self {
        Self(Mutex::new(Rank::Arena(state.binding().number()), state))
    }

    /// Locks it for any operation: free memory is coalesced and in the index.
    pub(crate) fn lock(&self) -> Guard<'_, ArenaState> {
        let mut state = self.0.lock();
        state.settle();
        state
    }

    /// Locks it for the fast path of a request or a free: the block that was freed last may stay parked for the next
    /// request.
    #[inline(always)]
    pub(crate) fn lock_shortly(&self) -> Guard<'_, ArenaState> {
        self.0.lock()
    }
}

/// Next step of a free.
#[derive(Debug)]
pub(crate) enum FreeStep {
    /// The block is free.
    Done,
    /// The block waits for these streams; an event has to be recorded on each.
    Wait(SmallVec<[BlockUse; 4]>),
}

impl ArenaState {
    pub(crate) fn new(binding: Binding, map: Arc<AddressMap>, shared: Arc<ArenaShared>) -> Self {
        match &**binding.policy() {
            Policy::Pytorch(policy) => {
                let rules = Pytorch::new(policy);
                Self::Pytorch(ArenaOf::new(rules, binding, map, shared))
            }
            Policy::Granule(policy) => {
                let rules = Granule::new(policy);
                Self::Granule(ArenaOf::new(rules, binding, map, shared))
            }
        }
    }

    /// An arena of the `granule` policy.
    pub(crate) fn granule(&self) -> &ArenaOf<Granule> {
        match self {
            Self::Granule(arena) => arena,
            Self::Pytorch(_) => unreachable!("only that policy asks"),
        }
    }

    pub(crate) fn granule_mut(&mut self) -> &mut ArenaOf<Granule> {
        match self {
            Self::Granule(arena) => arena,
            Self::Pytorch(_) => unreachable!("only that policy asks"),
        }
    }
}

impl Deref for ArenaState {
    type Target = ArenaOf;

    #[inline(always)]
    fn deref(&self) -> &ArenaOf {
        match self {
            Self::Pytorch(arena) => arena,
            Self::Granule(arena) => arena,
        }
    }
}

impl DerefMut for ArenaState {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut ArenaOf {
        match self {
            Self::Pytorch(arena) => arena,
            Self::Granule(arena) => arena,
        }
    }
}

impl<P> ArenaOf<P> {
    fn new(rules: P, binding: Binding, map: Arc<AddressMap>, shared: Arc<ArenaShared>) -> Self {
        Self {
            heap: Heap::new(rules, binding.policy().tie_break(), binding.number(), shared),
            ledger: Ledger::new(binding.number(), binding.policy().oversize()),
            uses: UseLists::default(),
            binding,
            map,
            parked: Parked::NONE,
        }
    }
}

impl<P: Rules + ?Sized> ArenaOf<P> {
    /// Stream and pool that it serves, and its policy.
    #[inline(always)]
    pub(crate) fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Changes its binding. Where somebody counts on the place of its memory from then on, no view serves requests any
    /// more.
    pub(crate) fn change_binding<R>(&mut self, change: impl FnOnce(&mut Binding) -> R) -> R {
        let changed = change(&mut self.binding);
        // Blocks that were taken from a view before may not be any more.
        self.parked.looks_again();
        self.heap.stay_at_home(self.binding.stays());
        changed
    }

    /// Its blocks, and the index of the free ones.
    pub(crate) fn heap(&self) -> &Heap<P> {
        &self.heap
    }

    pub(crate) fn heap_mut(&mut self) -> &mut Heap<P> {
        &mut self.heap
    }

    /// Its segments and their blocks.
    #[inline(always)]
    pub(crate) fn layout(&self) -> &Layout {
        self.heap.layout()
    }

    /// Counters, epochs and history of its blocks.
    #[inline(always)]
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Lets others look at it from here on: its counters may be settled, and it may have free memory for them.
    pub(crate) fn note_used(&mut self, peaks: &mut Peaks) {
        self.heap.note_spare();
        peaks.note(self.ledger.counters_mut());
    }

    /// Notes that it has no free memory for others: nobody looks again before its next operation.
    pub(crate) fn note_no_spare(&mut self) {
        self.ledger.counters_mut().tell_next();
        self.heap.note_no_spare();
    }

    /// Further users of its blocks.
    pub(crate) fn uses(&self) -> &UseLists {
        &self.uses
    }

    pub(crate) fn uses_mut(&mut self) -> &mut UseLists {
        &mut self.uses
    }

    /// Ends the binding of an arena that holds nothing. Drop the remains without a lock.
    pub(crate) fn end_binding(&mut self) -> Vacated {
        self.heap.reset();
        self.uses = UseLists::default();
        self.ledger.forget_need();
        self.binding.end()
    }

    /// Makes a vacant arena serve `stream` in `pool` from here on.
    pub(crate) fn serve_another(&mut self, pool: ArenaPool, stream: Stream, policy: Arc<Policy>) {
        self.binding.begin(pool, stream);
        self.ledger.history_mut().rename(self.binding.owner());
        self.set_policy(policy);
    }

    /// Decides by `policy` from here on.
    pub(crate) fn set_policy(&mut self, policy: Arc<Policy>) {
        let policy = self.binding.pool().decides_by(policy);
        self.heap.follow(&policy);
        self.ledger.set_oversize(policy.oversize());
        self.binding.decide_by(policy);
    }

    /// Notes if its pool has a sleep tag, from here on: then its memory stays at home and, but for the default pool's,
    /// it grows.
    pub(crate) fn set_sleeps(&mut self, has_tag: bool, policy: Arc<Policy>) {
        self.change_binding(|binding| binding.set_sleeps(has_tag));
        self.set_policy(policy);
    }

    /// Notes the context of a growable segment that got memory: that of the first operation counts.
    pub(crate) fn note_context(&mut self, region: RegionId) {
        self.heap.layout_mut().note_context(region, self.ledger.history().call());
    }

    /// Gives the arena of a retired stream to `stream`.
    pub(crate) fn adopt(&mut self, stream: Stream) {
        self.binding.pass_to(stream);
        self.ledger.history_mut().rename(self.binding.owner());
    }

    /// True if the device is done with everything freed in `epoch`.
    pub(crate) fn is_past(&self, epoch: u64) -> bool {
        self.ledger.epochs().is_closed(epoch)
    }

    /// Records that the memory of a block comes or goes, where anything is recorded.
    pub(crate) fn note_change(&mut self, action: Action, id: BlockId) {
        let block = &self.heap.layout().blocks()[id];
        self.ledger.history_mut().record(action, block.addr, block.size);
    }

    /// The granule at `addr` of a growable segment.
    pub(crate) fn place(&self, segment: SegmentId, addr: u64) -> Place {
        let Origin::Growable { region, .. } = self.layout().segments()[segment].origin else {
            unreachable!("only growable segments have granules")
        };
        Place { arena: self.binding.number(), segment, region, addr, block: BlockId::NONE }
    }

    /// True if its memory may move: growable memory on whose place nobody counts.
    pub(crate) fn is_movable(&self) -> bool {
        self.binding.grows() && !self.binding.stays()
    }

    /// Granules of a new growable segment for a request of `size` bytes, in units of `minimum`.
    pub(crate) fn next_granule(&mut self, tier: Tier, minimum: u64, size: u64) -> GranuleSizes {
        let holding = self.ledger.holding(size);
        self.binding.policy().granule(tier, minimum, &holding)
    }

    /// Hands out `size` bytes at `addr` of a free block, and the bytes above them, too, unless `cuts_above`.
    pub(crate) fn hand_out_at(
        &mut self,
        id: BlockId,
        (addr, size): (u64, u64),
        requested: u64,
        cuts_above: bool,
    ) -> DevicePtr {
        self.heap.take_free(id);
        let block = &self.layout().blocks()[id];
        let (tier, segment) = (block.tier, block.segment);
        let mut change = if block.is_split() { (-1, -signed(block.size)) } else { (0, 0) };
        let below = addr - block.addr;
        let mut target = id;
        if below > 0 {
            target = self.heap.cut_above(id, below, BlockPhase::Busy);
            self.heap.insert_free(id);
            change = (change.0 + 1, change.1 + signed(below));
        }
        let above = self.layout().blocks()[target].size - size;
        if above > 0 && cuts_above {
            self.heap.cut_above(target, size, BlockPhase::Free);
            change = (change.0 + 1, change.1 + signed(above));
        }
        if self.layout().segments().is_fixed(segment) {
            self.ledger.change_splits(tier, change);
        }
        self.hand_out_whole(target, requested)
    }

    /// Takes back a block that has further users, for which it waits. Returns them.
    #[cold]
    pub(crate) fn free_and_wait(&mut self, id: BlockId) -> SmallVec<[BlockUse; 4]> {
        let block = &mut self.heap.layout_mut().blocks_mut()[id];
        self.map.remove(DevicePtr(block.addr));
        self.ledger.suspended(id, block);
        let uses = UsesOf::new(&mut self.uses, &mut block.uses).forget();
        block.state = BlockPhase::Pending;
        block.pending = u16::try_from(uses.len()).unwrap_or(u16::MAX); // [`UsesOf::record`] keeps it in range
        uses
    }

    /// Further users of a block.
    pub(crate) fn uses_of(&mut self, id: BlockId) -> UsesOf<'_> {
        UsesOf::new(&mut self.uses, &mut self.heap.layout_mut().blocks_mut()[id].uses)
    }
}

impl ArenaOf {
    /// Takes a sleeping block back from the program; returns its place, and its uses, which are over. Drop them without
    /// a lock. `None` where that is no sleeping block.
    pub(crate) fn free_asleep(
        &mut self,
        ptr: DevicePtr,
        id: BlockId,
    ) -> Option<(SegmentId, Range<u64>, SmallVec<[BlockUse; 4]>)> {
        let is_mine = |block: &&Block| block.addr == ptr.0 && block.state == BlockPhase::Live(Live::Asleep);
        let block = self.layout().blocks().get(id).filter(is_mine)?;
        let (segment, range) = (block.segment, block.addr..block.end());
        let uses = self.uses_of(id).forget();
        self.map.remove(ptr);
        self.ledger.took_back(id, &mut self.heap.layout_mut().blocks_mut()[id]);
        heap::residency::free_asleep(&mut self.heap, id);
        Some((segment, range, uses))
    }
}
