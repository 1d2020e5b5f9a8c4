//! Time in batches, and chance that is the same in every run.

use std::time::{Duration, Instant};

/// The median and the 99th percentile of batches, in nanoseconds of one step.
pub(crate) struct Batches(Vec<f64>);

impl Batches {
    /// Steps in batches of `per` until the time is over, or `go_on` says so.
    pub(crate) fn run(per: u32, mut go_on: impl FnMut(Duration) -> bool, mut step: impl FnMut()) -> Self {
        let mut batches = Vec::new();
        let start = Instant::now();
        let mut last = start;
        while go_on(last - start) {
            for _ in 0..per {
                step();
            }
            let now = Instant::now();
            batches.push((now - last).as_nanos() as f64 / f64::from(per));
            last = now;
        }
        batches.sort_by(f64::total_cmp);
        Self(batches)
    }

    /// All batches of several threads.
    pub(crate) fn joined(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut all: Vec<f64> = parts.into_iter().flat_map(|part| part.0).collect();
        all.sort_by(f64::total_cmp);
        Self(all)
    }

    pub(crate) const fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let at = (self.0.len() as f64 * part) as usize;
        self.0.get(at.min(self.0.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }
}

/// A small generator (SplitMix64): the same seed draws the same.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Every power of two is as likely as every other.
    pub(crate) fn log_uniform(&mut self, low: usize, high: usize) -> usize {
        let part = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let (low, high) = ((low as f64).ln(), (high as f64).ln());
        (low + part * (high - low)).exp() as usize
    }
}
