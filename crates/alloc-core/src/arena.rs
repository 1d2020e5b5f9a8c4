//! Arena level: the blocks of one pool and one stream, under one lock.
//!
//! Everything here is bookkeeping on offsets and sizes; no driver is called. Operations that need the
//! driver take blocks out as [`State::Busy`], and come back to commit or undo.

mod carve;
pub(crate) mod directory;
mod ground;
pub(crate) mod invariants;
mod kind;
pub(crate) mod pool;
mod short;
mod sleep;

pub(crate) use carve::Growth;

use crate::base::ids::PoolSlot;
use crate::base::steps::Counted;
use crate::lifetimes::epoch::Epochs;
use crate::lifetimes::last_work::LastWork;
use crate::lifetimes::uses::{Use, UseLists};
use crate::memory::address_map::{AddressMap, Location};
use crate::memory::block::{Block, BlockId, BlockTable, NO_USES, SegmentId, State, Tier};
use crate::memory::segment::{Segment, SegmentTable};
use crate::memory::source::SegmentSource;
use crate::policy::{Chosen, Placement, Remembered};
use crate::process::stream_identity::shown_raw;
use crate::sync::{Arc, AtomicU64, Guard, Mutex, Rank};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::counters::{Count, Counters};
use crate::watch::history::{Owner, Recorder};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// What identifies an arena. Its stream changes when another adopts the memory of one that is retired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaId {
    pub(crate) device: DeviceIndex,
    pub(crate) number: u16,
    pub(crate) stream: Stream,
}

/// The pool an arena belongs to, as far as the arena needs it.
#[derive(Clone, Debug)]
pub(crate) struct ArenaPool {
    pub(crate) slot: PoolSlot,
    pub(crate) id: PoolId,
    /// Where its memory comes from; `None` is the driver.
    pub(crate) source: Option<Arc<dyn SegmentSource>>,
    /// That has no physical memory for growable segments.
    pub(crate) fixed: bool,
    /// Blocks are handed out whole.
    pub(crate) no_split: bool,
    /// It takes growable memory whatever the settings say: it has a sleep tag.
    pub(crate) sleeps: bool,
}

impl ArenaPool {
    pub(crate) const DEFAULT: Self = Self {
        slot: PoolSlot::DEFAULT,
        id: PoolId::DEFAULT,
        source: None,
        fixed: false,
        no_split: false,
        sleeps: false,
    };
}

/// The state under an arena's lock.
#[derive(Debug)]
pub(crate) struct ArenaState {
    pub(crate) id: ArenaId,
    pub(crate) pool: ArenaPool,
    /// The end of its stream's work, once that is retired and until another adopts the arena.
    pub(crate) retired: Option<Arc<LastWork>>,
    pub(crate) policy: Chosen,
    /// From which size on a block is oversize.
    oversize: u64,
    map: Arc<AddressMap>,
    pub(crate) blocks: BlockTable,
    pub(crate) segments: SegmentTable,
    pub(crate) placement: Placement,
    pub(crate) remembered: Remembered,
    /// Address space without memory, by tier and address.
    unmapped: [BTreeSet<(u64, BlockId)>; 2],
    pub(crate) counters: Counters,
    pub(crate) epochs: Epochs,
    pub(crate) history: Recorder,
    pub(crate) uses: UseLists,
    /// The most bytes in use when memory was taken.
    pub(crate) most_needed: u64,
    /// Whether searches are counted: only while garbage collection is on.
    pub(crate) ages: bool,
    /// Searches in all arenas of the pool, by tier: the clock of block ages.
    pub(crate) searches: Arc<[AtomicU64; 2]>,
}

/// An arena, under its lock. It shares no cache line with another, nor a pair of lines that is fetched at once.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Arena(Mutex<ArenaState>);

impl Arena {
    pub(crate) fn new(state: ArenaState) -> Self {
        Self(Mutex::new(Rank::Arena(state.id.number), state))
    }

    /// Locks it for anything: what is free is joined and in the index.
    pub(crate) fn lock(&self) -> Guard<'_, ArenaState> {
        let mut state = self.0.lock();
        state.settle();
        state
    }

    /// Locks it for the short way of a request or a free: the block that was freed last may be kept for the next.
    #[inline(always)]
    pub(crate) fn lock_shortly(&self) -> Guard<'_, ArenaState> {
        self.0.lock()
    }
}

/// What a free has to do next.
#[derive(Debug)]
pub(crate) enum FreeStep {
    /// The block is free.
    Done,
    /// The block waits for these streams; an event has to be recorded on each.
    Wait(SmallVec<[Use; 4]>),
}

#[allow(clippy::cast_possible_wrap)] // block sizes are under 2^60
fn signed(bytes: u64) -> i64 {
    bytes as i64
}

impl ArenaState {
    pub(crate) fn new(
        id: ArenaId,
        pool: ArenaPool,
        policy: Chosen,
        map: Arc<AddressMap>,
        searches: Arc<[AtomicU64; 2]>,
    ) -> Self {
        let policy = if pool.sleeps { policy.growing() } else { policy };
        Self {
            id,
            map,
            placement: policy.placement(),
            remembered: policy.remembered(),
            oversize: policy.oversize(),
            policy,
            pool,
            retired: None,
            blocks: BlockTable::default(),
            segments: SegmentTable::default(),
            unmapped: Default::default(),
            counters: Counters::default(),
            epochs: Epochs::default(),
            history: Recorder::default(),
            uses: UseLists::default(),
            most_needed: 0,
            ages: false,
            searches,
        }
    }

    /// Whether requests of `stream`, one of this device, to the pool in `slot` are for this arena.
    #[inline]
    pub(crate) fn serves(&self, slot: PoolSlot, stream: Stream) -> bool {
        self.pool.slot == slot && self.belongs_to(stream)
    }

    /// Whether its blocks are for work of `stream`, one of this device.
    #[inline]
    pub(crate) fn belongs_to(&self, stream: Stream) -> bool {
        self.id.stream.raw == stream.raw && self.retired.is_none()
    }

    /// An arena that holds nothing serves nobody from here on. What is returned is to be dropped without a lock.
    pub(crate) fn vacate(&mut self) -> (ArenaPool, Option<Arc<LastWork>>) {
        debug_assert!(self.blocks.is_empty(), "nothing is forgotten");
        // Its tables have the size of what it once held.
        (self.blocks, self.segments) = (BlockTable::default(), SegmentTable::default());
        self.placement.placed_mut().clear();
        self.remembered = self.policy.remembered();
        self.unmapped = Default::default();
        (self.uses, self.most_needed) = (UseLists::default(), 0);
        let nobody = ArenaPool { slot: PoolSlot::NONE, ..ArenaPool::DEFAULT };
        (std::mem::replace(&mut self.pool, nobody), self.retired.take())
    }

    /// A vacant arena serves `stream` in `pool` from here on.
    pub(crate) fn serve_another(&mut self, pool: ArenaPool, stream: Stream, policy: Chosen) {
        debug_assert!(self.pool.slot == PoolSlot::NONE, "only vacant arenas change their pool");
        self.history.rename((shown_raw(stream.raw), pool.id));
        (self.pool, self.id.stream) = (pool, stream);
        self.set_policy(policy);
    }

    /// Decides by `policy` from here on.
    pub(crate) fn set_policy(&mut self, policy: Chosen) {
        let policy = if self.pool.sleeps { policy.growing() } else { policy };
        // First: it refuses a policy of another type, and what is remembered belongs to the placement's.
        self.placement.placed_mut().follow(&*policy);
        self.oversize = policy.oversize();
        self.policy = policy;
    }

    /// The arena of a retired stream is `stream`'s from here on.
    pub(crate) fn adopt(&mut self, stream: Stream) {
        self.history.rename((shown_raw(stream.raw), self.pool.id));
        self.id.stream = stream;
        self.retired = None;
    }

    /// For whom its records are made.
    pub(crate) fn owner(&self) -> Owner {
        (shown_raw(self.id.stream.raw), self.pool.id)
    }

    /// Whether it takes growable segments.
    pub(crate) fn grows(&self) -> bool {
        self.policy.grows() && !self.pool.fixed
    }

    /// Free blocks beside others in fixed segments became more or fewer: a number and bytes.
    fn change_splits(&mut self, tier: Tier, (blocks, bytes): (i64, i64)) {
        self.counters.change(tier, Count::InactiveSplit, blocks);
        self.counters.change(tier, Count::InactiveSplitBytes, bytes);
    }

    /// Hands out `size` bytes at `addr` of a free block, and what lies above them, too, unless `cuts_above`.
    pub(crate) fn hand_out_at(
        &mut self,
        map: &AddressMap,
        id: BlockId,
        (addr, size): (u64, u64),
        requested: u64,
        cuts_above: bool,
    ) -> DevicePtr {
        self.take_from_index(id);
        let (tier, segment) = (self.blocks[id].tier, self.blocks[id].segment);
        let mut change = (0, 0);
        if self.blocks[id].is_split() {
            change = (-1, -signed(self.blocks[id].size));
        }
        let below = addr - self.blocks[id].addr;
        let mut target = id;
        if below > 0 {
            target = self.cut_above(id, below, State::Busy);
            self.insert_free(id);
            change = (change.0 + 1, change.1 + signed(below));
        }
        let above = self.blocks[target].size - size;
        if above > 0 && cuts_above {
            self.cut_above(target, size, State::Free);
            change = (change.0 + 1, change.1 + signed(above));
        }
        if self.segments.is_fixed(segment) {
            self.change_splits(tier, change);
        }
        self.hand_out_whole(map, target, requested)
    }

    /// Hands out a block that is in no index, as it is.
    pub(crate) fn hand_out_whole(&mut self, map: &AddressMap, id: BlockId, requested: u64) -> DevicePtr {
        let ptr = self.give(id, requested);
        map.insert(ptr, self.location(id));
        ptr
    }

    fn location(&self, block: BlockId) -> Location {
        Location { device: self.id.device, arena: self.id.number, block }
    }

    /// The block handed out at `ptr` that anyone may free, if the map's entry is still true.
    #[inline]
    pub(crate) fn handed_out(&self, ptr: DevicePtr, id: BlockId) -> Option<BlockId> {
        self.blocks.get(id)?.is_handed_out_at(ptr.0).then_some(id)
    }

    /// The block handed out at `ptr`, a value's or not, if the map's entry is still true.
    pub(crate) fn awake(&self, ptr: DevicePtr, id: BlockId) -> Option<BlockId> {
        let block = self.blocks.get(id)?;
        (block.addr == ptr.0 && block.state.is_awake()).then_some(id)
    }

    /// [`awake`](Self::awake) where a value has the block, or none does, as `owned` says.
    pub(crate) fn held_by(&self, ptr: DevicePtr, id: BlockId, owned: bool) -> Option<BlockId> {
        self.awake(ptr, id).filter(|id| self.blocks[*id].state.is_owned() == owned)
    }

    /// Takes a block back from the program that stays pending beyond its uses, until one more
    /// [`event_done`](Self::event_done). Returns the uses.
    pub(crate) fn free_and_hold(&mut self, map: &AddressMap, id: BlockId) -> SmallVec<[Use; 4]> {
        self.leave_program(id);
        map.remove(DevicePtr(self.blocks[id].addr));
        self.note(id, Recorder::free_requested);
        let streams = self.begin_pending(id);
        self.blocks[id].pending += 1; // `record_use` leaves room for it
        streams
    }

    /// Takes back a block that others use.
    #[cold]
    fn suspend(&mut self, id: BlockId) -> SmallVec<[Use; 4]> {
        self.leave_program(id);
        if self.history.is_on() {
            self.note(id, Recorder::free_requested);
        }
        self.begin_pending(id)
    }

    /// Records something about a block. Off the hot path, which only asks whether anything is recorded.
    #[cold]
    #[inline(never)]
    fn note(&mut self, id: BlockId, record: impl FnOnce(&mut Recorder, BlockId, u64, u64)) {
        let block = &self.blocks[id];
        record(&mut self.history, id, block.addr, block.requested);
    }

    /// A block is in the program's hands no more; what it is now is the caller's business.
    #[inline(always)]
    fn leave_program(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.epoch = self.epochs.current();
        if block.size >= self.oversize {
            self.counters.change(block.tier, Count::OversizeAllocations, -1);
        }
    }

    /// A freed block waits for all that use it. Returns them.
    fn begin_pending(&mut self, id: BlockId) -> SmallVec<[Use; 4]> {
        let streams = self.uses.take(self.blocks[id].uses);
        let block = &mut self.blocks[id];
        self.counters.suspend(block.tier, block.size);
        block.uses = NO_USES;
        block.state = State::Pending;
        block.pending = u16::try_from(streams.len()).unwrap_or(u16::MAX); // `record_use` keeps it in range
        streams
    }

    /// One of the events that a pending block waits for is complete.
    pub(crate) fn event_done(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        debug_assert!(
            block.state == State::Pending && block.pending > 0,
            "queued events belong to pending blocks"
        );
        block.pending -= 1;
        if block.pending == 0 {
            self.note(id, Recorder::free_completed);
            let Block { size, requested, tier, .. } = self.blocks[id];
            self.counters.release(tier, size, requested);
            self.rejoin(id);
        }
    }

    /// Takes a sleeping block back from the program. Nothing uses it, or its memory would not have left.
    fn take_back_asleep(&mut self, map: &AddressMap, id: BlockId) {
        map.remove(DevicePtr(self.blocks[id].addr));
        self.take_back(id);
        self.make_dormant(id);
    }

    #[inline]
    fn free_neighbours(&self, id: BlockId) -> (Option<BlockId>, Option<BlockId>) {
        let block = &self.blocks[id];
        let free = |id: BlockId| id.some().filter(|id| self.blocks[*id].state == State::Free);
        (free(block.prev), free(block.next))
    }

    /// Remembers that `stream` uses the block, too, within a capture or outside of any: whether that is new, or `None`
    /// when that many streams cannot be counted.
    pub(crate) fn record_use(&mut self, id: BlockId, stream: Stream, captured: Option<u64>) -> Option<bool> {
        let (uses, is_new) = self.uses.add(self.blocks[id].uses, stream, captured)?;
        self.blocks[id].uses = uses;
        Some(is_new)
    }

    /// No other stream uses the block any more. What is returned is to be dropped without a lock.
    pub(crate) fn forget_uses(&mut self, id: BlockId) -> SmallVec<[Use; 4]> {
        let uses = std::mem::replace(&mut self.blocks[id].uses, NO_USES);
        self.uses.take(uses)
    }

    /// A new segment with one block that covers it, in state `state` and in no index.
    pub(crate) fn add_segment(&mut self, segment: Segment, state: State) -> (SegmentId, BlockId) {
        let Segment { base, bytes, registration, tier, .. } = segment;
        let id = self.segments.add(segment);
        let block = self.blocks.add(Block {
            addr: base,
            size: bytes,
            requested: 0,
            epoch: 0,
            born: 0,
            prev: BlockId::NONE,
            next: BlockId::NONE,
            segment: id,
            uses: NO_USES,
            registration,
            pending: 0,
            state,
            tier,
        });
        self.segments.set_first(id, block);
        self.remembered.hooks_mut().segment_added(id, &self.segments[id]);
        (id, block)
    }

    /// Takes out a segment whose one block is in no index. What is returned is to be dropped without a lock.
    pub(crate) fn remove_segment(&mut self, id: SegmentId, only: BlockId) -> Option<Segment> {
        debug_assert!(!self.blocks[only].is_split(), "only whole segments are given back");
        self.blocks.remove(only);
        self.remembered.hooks_mut().segment_removed(id);
        self.segments.remove(id)
    }

    /// The blocks of a segment, ascending.
    pub(crate) fn segment_blocks(&self, id: SegmentId) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.upwards(self.segments[id].first).counted()
    }

    /// The segment in whose address space `addr` lies, where requests of `tier` may be served from it.
    pub(crate) fn segment_at(&self, tier: Tier, addr: u64) -> Option<SegmentId> {
        let holds = |segment: &Segment| segment.base <= addr && addr < segment.base + segment.bytes;
        let (id, segment) = self.segments.iter().find(|(_, segment)| holds(segment))?;
        (segment.tier == tier || self.remembered.hooks().crosses_tiers()).then_some(id)
    }

    /// The free block of a segment that holds the byte at `addr`.
    pub(crate) fn free_block_at(&self, segment: SegmentId, addr: u64) -> Option<BlockId> {
        let below = self.remembered.hooks().below(&self.blocks, segment, addr);
        let start = below.unwrap_or(self.segments[segment].first);
        let (id, block) = self.blocks.upwards(start).find(|(_, block)| block.end() > addr)?;
        (block.state == State::Free && block.addr <= addr).then_some(id)
    }
}
