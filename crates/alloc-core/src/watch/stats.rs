//! Statistics, with PyTorch's names and meaning (`DeviceStats`).

mod scope;
mod summary;

pub use scope::{ScopeBytes, ScopeStats};

use crate::base::ids::Tier;
use crate::types::PoolId;
use std::collections::BTreeMap;

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

/// All statistics of a device, private pools included.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeviceStats {
    /// Failed attempts after which the cache was flushed and the driver asked again.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors raised.
    pub num_ooms: i64,
    /// `max_split_size` in bytes; -1 when unlimited.
    pub max_split_size: i64,
    /// Passes that waited for everything.
    pub num_sync_all_streams: i64,
    /// Segments taken from the device and map steps.
    pub num_device_alloc: i64,
    /// Segments given back and unmap steps.
    pub num_device_free: i64,
    /// Requests refused before the driver was asked (`throw_on_cudamalloc_oom`).
    pub num_oom_rejections: i64,
    /// Blocks in the program's hands.
    pub allocation: StatArray,
    /// Fixed segments held.
    pub segment: StatArray,
    /// Blocks handed out or pending.
    pub active: StatArray,
    /// Free blocks of segments that are split.
    pub inactive_split: StatArray,
    /// Bytes in the program's hands, rounded.
    pub allocated_bytes: StatArray,
    /// Bytes held from the device.
    pub reserved_bytes: StatArray,
    /// The same by private pool.
    pub reserved_bytes_by_private_pools: BTreeMap<PoolId, StatArray>,
    /// Bytes handed out or pending, rounded.
    pub active_bytes: StatArray,
    /// Bytes of free blocks of segments that are split.
    pub inactive_split_bytes: StatArray,
    /// Bytes handed out or pending, as requested.
    pub requested_bytes: StatArray,
    /// Blocks of `max_split_size` and more handed out.
    pub oversize_allocations: Stat,
    /// Segments of `max_split_size` and more held.
    pub oversize_segments: Stat,
    /// Granule's own figures.
    pub granule: GranuleStats,
}

/// Figures that PyTorch does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GranuleStats {
    /// Bytes given back that wait for other streams.
    pub pending_bytes: i64,
    /// Frees whose event could not be recorded: they wait for the next synchronisation.
    pub unrecorded_frees: i64,
    /// Granules that got another address: shown in a view, or handed over to another stream.
    pub granules_moved: i64,
    /// Bytes whose memory was given up and whose addresses are kept.
    pub asleep_bytes: i64,
}

impl DeviceStats {
    /// Memory efficiency E: peak requested over peak reserved bytes; 1 when nothing was reserved. Above 1 where memory was
    /// requested that slept ([`crate::sleep`]) while others had its place.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        efficiency(self.requested_bytes.all.peak, self.reserved_bytes.all.peak)
    }

    /// Every figure under PyTorch's flat key (`allocated_bytes.all.peak`), in `memory_stats()` order,
    /// which is sorted.
    #[must_use]
    pub fn flatten(&self) -> BTreeMap<String, i64> {
        let mut flat = BTreeMap::new();
        let mut stat = |name: String, s: &Stat| {
            flat.insert(format!("{name}.current"), s.current);
            flat.insert(format!("{name}.peak"), s.peak);
            flat.insert(format!("{name}.allocated"), s.allocated);
            flat.insert(format!("{name}.freed"), s.freed);
        };
        let pools = self
            .reserved_bytes_by_private_pools
            .iter()
            .map(|(pool, array)| (format!("reserved_bytes_by_private_pools.{}_{}", pool.0, pool.1), array));
        let arrays = [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ];
        for (name, array) in arrays.map(|(n, a)| (n.to_owned(), a)).into_iter().chain(pools) {
            stat(format!("{name}.all"), &array.all);
            stat(format!("{name}.small_pool"), &array.small_pool);
            stat(format!("{name}.large_pool"), &array.large_pool);
        }
        stat("oversize_allocations".into(), &self.oversize_allocations);
        stat("oversize_segments".into(), &self.oversize_segments);
        for (name, value) in [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("max_split_size", self.max_split_size),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
        ] {
            flat.insert(name.into(), value);
        }
        flat
    }
}

/// Requested over reserved bytes.
fn efficiency(requested: i64, reserved: i64) -> f64 {
    if reserved == 0 {
        return 1.0;
    }
    #[allow(clippy::cast_precision_loss)]
    let ratio = requested as f64 / reserved as f64;
    ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_keys_are_pytorchs_123() {
        let flat = DeviceStats::default().flatten();
        assert_eq!(flat.len(), 123);
        assert!(flat.contains_key("inactive_split_bytes.large_pool.freed"));
        assert!(flat.contains_key("oversize_segments.peak"));
    }

    #[test]
    fn resets_touch_only_their_part() {
        let mut stat = Stat::default();
        stat.increase(10);
        stat.decrease(4);
        assert_eq!(stat, Stat { current: 6, peak: 10, allocated: 10, freed: 4 });
        stat.reset_peak();
        stat.reset_accumulated();
        assert_eq!(stat, Stat { current: 6, peak: 6, allocated: 0, freed: 0 });
    }
}
