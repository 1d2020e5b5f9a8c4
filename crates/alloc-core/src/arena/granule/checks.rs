//! Invariants of views and the granules they show.

use super::Granule;
use super::borders::AliasPlace;
use super::remembered::unit_of;
use super::shown::{Shown, Slot, SlotState, View};
use crate::arena::Heap;
use crate::memory::block::{Block, BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::region::{GranuleState, Regions};
use crate::memory::segment::Origin;
use std::collections::{BTreeMap, BTreeSet};

/// Loans add up, byte by byte, and the borders are what the free blocks say.
pub(crate) fn check_views(heap: &Heap<Granule>) {
    let mut lent = BTreeSet::new();
    let mut views = BTreeSet::new();
    for view in heap.known().views() {
        assert!(views.insert(view.segment), "a view is there once");
        let segment = &heap.layout().segments()[view.segment];
        assert_eq!(segment.origin, Origin::View, "the segment of a view is one");
        let shown: u64 = view.slots.iter().map(|slot| slot.shown.bytes).sum();
        assert_eq!(shown, segment.bytes, "a view shows whole granules, one after the other");
        for (_, shown) in view.mappings(segment.base) {
            let home = &heap.layout().segments()[shown.segment];
            assert!(home.is_growable() && home.tier == Tier::Large, "what is shown has a home");
            assert_eq!(
                *shown,
                Shown::new(shown.segment, &home.granules, &shown.range()),
                "and a number there"
            );
            assert_eq!(home.granules.at(shown.addr), shown.range(), "and is a granule there");
        }
        let mut live = BTreeMap::new();
        for (id, block) in heap.layout().of_segment(view.segment) {
            let Some(homes) = heap.known().lent().get(&id) else {
                assert_eq!(block.state, BlockPhase::Alias, "a block that is used in a view has a home");
                continue;
            };
            let in_use = block.is_awake() || block.state == BlockPhase::Pending;
            assert!(in_use, "loans are for blocks in use");
            live.insert(block.addr, id);
            check_loan(heap, view, block, homes);
            for home in homes {
                assert!(lent.insert(*home), "what is lent is lent once");
            }
        }
        assert_eq!(live, view.live, "a view knows the blocks that live in it");
    }
    for (id, _) in heap.layout().segments().iter().filter(|(_, segment)| segment.origin == Origin::View) {
        assert!(views.contains(&id), "a view is known until it is taken away");
    }
    let is_lent = |block: &Block| block.state == BlockPhase::Lent;
    let all = heap.layout().blocks().iter().filter(|(_, block)| is_lent(block)).map(|(id, _)| id);
    assert_eq!(lent, all.collect(), "what is lent serves a block in a view");
    check_borders(heap);
    heap.known().known_pieces().check(heap.known().borders(), heap.layout().segments());
}

/// The home blocks of `block` are the bytes that its view shows there, in order.
fn check_loan(heap: &Heap<Granule>, view: &View, block: &Block, homes: &[BlockId]) {
    let base = heap.layout().segments()[view.segment].base;
    let ranges = view.mappings(base).filter_map(|(at, shown)| {
        let (low, high) = (block.addr.max(at), block.end().min(at + shown.bytes));
        (low < high).then(|| (shown.addr + (low - at), high - low))
    });
    let expected: Vec<_> = ranges.collect();
    let found: Vec<_> =
        homes.iter().map(|id| (heap.layout().blocks()[*id].addr, heap.layout().blocks()[*id].size)).collect();
    assert_eq!(found, expected, "the home bytes of a block are those that its view shows");
}

/// Whoever holds a granule's first and last byte, found from the free blocks alone; and how many views show it.
fn check_borders(heap: &Heap<Granule>) {
    let mut holders: BTreeMap<(u64, bool), BlockId> = BTreeMap::new();
    let mut watched = 0;
    for (id, segment) in heap.layout().segments().iter() {
        if unit_of(segment).is_none() {
            continue;
        }
        watched += 1;
        let granules = &segment.granules;
        for (block_id, block) in
            heap.layout().of_segment(id).filter(|(_, block)| block.state == BlockPhase::Free)
        {
            for granule in granules.each(granules.around(block.addr..block.end())) {
                if block.addr <= granule.start {
                    holders.insert((granule.start, false), block_id);
                }
                if granule.end <= block.end() {
                    holders.insert((granule.start, true), block_id);
                }
            }
        }
    }
    assert_eq!(
        watched,
        heap.known().borders().iter().count(),
        "large growable segments have their borders watched"
    );
    let mut known = 0;
    let mut shown = shown_places(heap);
    for (id, borders) in heap.known().borders().iter() {
        let granules = &heap.layout().segments()[id].granules;
        let all = granules.around(borders.base()..borders.highest().max(borders.base() + 1));
        for granule in granules.each(all) {
            let (addr, number) = (granule.start, borders.number(granule.start));
            let (first, last) = borders.holders(&granule);
            assert_eq!(
                first,
                holders.get(&(addr, false)).copied(),
                "the free block of a granule's first byte"
            );
            assert_eq!(last, holders.get(&(addr, true)).copied(), "the free block of a granule's last byte");
            known += usize::from(first.is_some()) + usize::from(last.is_some());
            let mut places = borders.places(number).to_vec();
            places.sort_unstable();
            assert_eq!(
                places,
                shown.remove(&(id, number)).unwrap_or_default(),
                "where views show a granule is known"
            );
        }
    }
    assert_eq!(known, holders.len(), "no free byte at a border is missed");
    // A leaving slot counts as shown, and keeps its segment.
    assert!(shown.is_empty(), "what is shown has a home with borders");
}

/// Places of each granule that some view shows, from the views alone.
fn shown_places(heap: &Heap<Granule>) -> BTreeMap<(SegmentId, usize), Vec<AliasPlace>> {
    let mut shown: BTreeMap<_, Vec<AliasPlace>> = BTreeMap::new();
    for view in heap.known().views() {
        for (slot, Slot { shown: granule, .. }) in
            view.slots.iter().enumerate().filter(|(_, slot)| slot.state != SlotState::Gone)
        {
            let place = AliasPlace { view: view.number, slot };
            shown.entry((granule.segment, granule.number)).or_default().push(place);
        }
    }
    shown
}

/// Checks that shown granules are backed and known to the device. Counts their mappings. Only while nothing is in
/// flight.
pub(crate) fn check_shown(heap: &Heap<Granule>, regions: &Regions) -> usize {
    let mut mappings = 0;
    for view in heap.known().views() {
        // Also what is leaving: it is mapped until the device is told of it.
        let places = view.places(heap.layout().segments()[view.segment].base);
        for (at, Slot { shown, .. }) in places.filter(|(_, slot)| slot.state != SlotState::Gone) {
            let Origin::Growable { region, .. } = heap.layout().segments()[shown.segment].origin else {
                unreachable!("what is shown has a home")
            };
            let mut states = regions.get(region).into_iter().flat_map(|r| r.states(shown.range()));
            let mapped = |state: GranuleState| state.is_backed() || state == GranuleState::Alias;
            assert!(states.all(mapped), "what a view shows keeps its memory");
            assert!(regions.is_slot(region, shown.addr, at), "the device knows where it is shown");
            mappings += 1;
        }
    }
    mappings
}
