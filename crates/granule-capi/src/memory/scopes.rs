//! Statistics of a part of the program.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::pass::{self, Out, given, growing};
use crate::error::granule_status;
use granule::allocator::StatScope;
use granule::stats::{ScopeBytes, ScopeStats};

/// A part of the program whose statistics are kept.
pub struct granule_scope(StatScope);

handles!(granule_scope);

/// A quantity of bytes while a scope lasted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_scope_bytes {
    /// When it began.
    pub begin: i64,
    /// At its end, or when it was read.
    pub end: i64,
    /// The most in between.
    pub peak: i64,
}

/// What a device did while a scope lasted, by whichever thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_scope_stats {
    /// sizeof(granule_scope_stats).
    pub size: u32,
    /// Bytes in the program's hands, rounded.
    pub allocated_bytes: granule_scope_bytes,
    /// Bytes handed out or pending, rounded.
    pub active_bytes: granule_scope_bytes,
    /// Bytes handed out or pending, as requested.
    pub requested_bytes: granule_scope_bytes,
    /// Bytes held from the device.
    pub reserved_bytes: granule_scope_bytes,
    /// Blocks handed out.
    pub num_allocations: i64,
    /// Blocks that the program gave back.
    pub num_frees: i64,
    /// Failed attempts after which the cache was flushed and the driver asked again.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors.
    pub num_ooms: i64,
    /// Passes that waited for everything.
    pub num_sync_all_streams: i64,
    /// Segments taken from the device, and map steps.
    pub num_device_alloc: i64,
    /// Segments given back, and unmap steps.
    pub num_device_free: i64,
    /// Requests refused before the driver was asked.
    pub num_oom_rejections: i64,
}

growing!(granule_scope_stats);

impl From<ScopeBytes> for granule_scope_bytes {
    fn from(ScopeBytes { begin, end, peak }: ScopeBytes) -> Self {
        Self { begin, end, peak }
    }
}

impl From<ScopeStats> for granule_scope_stats {
    fn from(stats: ScopeStats) -> Self {
        Self {
            size: 0,
            allocated_bytes: stats.allocated_bytes.into(),
            active_bytes: stats.active_bytes.into(),
            requested_bytes: stats.requested_bytes.into(),
            reserved_bytes: stats.reserved_bytes.into(),
            num_allocations: stats.num_allocations,
            num_frees: stats.num_frees,
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            num_sync_all_streams: stats.num_sync_all_streams,
            num_device_alloc: stats.num_device_alloc,
            num_device_free: stats.num_device_free,
            num_oom_rejections: stats.num_oom_rejections,
        }
    }
}

/// Begins statistics of a part of the program. Scopes nest and overlap, and no reset changes them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_scope_begin(
    a: *mut granule_allocator,
    device: i32,
    out: *mut *mut granule_scope,
) -> granule_status {
    guard(|| {
        let (a, out): (_, Out<*mut granule_scope>) = (given!(handle a), given!(out out));
        let scope = StatScope::begin(&a.engine, pass::device(device)?)?;
        out.set(new_handle(granule_scope(scope)));
        Ok(())
    })
}

/// What happened since the scope began: exact, and of one moment. It goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_scope_peaks(
    s: *mut granule_scope,
    out: *mut granule_scope_stats,
) -> granule_status {
    guard(|| {
        let (s, out) = (given!(handle s), given!(sized_out out));
        out.set(s.0.peaks()?.into());
        Ok(())
    })
}

/// Ends a scope, and says what happened in it, where out is not null. A null scope is fine. The handle ends with the call, unless
/// that says that out is wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_scope_end(
    s: *mut granule_scope,
    out: *mut granule_scope_stats,
) -> granule_status {
    guard(|| {
        let out = given!(optional_sized_out out);
        let Some(scope) = given!(taken s) else { return Ok(()) };
        let stats = scope.0.finish()?;
        if let Some(out) = out {
            out.set(stats.into());
        }
        Ok(())
    })
}
