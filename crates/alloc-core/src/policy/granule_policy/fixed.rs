//! Growth of the `granule` policy without virtual memory, where every segment is one `malloc` for good: segments to
//! take from the device, and to give back for them. Sizes only: `device/miss.rs` takes and gives back.
//!
//! A segment that cannot grow or shrink wastes memory in two ways: its rest fits nothing, or it is idle and too small.
//! So segments are a fraction of held memory. Once a little more is held than the program needed since it last emptied
//! the cache, one segment replaces idle ones of the same total size. Held memory stays the same and segments become
//! fewer, so such steps end.

use crate::base::round::LARGE_ROUND;
use crate::policy::Request;

/// New segments are this fraction of held memory: fewer driver calls, against memory lost in segments in use only in
/// part. A stream that holds less than that at most doubles its memory.
const SHARE: u64 = 33;
/// Percent of the most needed that may be held beyond it, before idle segments are replaced.
const SLACK: u64 = 7;
/// The same where memory is tight.
const TIGHT_SLACK: u64 = 2;
/// Memory is tight once this percentage of what may be held is held.
const TIGHT: u64 = 95;
/// Idle segments up to this multiple of the request become one, so that the next such request finds room, too.
const JOINED: u64 = 3;

/// Figures that are known when a segment is to be taken. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Situation {
    /// Held from the device.
    pub(crate) held: u64,
    /// Of this, held for the stream and pool of the request.
    pub(crate) own: u64,
    /// The most that was in use at a time, this request included.
    pub(crate) most_needed: u64,
    /// The most that may be taken besides, as far as is known.
    pub(crate) room: u64,
}

/// Growth for a request that no cached block serves. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentPlan {
    /// The segment to take.
    pub(crate) take: u64,
    /// Idle segments of about this total are given back first.
    pub(crate) replaces: u64,
    /// If they were larger than `take`, a segment of their total size is taken, up to this.
    pub(crate) at_most: u64,
}

/// The least segment that serves a request of `size`.
pub(super) fn least(size: u64) -> u64 {
    size.next_multiple_of(LARGE_ROUND)
}

/// Growth for `request`: a segment of one step, which is a share of held memory and at least `smallest`. If the request
/// needs over half a step, or memory is tight, its own size. Once more is held than needed, `smallest` does not count.
pub(super) fn growth(request: &Request, situation: &Situation, smallest: u64) -> SegmentPlan {
    let Situation { held, own, most_needed, room } = *situation;
    let least = least(request.size);
    let share = (held / SHARE).min(own);
    let step = share.max(smallest);
    let wanted = if request.size > step / 2 { least } else { step.next_multiple_of(LARGE_ROUND) };
    let tight = held.saturating_add(wanted) > percent(held.saturating_add(room), TIGHT);
    let wanted = if tight { least } else { wanted };
    let slack = if tight { TIGHT_SLACK } else { SLACK };
    let enough = most_needed.saturating_add(percent(most_needed, slack));
    if held.saturating_add(wanted) <= enough {
        return SegmentPlan { take: wanted, replaces: 0, at_most: wanted };
    }
    let excess = held.saturating_add(least).saturating_sub(enough);
    let joined = if tight { least } else { least.saturating_mul(JOINED) };
    let take = wanted.min(share.next_multiple_of(LARGE_ROUND)).max(least);
    // If memory is tight, the rest of replaced segments is room for others.
    SegmentPlan { take, replaces: excess.max(joined), at_most: if tight { least } else { u64::MAX } }
}

/// Picks segments of `idle`, by size ascending, that add up to `target`: the smallest that alone covers the missing
/// bytes, else the largest, again and again. Fewer bytes if there are not as many.
pub(crate) fn choose<T>(idle: Vec<(u64, T)>, target: u64) -> Vec<(u64, T)> {
    debug_assert!(idle.is_sorted_by_key(|(bytes, _)| *bytes), "by size");
    let (mut left, mut chosen, mut sum) = (idle, Vec::new(), 0u64);
    while sum < target && !left.is_empty() {
        let at = left.partition_point(|(bytes, _)| *bytes < target - sum).min(left.len() - 1);
        let one = left.remove(at);
        sum = sum.saturating_add(one.0);
        chosen.push(one);
    }
    chosen
}

fn percent(of: u64, percent: u64) -> u64 {
    of / 100 * percent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::block::Tier;
    use crate::types::{GIB, MIB};
    use proptest::prelude::*;

    const STEP: u64 = 20 * MIB;

    fn request(size: u64) -> Request {
        Request { requested: size, size, tier: Tier::Large, segment_bytes: least(size) }
    }

    fn ample(held: u64, most_needed: u64) -> Situation {
        Situation { held, own: held, most_needed, room: 100 * GIB }
    }

    #[test]
    fn segments_are_a_share_of_what_is_held_while_it_is_needed() {
        let grown = |size, held| growth(&request(size), &ample(held, 2 * held + STEP), STEP);
        assert_eq!(
            grown(3 * MIB, 0),
            SegmentPlan { take: STEP, replaces: 0, at_most: STEP },
            "the smallest there are"
        );
        assert_eq!(grown(3 * MIB, 33 * 100 * MIB).take, 100 * MIB);
        assert_eq!(grown(51 * MIB, 33 * 100 * MIB).take, 52 * MIB, "over half of that: its own size");
        assert_eq!(grown(3 * MIB, 33 * 100 * MIB).replaces, 0);
        // A stream that holds little does not take a share of what others hold.
        let aside =
            |own| growth(&request(3 * MIB), &Situation { own, ..ample(64 * GIB, 65 * GIB) }, STEP).take;
        assert_eq!([0, 80 * MIB].map(aside), [STEP, 80 * MIB]);
    }

    #[test]
    fn idle_segments_are_replaced_once_enough_is_held() {
        let held = 33 * 100 * MIB;
        let growth = |size, most| growth(&request(size), &ample(held, most), STEP);
        assert_eq!(growth(200 * MIB, held + 200 * MIB).replaces, 0);
        assert_eq!(
            growth(200 * MIB, 32 * 100 * MIB),
            SegmentPlan { take: 200 * MIB, replaces: 600 * MIB, at_most: u64::MAX }
        );
        let excess = growth(200 * MIB, 2000 * MIB);
        assert_eq!(excess.replaces, held + 200 * MIB - 2140 * MIB);
        assert_eq!(growth(10 * MIB, 3000 * MIB).take, 100 * MIB);
    }

    #[test]
    fn growth_is_exact_where_memory_is_tight() {
        let tight =
            |room| growth(&request(3 * MIB), &Situation { room, ..ample(960 * MIB, 960 * MIB) }, STEP);
        assert_eq!(tight(40 * MIB).take, 4 * MIB);
        assert_eq!(tight(40 * MIB).replaces, 0, "within the small slack");
        assert_eq!(tight(1000 * MIB).take, 30 * MIB);
        let none = growth(&request(30 * MIB), &Situation { room: 0, ..ample(960 * MIB, 900 * MIB) }, STEP);
        assert_eq!(none, SegmentPlan { take: 30 * MIB, replaces: 990 * MIB - 918 * MIB, at_most: 30 * MIB });
    }

    #[test]
    fn what_leaves_is_the_smallest_that_does_or_else_the_largest() {
        let sizes = |target| -> Vec<u64> {
            let idle = [2, 6, 10, 40].iter().map(|mib| (*mib, ())).collect();
            choose(idle, target).into_iter().map(|(bytes, ())| bytes).collect()
        };
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(3), [6]);
        assert_eq!(sizes(40), [40]);
        assert_eq!(sizes(45), [40, 6]);
        assert_eq!(sizes(1000), [40, 10, 6, 2]);
    }

    proptest! {
        #[test]
        fn growth_serves_the_request_and_wastes_little(
            size in 1u64..4 * GIB, held in 0u64..80 * GIB, needed in 0u64..80 * GIB, room in 0u64..80 * GIB,
            own in 0u64..80 * GIB,
        ) {
            let request = request(size.next_multiple_of(512));
            let held = held.next_multiple_of(LARGE_ROUND);
            let situation =
                Situation { held, own: own.min(held), most_needed: needed.max(request.size), room };
            let SegmentPlan { take, replaces, at_most } = growth(&request, &situation, STEP);
            prop_assert!(at_most >= take, "what leaves makes it no smaller");
            prop_assert!(take >= request.size && take % LARGE_ROUND == 0);
            prop_assert!(take <= least(request.size).max((held / SHARE).max(STEP) + LARGE_ROUND));
            if take > least(request.size) {
                prop_assert!(held + take <= percent(held + room, TIGHT), "nothing beyond need where room is short");
            }
            let enough = situation.most_needed + percent(situation.most_needed, SLACK);
            if held + take <= enough && situation.room > held {
                prop_assert_eq!(replaces, 0, "nothing leaves for nothing");
            }
        }

        #[test]
        fn what_is_chosen_is_enough_and_no_segment_too_many(
            mut sizes in prop::collection::vec(1u64..1000, 0..20), target in 0u64..5000,
        ) {
            sizes.sort_unstable();
            let idle: Vec<_> = sizes.iter().copied().zip(0..).collect();
            let chosen = choose(idle, target);
            let sum: u64 = chosen.iter().map(|(bytes, _)| bytes).sum();
            prop_assert!(sum >= target || chosen.len() == sizes.len());
            let mut numbers: Vec<i32> = chosen.iter().map(|(_, number)| *number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            prop_assert_eq!(numbers.len(), chosen.len(), "none twice");
            if let Some((last, _)) = chosen.last() {
                prop_assert!(sum - last < target, "the last one was still wanted");
            }
        }
    }
}
