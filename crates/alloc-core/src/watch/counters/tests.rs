//! Peaks and sums against plain global counters.

use super::*;
use proptest::prelude::*;

/// Each tier's and both tiers' figures, counted one by one.
#[derive(Default)]
struct Model([[Stat; COUNTS]; ROWS]);

impl Model {
    fn change(&mut self, tier: Tier, count: Count, amount: i64) {
        for row in [tier as usize, BOTH] {
            let stat = &mut self.0[row][count as usize];
            match amount {
                1.. => stat.increase(amount),
                0 => {}
                _ => stat.decrease(-amount),
            }
        }
    }

    fn column(&self, count: Count) -> [Stat; ROWS] {
        self.0.map(|row| row[count as usize])
    }
}

/// One thread crosses a ceiling and has told nobody yet; another gives a block back and takes it again. Both blocks are
/// in use then.
#[test]
fn a_block_that_is_taken_again_beside_one_that_nobody_was_told_of_makes_a_peak() {
    let (mut peaks, mut arena) = (Peaks::default(), Counters::new(0));
    let tell = |peaks: &mut Peaks, arena: &mut Counters| {
        peaks.note(arena);
        if arena.crossed() {
            peaks.take_listed();
            peaks.settle(&mut [arena], true);
        }
    };
    arena.give(Tier::Large, 100, 100);
    tell(&mut peaks, &mut arena);
    arena.give(Tier::Large, 10, 10);
    assert!(arena.is_due());
    arena.take_back(Tier::Large, 100, 100);
    tell(&mut peaks, &mut arena);
    arena.give_again(Tier::Large, 100, (100, 100));
    assert!(arena.is_due(), "110 bytes are in use");
    tell(&mut peaks, &mut arena);
    arena.take_back(Tier::Large, 100, 100);
    // Once all was told, the same once more is none.
    arena.give_again(Tier::Large, 100, (100, 100));
    assert!(!arena.is_due());
    assert_eq!(peaks.since_boundary()[Count::AllocatedBytes as usize], 110);
}

/// A block of the model: its arena, tier, size and requested bytes, and whether it is pending.
type LiveBlock = (usize, Tier, u64, u64, bool);

proptest! {
    /// Against plain global counters: peaks and sums are exact whichever arenas the changes come from, and
    /// whatever boundaries there were.
    #[test]
    fn peaks_are_exact(
        steps in prop::collection::vec((0usize..4, any::<bool>(), 0u8..8, 1u64..80, 0u64..20, 0u8..40), 0..300)
    ) {
        let mut arenas: Vec<_> = (0..4).map(Counters::new).collect();
        let mut peaks = Peaks::default();
        let mut model = Model::default();
        let mut live: Vec<LiveBlock> = Vec::new();
        let mut since_boundary = [0; COUNTS];
        for (mut who, small, step, size, slack, boundary) in steps {
            let mut all = arenas.iter_mut().collect::<Vec<_>>();
            match boundary {
                0 => peaks.restart(&mut all),
                1 => peaks.rejoin(&mut all),
                3 => peaks.reclaim(all[who]),
                2 => {
                    peaks.reset(&mut all);
                    model.0.as_flattened_mut().iter_mut().for_each(Stat::reset_peak);
                }
                _ => {}
            }
            for count in Count::ALL {
                let both = model.0[BOTH][count as usize];
                match boundary {
                    0 | 2 => since_boundary[count as usize] = both.current,
                    1 => since_boundary[count as usize] = both.peak,
                    _ => {}
                }
            }
            let tier = if small { Tier::Small } else { Tier::Large };
            let victim = (!live.is_empty()).then(|| size as usize % live.len().max(1));
            match (step, victim) {
                (0..=3, _) => {
                    let requested = size.saturating_sub(slack).max(1);
                    arenas[who].give(tier, size, requested);
                    for count in [Count::Allocation, Count::Active] {
                        model.change(tier, count, 1);
                    }
                    for count in [Count::AllocatedBytes, Count::ActiveBytes] {
                        model.change(tier, count, signed(size));
                    }
                    model.change(tier, Count::RequestedBytes, signed(requested));
                    live.push((who, tier, size, requested, false));
                }
                (4..=6, Some(victim)) => {
                    let (of, tier, size, requested, pending) = live[victim];
                    who = of;
                    if !pending {
                        model.change(tier, Count::Allocation, -1);
                        model.change(tier, Count::AllocatedBytes, -signed(size));
                    }
                    if step == 6 && !pending {
                        arenas[who].suspend(tier, size);
                        live[victim].4 = true;
                    } else {
                        live.swap_remove(victim);
                        model.change(tier, Count::Active, -1);
                        model.change(tier, Count::ActiveBytes, -signed(size));
                        model.change(tier, Count::RequestedBytes, -signed(requested));
                        if pending {
                            arenas[who].release(tier, size, requested);
                        } else {
                            arenas[who].take_back(tier, size, requested);
                        }
                    }
                }
                _ => {
                    let amount = signed(size) - 40;
                    let amount = amount.max(-arenas[who].get(tier, Count::InactiveSplitBytes));
                    arenas[who].change_splits(tier, 0, amount);
                    model.change(tier, Count::InactiveSplitBytes, amount);
                }
            }
            if arenas[who].is_due() {
                peaks.note(&mut arenas[who]);
            }
            if arenas[who].crossed() && !peaks.grant(&mut arenas[who], &Rows::default()) {
                let listed = peaks.take_listed();
                let used = arenas.iter_mut().filter(|arena| listed.contains(&arena.number));
                peaks.settle(&mut used.collect::<Vec<_>>(), false);
            }
            if boundary == 4 {
                for number in peaks.take_moved() {
                    peaks.read(&mut arenas[usize::from(number)], slack < 10);
                }
                let now = model.0[BOTH][Count::ActiveBytes as usize].current;
                prop_assert_eq!(peaks.in_use(), now.unsigned_abs());
            }
            let all: Vec<_> = arenas.iter().collect();
            peaks.check(&all);
            let mut stats = DeviceStats::default();
            peaks.fill(&all, &mut stats);
            for (count, array) in [
                (Count::Allocation, stats.allocation),
                (Count::Active, stats.active),
                (Count::AllocatedBytes, stats.allocated_bytes),
                (Count::ActiveBytes, stats.active_bytes),
                (Count::RequestedBytes, stats.requested_bytes),
                (Count::InactiveSplitBytes, stats.inactive_split_bytes),
            ] {
                let ours = [array.small_pool, array.large_pool, array.all];
                prop_assert_eq!(ours, model.column(count), "{:?}", count);
                let most = &mut since_boundary[count as usize];
                *most = (*most).max(model.0[BOTH][count as usize].current);
                prop_assert_eq!(peaks.since_boundary()[count as usize], *most, "{:?}", count);
            }
        }
    }
}
