//! Compaction: memory between live blocks goes back, and their addresses stay.

use crate::allocator::granule_allocator;
use crate::boundary::callback::{User, call};
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, address, given, growing};
use crate::error::{Failure, granule_status};
use granule::compaction::Quiesce;
use std::ffi::c_void;

/// What a compaction came to. Bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_compaction_report {
    /// sizeof(granule_compaction_report).
    pub size: u32,
    /// Copied.
    pub moved: u64,
    /// Given back to the device.
    pub gained: u64,
    /// How long the device had to be quiet, in nanoseconds.
    pub pause_ns: u64,
}

growing!(granule_compaction_report);

/// Gives back what a device's default pool has cached, and then the memory between live blocks, whose addresses and contents stay
/// as they are; only under policy:granule. Waits for the device. While the call runs, nobody may give any device work on memory of
/// the allocator: no kernel, copy or graph, from any thread. The report may be null. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_compact(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_compaction_report,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(optional_sized_out out));
        // SAFETY: callers promise that nobody gives a device work meanwhile.
        let report = unsafe { a.engine.compact(pass::device(device)?) }?;
        if let Some(out) = out {
            out.set(granule_compaction_report {
                size: 0,
                moved: report.moved,
                gained: report.gained,
                pause_ns: u64::try_from(report.pause.as_nanos()).unwrap_or(u64::MAX),
            });
        }
        Ok(())
    })
}

/// The live block at ptr keeps its physical memory until it is freed: no compaction moves it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pin_physical(a: *mut granule_allocator, ptr: *mut c_void) -> granule_status {
    guard(|| Ok(given!(handle a).engine.pin_physical(address(ptr))?))
}

/// Calls hook with stop = true before memory of a device is compacted by itself, and with false when all may go on. It
/// returns whether it has stopped whatever else gives a device work: from then on until all may go on, only the thread that it is
/// called on may. What it returns for false says nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_quiesce_hook(
    a: *mut granule_allocator,
    hook: Option<unsafe extern "C-unwind" fn(user: *mut c_void, device: i32, stop: bool) -> bool>,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let hook = hook.ok_or_else(|| Failure::argument("hook is null"))?;
        let asked = move |what: Quiesce| {
            let (device, stop) = match what {
                Quiesce::Stop(device) => (device, true),
                Quiesce::Resume(device) => (device, false),
                _ => return false,
            };
            // SAFETY: what callers promise: the function is good for this `user`.
            call(|| unsafe { hook(user.get(), i32::from(device.0), stop) })
        };
        // SAFETY: callers promise that what the hook has stopped gives no device work.
        unsafe { a.engine.hooks().on_quiesce(asked) };
        Ok(())
    })
}
