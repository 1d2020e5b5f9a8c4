//! Invariants of an arena, walked from end to end. Panics name the broken rule.

use crate::arena::granule::{check_shown, check_views};
use crate::arena::{ArenaState, Binding};
use crate::memory::address_map::AddressMap;
use crate::memory::block::{Block, BlockId, BlockPhase, Live, Tier};
use crate::memory::layout::Layout;
use crate::memory::region::{GranuleState, Regions};
use crate::memory::segment::{Origin, Segment};
use crate::types::DevicePtr;
use crate::watch::counters::{Count, Counters};

/// Contribution of an arena to the device's sums.
pub(crate) struct Sums {
    pub(crate) fixed_bytes: u64,
    pub(crate) fixed_segments: u64,
    /// Some block is busy.
    pub(crate) busy: bool,
}

/// Blocks, links, indexes, map entries and counters of one arena.
pub(crate) fn check_arena(arena: &ArenaState, map: &AddressMap) -> Sums {
    let mut sums = Sums { fixed_bytes: 0, fixed_segments: 0, busy: false };
    let mut seen = 0;
    for (id, segment) in arena.layout().segments().iter() {
        let mut at = segment.base;
        let mut below = BlockId::NONE;
        let mut below_state = BlockPhase::Unused;
        for (block_id, block) in arena.layout().of_segment(id) {
            assert_eq!(block.addr, at, "blocks of a segment follow each other without gaps");
            assert_eq!(block.prev, below, "a block's lower link names the block below");
            assert_eq!(block.segment, id, "a block knows its segment");
            assert_eq!(block.tier, segment.tier, "and its tier");
            assert!(block.size > 0 && block.size.is_multiple_of(512), "sizes are multiples of 512");
            let joinable =
                matches!(block.state, BlockPhase::Free | BlockPhase::Unmapped | BlockPhase::FreeAsleep)
                    || segment.origin == Origin::View && block.state == BlockPhase::Alias;
            assert!(!(joinable && block.state == below_state), "neighbours of one free state are joined");
            assert_ne!(block.state, BlockPhase::Unused, "vacant records are in no segment");
            assert!(
                segment.is_growable()
                    || !(block.live().is_some_and(Live::is_asleep)
                        || matches!(block.state, BlockPhase::Unmapped | BlockPhase::FreeAsleep)),
                "fixed memory is never unmapped and never sleeps"
            );
            check_place(segment, block);
            assert_eq!(
                block.pending > 0,
                block.state == BlockPhase::Pending,
                "pending blocks wait for events"
            );
            check_map(&arena.binding, map, block_id, block);
            sums.busy |= block.state == BlockPhase::Busy;
            at += block.size;
            below = block_id;
            below_state = block.state;
            seen += 1;
        }
        assert_eq!(at, segment.base + segment.bytes, "blocks cover their segment");
        if segment.is_fixed() {
            sums.fixed_bytes += segment.bytes;
            sums.fixed_segments += 1;
        }
    }
    assert_eq!(seen, arena.layout().blocks().len(), "every block is in a segment");
    let fixed = arena.layout().segments().has_fixed();
    assert_eq!(fixed, sums.fixed_segments > 0, "fixed segments are counted");
    for tier in Tier::ALL {
        arena.heap.check(tier);
        check_counters(arena.ledger.counters(), arena.layout(), tier);
    }
    match arena {
        ArenaState::Pytorch(arena) => {
            let mut segments = arena.layout().segments().iter();
            assert!(segments.all(|(_, segment)| segment.origin != Origin::View), "nobody shows memory");
            let mut blocks = arena.layout().blocks().iter();
            assert!(blocks.all(|(_, block)| block.state != BlockPhase::Lent), "nobody lends memory");
        }
        ArenaState::Granule(arena) => check_views(arena.heap()),
    }
    sums
}

/// Blocks are lent by owners only. What is no alias in a view is in use.
fn check_place(segment: &Segment, block: &Block) {
    let fits = match (segment.origin, block.state) {
        (Origin::View, state) => {
            block.is_awake() || matches!(state, BlockPhase::Alias | BlockPhase::Pending | BlockPhase::Busy)
        }
        (Origin::Growable { .. }, _) => true,
        (Origin::Fixed, state) => !matches!(state, BlockPhase::Lent | BlockPhase::Alias),
    };
    assert!(fits, "a block that is {:?} in a segment that is {:?}", block.state, segment.origin);
}

fn check_map(binding: &Binding, map: &AddressMap, id: BlockId, block: &Block) {
    let entry = map.get(DevicePtr(block.addr));
    let mine = entry == Some(binding.location(id));
    if block.state == BlockPhase::Busy {
        // Its memory may be back at the driver already, and handed out to another arena at the same address.
        assert!(!mine, "a block in flight is nobody's");
    } else if block.live().is_some() {
        assert!(mine, "the address map knows every block that is handed out");
    } else {
        assert!(entry.is_none(), "the address map knows only blocks that are handed out");
    }
}

fn check_counters(counters: &Counters, layout: &Layout, tier: Tier) {
    let mut expected = [0i64; 7];
    for (_, block) in layout.blocks().iter().filter(|(_, b)| b.tier == tier) {
        let mut add = |count: Count, bytes: u64| {
            expected[count as usize] += i64::try_from(bytes).unwrap_or(i64::MAX);
        };
        let growable = layout.segments()[block.segment].is_growable();
        match block.state {
            BlockPhase::Live(_) | BlockPhase::Pending => {
                if block.live().is_some() {
                    add(Count::Allocation, 1);
                    add(Count::AllocatedBytes, block.size);
                }
                add(Count::Active, 1);
                add(Count::ActiveBytes, block.size);
                add(Count::RequestedBytes, block.requested);
            }
            BlockPhase::Free if block.is_split() && !growable => {
                add(Count::InactiveSplit, 1);
                add(Count::InactiveSplitBytes, block.size);
            }
            BlockPhase::Free
            | BlockPhase::Unmapped
            | BlockPhase::Busy
            | BlockPhase::FreeAsleep
            | BlockPhase::Lent
            | BlockPhase::Alias
            | BlockPhase::Unused => {}
        }
    }
    for count in [
        Count::Allocation,
        Count::Active,
        Count::AllocatedBytes,
        Count::ActiveBytes,
        Count::RequestedBytes,
        Count::InactiveSplit,
        Count::InactiveSplitBytes,
    ] {
        assert_eq!(
            counters.get(tier, count),
            expected[count as usize],
            "{count:?} of the {} tier is what its blocks say",
            tier.name()
        );
    }
}

/// Blocks with memory lie on backed granules, unmapped ones on free granules, sleeping ones on sleeping granules. Only
/// while nothing is in flight. Returns the bytes mapped in a second place.
pub(crate) fn check_regions(arena: &ArenaState, regions: &Regions) -> usize {
    for (id, segment) in arena.layout().segments().iter() {
        let Origin::Growable { region, .. } = segment.origin else { continue };
        let Some(region) = regions.get(region) else { unreachable!("a growable segment has a region") };
        assert_eq!((region.base, region.bytes), (segment.base, segment.bytes), "region and segment agree");
        for (at, bytes, _) in region.granules(segment.base..segment.base + segment.bytes) {
            assert_eq!(segment.granules.at(at), at..at + bytes, "about where granules are, too");
        }
        for (_, block) in arena.layout().of_segment(id) {
            let range = block.addr..block.end();
            let mut states = region.states(range.clone());
            match block.state {
                BlockPhase::Unmapped => {
                    let is_free = states.all(|state| state == GranuleState::Free);
                    assert!(is_free, "nothing is behind what is unmapped");
                    assert!(segment.granules.is_clear(range), "nor is any granule there");
                }
                BlockPhase::Alias => {
                    assert_eq!(segment.granules.at(range.start), range, "a granule is an alias by itself");
                    assert!(states.all(|state| state == GranuleState::Alias), "and its region knows");
                }
                BlockPhase::FreeAsleep => assert!(
                    states.all(|state| state == GranuleState::Asleep),
                    "free memory sleeps on sleeping granules"
                ),
                BlockPhase::Live(live) if live.is_asleep() => assert!(
                    states.any(|state| state == GranuleState::Asleep),
                    "a block sleeps while a granule under it does"
                ),
                _ => assert!(states.all(GranuleState::is_backed), "memory is behind what is awake"),
            }
        }
    }
    match arena {
        ArenaState::Pytorch(_) => 0,
        ArenaState::Granule(arena) => check_shown(arena.heap(), regions),
    }
}
