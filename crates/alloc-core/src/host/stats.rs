//! Figures of pinned memory, with PyTorch's names and meaning (`HostStats`).

use super::size_class::doubling;
use crate::watch::stats::Stat;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long calls took, in microseconds.
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
    pub(super) fn add(&mut self, time: Duration) {
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
}

/// Blocks of one doubling of sizes that the program has, or that wait for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HostBucket {
    /// How many.
    pub active_requests: Stat,
    /// Their bytes, rounded.
    pub active_bytes: Stat,
}

/// A bucket for each doubling of sizes: bucket n has blocks of over 2^(n-1) up to 2^n bytes.
pub const BUCKETS: usize = 64;

/// The buckets of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Histogram(pub(super) [HostBucket; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([HostBucket::default(); BUCKETS])
    }
}

impl Histogram {
    pub(super) fn bucket(&mut self, size: u64) -> &mut HostBucket {
        &mut self.0[doubling(size).min(BUCKETS - 1)]
    }

    fn each(&mut self, change: impl Fn(&mut Stat)) {
        for bucket in &mut self.0 {
            change(&mut bucket.active_requests);
            change(&mut bucket.active_bytes);
        }
    }

    pub(super) fn reset_peak(&mut self) {
        self.each(Stat::reset_peak);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.each(Stat::reset_accumulated);
    }

    /// Adds all figures of `other`, peaks included.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (mine, other) in self.0.iter_mut().zip(&other.0) {
            absorb(&mut mine.active_requests, &other.active_requests);
            absorb(&mut mine.active_bytes, &other.active_bytes);
        }
    }
}

fn absorb(stat: &mut Stat, other: &Stat) {
    stat.current += other.current;
    stat.peak += other.peak;
    stat.allocated += other.allocated;
    stat.freed += other.freed;
}

/// Figures that are kept for all pools together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) allocations: Stat,
    pub(super) allocated_bytes: Stat,
    pub(super) host_alloc_time: DurationStat,
    pub(super) host_free_time: DurationStat,
    pub(super) granule: HostGranuleStats,
}

impl Totals {
    pub(super) fn reset_peak(&mut self) {
        self.allocations.reset_peak();
        self.allocated_bytes.reset_peak();
        for time in [&mut self.host_alloc_time, &mut self.host_free_time] {
            (time.min, time.max) = (0, 0);
        }
        self.granule.active_requests.reset_peak();
        self.granule.active_bytes.reset_peak();
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.allocations.reset_accumulated();
        self.allocated_bytes.reset_accumulated();
        for time in [&mut self.host_alloc_time, &mut self.host_free_time] {
            (time.total, time.count) = (0, 0);
        }
        self.granule.active_requests.reset_accumulated();
        self.granule.active_bytes.reset_accumulated();
    }
}

/// Figures that PyTorch does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HostGranuleStats {
    /// Blocks that the program has, or that wait. Its peak is exact, where that of PyTorch's figure is a sum of peaks at
    /// different times.
    pub active_requests: Stat,
    /// Their bytes, rounded; the peak is exact, too.
    pub active_bytes: Stat,
    /// Bytes as requested, of blocks that the program has or that wait.
    pub requested_bytes: i64,
    /// Bytes given back that wait for devices.
    pub pending_bytes: i64,
    /// Bytes given back that graphs may use: they are never handed out again.
    pub kept_bytes: i64,
    /// Uses whose event could not be recorded: their blocks wait for a synchronisation.
    pub unrecorded_frees: i64,
    /// Bytes of the reserve (`pinned_reserve_segment_size_mb`); 0 before its first use.
    pub reserve_bytes: i64,
    /// Bytes of it that no block has.
    pub reserve_free_bytes: i64,
}

/// All figures of pinned memory. Bytes are those of blocks, rounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStats {
    /// Blocks that the program has, or that wait for devices. The peak is the sum of the buckets' peaks, as in PyTorch.
    pub active_requests: Stat,
    /// Their bytes; the peak is such a sum, too.
    pub active_bytes: Stat,
    /// Blocks held from the driver, cached ones included.
    pub allocations: Stat,
    /// Their bytes.
    pub allocated_bytes: Stat,
    /// Calls that pinned memory.
    pub host_alloc_time: DurationStat,
    /// Calls that gave it back.
    pub host_free_time: DurationStat,
    /// By size: bucket n has blocks of over 2^(n-1) up to 2^n bytes.
    pub buckets: [HostBucket; BUCKETS],
    /// Granule's own figures.
    pub granule: HostGranuleStats,
}

impl Default for HostStats {
    fn default() -> Self {
        Self::new(&Totals::default(), Histogram::default())
    }
}

impl HostStats {
    pub(super) fn new(totals: &Totals, Histogram(buckets): Histogram) -> Self {
        let (mut active_requests, mut active_bytes) = (Stat::default(), Stat::default());
        for bucket in &buckets {
            absorb(&mut active_requests, &bucket.active_requests);
            absorb(&mut active_bytes, &bucket.active_bytes);
        }
        let Totals { allocations, allocated_bytes, host_alloc_time, host_free_time, granule } = *totals;
        Self {
            active_requests,
            active_bytes,
            allocations,
            allocated_bytes,
            host_alloc_time,
            host_free_time,
            buckets,
            granule,
        }
    }

    /// PyTorch's `num_host_alloc`: blocks taken from the driver.
    #[must_use]
    pub fn num_host_alloc(&self) -> i64 {
        self.allocations.allocated
    }

    /// PyTorch's `num_host_free`: blocks given back.
    #[must_use]
    pub fn num_host_free(&self) -> i64 {
        self.allocations.freed
    }

    /// Every figure under PyTorch's flat key (`active_bytes.peak`), in `host_memory_stats()` order, which is sorted.
    #[must_use]
    pub fn flatten(&self) -> BTreeMap<String, i64> {
        let stats = [
            ("active_requests", &self.active_requests),
            ("active_bytes", &self.active_bytes),
            ("allocations", &self.allocations),
            ("allocated_bytes", &self.allocated_bytes),
        ];
        let times = [("host_alloc_time", &self.host_alloc_time), ("host_free_time", &self.host_free_time)];
        let stats = stats.into_iter().flat_map(|(name, stat)| {
            [
                (format!("{name}.current"), stat.current),
                (format!("{name}.peak"), stat.peak),
                (format!("{name}.allocated"), stat.allocated),
                (format!("{name}.freed"), stat.freed),
            ]
        });
        let times = times.into_iter().flat_map(|(name, time)| {
            [
                (format!("{name}.total"), time.total),
                (format!("{name}.max"), time.max),
                (format!("{name}.min"), time.min),
                (format!("{name}.count"), time.count),
                (format!("{name}.avg"), time.avg()),
            ]
        });
        let counts = [
            ("num_host_alloc".to_owned(), self.num_host_alloc()),
            ("num_host_free".to_owned(), self.num_host_free()),
        ];
        stats.chain(times).chain(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_kept_as_pytorch_keeps_them() {
        let mut time = DurationStat::default();
        assert_eq!((time.min, time.avg()), (0, 0), "none yet");
        for micros in [7, 4, 10] {
            time.add(Duration::from_nanos(micros * 1000 + 999));
        }
        assert_eq!(time, DurationStat { total: 21, max: 10, min: 4, count: 3 });
        assert_eq!(time.avg(), 7);
        let mut totals = Totals { host_alloc_time: time, ..Totals::default() };
        totals.reset_peak();
        assert_eq!(totals.host_alloc_time, DurationStat { total: 21, max: 0, min: 0, count: 3 });
        totals.reset_accumulated();
        assert_eq!(totals.host_alloc_time, DurationStat::default());
    }

    #[test]
    fn there_are_28_figures() {
        assert_eq!(HostStats::default().flatten().len(), 28);
    }
}
