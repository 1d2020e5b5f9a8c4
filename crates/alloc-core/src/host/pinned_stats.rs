//! Figures of pinned memory, with PyTorch's names and meaning (`HostStats`).

use super::sizing::doubling;
use crate::watch::stats::figure::{figures, flat};
use crate::watch::stats::{DurationStat, Stat};
use std::collections::BTreeMap;
use std::time::Duration;

/// Blocks of one doubling of sizes that the program has, or that wait for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HostBucket {
    /// Count.
    pub active_requests: Stat,
    /// Their bytes, rounded.
    pub active_bytes: Stat,
}

/// A bucket for each doubling of sizes: bucket n has blocks of over 2^(n-1) up to 2^n bytes.
pub const BUCKETS: usize = 64;

/// The buckets of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Histogram([HostBucket; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([HostBucket::default(); BUCKETS])
    }
}

impl Histogram {
    fn bucket(&mut self, size: u64) -> &mut HostBucket {
        &mut self.0[doubling(size).min(BUCKETS - 1)]
    }

    /// A block of `size` is handed out.
    pub(super) fn begin(&mut self, size: u64) {
        let bucket = self.bucket(size);
        bucket.active_requests.increase(1);
        bucket.active_bytes.increase(signed(size));
    }

    /// A block of `size` is free again.
    pub(super) fn end(&mut self, size: u64) {
        let bucket = self.bucket(size);
        bucket.active_requests.decrease(1);
        bucket.active_bytes.decrease(signed(size));
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

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
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
    allocations: Stat,
    allocated_bytes: Stat,
    host_alloc_time: DurationStat,
    host_free_time: DurationStat,
    granule: HostGranuleStats,
}

impl Totals {
    /// A block was made.
    pub(super) fn made(&mut self, size: u64, took: Option<Duration>) {
        self.allocations.increase(1);
        self.allocated_bytes.increase(signed(size));
        took.into_iter().for_each(|time| self.host_alloc_time.add(time));
    }

    /// A block went back to where it came from.
    pub(super) fn gone(&mut self, size: u64, took: Option<Duration>) {
        self.allocations.decrease(1);
        self.allocated_bytes.decrease(signed(size));
        took.into_iter().for_each(|time| self.host_free_time.add(time));
    }

    /// A block is handed out.
    pub(super) fn begin(&mut self, size: u64, requested: u64) {
        self.granule.active_requests.increase(1);
        self.granule.active_bytes.increase(signed(size));
        self.granule.requested_bytes += signed(requested);
    }

    /// A block is free again.
    pub(super) fn end(&mut self, size: u64, requested: u64) {
        self.granule.active_requests.decrease(1);
        self.granule.active_bytes.decrease(signed(size));
        self.granule.requested_bytes -= signed(requested);
    }

    /// Bytes held from the driver.
    pub(super) fn held(&self) -> u64 {
        self.allocated_bytes.current.unsigned_abs()
    }

    /// A block that was given back waits for devices.
    pub(super) fn begin_wait(&mut self, size: u64) {
        self.granule.pending_bytes += signed(size);
    }

    /// No device uses such a block any more.
    pub(super) fn end_wait(&mut self, size: u64) {
        self.granule.pending_bytes -= signed(size);
    }

    /// A block that was given back stays, for graphs.
    pub(super) fn keep(&mut self, size: u64) {
        self.granule.kept_bytes += signed(size);
    }

    /// True if any block stays for graphs.
    pub(super) fn has_kept(&self) -> bool {
        self.granule.kept_bytes != 0
    }

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

figures! {
    /// All figures of pinned memory. Bytes are those of blocks, rounded.
    #[derive(Clone, Debug, PartialEq, Eq)]
    HostStats {
        /// Pinned blocks handed out or pending, peaks summed over sizes as in PyTorch.
        active_requests: Stat Count "host_active_blocks",
        /// Bytes of pinned blocks handed out or pending, peaks summed over sizes as in PyTorch.
        active_bytes: Stat Bytes "host_active",
        /// Pinned blocks held from the driver.
        ///
        /// Cached ones are among them.
        allocations: Stat Count "host_blocks",
        /// Bytes of pinned blocks held from the driver.
        allocated_bytes: Stat Bytes "host_held",
        /// Driver calls that pinned memory.
        host_alloc_time: Time Seconds "host_alloc",
        /// Driver calls that gave pinned memory back.
        host_free_time: Time Seconds "host_free",
        also
        /// By size: bucket n has blocks of over 2^(n-1) up to 2^n bytes.
        buckets: [HostBucket; BUCKETS],
    }

    /// Figures that PyTorch does not have.
    HostGranuleStats {
        /// Pinned blocks handed out or pending, with an exact peak.
        ///
        /// That of PyTorch's figure is a sum of peaks at different times.
        active_requests: Stat Count "host_exact_active_blocks",
        /// Bytes of pinned blocks handed out or pending, with an exact peak.
        active_bytes: Stat Bytes "host_exact_active",
        /// Bytes of pinned blocks handed out or pending, as requested.
        requested_bytes: Gauge Bytes "host_requested",
        /// Bytes of pinned blocks given back that wait for devices.
        pending_bytes: Gauge Bytes "host_pending",
        /// Bytes of pinned blocks given back that graphs may use.
        ///
        /// They are never handed out again.
        kept_bytes: Gauge Bytes "host_kept",
        /// Uses of pinned blocks whose event could not be recorded.
        ///
        /// Their blocks wait for a synchronisation.
        unrecorded_frees: Counter Count "host_unrecorded_frees",
        /// Bytes of the reserve for pinned blocks.
        ///
        /// The option `pinned_reserve_segment_size_mb` asks for one; 0 before its first use.
        reserve_bytes: Gauge Bytes "host_reserve",
        /// Bytes of the reserve that no block has.
        reserve_free_bytes: Gauge Bytes "host_reserve_free",
    }
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
        let mut flat = flat(Self::figures(), self);
        flat.insert("num_host_alloc".to_owned(), self.num_host_alloc());
        flat.insert("num_host_free".to_owned(), self.num_host_free());
        flat
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
