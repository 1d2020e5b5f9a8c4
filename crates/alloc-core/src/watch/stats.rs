//! Statistics, with PyTorch's names and meaning (`DeviceStats`).

pub(crate) mod figure;
mod quantity;
mod scope;
mod summary;

pub use figure::{Figure, FigureValue, Read, Unit};
pub use quantity::{DurationStat, Stat, StatArray};
pub use scope::{ScopeBytes, ScopeStats};

use crate::types::PoolId;
use figure::{figures, flat, key};
use std::collections::BTreeMap;

figures! {
    /// All statistics of a device, private pools included.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    DeviceStats {
        /// Blocks in the program's hands.
        allocation: Array Count "allocations",
        /// Bytes in the program's hands, rounded.
        allocated_bytes: Array Bytes "allocated",
        /// Blocks handed out or pending.
        active: Array Count "active_blocks",
        /// Bytes handed out or pending, rounded.
        active_bytes: Array Bytes "active",
        /// Bytes handed out or pending, as requested.
        requested_bytes: Array Bytes "requested",
        /// Fixed segments held.
        segment: Array Count "segments",
        /// Bytes held from the device.
        reserved_bytes: Array Bytes "reserved",
        /// Free blocks of segments that are split.
        inactive_split: Array Count "inactive_split_blocks",
        /// Bytes of free blocks of segments that are split.
        inactive_split_bytes: Array Bytes "inactive_split",
        /// Blocks of max_split_size and more handed out.
        oversize_allocations: Stat Count "oversize_allocations",
        /// Segments of max_split_size and more held.
        oversize_segments: Stat Count "oversize_segments",
        /// Failed attempts after which the cache was flushed and the driver asked again.
        num_alloc_retries: Counter Count "alloc_retries",
        /// Out-of-memory errors raised.
        num_ooms: Counter Count "ooms",
        /// Requests refused before the driver was asked.
        ///
        /// The option `throw_on_cudamalloc_oom` says that they are.
        num_oom_rejections: Counter Count "oom_rejections",
        /// Passes that waited for everything.
        num_sync_all_streams: Counter Count "sync_all_streams",
        /// Driver calls that took memory: segments and map steps.
        num_device_alloc: Counter Count "device_allocs",
        /// Driver calls that gave memory back: segments and unmap steps.
        num_device_free: Counter Count "device_frees",
        /// The option max_split_size; -1 when unlimited.
        max_split_size: Gauge Bytes "max_split",
        also
        /// [`reserved_bytes`](Self::reserved_bytes) by private pool.
        reserved_bytes_by_private_pools: BTreeMap<PoolId, StatArray>,
    }

    /// Figures that PyTorch does not have.
    GranuleStats {
        /// Bytes given back that wait for other streams.
        pending_bytes: Gauge Bytes "pending",
        /// Frees whose event could not be recorded.
        ///
        /// They wait for the next synchronisation.
        unrecorded_frees: Counter Count "unrecorded_frees",
        /// Physical granules moved between places.
        ///
        /// They got another address: shown in a view, or handed over to another stream.
        granules_moved: Counter Count "granules_moved",
        /// Bytes of blocks that have given their memory back and keep their addresses.
        asleep_bytes: Gauge Bytes "asleep",
    }
}

impl DeviceStats {
    /// Memory efficiency E: peak requested over peak reserved bytes; 1 when nothing was reserved. Above 1 where memory
    /// was requested that slept ([`crate::sleep`]) while others had its place.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        efficiency(self.requested_bytes.all.peak, self.reserved_bytes.all.peak)
    }

    /// Every figure under PyTorch's flat key (`allocated_bytes.all.peak`), in `memory_stats()` order,
    /// which is sorted.
    #[must_use]
    pub fn flatten(&self) -> BTreeMap<String, i64> {
        let mut flat = flat(Self::figures(), self);
        for (pool, array) in &self.reserved_bytes_by_private_pools {
            let name = format!("reserved_bytes_by_private_pools.{}_{}", pool.0, pool.1);
            flat.extend(array.values().iter().map(|value| (key(&name, value), value.value)));
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
