//! The statistics of pinned host memory.
//!
//! Generated from the table in `crates/alloc-core/src/host/pinned_stats.rs` by `cargo xtask codegen`. Do not edit.

use crate::boundary::pass::growing;
use crate::watch::quantity::{granule_duration_stat, granule_stat};
use granule::host::HostStats;

/// All figures of pinned memory. Bytes are those of blocks, rounded.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_host_stats_t {
    /// sizeof(granule_host_stats_t).
    pub size: u32,
    /// Pinned blocks held from the driver.
    pub allocations: granule_stat,
    /// Pinned blocks handed out or pending, peaks summed over sizes as in PyTorch.
    pub active_requests: granule_stat,
    /// Bytes of pinned blocks held from the driver.
    pub allocated_bytes: granule_stat,
    /// Bytes of pinned blocks handed out or pending, peaks summed over sizes as in PyTorch.
    pub active_bytes: granule_stat,
    /// Driver calls that pinned memory.
    pub host_alloc_time: granule_duration_stat,
    /// Driver calls that gave pinned memory back.
    pub host_free_time: granule_duration_stat,
    /// Pinned blocks taken from the driver.
    pub num_host_alloc: i64,
    /// Pinned blocks given back to the driver.
    pub num_host_free: i64,
    /// Pinned blocks handed out or pending, with an exact peak.
    pub exact_active_requests: granule_stat,
    /// Bytes of pinned blocks handed out or pending, with an exact peak.
    pub exact_active_bytes: granule_stat,
    /// Bytes of pinned blocks handed out or pending, as requested.
    pub requested_bytes: i64,
    /// Bytes of pinned blocks given back that wait for devices.
    pub pending_bytes: i64,
    /// Bytes of pinned blocks given back that graphs may use.
    pub kept_bytes: i64,
    /// Uses of pinned blocks whose event could not be recorded.
    pub unrecorded_frees: i64,
    /// Bytes of the reserve for pinned blocks.
    pub reserve_bytes: i64,
    /// Bytes of the reserve that no block has.
    pub reserve_free_bytes: i64,
}

growing!(granule_host_stats_t, up to reserve_free_bytes);

impl From<&HostStats> for granule_host_stats_t {
    fn from(stats: &HostStats) -> Self {
        Self {
            size: 0,
            allocations: stats.allocations.into(),
            active_requests: stats.active_requests.into(),
            allocated_bytes: stats.allocated_bytes.into(),
            active_bytes: stats.active_bytes.into(),
            host_alloc_time: stats.host_alloc_time.into(),
            host_free_time: stats.host_free_time.into(),
            num_host_alloc: stats.num_host_alloc(),
            num_host_free: stats.num_host_free(),
            exact_active_requests: stats.granule.active_requests.into(),
            exact_active_bytes: stats.granule.active_bytes.into(),
            requested_bytes: stats.granule.requested_bytes,
            pending_bytes: stats.granule.pending_bytes,
            kept_bytes: stats.granule.kept_bytes,
            unrecorded_frees: stats.granule.unrecorded_frees,
            reserve_bytes: stats.granule.reserve_bytes,
            reserve_free_bytes: stats.granule.reserve_free_bytes,
        }
    }
}
