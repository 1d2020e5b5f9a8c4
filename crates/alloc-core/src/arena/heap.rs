//! Heap of an arena: its blocks, the index of the free ones, and address space without memory.
//!
//! Nothing is counted here, and no history is kept. Blocks for the driver are taken out first, as [`BlockPhase::Busy`]:
//! the caller calls the driver, and comes back to commit or undo.

pub(super) mod growth;
pub(super) mod residency;
mod unmapped;

use super::granule::Memory;
use super::rules::Rules;
use crate::base::steps::Counted;
use crate::memory::block::{Block, BlockId, BlockPhase, Live, SegmentId, Tier};
use crate::memory::layout::Layout;
use crate::memory::order::TieBreak;
use crate::memory::region::{RegionId, Regions};
use crate::memory::segment::{Origin, Segment};
use crate::policy::{GranuleSizes, Policy, Request};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Rank};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::Range;
use unmapped::Unmapped;

/// State that the arenas of a device share.
#[derive(Debug)]
pub(crate) struct ArenaShared {
    /// Searches in all arenas of the default pool, by tier: the clock of block ages.
    searches: [AtomicU64; 2],
    /// Arenas that may have free memory for others, by number.
    spare: Mutex<BTreeSet<u16>>,
}

impl Default for ArenaShared {
    fn default() -> Self {
        Self { searches: Default::default(), spare: Mutex::new(Rank::Registry, BTreeSet::new()) }
    }
}

impl ArenaShared {
    /// Searches so far in a tier.
    pub(crate) fn searches(&self, tier: Tier) -> u64 {
        self.searches[tier as usize].load(Ordering::Relaxed)
    }

    /// The first arena from `number` on that may have free memory for others.
    pub(crate) fn next_spare(&self, number: u16) -> Option<u16> {
        self.spare.lock().range(number..).counted().next().copied()
    }
}

/// Blocks of an arena, whose free ones are indexed by `P`.
#[derive(Debug)]
pub(crate) struct Heap<P: ?Sized = dyn Rules> {
    pub(super) layout: Layout,
    /// Order of free blocks of one size.
    tie_break: TieBreak,
    /// Address space without memory.
    unmapped: Unmapped,
    /// Set while searches are counted: only with garbage collection.
    ages: bool,
    shared: Arc<ArenaShared>,
    /// The arena's number.
    number: u16,
    /// Set once the arena is noted as one that may have free memory for others.
    is_spare: bool,
    /// The free blocks.
    pub(super) rules: P,
}

impl<P> Heap<P> {
    pub(super) fn new(rules: P, tie_break: TieBreak, number: u16, shared: Arc<ArenaShared>) -> Self {
        Self {
            layout: Layout::default(),
            tie_break,
            unmapped: Default::default(),
            ages: false,
            shared,
            number,
            is_spare: false,
            rules,
        }
    }
}

impl<P: Rules + ?Sized> Heap<P> {
    /// Empties it, as it was at first: tables have the size of their former contents.
    pub(super) fn reset(&mut self) {
        debug_assert!(self.layout.blocks().is_empty(), "nothing is forgotten");
        self.layout = Layout::default();
        self.rules.clear();
        self.unmapped = Default::default();
    }

    /// Chooses free blocks by this policy, of the same name, from here on.
    pub(super) fn follow(&mut self, policy: &Policy) {
        self.rules.follow(policy);
    }

    /// State of the `granule` policy for the arena.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.rules.memory()
    }

    /// Counts ages of free blocks from here on, or no more.
    pub(crate) fn count_ages(&mut self, ages: bool) {
        self.ages = ages;
    }

    #[inline(always)]
    pub(super) fn counts_ages(&self) -> bool {
        self.ages
    }

    /// Counts a search of a tier's free blocks.
    pub(super) fn count_search(&self, tier: Tier) {
        self.shared.searches[tier as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the arena may have free memory for others.
    pub(crate) fn note_spare(&mut self) {
        if !std::mem::replace(&mut self.is_spare, true) {
            self.shared.spare.lock().insert(self.number);
        }
    }

    /// Notes that it has none.
    pub(crate) fn note_no_spare(&mut self) {
        self.is_spare = false;
        self.shared.spare.lock().remove(&self.number);
    }

    #[inline(always)]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Records, to be changed; free blocks stay as they are.
    #[inline(always)]
    pub(crate) fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    /// Serves nothing from views from here on, or again.
    pub(super) fn stay_at_home(&mut self, home: bool) {
        if let Some(memory) = self.rules.memory_mut() {
            memory.stay_at_home(home);
        }
    }

    /// Panics where the indexes of a tier do not hold what they should.
    pub(super) fn check(&self, tier: Tier) {
        self.rules.check(tier);
        let of = |wanted: BlockPhase| -> BTreeSet<BlockId> {
            let blocks = self.layout.blocks().iter();
            blocks.filter(|(_, b)| b.tier == tier && b.state == wanted).map(|(id, _)| id).collect()
        };
        let indexed: BTreeSet<BlockId> = self.rules.at_least(tier, 0).collect();
        assert_eq!(indexed, of(BlockPhase::Free), "the index holds exactly the free blocks of its tier");
        let listed: BTreeSet<BlockId> = self.unmapped.of(tier).map(|(_, id)| id).collect();
        assert_eq!(listed, of(BlockPhase::Unmapped), "the unmapped list holds exactly the unmapped blocks");
        for (addr, id) in self.unmapped.of(tier) {
            assert_eq!(self.layout.blocks()[id].addr, addr, "and knows their addresses");
        }
        for (id, segment) in self.layout.segments().iter().filter(|(_, segment)| segment.tier == tier) {
            let order = self.tie_break.order_in(segment);
            assert!(
                self.layout.of_segment(id).all(|(_, block)| block.order == order),
                "a block knows its segment's"
            );
        }
    }

    /// Takes the block that serves `request` out of the free ones, without ageing them.
    #[inline(always)]
    pub(crate) fn find(&mut self, request: &Request) -> Option<BlockId> {
        self.rules.take_fit(self.layout.blocks(), self.layout.segments(), request)
    }

    /// True if the policy cuts a block of `block` bytes for `request`.
    #[inline(always)]
    pub(crate) fn splits(&self, block: u64, request: &Request) -> bool {
        self.rules.splits(block, request)
    }

    /// Marks a block that is in no index as allocated.
    #[inline(always)]
    pub(super) fn give(&mut self, id: BlockId, requested: u64) -> &Block {
        let block = &mut self.layout.blocks_mut()[id];
        (block.state, block.requested) = (BlockPhase::Live(Live::Awake), requested);
        block
    }

    /// Puts a block that is in no index among the free ones, as it is: others may have it.
    pub(crate) fn insert_free(&mut self, id: BlockId) {
        self.note_spare();
        self.put_free(id, false);
    }

    /// [`insert_free`](Self::insert_free) without noting spare memory; for a block that [was free](Self::take_out),
    /// too, and has become longer or shorter at its end.
    #[inline(always)]
    pub(super) fn put_free(&mut self, id: BlockId, was_free: bool) {
        let block = &mut self.layout.blocks_mut()[id];
        block.state = BlockPhase::Free;
        if self.ages {
            block.born = self.shared.searches(block.tier);
        }
        if was_free {
            self.rules.put_back(block, id);
        } else {
            self.rules.insert(block, id);
        }
    }

    /// Takes a free block out of its index; the caller sets its state.
    #[inline(always)]
    pub(super) fn take_from_index(&mut self, id: BlockId) {
        self.rules.remove(&self.layout.blocks()[id], id);
    }

    /// Takes a free block out of its index for a moment: it stays free from its first byte on, and is [put back](Self::put_free).
    #[inline(always)]
    pub(super) fn take_out(&mut self, id: BlockId) {
        self.rules.take_out(&self.layout.blocks()[id], id);
    }

    /// Takes a free block out of its index, as busy.
    pub(crate) fn take_free(&mut self, id: BlockId) {
        self.take_from_index(id);
        self.layout.blocks_mut()[id].state = BlockPhase::Busy;
    }

    /// Takes the bytes from `low` to `high` out of a free block, as busy. The rest stays free, without a requested
    /// size.
    #[inline(always)]
    pub(crate) fn take_range(&mut self, id: BlockId, low: u64, high: u64) -> BlockId {
        let block = &mut self.layout.blocks_mut()[id];
        let (addr, end) = (block.addr, block.end());
        let requested = std::mem::take(&mut block.requested);
        let mut middle = id;
        if addr < low {
            self.take_out(id);
            middle = self.cut(id, low - addr, BlockPhase::Busy);
            self.put_free(id, true);
        } else {
            self.take_from_index(id);
        }
        if high < end {
            self.cut(middle, high - low, BlockPhase::Free);
        }
        let block = &mut self.layout.blocks_mut()[middle];
        (block.requested, block.state) = (requested, BlockPhase::Busy);
        middle
    }

    /// Cuts a block, which is in no index, after `size` bytes. The lower part keeps the id and the state; the upper part
    /// gets `upper_state` and goes into the list of that state.
    #[inline(always)]
    pub(super) fn cut(&mut self, id: BlockId, size: u64, upper_state: BlockPhase) -> BlockId {
        let upper = self.layout.blocks_mut().cut(id, size);
        match upper_state {
            BlockPhase::Free => self.put_free(upper, false),
            BlockPhase::Unmapped => self.insert_unmapped(upper),
            _ => self.layout.blocks_mut()[upper].state = upper_state,
        }
        upper
    }

    /// [`cut`](Self::cut) that lets others have the free part.
    pub(crate) fn cut_above(&mut self, id: BlockId, size: u64, upper_state: BlockPhase) -> BlockId {
        self.note_spare();
        self.cut(id, size, upper_state)
    }

    /// Returns a busy block with memory to the free ones, coalesced with its neighbours.
    pub(crate) fn return_free(&mut self, id: BlockId) {
        let id = self.join_free(id);
        self.insert_free(id);
    }

    /// Adds a segment with one block that covers it, in state `state` and in no index.
    pub(crate) fn add_segment(&mut self, segment: Segment, state: BlockPhase) -> (SegmentId, BlockId) {
        let order = self.tie_break.order_in(&segment);
        let (id, block) = self.layout.add_segment(segment, order, state);
        if let Some(memory) = self.rules.memory_mut() {
            memory.segment_added(id, &self.layout.segments()[id]);
        }
        (id, block)
    }

    /// Takes out a segment whose one block is in no index. Drop it without a lock.
    pub(crate) fn remove_segment(&mut self, id: SegmentId, only: BlockId) -> Option<Segment> {
        if let Some(memory) = self.rules.memory_mut() {
            memory.segment_removed(id, self.layout.segments());
        }
        self.layout.remove_segment(id, only)
    }

    /// True if a free block of a tier has at least `bytes`.
    pub(crate) fn has_free(&self, tier: Tier, bytes: u64) -> bool {
        self.rules.has(tier, bytes)
    }

    /// Free blocks of a tier with at least `bytes`, in the index's order.
    pub(crate) fn free(&self, tier: Tier, bytes: u64) -> Vec<BlockId> {
        self.rules.at_least(tier, bytes).collect()
    }

    /// Segment in whose address space `addr` lies, if it may serve requests of `tier`.
    pub(crate) fn segment_at(&self, tier: Tier, addr: u64) -> Option<SegmentId> {
        let (id, segment) = self.layout.segment_at(addr)?;
        // A small request for no special place is served from the small tier of `granule` only to keep small blocks out
        // of large holes. A caller that names a place knows better.
        (segment.tier == tier || self.rules.memory().is_some()).then_some(id)
    }

    /// The free block of a segment that holds the byte at `addr`.
    pub(crate) fn free_at(&self, segment: SegmentId, addr: u64) -> Option<BlockId> {
        let below = self.rules.memory().and_then(|memory| memory.below(segment, addr));
        let start = below.unwrap_or(self.layout.segments()[segment].first);
        self.layout.free_at(start, addr)
    }

    /// Makes a busy block address space without memory.
    pub(crate) fn insert_unmapped(&mut self, id: BlockId) {
        let block = &mut self.layout.blocks_mut()[id];
        block.state = BlockPhase::Unmapped;
        self.unmapped.insert(block, id);
    }

    /// Coalesces a busy block that has memory with free neighbours; it stays busy, possibly under the lower neighbour's
    /// id.
    fn join_free(&mut self, id: BlockId) -> BlockId {
        let (below, above) = self.layout.neighbours_in(BlockPhase::Free, id);
        for neighbour in [below, above].into_iter().flatten() {
            self.take_from_index(neighbour);
        }
        let id = self.layout.join(id, BlockPhase::Free);
        self.layout.blocks_mut()[id].state = BlockPhase::Busy;
        id
    }

    /// Makes a busy block without memory part of the unmapped address space around it, which keeps its requested size:
    /// memory mapped there again shows that, as in PyTorch.
    fn join_unmapped(&mut self, id: BlockId) -> BlockId {
        let Block { requested, segment, .. } = self.layout.blocks()[id];
        let range = self.layout.blocks()[id].addr..self.layout.blocks()[id].end();
        if let Some(granules) = self.layout.granules_mut(segment) {
            granules.clear(range);
        }
        let (below, above) = self.layout.neighbours_in(BlockPhase::Unmapped, id);
        for neighbour in [below, above].into_iter().flatten() {
            self.unmapped.remove(&self.layout.blocks()[neighbour], neighbour);
        }
        let id = self.layout.join(id, BlockPhase::Unmapped);
        self.layout.blocks_mut()[id].requested = requested;
        self.insert_unmapped(id);
        id
    }

    /// Takes the whole granules of a free block out, as busy, whose memory has no aliases.
    pub(crate) fn begin_evict(&mut self, id: BlockId, regions: &Regions) -> SmallVec<[BlockId; 2]> {
        let block = &self.layout.blocks()[id];
        let segment = &self.layout.segments()[block.segment];
        let Origin::Growable { region, .. } = segment.origin else { return SmallVec::new() };
        let granules = &segment.granules;
        let mut runs: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        for granule in granules.each(granules.within(block.addr..block.end())) {
            if regions.has_aliases(region, granule.start) {
                continue;
            }
            match runs.last_mut().filter(|run| run.end == granule.start) {
                Some(run) => run.end = granule.end,
                None => runs.push(granule),
            }
        }
        let mut holder = id;
        runs.into_iter()
            .map(|run| {
                let part = self.take_range(holder, run.start, run.end);
                holder = self.layout.blocks()[part].next;
                part
            })
            .collect()
    }

    /// Commits a vacating of which the first `bytes` lost their memory. Returns the segment if nothing of it has memory
    /// any more; its one block is busy then, ready to be given back.
    pub(crate) fn commit_evict(&mut self, id: BlockId, bytes: u64) -> Option<(SegmentId, BlockId)> {
        if bytes == 0 {
            self.return_free(id);
            return None;
        }
        if bytes < self.layout.blocks()[id].size {
            let rest = self.cut_above(id, bytes, BlockPhase::Busy);
            self.return_free(rest);
        }
        self.layout.blocks_mut()[id].epoch = 0;
        let id = self.join_unmapped(id);
        if self.layout.blocks()[id].is_split() {
            return None;
        }
        self.unmapped.remove(&self.layout.blocks()[id], id);
        let block = &mut self.layout.blocks_mut()[id];
        block.state = BlockPhase::Busy;
        Some((block.segment, id))
    }

    /// Takes out, as busy, the block of every growable segment of `tier` that has no memory at all.
    pub(crate) fn take_empty_regions(&mut self, tier: Tier) -> Vec<(SegmentId, BlockId, RegionId)> {
        let whole = self.unmapped.of(tier).map(|(_, id)| id);
        let whole: Vec<BlockId> = whole.filter(|id| !self.layout.blocks()[*id].is_split()).collect();
        let mut empty = Vec::new();
        for id in whole {
            let Origin::Growable { region, .. } = self.layout.segment_of(id).origin else { continue };
            self.unmapped.remove(&self.layout.blocks()[id], id);
            let block = &mut self.layout.blocks_mut()[id];
            block.state = BlockPhase::Busy;
            empty.push((block.segment, id, region));
        }
        empty
    }
}

impl Heap {
    /// Bytes to be mapped for `size` bytes in new granules `of` these sizes, or of any where that is `None`, if the
    /// arena has room for them.
    pub(crate) fn missing_memory(&self, tier: Tier, size: u64, of: Option<GranuleSizes>) -> Option<u64> {
        growth::Growth::missing(self, tier, size, of)
    }
}
