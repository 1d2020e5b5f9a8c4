//! The statistics of a device.
//!
//! Generated from the table in `crates/alloc-core/src/watch/stats.rs` by `cargo xtask codegen`. Do not edit.

use crate::boundary::pass::growing;
use crate::watch::quantity::{granule_stat, granule_stat_array};
use granule::stats::DeviceStats;

/// All statistics of a device, private pools included; names and meaning are PyTorch's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_device_stats {
    /// sizeof(granule_device_stats).
    pub size: u32,
    /// Failed attempts after which the cache was flushed and the driver asked again.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors raised.
    pub num_ooms: i64,
    /// The option max_split_size; -1 when unlimited.
    pub max_split_size: i64,
    /// Passes that waited for everything.
    pub num_sync_all_streams: i64,
    /// Driver calls that took memory: segments and map steps.
    pub num_device_alloc: i64,
    /// Driver calls that gave memory back: segments and unmap steps.
    pub num_device_free: i64,
    /// Requests refused before the driver was asked.
    pub num_oom_rejections: i64,
    /// Blocks in the program's hands.
    pub allocation: granule_stat_array,
    /// Fixed segments held.
    pub segment: granule_stat_array,
    /// Blocks handed out or pending.
    pub active: granule_stat_array,
    /// Free blocks of segments that are split.
    pub inactive_split: granule_stat_array,
    /// Bytes in the program's hands, rounded.
    pub allocated_bytes: granule_stat_array,
    /// Bytes held from the device.
    pub reserved_bytes: granule_stat_array,
    /// Bytes handed out or pending, rounded.
    pub active_bytes: granule_stat_array,
    /// Bytes of free blocks of segments that are split.
    pub inactive_split_bytes: granule_stat_array,
    /// Bytes handed out or pending, as requested.
    pub requested_bytes: granule_stat_array,
    /// Blocks of max_split_size and more handed out.
    pub oversize_allocations: granule_stat,
    /// Segments of max_split_size and more held.
    pub oversize_segments: granule_stat,
    /// Bytes given back that wait for other streams.
    pub pending_bytes: i64,
    /// Frees whose event could not be recorded.
    pub unrecorded_frees: i64,
    /// Physical granules moved between places.
    pub granules_moved: i64,
    /// Bytes of blocks that have given their memory back and keep their addresses.
    pub asleep_bytes: i64,
}

growing!(granule_device_stats, up to asleep_bytes);

impl From<&DeviceStats> for granule_device_stats {
    fn from(stats: &DeviceStats) -> Self {
        Self {
            size: 0,
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            max_split_size: stats.max_split_size,
            num_sync_all_streams: stats.num_sync_all_streams,
            num_device_alloc: stats.num_device_alloc,
            num_device_free: stats.num_device_free,
            num_oom_rejections: stats.num_oom_rejections,
            allocation: stats.allocation.into(),
            segment: stats.segment.into(),
            active: stats.active.into(),
            inactive_split: stats.inactive_split.into(),
            allocated_bytes: stats.allocated_bytes.into(),
            reserved_bytes: stats.reserved_bytes.into(),
            active_bytes: stats.active_bytes.into(),
            inactive_split_bytes: stats.inactive_split_bytes.into(),
            requested_bytes: stats.requested_bytes.into(),
            oversize_allocations: stats.oversize_allocations.into(),
            oversize_segments: stats.oversize_segments.into(),
            pending_bytes: stats.granule.pending_bytes,
            unrecorded_frees: stats.granule.unrecorded_frees,
            granules_moved: stats.granule.granules_moved,
            asleep_bytes: stats.granule.asleep_bytes,
        }
    }
}
