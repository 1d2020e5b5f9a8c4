//! Figures of pinned host memory.

use crate::boundary::guard::guard;
use crate::boundary::pass::given;
use crate::error::granule_status;
use crate::host::granule_host_allocator;

pub use crate::host::figures::granule_host_stats_t;
pub use crate::watch::quantity::{granule_duration_stat, granule_stat};

/// Blocks of one doubling of sizes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_host_bucket {
    /// How many the program has, or wait.
    pub active_requests: granule_stat,
    /// Their bytes, rounded.
    pub active_bytes: granule_stat,
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
