//! Figures of pinned host memory.

use crate::boundary::guard::guard;
use crate::boundary::pass::{given, growing};
use crate::error::granule_status;
use crate::host::granule_host_allocator;
use crate::watch::stats::granule_stat;
use granule::host::{DurationStat, HostStats};

/// How long calls took, in microseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_duration_stat {
    /// All of them together.
    pub total: i64,
    /// The longest since the peaks were reset.
    pub max: i64,
    /// The shortest since then; 0 where there was none.
    pub min: i64,
    /// Calls.
    pub count: i64,
}

/// All figures of pinned memory. Bytes are those of blocks, rounded.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_host_stats_t {
    /// sizeof(granule_host_stats_t).
    pub size: u32,
    /// Blocks held from the driver, cached ones included.
    pub allocations: granule_stat,
    /// Blocks that the program has, or that wait for devices. The peak is a sum over sizes, as in PyTorch.
    pub active_requests: granule_stat,
    /// Bytes held from the driver.
    pub allocated_bytes: granule_stat,
    /// Bytes that the program has, or that wait. The peak is such a sum, too.
    pub active_bytes: granule_stat,
    /// Calls that pinned memory.
    pub host_alloc_time: granule_duration_stat,
    /// Calls that gave it back.
    pub host_free_time: granule_duration_stat,
    /// Blocks taken from the driver.
    pub num_host_alloc: i64,
    /// Blocks given back.
    pub num_host_free: i64,
    /// Granule's own: blocks that the program has, or that wait, with an exact peak.
    pub exact_active_requests: granule_stat,
    /// Their bytes, with an exact peak.
    pub exact_active_bytes: granule_stat,
    /// Bytes as requested, of blocks that the program has or that wait.
    pub requested_bytes: i64,
    /// Bytes given back that wait for devices.
    pub pending_bytes: i64,
    /// Bytes given back that graphs may use: they are never handed out again.
    pub kept_bytes: i64,
    /// Uses whose event could not be recorded.
    pub unrecorded_frees: i64,
    /// Bytes of the reserve.
    pub reserve_bytes: i64,
    /// Bytes of it that no block has.
    pub reserve_free_bytes: i64,
}

growing!(granule_host_stats_t);

/// Blocks of one doubling of sizes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_host_bucket {
    /// How many the program has, or wait.
    pub active_requests: granule_stat,
    /// Their bytes, rounded.
    pub active_bytes: granule_stat,
}

impl From<DurationStat> for granule_duration_stat {
    fn from(DurationStat { total, max, min, count }: DurationStat) -> Self {
        Self { total, max, min, count }
    }
}

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

/// All figures, of one moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_stats(
    h: *mut granule_host_allocator,
    out: *mut granule_host_stats_t,
) -> granule_status {
    guard(|| {
        let (h, out) = (given!(handle h), given!(sized_out out));
        out.set((&h.engine.stats()).into());
        Ok(())
    })
}

/// Figures by size: bucket n has blocks of over 2^(n-1) up to 2^n bytes. At most capacity entries are written, and count says how many
/// there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_buckets(
    h: *mut granule_host_allocator,
    out: *mut granule_host_bucket,
    capacity: u64,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (h, room, count) = (given!(handle h), given!(room out, capacity), given!(out count));
        count.set(room.fill(h.engine.stats().buckets.into_iter().map(|bucket| granule_host_bucket {
            active_requests: bucket.active_requests.into(),
            active_bytes: bucket.active_bytes.into(),
        })));
        Ok(())
    })
}

/// Peaks become the current values; shortest and longest times are forgotten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_reset_peak_stats(h: *mut granule_host_allocator) -> granule_status {
    guard(|| {
        given!(handle h).engine.reset_peak_stats();
        Ok(())
    })
}

/// Sums and counts begin anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_reset_accumulated_stats(
    h: *mut granule_host_allocator,
) -> granule_status {
    guard(|| {
        given!(handle h).engine.reset_accumulated_stats();
        Ok(())
    })
}
