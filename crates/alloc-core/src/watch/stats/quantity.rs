//! Values of figures.

use crate::base::ids::Tier;
use std::time::Duration;

/// One quantity over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stat {
    /// Now.
    pub current: i64,
    /// The most since the peaks were reset.
    pub peak: i64,
    /// All increases since the accumulated figures were reset.
    pub allocated: i64,
    /// All decreases since then.
    pub freed: i64,
}

impl Stat {
    /// Adds, and raises the peak.
    pub fn increase(&mut self, amount: i64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    /// Takes away.
    pub fn decrease(&mut self, amount: i64) {
        self.current -= amount;
        self.freed += amount;
    }

    /// The peak is now the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    /// Counting of increases and decreases begins anew.
    pub fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }

    /// Its values, by PyTorch's names.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, i64); 4] {
        let Self { current, peak, allocated, freed } = *self;
        [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)]
    }
}

/// A quantity in total and by tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatArray {
    /// Both tiers.
    pub all: Stat,
    /// PyTorch's small pool.
    pub small_pool: Stat,
    /// PyTorch's large pool.
    pub large_pool: Stat,
}

impl StatArray {
    fn rows(&mut self, tier: Tier) -> [&mut Stat; 2] {
        match tier {
            Tier::Small => [&mut self.all, &mut self.small_pool],
            Tier::Large => [&mut self.all, &mut self.large_pool],
        }
    }

    /// Adds to a tier and the total.
    pub fn increase(&mut self, tier: Tier, amount: i64) {
        self.rows(tier).into_iter().for_each(|stat| stat.increase(amount));
    }

    /// Takes away from a tier and the total.
    pub fn decrease(&mut self, tier: Tier, amount: i64) {
        self.rows(tier).into_iter().for_each(|stat| stat.decrease(amount));
    }

    /// Every row of it.
    pub fn each(&mut self, change: impl FnMut(&mut Stat)) {
        [&mut self.all, &mut self.small_pool, &mut self.large_pool].into_iter().for_each(change);
    }
}

/// Durations of calls, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DurationStat {
    /// All of them together.
    pub total: i64,
    /// The longest since the peaks were reset.
    pub max: i64,
    /// The shortest since then; 0 where there was none.
    pub min: i64,
    /// Calls.
    pub count: i64,
}

impl DurationStat {
    pub(crate) fn add(&mut self, time: Duration) {
        let time = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        self.total = self.total.saturating_add(time);
        self.count += 1;
        self.max = self.max.max(time);
        self.min = if self.min == 0 { time } else { self.min.min(time) };
    }

    /// The mean of all, rounded down.
    #[must_use]
    pub fn avg(&self) -> i64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    /// Its values, by PyTorch's names.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, i64); 5] {
        let Self { total, max, min, count } = *self;
        [("total", total), ("max", max), ("min", min), ("count", count), ("avg", self.avg())]
    }
}
