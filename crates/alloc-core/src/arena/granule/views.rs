//! Views: free granules in another order.
//!
//! Free memory may be enough for a request and lie in pieces. A *view* is address space in which whole granules of an
//! arena's growable segments are mapped a second time, side by side; where they were mapped first, their *home*, they
//! stay mapped. A block in a view is a run of bytes whose home bytes are all free: those are [`BlockPhase::Lent`] while it lives, and
//! free again after it. What of a view no block uses is a [`BlockPhase::Alias`].
//!
//! Nothing is unmapped when memory changes its place like that, so nothing has to be waited for: on its own stream memory
//! is used in the stream's order, whatever its address. Once there, a view costs no driver call.

use super::Granule;
use super::borders::{AliasPlace, FreePart};
use super::home::{free_part_of, free_range};
use super::shown::{Blocks, Shown, Slot, SlotState, ViewRun};
use crate::arena::{ArenaOf, Heap};
use crate::base::steps::Counted;
use crate::memory::block::{BlockId, BlockPhase, SegmentId};
use crate::memory::segment::Segment;
use crate::watch::snapshot::Action;
use smallvec::SmallVec;

/// The run of some view that fits `size` best; of equal ones the first of the oldest view.
///
/// A run is what is free from one granule of a view on to others that follow there. So runs are found from what is free at
/// home: a free end, or a free granule that continues none, is where one begins.
pub(crate) fn run_for(heap: &mut Heap<Granule>, size: u64) -> Option<ViewRun> {
    if heap.known().shown_bytes() == 0 {
        return None;
    }
    let (memory, segments) = heap.known_and_segments();
    memory.pieces(segments);
    let heap = &*heap;
    let places =
        |(segment, number)| heap.known().borders().get(segment).map(|borders| borders.places(number));
    let places = heap.known().known_pieces().visible().filter_map(places).flatten();
    places.filter_map(|place| run_at(heap, *place, size)).min_by_key(|run| (run.spare, run.view, run.first))
}

/// The run that begins in a place of a view, if it has `size` bytes.
fn run_at(heap: &Heap<Granule>, AliasPlace { view, slot: first }: AliasPlace, size: u64) -> Option<ViewRun> {
    let view = heap.known().place_of_number(view)?;
    let slots = &heap.known().views()[view].slots;
    // Most views are too small, which takes no look at what is free.
    let end = slots.last().map_or(0, |slot| slot.before + slot.shown.bytes);
    if end - slots[first].before < size {
        return None;
    }
    let free = |slot: &Slot| (slot.state == SlotState::Mapped).then(|| free_part_of(heap, &slot.shown));
    let shown = &slots[first].shown;
    let FreePart { prefix, suffix } = free(&slots[first])?;
    let continues = || first > 0 && free(&slots[first - 1]).is_some_and(|before| before.suffix > 0);
    if prefix == shown.bytes && continues() {
        return None;
    }
    let mut bytes = suffix;
    for slot in slots[first + 1..].iter().counted() {
        let Some(FreePart { prefix, .. }) = free(slot) else { break };
        bytes += prefix;
        if prefix < slot.shown.bytes {
            break;
        }
    }
    let spare = bytes.checked_sub(size)?;
    Some(ViewRun { view, first, skip: shown.bytes - suffix, spare })
}

/// Takes the home bytes of `size` bytes from `skip` on in `granules` out of the free ones, as busy. Nothing is taken where
/// some are not free.
pub(crate) fn take_home(
    heap: &mut Heap<Granule>,
    granules: impl IntoIterator<Item = Shown>,
    skip: u64,
    size: u64,
) -> Option<Blocks> {
    let mut ranges: SmallVec<[(Shown, u64, u64); 8]> = SmallVec::new();
    let mut left = size;
    let mut from = skip;
    for shown in granules {
        if left == 0 {
            break;
        }
        let bytes = (shown.bytes - from).min(left);
        let (low, high) = (shown.addr + from, shown.addr + from + bytes);
        free_range(heap, shown.segment, low, high)?;
        ranges.push((shown, low, high));
        (left, from) = (left - bytes, 0);
    }
    if left > 0 {
        return None;
    }
    let take = |(shown, low, high): (Shown, u64, u64)| {
        // An earlier range may have cut the block that held this one.
        let Some(holder) = free_range(heap, shown.segment, low, high) else {
            unreachable!("it was free a moment ago")
        };
        heap.take_range(holder, low, high)
    };
    Some(ranges.into_iter().map(take).collect())
}

/// Serves `size` bytes from a run, if its home bytes are free. Returns the block, in no index.
pub(crate) fn take_run(arena: &mut ArenaOf<Granule>, run: &ViewRun, size: u64) -> Option<BlockId> {
    let heap = arena.heap();
    let view = &heap.known().views()[run.view];
    let base = heap.layout().segments()[view.segment].base;
    let at = base + view.slots[run.first].before + run.skip;
    take_shown(arena, run, at, size)
}

/// Serves the `size` bytes at `addr` of a view, if their home bytes are free. Returns the block, in no index.
pub(crate) fn take_in_view(
    arena: &mut ArenaOf<Granule>,
    segment: SegmentId,
    addr: u64,
    size: u64,
) -> Option<BlockId> {
    let heap = arena.heap();
    let view = heap.known().place_of(segment)?;
    let Segment { base, bytes, .. } = heap.layout().segments()[segment];
    debug_assert!((base..base + bytes).contains(&addr), "the view is the segment at this address");
    let view_of = &heap.known().views()[view];
    let first = view_of.slot_of(addr - base);
    let skip = addr - base - view_of.slots[first].before;
    take_shown(arena, &ViewRun { view, first, skip, spare: 0 }, addr, size)
}

fn take_shown(arena: &mut ArenaOf<Granule>, run: &ViewRun, at: u64, size: u64) -> Option<BlockId> {
    let heap = arena.heap_mut();
    if !heap.layout().blocks().may_cut() {
        return None;
    }
    // Slots do not change while their bytes are taken.
    let slots = heap.known_mut().take_slots(run.view);
    let mapped = |slot: &Slot| (slot.state == SlotState::Mapped).then_some(slot.shown);
    let taken = take_home(heap, slots[run.first..].iter().map_while(mapped), run.skip, size);
    let segment = heap.known_mut().serve(run.view, slots);
    Some(lend(arena, segment, at, size, taken?))
}

/// A new view with these granules, from which a request gets its block at once. `taken` are the home bytes of `size`
/// bytes from `skip` on.
pub(crate) fn add_view(
    arena: &mut ArenaOf<Granule>,
    segment: Segment,
    granules: Vec<Shown>,
    (skip, size): (u64, u64),
    taken: Blocks,
) -> BlockId {
    let base = segment.base;
    let heap = arena.heap_mut();
    let (id, _) = heap.add_segment(segment, BlockPhase::Alias);
    heap.known_mut().add_view(id, granules);
    lend(arena, id, base + skip, size, taken)
}

/// Cuts the block at `at` out of what no block uses of a view; `taken` are its home bytes.
fn lend(arena: &mut ArenaOf<Granule>, view: SegmentId, at: u64, size: u64, taken: Blocks) -> BlockId {
    let heap = arena.heap();
    let alias = alias_at(heap, view, at);
    let found = &heap.layout().blocks()[alias];
    debug_assert!(
        found.state == BlockPhase::Alias && found.addr <= at && at + size <= found.end(),
        "no block uses a view's bytes while their home is free"
    );
    for id in &taken {
        arena.heap_mut().layout_mut().blocks_mut()[*id].state = BlockPhase::Lent;
        arena.note_change(Action::SegmentUnmap, *id);
    }
    let heap = arena.heap_mut();
    let mut id = alias;
    let below = at - heap.layout().blocks()[alias].addr;
    if below > 0 {
        id = heap.cut_above(alias, below, BlockPhase::Busy);
    }
    if size < heap.layout().blocks()[id].size {
        heap.cut_above(id, size, BlockPhase::Alias);
    }
    heap.layout_mut().blocks_mut()[id].state = BlockPhase::Busy;
    let block = heap.layout().blocks()[id].clone();
    heap.known_mut().lend(&block, id, taken);
    arena.note_change(Action::SegmentMap, id);
    id
}

/// The alias that holds a view's byte at `addr`: one reaches from a block that lives to the next, or to an end of the view.
pub(super) fn alias_at(heap: &Heap<Granule>, view: SegmentId, addr: u64) -> BlockId {
    let layout = heap.layout();
    let below = heap.known().live_below(view, addr);
    below.map_or(layout.segments()[view].first, |id| layout.blocks()[id].next)
}

/// A block in a view is free: so are its home bytes, which the device may use up to the block's epoch.
#[cold]
pub(crate) fn end_loan(arena: &mut ArenaOf<Granule>, id: BlockId) {
    let block = arena.heap().layout().blocks()[id].clone();
    let epoch = block.epoch;
    arena.note_change(Action::SegmentUnmap, id);
    for home in arena.heap_mut().known_mut().end_loan(&block, id) {
        let block = &mut arena.heap_mut().layout_mut().blocks_mut()[home];
        block.epoch = block.epoch.max(epoch);
        arena.note_change(Action::SegmentMap, home);
        arena.heap_mut().return_free(home);
    }
    let layout = arena.heap_mut().layout_mut();
    let id = layout.join(id, BlockPhase::Alias);
    let block = &mut layout.blocks_mut()[id];
    (block.state, block.requested) = (BlockPhase::Alias, 0);
}

/// Home bytes that could not be shown are free again.
pub(crate) fn give_home_back(heap: &mut Heap<Granule>, taken: Blocks) {
    for id in taken {
        heap.return_free(id);
    }
}
