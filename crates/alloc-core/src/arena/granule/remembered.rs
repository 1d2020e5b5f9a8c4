//! Views of an arena under the `granule` policy, and what is free where they may show it.

use super::borders::{AliasPlace, AllBorders, Borders};
use super::pieces::Pieces;
use super::shown::{Blocks, Shown, Slot, SlotState, View};
use crate::base::round::SMALL_SEGMENT;
use crate::memory::block::{Block, BlockId, SegmentId, Tier};
use crate::memory::segment::{Origin, Segment, SegmentTable};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Bytes of an arena that are mapped in another place, too: the address there, the segment at home, and the range in it.
pub(crate) type Elsewhere = (u64, SegmentId, Range<u64>);

/// State of the `granule` policy in an arena.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Granules that views may show, and their free parts.
    borders: AllBorders,
    /// Free parts of granules, in the order in which views take them, as far as caught up with.
    pieces: Pieces,
    /// By number.
    views: Vec<View>,
    /// The number of a segment's view.
    numbers: FxHashMap<SegmentId, u64>,
    /// Count of all ever made.
    made: u64,
    /// The home blocks of each live block in a view.
    lent: FxHashMap<BlockId, Blocks>,
    /// Nothing is served from views any more: the default pool has a sleep tag.
    closed: bool,
    /// Bytes that all views show.
    bytes: u64,
    /// Requests that views served.
    served: u64,
}

/// The unit in which a segment is mapped, if its granules are known: those of a large growable one.
pub(crate) fn unit_of(segment: &Segment) -> Option<u64> {
    match segment.origin {
        Origin::Growable { unit, .. }
            if segment.tier == Tier::Large && segment.base.is_multiple_of(SMALL_SEGMENT) =>
        {
            Some(unit)
        }
        _ => None,
    }
}

impl Memory {
    pub(crate) fn borders(&self) -> &AllBorders {
        &self.borders
    }

    /// Pieces for views, where an arena has these segments.
    pub(crate) fn pieces(&mut self, segments: &SegmentTable) -> &Pieces {
        self.pieces.catch_up(&mut self.borders, segments);
        &self.pieces
    }

    /// The same as it was when it was last asked for.
    pub(crate) fn known_pieces(&self) -> &Pieces {
        &self.pieces
    }

    pub(crate) fn views(&self) -> &[View] {
        &self.views
    }

    /// The home blocks of each live block in a view.
    pub(crate) fn lent(&self) -> &FxHashMap<BlockId, Blocks> {
        &self.lent
    }

    /// Bytes that all views show.
    pub(crate) fn shown_bytes(&self) -> u64 {
        self.bytes
    }

    /// The place of a view from which requests may be served.
    pub(crate) fn place_of(&self, segment: SegmentId) -> Option<usize> {
        self.place_of_any(segment).filter(|_| !self.closed)
    }

    /// The place of a view, whether or not requests may be served from it.
    fn place_of_any(&self, segment: SegmentId) -> Option<usize> {
        self.place_of_number(*self.numbers.get(&segment)?)
    }

    /// The place of the view with a number.
    pub(crate) fn place_of_number(&self, number: u64) -> Option<usize> {
        self.views.binary_search_by_key(&number, |view| view.number).ok()
    }

    /// A view begins to show granules.
    pub(crate) fn add_view(&mut self, segment: SegmentId, granules: Vec<Shown>) {
        let number = self.made;
        for (slot, shown) in granules.iter().enumerate() {
            self.bytes += shown.bytes;
            self.borders.show(shown, AliasPlace { view: number, slot });
        }
        self.made += 1;
        self.served += 1;
        self.views.push(View::new(number, segment, granules, self.served));
        self.numbers.insert(segment, number);
    }

    /// The slots of the view at `place`, which do not change until they are [back](Self::serve).
    pub(crate) fn take_slots(&mut self, place: usize) -> Vec<Slot> {
        std::mem::take(&mut self.views[place].slots)
    }

    /// A view serves a request. Returns its segment.
    pub(crate) fn serve(&mut self, place: usize, slots: Vec<Slot>) -> SegmentId {
        self.served += 1;
        let view = &mut self.views[place];
        (view.slots, view.used) = (slots, self.served);
        view.segment
    }

    /// The nearest block that lives in a view at `addr` or below.
    pub(crate) fn live_below(&self, view: SegmentId, addr: u64) -> Option<BlockId> {
        let view = &self.views[self.place_of_any(view)?];
        view.live.range(..=addr).next_back().map(|(_, block)| *block)
    }

    /// A block in a view lives, and uses the bytes of these at home.
    pub(crate) fn lend(&mut self, block: &Block, id: BlockId, home: Blocks) {
        if let Some(place) = self.place_of_any(block.segment) {
            self.views[place].live.insert(block.addr, id);
        }
        self.lent.insert(id, home);
    }

    /// It does not any more. Returns them.
    pub(crate) fn end_loan(&mut self, block: &Block, id: BlockId) -> Blocks {
        if let Some(place) = self.place_of_any(block.segment) {
            self.views[place].live.remove(&block.addr);
        }
        self.lent.remove(&id).unwrap_or_default()
    }

    /// Marks `slots` of the view at `place`, about to be unmapped: nothing is served from there any more.
    pub(crate) fn begin_leaving(&mut self, place: usize, slots: Range<usize>) {
        for slot in &mut self.views[place].slots[slots] {
            slot.state = SlotState::Leaving;
        }
    }

    /// Ends the unmapping of `slots`, done or not. Returns what they show.
    pub(crate) fn end_leaving(
        &mut self,
        segment: SegmentId,
        slots: Range<usize>,
        unmapped: bool,
    ) -> Vec<Shown> {
        let Some(place) = self.place_of_any(segment) else {
            unreachable!("a view stays for as long as a mapping leaves it")
        };
        let view = &mut self.views[place];
        let mut ended = Vec::new();
        for (number, slot) in slots.clone().zip(&mut view.slots[slots]) {
            debug_assert_eq!(slot.state, SlotState::Leaving, "each leaves once");
            slot.state = if unmapped { SlotState::Gone } else { SlotState::Mapped };
            if unmapped {
                self.bytes -= slot.shown.bytes;
                self.borders.hide(&slot.shown, AliasPlace { view: view.number, slot: number });
            }
            ended.push(slot.shown);
        }
        ended
    }

    /// These views are no more. They are in the order of all.
    pub(crate) fn forget_views(&mut self, gone: &[(SegmentId, BlockId)]) {
        for (segment, _) in gone {
            self.numbers.remove(segment);
        }
        let mut gone = gone.iter().peekable();
        self.views.retain(|view| gone.next_if(|(segment, _)| *segment == view.segment).is_none());
    }

    /// A block came among the free ones.
    #[inline(always)]
    pub(crate) fn inserted(&mut self, block: &Block, id: BlockId) {
        if block.tier == Tier::Large {
            self.borders.insert_free(block, id);
        }
    }

    /// A block left the free ones.
    #[inline(always)]
    pub(crate) fn removed(&mut self, block: &Block, id: BlockId) {
        if block.tier == Tier::Large {
            self.borders.remove_free(block, id);
        }
    }

    /// A block among the free ones ends elsewhere than before.
    #[inline(always)]
    pub(crate) fn resized(&mut self, block: &Block, id: BlockId) {
        if block.tier == Tier::Large {
            self.borders.resize_free(block, id);
        }
    }

    /// A segment came.
    pub(crate) fn segment_added(&mut self, id: SegmentId, segment: &Segment) {
        if let Some(unit) = unit_of(segment) {
            self.borders.insert(id, Borders::new(segment.base, unit));
        }
    }

    /// A segment is about to go; nothing of it is free.
    pub(crate) fn segment_removed(&mut self, id: SegmentId, segments: &SegmentTable) {
        // Nothing of it is free: nothing is known of it then, also where no view is ever planned.
        self.pieces.catch_up(&mut self.borders, segments);
        self.borders.remove(id);
    }

    /// A block of a segment from which upwards the one that holds the byte at `addr` is found soon.
    pub(crate) fn below(&self, segment: SegmentId, addr: u64) -> Option<BlockId> {
        self.borders.get(segment)?.nearest(addr)
    }

    /// Stops serving from views, or serves from them again.
    pub(crate) fn stay_at_home(&mut self, home: bool) {
        self.closed = home;
    }

    /// True if stopped.
    pub(crate) fn stays_at_home(&self) -> bool {
        self.closed
    }

    /// Reason that live blocks cannot keep their places, if any.
    pub(crate) fn unkeepable(&self) -> Option<&'static str> {
        (!self.lent.is_empty()).then_some(
            "blocks of it lie in views, whose places cannot be kept; free them first, make the pool by opening a scope or with \
             no_split, or use policy:pytorch",
        )
    }

    /// The memory of a block that lies in a view, by its home, in the block's order.
    pub(crate) fn homes(&self, segments: &SegmentTable, block: &Block) -> Vec<Elsewhere> {
        let Some(view) = self.place_of_any(block.segment).map(|place| &self.views[place]) else {
            return Vec::new();
        };
        let touched = view.mappings(segments[view.segment].base);
        let touched = touched.filter(|(at, shown)| *at < block.end() && block.addr < *at + shown.bytes);
        touched.map(|(at, shown)| (at, shown.segment, shown.addr..shown.addr + shown.bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::region::RegionId;
    use crate::types::{DevicePtr, MIB};

    #[test]
    fn nothing_is_noted_of_segments_that_are_gone() {
        let (mut memory, id) = (Memory::default(), SegmentId(0));
        let (base, granule) = (1 << 40, 4 * MIB);
        let origin = Origin::Growable { region: RegionId(0), unit: granule };
        let segment = Segment::new(DevicePtr(base), 64 * granule, 0, Tier::Large, origin);
        let mut segments = SegmentTable::default();
        assert_eq!(segments.add(segment.clone()), id);
        let (free, block) = (Block::free(base, granule), BlockId::new(0));
        for _ in 0..3 {
            memory.segment_added(id, &segment);
            memory.inserted(&free, block);
            assert_eq!(memory.pieces(&segments).most(), granule);
            memory.borders.remove_free(&free, block);
            memory.segment_removed(id, &segments);
            assert!(
                memory.borders.take_changed().is_empty(),
                "no row is kept for a plan that may never come"
            );
            assert_eq!(memory.pieces(&segments).most(), 0);
        }
    }
}
