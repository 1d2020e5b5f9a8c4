//! The addresses of a plan's steps in memory that an allocator has free.

use alloc_core::round::{MIN_BLOCK, SMALL_LIMIT};
use alloc_core::snapshot::{BlockState, Snapshot};
use alloc_core::types::{DevicePtr, PoolId, Stream};
use granule_planner::{Plan, Step};
use std::cmp::Reverse;
use std::ops::Range;

/// Where memory that is still to be taken is thought to lie: beyond all addresses.
const BEYOND: u64 = 1 << 62;

/// Where each step goes.
///
/// Up to some height that is the plan's memory in one piece. Steps that reach beyond are placed anew: in smaller pieces, in what
/// the others leave free at the time, else in memory that is still to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    addresses: Vec<Option<u64>>,
    missing: u64,
}

impl Layout {
    /// `main` holds the plan's first bytes; `others` are more pieces of memory. Only steps of `stream` get addresses, and of
    /// these not the small ones, for which allocators keep memory of their own.
    pub(super) fn new(plan: &Plan, stream: u32, main: &Range<u64>, others: &[Range<u64>]) -> Self {
        let mut pieces = others.to_vec();
        // The smallest first, as they are of the least use.
        pieces.sort_unstable_by_key(|piece| (piece.end - piece.start, piece.start));
        pieces.extend([main.clone(), BEYOND..2 * BEYOND]);
        let by_size = |step: &Step| (Reverse(size(step)), Reverse(life(step)));
        let one = Self::in_order(plan, stream, main, &pieces, by_size);
        if one.missing == 0 {
            return one;
        }
        let other = Self::in_order(plan, stream, main, &pieces, |step| step.offset);
        if other.missing < one.missing { other } else { one }
    }

    fn in_order<K: Ord>(
        plan: &Plan,
        stream: u32,
        main: &Range<u64>,
        pieces: &[Range<u64>],
        order: impl Fn(&Step) -> K,
    ) -> Self {
        let steps = plan.steps();
        let mut laid = Laid { plan, addresses: vec![None; steps.len()] };
        let mut beyond = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            if step.stream != stream || step.size <= SMALL_LIMIT {
                continue;
            }
            let Some(offset) = step.offset else { continue };
            let from = main.start.checked_add(offset);
            match from.filter(|from| from.checked_add(size(step)).is_some_and(|end| end <= main.end)) {
                Some(from) => laid.addresses[index] = Some(from),
                None => beyond.push(index),
            }
        }
        beyond.sort_by_key(|&index| (order(&steps[index]), index));
        for index in beyond {
            laid.addresses[index] = pieces.iter().find_map(|piece| laid.gap(index, piece));
        }
        let ends = laid.addresses.iter().zip(steps).filter_map(|(at, step)| Some((*at)? + size(step)));
        let missing = ends.max().map_or(0, |end| end.saturating_sub(BEYOND));
        Self { addresses: laid.addresses, missing }
    }

    /// How much memory is still to be taken, in bytes, in one piece.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    /// The memory that was missing is at `base`.
    pub(super) fn found(&mut self, base: DevicePtr) {
        for address in self.addresses.iter_mut().flatten().filter(|address| **address >= BEYOND) {
            *address = base.0 + (*address - BEYOND);
        }
        self.missing = 0;
    }

    /// Where a step goes; `None` for one that is another stream's, small, or without a place in the plan.
    pub(super) fn address(&self, step: usize) -> Option<DevicePtr> {
        self.addresses[step].map(DevicePtr)
    }
}

/// Addresses as far as they are known.
struct Laid<'a> {
    plan: &'a Plan,
    addresses: Vec<Option<u64>>,
}

impl Laid<'_> {
    /// The lowest address in `piece` at which no step that is held at the same time has a byte of this one's.
    fn gap(&self, index: usize, piece: &Range<u64>) -> Option<u64> {
        let steps = self.plan.steps();
        let bytes = size(&steps[index]);
        if piece.end - piece.start < bytes {
            return None;
        }
        let placed =
            self.addresses.iter().enumerate().filter_map(|(other, address)| Some((other, (*address)?)));
        let mut held: Vec<Range<u64>> = placed
            .map(|(other, from)| (other, from..from + size(&steps[other])))
            .filter(|(_, range)| range.start < piece.end && piece.start < range.end)
            .filter(|(other, _)| self.begins_within(index, *other) || self.begins_within(*other, index))
            .map(|(_, range)| range)
            .collect();
        held.sort_unstable_by_key(|range| range.start);
        let mut from = piece.start;
        for range in held {
            if range.start.saturating_sub(from) >= bytes {
                break;
            }
            from = from.max(range.end);
        }
        (piece.end.saturating_sub(from) >= bytes).then_some(from)
    }

    /// Whether step `b` is made while `a`, of the same stream, is held.
    fn begins_within(&self, a: usize, b: usize) -> bool {
        let steps = self.plan.steps();
        let later = match b.checked_sub(a) {
            Some(later) => later,
            None if self.plan.repeats => b + steps.len() - a,
            None => return false,
        };
        (later as u64) < life(&steps[a])
    }
}

/// Bytes that an allocator uses for a step.
fn size(step: &Step) -> u64 {
    step.size.checked_next_multiple_of(MIN_BLOCK).unwrap_or(u64::MAX)
}

/// How many requests later its own stream may use the bytes again.
fn life(step: &Step) -> u64 {
    step.life_on(step.stream)
}

/// Free pieces of a stream's memory for large requests, in the default pool.
pub(super) fn free_pieces(snapshot: &Snapshot, stream: Stream) -> Vec<Range<u64>> {
    let mine = snapshot.segments.iter().filter(|segment| {
        segment.device == i64::from(stream.device.0)
            && segment.stream == stream.raw
            && segment.pool_id == PoolId::DEFAULT
            && &*segment.segment_type == "large"
    });
    let blocks = mine.flat_map(|segment| &segment.blocks);
    blocks
        .filter(|block| {
            block.state == BlockState::Inactive && block.extra.is_empty() && block.size > SMALL_LIMIT
        })
        .map(|block| block.address..block.address + block.size)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{BEYOND, Layout};
    use alloc_core::types::DevicePtr;
    use granule_planner::{CrossStream, Options, Pattern, Plan, Recording, Solver};
    use granule_snapshot::trace::{Event, Trace};

    const MIB: u64 = 1 << 20;

    /// Blocks of so many MiB, each given back so many requests later, over and over.
    fn plan(requests: &[(u64, u64)]) -> Plan {
        let mut trace = Trace::default();
        let mut due: Vec<(u64, u64)> = Vec::new();
        let mut id = 0;
        for n in 0..4 {
            trace.events.push(Event::Iteration { n });
            for &(mib, life) in requests {
                let ended = due.iter().filter(|(end, _)| *end == id);
                trace.events.extend(ended.map(|&(_, block)| Event::Free { id: block }));
                trace.events.push(Event::Alloc { id, size: mib * MIB, stream: 0 });
                due.push((id + life, id));
                id += 1;
            }
        }
        let recording = Recording::new(&trace, CrossStream::Ordered).expect("a sound trace");
        let pattern = Pattern::iteration(&recording, 2).expect("there are requests");
        let options = Options { solver: Solver::Greedy, ..Options::default() };
        Plan::make("test", &pattern, 512, false, &options).expect("a plan").0
    }

    /// No two steps that are held at the same time share a byte, and all are within the pieces.
    fn is_sound(requests: &[(u64, u64)], layout: &Layout, pieces: &[std::ops::Range<u64>]) {
        let count = requests.len() as u64;
        for (a, &(size, life)) in (0u64..).zip(requests) {
            let at = layout.addresses[a as usize].expect("it is large");
            let end = at + size * MIB;
            assert!(pieces.iter().any(|piece| piece.start <= at && end <= piece.end), "step {a} at {at:#x}");
            for (b, &(other_size, _)) in (0u64..).zip(requests).filter(|(b, _)| *b != a) {
                let other = layout.addresses[b as usize].expect("it is large");
                let meet = (b + count - a) % count < life;
                assert!(!meet || end <= other || other + other_size * MIB <= at, "steps {a} and {b}");
            }
        }
    }

    #[test]
    fn what_is_beyond_the_main_piece_goes_elsewhere_and_nothing_meets() {
        let requests = [(8, 5), (3, 2), (30, 1), (5, 4), (12, 3), (4, 6), (9, 2), (21, 1), (6, 5), (2, 1)];
        let plan = plan(&requests);
        let others = [1 << 40..(1 << 40) + 7 * MIB, 1 << 41..(1 << 41) + 13 * MIB];
        for share in 0..=8 {
            let main = 1 << 30..(1 << 30) + plan.height * share / 8;
            let mut layout = Layout::new(&plan, 0, &main, &others);
            let pieces = [main.clone(), others[0].clone(), others[1].clone(), BEYOND..2 * BEYOND];
            is_sound(&requests, &layout, &pieces);
            let missing = layout.missing();
            assert!(missing <= plan.height && (share < 8 || missing == 0), "{missing} with {share} eighths");
            layout.found(DevicePtr(1 << 50));
            let found = [main, others[0].clone(), others[1].clone(), 1 << 50..(1 << 50) + missing];
            is_sound(&requests, &layout, &found);
        }
    }

    #[test]
    fn small_steps_and_other_streams_have_no_address() {
        let plan = plan(&[(8, 2), (1, 1), (4, 1)]);
        let piece = 1 << 30..(1 << 30) + plan.height;
        let layout = Layout::new(&plan, 0, &piece, &[]);
        let has = |layout: &Layout| [0, 1, 2].map(|step| layout.address(step).is_some());
        assert_eq!(has(&layout), [true, false, true]);
        assert_eq!(has(&Layout::new(&plan, 1, &piece, &[])), [false; 3]);
    }
}
