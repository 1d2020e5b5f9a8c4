//! Statistics.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, given, growing};
use crate::bytes::granule_bytes;
#[cfg(not(feature = "metrics"))]
use crate::error::GRANULE_UNSUPPORTED;
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::stats::{DeviceStats, Stat, StatArray};

/// One quantity over time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_stat {
    /// Now.
    pub current: i64,
    /// The most since the peaks were reset.
    pub peak: i64,
    /// All increases since the accumulated figures were reset.
    pub allocated: i64,
    /// All decreases since then.
    pub freed: i64,
}

/// A quantity in total and by tier.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_stat_array {
    /// Both tiers.
    pub all: granule_stat,
    /// Requests of up to 1 MiB.
    pub small_pool: granule_stat,
    /// Larger ones.
    pub large_pool: granule_stat,
}

/// All statistics of a device, private pools included; names and meaning are PyTorch's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_device_stats {
    /// sizeof(granule_device_stats).
    pub size: u32,
    /// Failed attempts after which the cache was flushed and the driver asked again.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors.
    pub num_ooms: i64,
    /// max_split_size in bytes; -1 where unlimited.
    pub max_split_size: i64,
    /// Passes that waited for everything.
    pub num_sync_all_streams: i64,
    /// Segments taken from the device, and map steps.
    pub num_device_alloc: i64,
    /// Segments given back, and unmap steps.
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
    /// Blocks of max_split_size and more.
    pub oversize_allocations: granule_stat,
    /// Segments of max_split_size and more.
    pub oversize_segments: granule_stat,
    /// Granule's own: bytes given back that wait for other streams.
    pub pending_bytes: i64,
    /// Frees whose event could not be recorded.
    pub unrecorded_frees: i64,
    /// Granules that got another address: shown in a view, or handed over to another stream.
    pub granules_moved: i64,
    /// Bytes whose memory was given up and whose addresses are kept.
    pub asleep_bytes: i64,
}

growing!(granule_device_stats);

/// What a private pool holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_pool_reserved {
    /// The pool.
    pub pool: granule_pool_id,
    /// Bytes held from the device.
    pub reserved_bytes: granule_stat_array,
}

/// What the growable segments of a stream and a tier hold.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_stream_segments {
    /// The stream.
    pub stream: u64,
    /// Whether they serve small requests.
    pub is_small_pool: bool,
    /// Bytes with memory behind them.
    pub total_size: u64,
}

impl From<Stat> for granule_stat {
    fn from(Stat { current, peak, allocated, freed }: Stat) -> Self {
        Self { current, peak, allocated, freed }
    }
}

impl From<StatArray> for granule_stat_array {
    fn from(StatArray { all, small_pool, large_pool }: StatArray) -> Self {
        Self { all: all.into(), small_pool: small_pool.into(), large_pool: large_pool.into() }
    }
}

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

/// Statistics of a device: exact, and of one moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stats(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_device_stats,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(sized_out out));
        out.set((&a.engine.stats(pass::device(device)?)?).into());
        Ok(())
    })
}

/// What each private pool of a device holds: at most capacity entries are written, and count says how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pools_reserved(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_pool_reserved,
    capacity: u64,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, room, count) = (given!(handle a), given!(room out, capacity), given!(out count));
        let stats = a.engine.stats(pass::device(device)?)?;
        let entry = |(pool, bytes): (granule::types::PoolId, StatArray)| granule_pool_reserved {
            pool: pool.into(),
            reserved_bytes: bytes.into(),
        };
        count.set(room.fill(stats.reserved_bytes_by_private_pools.into_iter().map(entry)));
        Ok(())
    })
}

/// All peaks become the current values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_reset_peak_stats(a: *mut granule_allocator, device: i32) -> granule_status {
    guard(|| Ok(given!(handle a).engine.statistics().reset_peaks(pass::device(device)?)?))
}

/// Sums and counts begin anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_reset_accumulated_stats(
    a: *mut granule_allocator,
    device: i32,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.statistics().reset_accumulated(pass::device(device)?)?))
}

/// What growable segments hold, by stream and tier: at most capacity entries are written, and count says how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_growable_sizes(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_stream_segments,
    capacity: u64,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, room, count) = (given!(handle a), given!(room out, capacity), given!(out count));
        let sizes = a.engine.statistics().growable_sizes(pass::device(device)?)?.into_iter();
        count.set(room.fill(sizes.map(|size| granule_stream_segments {
            stream: size.stream,
            is_small_pool: size.is_small,
            total_size: size.bytes,
        })));
        Ok(())
    })
}

/// What a device's memory is used for, as a table for people; abbreviated without its rows by tier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_memory_summary(
    a: *mut granule_allocator,
    device: i32,
    abbreviated: bool,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out, device) = (given!(handle a), given!(out out), pass::device(device)?);
        out.set(granule_bytes::new(a.engine.stats(device)?.summary(device, abbreviated)));
        Ok(())
    })
}

/// PyTorch's memory_stats() of a device, as a JSON object: every figure under its flat key ("allocated_bytes.all.peak").
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_stats_json(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let figures = a.engine.stats(pass::device(device)?)?.flatten();
        out.set(granule_bytes::new(serde_json::json!(figures).to_string()));
        Ok(())
    })
}

/// All figures of the allocator as OpenMetrics text, for Prometheus. GRANULE_UNSUPPORTED where the library was built without.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_prometheus(
    a: *mut granule_allocator,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(granule_bytes::new(prometheus(a)?));
        Ok(())
    })
}

#[cfg(feature = "metrics")]
fn prometheus(a: &granule_allocator) -> Result<String, Failure> {
    Ok(granule::metrics::prometheus::text(&*a.engine))
}

#[cfg(not(feature = "metrics"))]
fn prometheus(_: &granule_allocator) -> Result<String, Failure> {
    Err(Failure::own(GRANULE_UNSUPPORTED, "this build has no metrics; build it with the feature `metrics`"))
}
