//! Views: free granules in another order.
//!
//! Free memory may be enough for a request and lie in pieces. A *view* is address space in which whole granules of an
//! arena's growable segments are mapped a second time, side by side; where they were mapped first, their *home*, they
//! stay mapped. A block in a view is a run of bytes whose home bytes are all free: those are [`State::Lent`] while it lives, and
//! free again after it. What of a view no block uses is [`State::Blank`].
//!
//! Nothing is unmapped when memory changes its place like that, so nothing has to be waited for: on its own stream memory
//! is used in the stream's order, whatever its address. Once there, a view costs no driver call.

use super::ArenaState;
use super::borders::{AllBorders, Borders, FreePart};
use super::follow::Follow;
use crate::base::round::SMALL_SEGMENT;
use crate::base::steps::Counted;
use crate::memory::address_map::AddressMap;
use crate::memory::block::{Block, BlockId, SegmentId, State, Tier};
use crate::memory::segment::{Origin, Segment};
use crate::policy::Request;
use crate::types::DevicePtr;
use crate::watch::snapshot::Action;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A granule by its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) segment: SegmentId,
    pub(crate) number: usize,
    /// Its home address.
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
}

/// A place in a view, for one granule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) shown: Shown,
    pub(crate) state: SlotState,
}

/// Whether the granule of a slot is mapped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Mapped,
    /// It is being unmapped; nothing is served from it any more.
    Leaving,
    /// Only addresses are left.
    Gone,
}

/// One view: the granules that it shows, in order.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) segment: SegmentId,
    pub(crate) slots: Vec<Slot>,
    /// When it last served a request, as [`Views::served`] counts.
    pub(crate) used: u64,
}

impl View {
    /// First address of each mapping, and the granule.
    pub(crate) fn mappings(&self, base: u64) -> impl Iterator<Item = (u64, &Shown)> {
        let mapped = |(_, slot): &(u64, &Slot)| slot.state == SlotState::Mapped;
        self.places(base).filter(mapped).map(|(at, slot)| (at, &slot.shown))
    }

    /// The slots, and their addresses.
    pub(crate) fn places(&self, base: u64) -> impl Iterator<Item = (u64, &Slot)> {
        self.slots.iter().scan(base, |at, slot| {
            let here = *at;
            *at += slot.shown.bytes;
            Some((here, slot))
        })
    }
}

/// Where granules lie that are mapped side by side from `base` on.
pub(crate) fn side_by_side(base: u64, granules: &[Shown]) -> impl Iterator<Item = (u64, &Shown)> {
    granules.iter().scan(base, |at, shown| {
        let here = *at;
        *at += shown.bytes;
        Some((here, shown))
    })
}

/// Bytes of a view that can serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Place of the view.
    pub(crate) view: usize,
    /// The first granule of which it uses something.
    pub(crate) first: usize,
    /// Bytes of that granule which it leaves out.
    pub(crate) skip: u64,
    /// Bytes in it beyond those that are wanted.
    pub(crate) spare: u64,
}

/// An arena's views, and the borders of the granules that they may show.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// Where requests were served before.
    pub(crate) follow: Follow,
    pub(crate) borders: AllBorders,
    pub(crate) all: Vec<View>,
    /// The home blocks of each live block in a view.
    pub(crate) lent: FxHashMap<BlockId, SmallVec<[BlockId; 8]>>,
    /// Nothing is served from them any more: the default pool has a sleep tag.
    pub(crate) closed: bool,
    /// Bytes that all of them show.
    pub(crate) bytes: u64,
    /// How many requests they served.
    pub(crate) served: u64,
}

impl ArenaState {
    /// A new growable segment, whose granules views may show.
    pub(crate) fn watch_borders(&mut self, id: SegmentId) {
        let Segment { base, tier, origin, .. } = self.segments[id];
        if let Origin::Growable { granule, .. } = origin
            && self.traits.views
            && tier == Tier::Large
            && base.is_multiple_of(SMALL_SEGMENT)
        {
            self.views.borders.insert(id, Borders::new(base, granule));
        }
    }

    pub(crate) fn forget_borders(&mut self, id: SegmentId) {
        self.views.borders.remove(id);
    }

    /// What is free of a granule.
    pub(super) fn free_part(&self, borders: &Borders, number: usize) -> FreePart {
        let granule = borders.granule();
        let (low, high) = (borders.address(number), borders.address(number) + granule);
        let (first, last) = borders.holders(number);
        let prefix = first.map_or(0, |id| (self.blocks[id].end() - low).min(granule));
        let suffix = last.map_or(0, |id| high - self.blocks[id].addr.max(low));
        FreePart { prefix, suffix }
    }

    fn free_part_of(&self, shown: &Shown) -> FreePart {
        let none = FreePart { prefix: 0, suffix: 0 };
        self.views.borders.get(shown.segment).map_or(none, |borders| self.free_part(borders, shown.number))
    }

    /// The run of some view that fits `size` best.
    pub(crate) fn run_for(&self, size: u64) -> Option<Run> {
        let runs = (0..self.views.all.len()).flat_map(|view| self.runs(view));
        let fits = runs.filter(|(_, bytes)| *bytes >= size);
        fits.map(|(run, bytes)| Run { spare: bytes - size, ..run }).min_by_key(|run| run.spare)
    }

    /// The free runs of a view that cross from one granule to the next, with their bytes. Others are free at home, too, in
    /// one piece.
    fn runs(&self, view: usize) -> impl Iterator<Item = (Run, u64)> {
        let mut found: SmallVec<[(Run, u64); 4]> = SmallVec::new();
        let mut open: Option<(Run, u64)> = None;
        for (first, Slot { shown, state }) in self.views.all[view].slots.iter().enumerate().counted() {
            if *state != SlotState::Mapped {
                found.extend(open.take());
                continue;
            }
            let FreePart { prefix, suffix } = self.free_part_of(shown);
            if let Some((_, bytes)) = &mut open {
                *bytes += prefix;
            }
            if prefix == shown.bytes && open.is_some() {
                continue;
            }
            found.extend(open.take());
            let run = Run { view, first, skip: shown.bytes - suffix, spare: 0 };
            open = (suffix > 0).then_some((run, suffix));
        }
        found.extend(open);
        found.into_iter()
    }

    /// Takes the home bytes of `size` bytes from `skip` on in `granules` out of the free ones, as busy. Nothing is taken where
    /// some are not free.
    pub(crate) fn take_home(
        &mut self,
        granules: impl IntoIterator<Item = Shown>,
        skip: u64,
        size: u64,
    ) -> Option<SmallVec<[BlockId; 8]>> {
        let mut ranges: SmallVec<[(Shown, u64, u64); 8]> = SmallVec::new();
        let mut left = size;
        let mut from = skip;
        for shown in granules {
            if left == 0 {
                break;
            }
            let bytes = (shown.bytes - from).min(left);
            let (low, high) = (shown.addr + from, shown.addr + from + bytes);
            self.free_range(shown.segment, low, high)?;
            ranges.push((shown, low, high));
            (left, from) = (left - bytes, 0);
        }
        if left > 0 {
            return None;
        }
        let take = |(shown, low, high): (Shown, u64, u64)| {
            // An earlier range may have cut the block that held this one.
            let Some(holder) = self.free_range(shown.segment, low, high) else {
                unreachable!("it was free a moment ago")
            };
            self.take_range(holder, low, high)
        };
        Some(ranges.into_iter().map(take).collect())
    }

    /// Serves `size` bytes from a run, if its home bytes are free. Returns the block, in no index.
    pub(crate) fn take_run(&mut self, run: &Run, size: u64) -> Option<BlockId> {
        let view = &self.views.all[run.view];
        let below: u64 = view.slots[..run.first].iter().map(|slot| slot.shown.bytes).sum();
        let at = self.segments[view.segment].base + below + run.skip;
        self.take_shown(run, at, size)
    }

    /// Serves the `size` bytes at `addr` of a view, if their home bytes are free. Returns the block, in no index.
    pub(crate) fn take_in_view(&mut self, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        let view =
            self.views.all.iter().counted().position(|view| view.segment == segment && !self.views.closed)?;
        let base = self.segments[segment].base;
        if addr < base {
            // Another segment had the number when the place was noted.
            return None;
        }
        let (first, at) = self.views.all[view]
            .places(base)
            .enumerate()
            .find_map(|(first, (at, slot))| (addr < at + slot.shown.bytes).then_some((first, at)))?;
        self.take_shown(&Run { view, first, skip: addr - at, spare: 0 }, addr, size)
    }

    fn take_shown(&mut self, run: &Run, at: u64, size: u64) -> Option<BlockId> {
        // What a view shows does not change while its bytes are taken.
        let slots = std::mem::take(&mut self.views.all[run.view].slots);
        let mapped = |slot: &Slot| (slot.state == SlotState::Mapped).then_some(slot.shown);
        let taken = self.take_home(slots[run.first..].iter().map_while(mapped), run.skip, size);
        self.views.all[run.view].slots = slots;
        self.views.served += 1;
        self.views.all[run.view].used = self.views.served;
        Some(self.lend(self.views.all[run.view].segment, at, size, taken?))
    }

    /// A new view with these granules, from which a request gets its block at once. `taken` are the home bytes of `size`
    /// bytes from `skip` on.
    pub(crate) fn add_view(
        &mut self,
        segment: Segment,
        granules: Vec<Shown>,
        (skip, size): (u64, u64),
        taken: SmallVec<[BlockId; 8]>,
    ) -> BlockId {
        let base = segment.base;
        let (id, _) = self.add_segment(segment, State::Blank);
        for shown in &granules {
            self.views.bytes += shown.bytes;
            if let Some(borders) = self.views.borders.get_mut(shown.segment) {
                borders.show(shown.number);
            }
        }
        let slots = granules.into_iter().map(|shown| Slot { shown, state: SlotState::Mapped }).collect();
        self.views.served += 1;
        self.views.all.push(View { segment: id, slots, used: self.views.served });
        self.lend(id, base + skip, size, taken)
    }

    /// Hands out a block in a view.
    pub(crate) fn hand_out_lent(&mut self, map: &AddressMap, id: BlockId, request: &Request) -> DevicePtr {
        let ptr = self.give(id, request.requested);
        map.insert(ptr, self.location(id));
        ptr
    }

    /// Cuts the block at `at` out of a view's blank space; `taken` are its home bytes.
    fn lend(&mut self, view: SegmentId, at: u64, size: u64, taken: SmallVec<[BlockId; 8]>) -> BlockId {
        let holds = |block: &Block| block.addr <= at && at + size <= block.end();
        let found = self.segment_blocks(view).find(|(_, block)| holds(block)).map(|(id, _)| id);
        let Some(blank) = found else { unreachable!("a view's bytes are blank while their home is free") };
        debug_assert_eq!(
            self.blocks[blank].state,
            State::Blank,
            "a view's bytes are blank while their home is free"
        );
        for id in &taken {
            self.blocks[*id].state = State::Lent;
            self.note_change(Action::SegmentUnmap, *id);
        }
        let mut id = blank;
        if self.blocks[blank].addr < at {
            id = self.cut_above(blank, at - self.blocks[blank].addr, State::Busy);
        }
        if size < self.blocks[id].size {
            self.cut_above(id, size, State::Blank);
        }
        self.blocks[id].state = State::Busy;
        self.views.lent.insert(id, taken);
        self.note_change(Action::SegmentMap, id);
        id
    }

    /// To a reader of the history the memory itself changes its place.
    fn note_change(&mut self, action: Action, id: BlockId) {
        if self.history.is_on() {
            let (addr, size) = (self.blocks[id].addr, self.blocks[id].size);
            self.history.record(action, addr, size);
        }
    }

    /// A block in a view is free: so are its home bytes, which the device may use up to the block's epoch.
    #[cold]
    pub(crate) fn end_loan(&mut self, mut id: BlockId) {
        let epoch = self.blocks[id].epoch;
        self.note_change(Action::SegmentUnmap, id);
        for home in self.views.lent.remove(&id).unwrap_or_default() {
            let block = &mut self.blocks[home];
            block.epoch = block.epoch.max(epoch);
            self.note_change(Action::SegmentMap, home);
            self.return_free(home);
        }
        let blank =
            |arena: &Self, id: BlockId| id.some().filter(|id| arena.blocks[*id].state == State::Blank);
        self.blocks[id].state = State::Blank;
        if let Some(below) = blank(self, self.blocks[id].prev) {
            self.blocks.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = blank(self, self.blocks[id].next) {
            self.blocks.absorb_above(id, above);
        }
        self.blocks[id].requested = 0;
    }

    /// Home bytes that could not be shown are free again.
    pub(crate) fn give_home_back(&mut self, taken: SmallVec<[BlockId; 8]>) {
        for id in taken {
            self.return_free(id);
        }
    }

    /// How many views show a granule.
    pub(crate) fn views_of(&self, segment: SegmentId, addr: u64) -> u32 {
        self.views.borders.get(segment).map_or(0, |borders| borders.views(borders.number(addr)))
    }
}
