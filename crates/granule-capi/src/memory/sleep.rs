//! Sleep and wake: pools give their memory up and keep their addresses.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, address, given, growing};
use crate::boundary::report;
use crate::bytes::granule_bytes;
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::sleep::{Backup, Kept, Retention, SleepTag, Tags};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::time::Duration;

/// Contents are lost.
pub const GRANULE_BACKUP_DISCARD: i32 = 0;
/// In page-locked host memory, given back after the wake.
pub const GRANULE_BACKUP_PINNED: i32 = 1;
/// In page-locked host memory that is kept for the next sleep.
pub const GRANULE_BACKUP_PINNED_KEEP: i32 = 2;
/// In a file without a name in a directory.
pub const GRANULE_BACKUP_FILE: i32 = 3;

/// What a sleep did. Bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_sleep_report {
    /// sizeof(granule_sleep_report).
    pub size: u32,
    /// Put to sleep.
    pub slept: u64,
    /// Cached memory of these pools that was given back.
    pub uncached: u64,
    /// Given back to the device in all.
    pub freed: u64,
    /// By how much the driver's figure of free memory grew.
    pub device_free_gained: i64,
    /// Contents copied away by this call.
    pub backed_up: u64,
    /// Held by backups on the host now.
    pub backup_held: u64,
    /// What stayed awake; granule_sleep_report_json says why.
    pub kept: u64,
    /// How long the call took, in nanoseconds: backed_up / took_ns is the speed in GB/s.
    pub took_ns: u64,
}

growing!(granule_sleep_report);

/// What a wake did. Bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_wake_report {
    /// sizeof(granule_wake_report).
    pub size: u32,
    /// Awake again.
    pub woken: u64,
    /// Restored from backups.
    pub restored: u64,
    /// Not woken, because all that was in it had been freed.
    pub dropped: u64,
    /// Held by backups on the host now.
    pub backup_held: u64,
    /// How long the call took, in nanoseconds: restored / took_ns is the speed in GB/s.
    pub took_ns: u64,
}

growing!(granule_wake_report);

thread_local! {
    /// What the thread's last sleep left awake.
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// Gives a pool a sleep tag, or takes it away where tag is null: from here on it takes growable memory. Pools of a higher
/// priority wake first; 0 is usual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_set_sleep_tag(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    tag: *const c_char,
    priority: i32,
) -> granule_status {
    guard(|| {
        let (a, tag) = (given!(handle a), given!(optional_text tag));
        let tag = tag.map(|name| SleepTag { priority, ..SleepTag::new(name) });
        Ok(a.engine.sleep_mode().set_tag(pass::device(device)?, pool.into(), tag)?)
    })
}

/// Tags by name; all where the array is null.
///
/// # Safety
/// What callers promise.
unsafe fn names<'a>(tags: *const *const c_char, count: u64) -> Result<Option<Vec<&'a str>>, Failure> {
    if tags.is_null() {
        return Ok(None);
    }
    let mut names = Vec::new();
    for &tag in given!(array tags, count) {
        names.push(given!(text tag));
    }
    Ok(Some(names))
}

/// Puts the pools with these tags to sleep, or all that have one where tags is null: waits for all work that may use their memory,
/// saves contents as backup says (one of GRANULE_BACKUP_...), and gives the memory back. directory is for files, else null. Blocks.
/// No work that uses the memory may be queued until it is awake again. The report may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_sleep(
    a: *mut granule_allocator,
    tags: *const *const c_char,
    tag_count: u64,
    backup: i32,
    directory: *const c_char,
    out: *mut granule_sleep_report,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(optional_sized_out out));
        // SAFETY: passed on.
        let names = unsafe { names(tags, tag_count) }?;
        let backup = match (backup, given!(optional_text directory)) {
            (GRANULE_BACKUP_DISCARD, _) => Backup::Discard,
            (GRANULE_BACKUP_PINNED, _) => Backup::HostPinned(Retention::Release),
            (GRANULE_BACKUP_PINNED_KEEP, _) => Backup::HostPinned(Retention::Keep),
            (GRANULE_BACKUP_FILE, Some(directory)) => Backup::File(directory.into()),
            (GRANULE_BACKUP_FILE, None) => {
                return Err(Failure::argument("directory is null: files need one"));
            }
            (other, _) => {
                return Err(Failure::argument(format!("backup is {other}: it is one of GRANULE_BACKUP_...")));
            }
        };
        let tags = names.as_deref().map_or(Tags::All, Tags::Only);
        // SAFETY: callers promise that no work which uses the memory is queued until it is awake again.
        let report = unsafe { a.engine.sleep_mode().sleep(tags, &backup) }?;
        if let Some(out) = out {
            out.set(granule_sleep_report {
                size: 0,
                slept: report.slept,
                uncached: report.uncached,
                freed: report.freed,
                device_free_gained: report.device_free_gained,
                backed_up: report.backed_up,
                backup_held: report.backup_held,
                kept: report.kept_bytes(),
                took_ns: nanoseconds(report.took),
            });
        }
        // A thread that ends asks nothing any more.
        let _ = KEPT.try_with(|kept| kept.replace(report.kept));
        Ok(())
    })
}

/// Wakes the pools with these tags, or all where tags is null: puts memory behind all that sleeps and restores contents. Blocks.
/// What cannot be woken sleeps on with its contents, and the call can be made again. The report may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_wake(
    a: *mut granule_allocator,
    tags: *const *const c_char,
    tag_count: u64,
    out: *mut granule_wake_report,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(optional_sized_out out));
        // SAFETY: passed on.
        let names = unsafe { names(tags, tag_count) }?;
        let report = a.engine.sleep_mode().wake(names.as_deref().map_or(Tags::All, Tags::Only))?;
        if let Some(out) = out {
            out.set(granule_wake_report {
                size: 0,
                woken: report.woken,
                restored: report.restored,
                dropped: report.dropped,
                backup_held: report.backup_held,
                took_ns: nanoseconds(report.took),
            });
        }
        Ok(())
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Copies to the host what was saved of sleeping memory: bytes from ptr on. found says whether all of it was there; where some is awake,
/// or was not saved, nothing is copied. Any address may be given. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_read_backup(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    bytes: u64,
    into: *mut u8,
    found: *mut bool,
) -> granule_status {
    guard(|| {
        let (a, found) = (given!(handle a), given!(out found));
        let into = given!(array_mut into, bytes);
        found.set(a.engine.sleep_mode().read_backup(address(ptr), into)?);
        Ok(())
    })
}

/// What the calling thread's last sleep left awake, and why: {"kept": [{"device", "pool", "bytes", "because"}]}.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_sleep_report_json(out: *mut granule_bytes) -> granule_status {
    guard(|| {
        let out = given!(out out);
        let entry = |kept: &Kept| {
            let (device, pool) = (kept.device.0, report::pool(kept.pool));
            json!({ "device": device, "pool": pool, "bytes": kept.bytes, "because": kept.because.to_string() })
        };
        let kept = KEPT.try_with(|kept| kept.borrow().iter().map(entry).collect::<Vec<Value>>());
        out.set(granule_bytes::new(json!({ "kept": kept.unwrap_or_default() }).to_string()));
        Ok(())
    })
}

/// Whether some memory of the pool sleeps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_is_pool_asleep(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    out: *mut bool,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.sleep_mode().is_pool_asleep(pass::device(device)?, pool.into())?);
        Ok(())
    })
}

/// Whether the live block at ptr sleeps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_is_asleep(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    out: *mut bool,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.sleep_mode().is_asleep(address(ptr)).ok_or_else(|| Failure::no_block(ptr))?);
        Ok(())
    })
}

/// Bytes of host memory, or of files, that backups hold now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_backup_bytes(a: *const granule_allocator, out: *mut u64) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.sleep_mode().backup_bytes());
        Ok(())
    })
}

/// Gives back host memory that was kept for later sleeps and that no sleeping memory needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_drop_backups(a: *mut granule_allocator) -> granule_status {
    guard(|| {
        given!(handle a).engine.sleep_mode().drop_backups();
        Ok(())
    })
}
