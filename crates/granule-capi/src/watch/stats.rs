//! Statistics.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, given};
use crate::bytes::granule_bytes;
#[cfg(not(feature = "metrics"))]
use crate::error::GRANULE_UNSUPPORTED;
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::backends::Who;
use granule::stats::StatArray;

pub use crate::watch::figures::granule_device_stats;
pub use crate::watch::quantity::{granule_stat, granule_stat_array};

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

/// Sums of what came and went, and all counters, are 0 again. Levels and peaks stay.
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

/// Whose the bytes of a device are: a JSON object, as an item of `who` of `granule devices --who --json`. Asks the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_ledger_json(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let device = pass::device(device)?;
        let who = Who::new(device, &a.engine.statistics().ledger(device)?);
        out.set(granule_bytes::new(serde_json::json!(who).to_string()));
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
