//! The hardened mode: what it found.

use crate::allocator::granule_allocator;
use crate::boundary::callback::{User, call};
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, given, growing};
use crate::error::{Failure, granule_status};
use granule::hardened::{Corruption, CorruptionReport};
use std::ffi::{CString, c_char, c_void};

/// What the hardened mode has done on a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_hardened_stats_t {
    /// sizeof(granule_hardened_stats_t).
    pub size: u32,
    /// Blocks in quarantine.
    pub quarantined: u64,
    /// Their bytes.
    pub quarantined_bytes: u64,
    /// Bytes of them that the device cannot access.
    pub protected_bytes: u64,
    /// Blocks that were checked.
    pub checked: u64,
    /// Freed blocks that were not.
    pub unchecked: u64,
    /// Corruptions found.
    pub corruptions: u64,
}

growing!(granule_hardened_stats_t);

/// The program wrote past the end of a block.
pub const GRANULE_CORRUPTION_OVERFLOW: i32 = 0;
/// The program wrote to a block after its free.
pub const GRANULE_CORRUPTION_USE_AFTER_FREE: i32 = 1;

/// Memory that was written by somebody who must not.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_corruption {
    /// What the library has written: a later one may write more.
    pub size: u32,
    /// What happened: one of GRANULE_CORRUPTION_...
    pub kind: i32,
    /// The device.
    pub device: i32,
    /// What the first changed byte is now.
    pub found: u8,
    /// The block's first address.
    pub addr: u64,
    /// Its bytes as requested.
    pub requested: u64,
    /// The first byte that was changed.
    pub at: u64,
    /// Bytes that were changed.
    pub bytes: u64,
    /// All of it for people, with what the history says about the block. Good during the call.
    pub text: *const c_char,
}

/// What the hardened mode has done on a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_hardened_stats(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_hardened_stats_t,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(sized_out out));
        let stats = a.engine.statistics().hardened(pass::device(device)?)?;
        out.set(granule_hardened_stats_t {
            size: 0,
            quarantined: stats.quarantined,
            quarantined_bytes: stats.quarantined_bytes,
            protected_bytes: stats.protected_bytes,
            checked: stats.checked,
            unchecked: stats.unchecked,
            corruptions: stats.corruptions,
        });
        Ok(())
    })
}

/// Tells observer of memory that was written by somebody who must not, with no lock held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_corruption_observer(
    a: *mut granule_allocator,
    observer: Option<unsafe extern "C-unwind" fn(user: *mut c_void, corruption: *const granule_corruption)>,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let observer = observer.ok_or_else(|| Failure::argument("observer is null"))?;
        let told = move |report: &CorruptionReport| {
            let text = CString::new(report.to_string()).unwrap_or_default();
            let corruption = granule_corruption {
                size: u32::try_from(size_of::<granule_corruption>()).unwrap_or(u32::MAX),
                kind: match report.corruption {
                    Corruption::Overflow => GRANULE_CORRUPTION_OVERFLOW,
                    _ => GRANULE_CORRUPTION_USE_AFTER_FREE,
                },
                device: i32::from(report.device.0),
                found: report.found,
                addr: report.ptr.0,
                requested: report.requested,
                at: report.at.0,
                bytes: report.bytes,
                text: text.as_ptr(),
            };
            // SAFETY: what callers promise: the function is good for this `user`; all of it lives during the call.
            call(|| unsafe { observer(user.get(), &raw const corruption) });
        };
        a.engine.hooks().on_corruption(told);
        Ok(())
    })
}
