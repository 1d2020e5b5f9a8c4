//! Granules in views, by their homes.

use crate::memory::block::{BlockId, SegmentId};
use crate::memory::granules::Granules;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// A granule by its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) segment: SegmentId,
    /// That of its first unit.
    pub(crate) number: usize,
    /// Its home address.
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
}

impl Shown {
    /// A granule of a segment.
    pub(crate) fn new(segment: SegmentId, granules: &Granules, granule: &Range<u64>) -> Self {
        let Range { start: addr, end } = *granule;
        Self { segment, number: granules.number(addr), addr, bytes: end - addr }
    }

    /// Its addresses at home.
    pub(crate) fn range(&self) -> Range<u64> {
        self.addr..self.addr + self.bytes
    }
}

/// A place in a view, for one granule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Bytes of the view before it.
    pub(crate) before: u64,
    pub(crate) shown: Shown,
    pub(crate) state: SlotState,
}

/// Mapping state of a slot.
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
    /// Those that were made later have higher ones.
    pub(crate) number: u64,
    pub(crate) segment: SegmentId,
    pub(crate) slots: Vec<Slot>,
    /// The blocks that live in it, by address; between them it is blank.
    pub(crate) live: BTreeMap<u64, BlockId>,
    /// Number of the request it last served, among those that views served.
    pub(crate) used: u64,
}

impl View {
    /// One that shows these granules from here on.
    pub(crate) fn new(number: u64, segment: SegmentId, granules: Vec<Shown>, used: u64) -> Self {
        let mut end = 0;
        let slot = |shown: Shown| {
            let before = end;
            end += shown.bytes;
            Slot { before, shown, state: SlotState::Mapped }
        };
        let slots = granules.into_iter().map(slot).collect();
        Self { number, segment, slots, live: BTreeMap::new(), used }
    }

    /// The slot that shows the view's byte `offset`.
    pub(crate) fn slot_of(&self, offset: u64) -> usize {
        self.slots.partition_point(|slot| slot.before <= offset).saturating_sub(1)
    }

    /// First address of each mapping, and the granule.
    pub(crate) fn mappings(&self, base: u64) -> impl Iterator<Item = (u64, &Shown)> {
        let mapped = |(_, slot): &(u64, &Slot)| slot.state == SlotState::Mapped;
        self.places(base).filter(mapped).map(|(at, slot)| (at, &slot.shown))
    }

    /// The slots, and their addresses.
    pub(crate) fn places(&self, base: u64) -> impl Iterator<Item = (u64, &Slot)> {
        self.slots.iter().map(move |slot| (base + slot.before, slot))
    }
}

/// Home blocks of a block in a view.
pub(crate) type Blocks = SmallVec<[BlockId; 8]>;

/// Bytes of a view that can serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ViewRun {
    /// Place of the view.
    pub(crate) view: usize,
    /// The first granule of which it uses something.
    pub(crate) first: usize,
    /// Bytes of that granule which it leaves out.
    pub(crate) skip: u64,
    /// Bytes in it beyond those that are wanted.
    pub(crate) spare: u64,
}
