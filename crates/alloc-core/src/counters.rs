//! An arena's counters, and exact device-wide peaks without shared atomics.
//!
//! Each arena counts under its own lock. A peak is a property of the sum over arenas, which no arena knows;
//! so each holds a *ceiling* for each count, and the ceilings of all arenas sum to no more than the recorded
//! peak. While an arena stays under its ceilings no new peak is possible and nothing shared is touched.
//! An arena that crosses one asks [`Peaks::settle`], which takes all arenas' locks, records the true sum and
//! deals out new ceilings. With one arena the ceiling is the peak.

use crate::block::Tier;
use crate::stats::{DeviceStats, Stat, StatArray};

/// What is counted. The order is that of the rows below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Count {
    Allocation = 0,
    Active = 1,
    AllocatedBytes = 2,
    ActiveBytes = 3,
    RequestedBytes = 4,
    InactiveSplit = 5,
    InactiveSplitBytes = 6,
    OversizeAllocations = 7,
}

const COUNTS: usize = 8;
/// Small, large, both.
const ROWS: usize = 3;
const BOTH: usize = 2;
pub(crate) type Row = [i64; COUNTS];
pub(crate) type Rows = [Row; ROWS];

/// The counters of one arena.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    current: Rows,
    ceiling: Rows,
    /// All increases, by tier.
    increases: [Row; 2],
    /// `increases` and decreases at the last reset.
    base_increases: [Row; 2],
    base_decreases: [Row; 2],
    /// A ceiling was crossed and not settled yet.
    crossed: bool,
}

impl Counters {
    #[inline]
    pub(crate) fn increase(&mut self, tier: Tier, count: Count, amount: i64) {
        let (row, column) = (tier as usize, count as usize);
        self.increases[row][column] += amount;
        let mine = self.current[row][column] + amount;
        let both = self.current[BOTH][column] + amount;
        self.current[row][column] = mine;
        self.current[BOTH][column] = both;
        self.crossed |= mine > self.ceiling[row][column] || both > self.ceiling[BOTH][column];
    }

    #[inline]
    pub(crate) fn decrease(&mut self, tier: Tier, count: Count, amount: i64) {
        self.current[tier as usize][count as usize] -= amount;
        self.current[BOTH][count as usize] -= amount;
    }

    /// Adds a signed change as one increase or one decrease.
    #[inline]
    pub(crate) fn change(&mut self, tier: Tier, count: Count, amount: i64) {
        match amount {
            1.. => self.increase(tier, count, amount),
            0 => {}
            _ => self.decrease(tier, count, -amount),
        }
    }

    /// Whether [`Peaks::settle`] is due.
    #[inline]
    pub(crate) fn crossed(&self) -> bool {
        self.crossed
    }

    pub(crate) fn get(&self, tier: Tier, count: Count) -> i64 {
        self.current[tier as usize][count as usize]
    }

    pub(crate) fn both(&self, count: Count) -> i64 {
        self.current[BOTH][count as usize]
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.base_increases = self.increases;
        for row in 0..2 {
            for column in 0..COUNTS {
                self.base_decreases[row][column] = self.decreases(row, column);
            }
        }
    }

    /// Blocks that the program gave back since the arena was made.
    pub(crate) fn taken_back_in_all(&self) -> u64 {
        let column = Count::Allocation as usize;
        (0..2).map(|row| self.decreases(row, column).unsigned_abs()).sum()
    }

    /// Blocks handed out since the arena was made.
    pub(crate) fn handed_out_in_all(&self) -> u64 {
        self.increases.iter().map(|row| row[Count::Allocation as usize].unsigned_abs()).sum()
    }

    fn decreases(&self, row: usize, column: usize) -> i64 {
        self.increases[row][column] - self.current[row][column]
    }
}

/// A device's recorded peaks, in two parts: a *boundary* ([`restart`](Peaks::restart)) closes one and begins the other, so
/// that the peak since then is known, too.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    /// The most since the last boundary.
    running: Rows,
    /// The most between the last reset and the last boundary.
    earlier: Rows,
}

impl Peaks {
    /// Raises the peaks to the sum over all arenas, then deals out what lies between the sum and the peak:
    /// half to an arena that crossed its ceiling (it is growing), the rest evenly.
    pub(crate) fn settle(&mut self, arenas: &mut [&mut Counters]) {
        let crossed = arenas.iter().position(|a| a.crossed).unwrap_or(0);
        for row in 0..ROWS {
            for column in 0..COUNTS {
                let sum: i64 = arenas.iter().map(|a| a.current[row][column]).sum();
                let peak = &mut self.running[row][column];
                *peak = (*peak).max(sum);
                let spare = *peak - sum;
                let others = i64::try_from(arenas.len()).unwrap_or(i64::MAX) - 1;
                let (mine, theirs) =
                    if others == 0 { (spare, 0) } else { (spare - spare / 2, (spare / 2) / others) };
                for (n, arena) in arenas.iter_mut().enumerate() {
                    let share = if n == crossed { mine } else { theirs };
                    arena.ceiling[row][column] = arena.current[row][column] + share;
                }
            }
        }
        for arena in arenas {
            arena.crossed = false;
        }
    }

    /// The peaks become the current sums.
    pub(crate) fn reset(&mut self, arenas: &mut [&mut Counters]) {
        self.restart(arenas);
        self.earlier = Rows::default();
    }

    /// A boundary: what was the most so far is kept, and from here on the most since now is known, too.
    pub(crate) fn restart(&mut self, arenas: &mut [&mut Counters]) {
        self.earlier = self.recorded();
        self.running = Rows::default();
        self.settle(arenas);
    }

    /// Forgets the last boundary: below the recorded peak nothing needs to be settled again.
    pub(crate) fn rejoin(&mut self, arenas: &mut [&mut Counters]) {
        self.running = self.recorded();
        self.settle(arenas);
    }

    /// The most since the last boundary, of both tiers.
    pub(crate) fn since_boundary(&self) -> &Row {
        &self.running[BOTH]
    }

    /// The most since the last reset.
    fn recorded(&self) -> Rows {
        let mut most = self.earlier;
        for (most, running) in most.as_flattened_mut().iter_mut().zip(self.running.as_flattened()) {
            *most = (*most).max(*running);
        }
        most
    }

    /// Writes the arenas' part of the statistics.
    pub(crate) fn fill(&self, arenas: &[&Counters], stats: &mut DeviceStats) {
        let peaks = self.recorded();
        let stat = |row: usize, column: usize| {
            let tiers = if row == BOTH { 0..2 } else { row..row + 1 };
            let mut stat = Stat { peak: peaks[row][column], ..Stat::default() };
            for arena in arenas {
                stat.current += arena.current[row][column];
                for tier in tiers.clone() {
                    stat.allocated += arena.increases[tier][column] - arena.base_increases[tier][column];
                    stat.freed += arena.decreases(tier, column) - arena.base_decreases[tier][column];
                }
            }
            stat
        };
        let array = |count: Count| StatArray {
            small_pool: stat(Tier::Small as usize, count as usize),
            large_pool: stat(Tier::Large as usize, count as usize),
            all: stat(BOTH, count as usize),
        };
        stats.allocation = array(Count::Allocation);
        stats.active = array(Count::Active);
        stats.inactive_split = array(Count::InactiveSplit);
        stats.allocated_bytes = array(Count::AllocatedBytes);
        stats.active_bytes = array(Count::ActiveBytes);
        stats.inactive_split_bytes = array(Count::InactiveSplitBytes);
        stats.requested_bytes = array(Count::RequestedBytes);
        stats.oversize_allocations = stat(BOTH, Count::OversizeAllocations as usize);
    }

    /// Panics where the ceilings sum to more than the peaks, or an arena is above its own.
    pub(crate) fn check(&self, arenas: &[&Counters]) {
        for row in 0..ROWS {
            for column in 0..COUNTS {
                let ceilings: i64 = arenas.iter().map(|a| a.ceiling[row][column]).sum();
                assert!(ceilings <= self.running[row][column], "ceilings sum to no more than the peak");
                for arena in arenas {
                    assert!(
                        arena.crossed || arena.current[row][column] <= arena.ceiling[row][column],
                        "an arena above its ceiling knows it"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain global counter: peaks are exact whichever arenas the changes come from, and whatever
        /// boundaries there were.
        #[test]
        fn peaks_are_exact(changes in prop::collection::vec((0usize..4, any::<bool>(), -50i64..80, 0u8..40), 0..300)) {
            let mut arenas = vec![Counters::default(); 4];
            let mut peaks = Peaks::default();
            let mut model = [Stat::default(); 3];
            let mut since_boundary = 0;
            for (who, small, amount, boundary) in changes {
                let mut all = arenas.iter_mut().collect::<Vec<_>>();
                match boundary {
                    0 => peaks.restart(&mut all),
                    1 => peaks.rejoin(&mut all),
                    2 => {
                        peaks.reset(&mut all);
                        model.iter_mut().for_each(Stat::reset_peak);
                    }
                    _ => {}
                }
                since_boundary = match boundary {
                    0 | 2 => model[BOTH].current,
                    1 => model[BOTH].peak,
                    _ => since_boundary,
                };
                let tier = if small { Tier::Small } else { Tier::Large };
                let amount = amount.max(-arenas[who].get(tier, Count::ActiveBytes));
                arenas[who].change(tier, Count::ActiveBytes, amount);
                for row in [tier as usize, BOTH] {
                    if amount > 0 { model[row].increase(amount) } else { model[row].decrease(-amount) }
                }
                if arenas[who].crossed() {
                    peaks.settle(&mut arenas.iter_mut().collect::<Vec<_>>());
                }
                let all: Vec<_> = arenas.iter().collect();
                peaks.check(&all);
                let mut stats = DeviceStats::default();
                peaks.fill(&all, &mut stats);
                let array = stats.active_bytes;
                prop_assert_eq!([array.small_pool, array.large_pool, array.all], model);
                since_boundary = since_boundary.max(model[BOTH].current);
                prop_assert_eq!(peaks.since_boundary()[Count::ActiveBytes as usize], since_boundary);
            }
        }
    }
}
