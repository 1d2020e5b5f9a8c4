//! Arena level: the blocks of one pool and one stream, under one lock.
//!
//! Everything here is bookkeeping on offsets and sizes; no driver is called. Operations that need the
//! driver take blocks out as [`State::Busy`], and come back to commit or undo.

mod carve;
mod uses;

pub(crate) use uses::UseLists;

use crate::address_map::{AddressMap, Location};
use crate::block::{Block, BlockId, BlockTable, NO_USES, SegmentId, State, Tier};
use crate::counters::{Count, Counters};
use crate::epoch::Epochs;
use crate::history::Recorder;
use crate::index::PlacementIndex;
use crate::last_work::{LastWork, User};
use crate::policy::{Policy, Request};
use crate::segment::{Segment, SegmentTable};
use crate::snapshot::Action;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::types::{DeviceIndex, DevicePtr, Stream};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// One size range of an arena.
#[derive(Debug, Default)]
pub(crate) struct TierState<I> {
    /// Free blocks with memory.
    pub(crate) index: I,
    /// Address space without memory, by address.
    pub(crate) unmapped: BTreeSet<(u64, BlockId)>,
}

/// What identifies an arena. Its stream changes when another adopts the memory of one that is retired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaId {
    pub(crate) device: DeviceIndex,
    pub(crate) number: u16,
    pub(crate) stream: Stream,
}

/// The state under an arena's lock.
#[derive(Debug)]
pub(crate) struct ArenaState<P: Policy> {
    pub(crate) id: ArenaId,
    /// The end of its stream's work, once that is retired and until another adopts the arena.
    pub(crate) retired: Option<Arc<LastWork>>,
    pub(crate) policy: P,
    pub(crate) blocks: BlockTable,
    pub(crate) segments: SegmentTable,
    pub(crate) tiers: [TierState<P::Index>; 2],
    pub(crate) counters: Counters,
    pub(crate) epochs: Epochs,
    pub(crate) history: Recorder,
    pub(crate) uses: UseLists,
    /// Whether searches are counted: only while garbage collection is on.
    pub(crate) ages: bool,
    /// Searches in all arenas of the pool, by tier: the clock of block ages.
    pub(crate) searches: Arc<[AtomicU64; 2]>,
}

/// What a free has to do next.
#[derive(Debug)]
pub(crate) enum FreeStep {
    /// The block is free.
    Done,
    /// The block waits for these streams; an event has to be recorded on each.
    Wait(SmallVec<[User; 4]>),
}

#[allow(clippy::cast_possible_wrap)] // block sizes are under 2^60
fn signed(bytes: u64) -> i64 {
    bytes as i64
}

impl<P: Policy> ArenaState<P> {
    pub(crate) fn new(id: ArenaId, policy: P, searches: Arc<[AtomicU64; 2]>) -> Self {
        Self {
            id,
            retired: None,
            policy,
            blocks: BlockTable::default(),
            segments: SegmentTable::default(),
            tiers: std::array::from_fn(|_| TierState {
                index: P::Index::default(),
                unmapped: BTreeSet::new(),
            }),
            counters: Counters::default(),
            epochs: Epochs::default(),
            history: Recorder::default(),
            uses: UseLists::default(),
            ages: false,
            searches,
        }
    }

    pub(crate) fn tier(&mut self, tier: Tier) -> &mut TierState<P::Index> {
        &mut self.tiers[tier as usize]
    }

    /// Whether requests of `stream`, one of this device, are for this arena.
    #[inline]
    pub(crate) fn serves(&self, stream: Stream) -> bool {
        self.id.stream.raw == stream.raw && self.retired.is_none()
    }

    /// Takes the block that serves `request` out of the free ones.
    #[inline]
    pub(crate) fn find(&mut self, request: &Request) -> Option<BlockId> {
        if self.ages {
            self.searches[request.tier as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.find_again(request)
    }

    /// [`find`](Self::find) that does not age the free blocks.
    #[inline]
    pub(crate) fn find_again(&mut self, request: &Request) -> Option<BlockId> {
        let tier = &mut self.tiers[request.tier as usize];
        self.policy.take_fit(&mut tier.index, &self.blocks, &self.segments, request)
    }

    /// Hands out a block that is in no index, cutting it if the policy says so. Returns its address.
    #[inline]
    pub(crate) fn hand_out(&mut self, map: &AddressMap, id: BlockId, request: &Request) -> DevicePtr {
        let growable = self.segments[self.blocks[id].segment].is_growable();
        let was_split = self.blocks[id].is_split();
        let whole = self.blocks[id].size;
        let tier = self.blocks[id].tier;
        if self.policy.splits(whole, request) && self.blocks.may_cut() {
            self.cut_above(id, request.size, State::Free);
            if !growable {
                let (blocks, bytes) =
                    if was_split { (0, -signed(request.size)) } else { (1, signed(whole - request.size)) };
                self.counters.change(tier, Count::InactiveSplit, blocks);
                self.counters.change(tier, Count::InactiveSplitBytes, bytes);
            }
        } else if was_split && !growable {
            self.counters.decrease(tier, Count::InactiveSplit, 1);
            self.counters.decrease(tier, Count::InactiveSplitBytes, signed(whole));
        }
        let block = &mut self.blocks[id];
        block.state = State::Allocated;
        block.requested = request.requested;
        let (addr, size) = (block.addr, signed(block.size));
        self.counters.increase(tier, Count::Allocation, 1);
        self.counters.increase(tier, Count::Active, 1);
        self.counters.increase(tier, Count::AllocatedBytes, size);
        self.counters.increase(tier, Count::ActiveBytes, size);
        self.counters.increase(tier, Count::RequestedBytes, signed(request.requested));
        if self.policy.is_oversize(block.size) {
            self.counters.increase(tier, Count::OversizeAllocations, 1);
        }
        self.history.record(Action::Alloc, addr, request.requested);
        map.insert(DevicePtr(addr), self.location(id));
        DevicePtr(addr)
    }

    fn location(&self, block: BlockId) -> Location {
        Location { device: self.id.device, arena: self.id.number, block }
    }

    /// The block handed out at `ptr`, if the map's entry is still true.
    #[inline]
    pub(crate) fn handed_out(&self, ptr: DevicePtr, id: BlockId) -> Option<BlockId> {
        let block = self.blocks.get(id)?;
        (block.addr == ptr.0 && block.state == State::Allocated).then_some(id)
    }

    /// Takes a block back from the program.
    #[inline]
    pub(crate) fn free(&mut self, map: &AddressMap, id: BlockId) -> FreeStep {
        // Both neighbours are looked at first: their records are cache misses that can be waited for together.
        let neighbours = self.free_neighbours(id);
        let block = &mut self.blocks[id];
        block.epoch = self.epochs.current();
        let (addr, size, tier, requested, uses) =
            (block.addr, block.size, block.tier, block.requested, block.uses);
        map.remove(DevicePtr(addr));
        self.counters.decrease(tier, Count::Allocation, 1);
        self.counters.decrease(tier, Count::AllocatedBytes, signed(size));
        if self.policy.is_oversize(size) {
            self.counters.decrease(tier, Count::OversizeAllocations, 1);
        }
        self.history.record(Action::FreeRequested, addr, requested);
        if uses == NO_USES {
            self.complete_free(id, neighbours);
            return FreeStep::Done;
        }
        let streams = self.uses.take(uses);
        let block = &mut self.blocks[id];
        block.uses = NO_USES;
        block.state = State::Pending;
        block.pending = u16::try_from(streams.len()).unwrap_or(u16::MAX); // `record_use` keeps it in range
        FreeStep::Wait(streams)
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
            self.complete_free(id, self.free_neighbours(id));
        }
    }

    /// Returns a block to the free ones, joining it with free neighbours.
    #[inline]
    fn complete_free(&mut self, mut id: BlockId, (below, above): (Option<BlockId>, Option<BlockId>)) {
        let Block { addr, size, requested, tier, segment, .. } = self.blocks[id];
        self.history.record(Action::FreeCompleted, addr, requested);
        let growable = self.segments[segment].is_growable();
        let (mut blocks, mut bytes) = (0, 0);
        if let Some(below) = below {
            blocks -= 1;
            bytes -= signed(self.blocks[below].size);
            self.take_from_index(below);
            // The merged block is free: what it was last used for is the block's that was just freed.
            self.blocks[below].requested = requested;
            self.blocks.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = above {
            blocks -= 1;
            bytes -= signed(self.blocks[above].size);
            self.take_from_index(above);
            self.blocks.absorb_above(id, above);
        }
        self.insert_free(id);
        if !growable {
            if self.blocks[id].is_split() {
                blocks += 1;
                bytes += signed(self.blocks[id].size);
            }
            self.counters.change(tier, Count::InactiveSplit, blocks);
            self.counters.change(tier, Count::InactiveSplitBytes, bytes);
        }
        self.counters.decrease(tier, Count::Active, 1);
        self.counters.decrease(tier, Count::ActiveBytes, signed(size));
        self.counters.decrease(tier, Count::RequestedBytes, signed(requested));
    }

    #[inline]
    fn free_neighbours(&self, id: BlockId) -> (Option<BlockId>, Option<BlockId>) {
        let block = &self.blocks[id];
        let free = |id: BlockId| id.some().filter(|id| self.blocks[*id].state == State::Free);
        (free(block.prev), free(block.next))
    }

    /// Remembers that `stream` uses the block, too: whether that is new, or `None` when that many streams
    /// cannot be counted.
    pub(crate) fn record_use(&mut self, id: BlockId, stream: Stream) -> Option<bool> {
        let before = self.blocks[id].uses;
        self.blocks[id].uses = self.uses.add(before, stream)?;
        Some(self.blocks[id].uses != before)
    }

    /// Puts a block that is in no index among the free ones, as it is.
    pub(crate) fn insert_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        let tier = &mut self.tiers[block.tier as usize];
        block.state = State::Free;
        if self.ages {
            block.born = self.searches[block.tier as usize].load(Ordering::Relaxed);
        }
        tier.index.insert(block.key(), id);
    }

    /// Takes a free block out of its index; its state is the caller's business.
    pub(crate) fn take_from_index(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (tier, key) = (block.tier, block.key());
        self.tier(tier).index.remove(key);
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
        (id, block)
    }

    /// Forgets a segment whose one block is in no index.
    pub(crate) fn remove_segment(&mut self, id: SegmentId, only: BlockId) {
        debug_assert!(!self.blocks[only].is_split(), "only whole segments are given back");
        self.blocks.remove(only);
        self.segments.remove(id);
    }

    /// The blocks of a segment, ascending.
    pub(crate) fn segment_blocks(&self, id: SegmentId) -> impl Iterator<Item = (BlockId, &Block)> {
        std::iter::successors(Some(self.segments[id].first), |block| self.blocks[*block].next.some())
            .map(|block| (block, &self.blocks[block]))
    }
}
