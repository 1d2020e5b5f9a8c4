//! Those who are told, and asked, while the allocator works.

use crate::allocator::granule_allocator;
use crate::boundary::callback::{User, call};
use crate::boundary::guard::guard;
use crate::boundary::pass::given;
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::device::{SegmentChange, SegmentEvent};
use granule::oom::{OomReport, ProcessMemory};
use granule::types::DeviceIndex;
use std::ffi::c_void;

/// Memory that comes or goes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_segment_event {
    /// What the library has written: a later one may write more.
    pub size: u32,
    /// It was taken from the device, and has not been handed out yet; else it is about to be given back.
    pub added: bool,
    /// The device.
    pub device: i32,
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The pool.
    pub pool: granule_pool_id,
    /// The stream that it serves.
    pub stream: u64,
    /// Part of a growable segment.
    pub growable: bool,
}

/// Memory of a device that a process uses.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_process_memory {
    /// The process.
    pub pid: u32,
    /// Bytes.
    pub bytes: u64,
}

impl From<&SegmentEvent> for granule_segment_event {
    fn from(event: &SegmentEvent) -> Self {
        Self {
            size: u32::try_from(size_of::<Self>()).unwrap_or(u32::MAX),
            added: event.change == SegmentChange::Attached,
            device: i32::from(event.device.0),
            addr: event.addr.0,
            bytes: event.bytes,
            pool: event.pool.into(),
            stream: event.stream.raw,
            growable: event.growable,
        }
    }
}

fn missing() -> Failure {
    Failure::argument("the function is null")
}

/// Tells observer of memory that was taken from a device, before anyone uses it, and of memory that goes back, before it leaves: for libraries
/// that register memory. It must not wait for a thread that may be inside the allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_segment_observer(
    a: *mut granule_allocator,
    observer: Option<unsafe extern "C-unwind" fn(user: *mut c_void, event: *const granule_segment_event)>,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let observer = observer.ok_or_else(missing)?;
        let told = move |event: &SegmentEvent| {
            let event = granule_segment_event::from(event);
            // SAFETY: what callers promise: the function is good for this `user`; the event lives during the call.
            call(|| unsafe { observer(user.get(), &raw const event) });
        };
        a.engine.hooks().on_segment(told);
        Ok(())
    })
}

/// Tells observer of requests that end for want of memory: the device, the bytes that were asked from it, what it has in all
/// (or what the process may hold, where that is limited), and what it has free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_oom_observer(
    a: *mut granule_allocator,
    observer: Option<
        unsafe extern "C-unwind" fn(
            user: *mut c_void,
            device: i64,
            tried: u64,
            device_total_or_allowed: u64,
            device_free: u64,
        ),
    >,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let observer = observer.ok_or_else(missing)?;
        let told = move |report: &OomReport| {
            let (device, total) = (i64::from(report.device.0), report.allowed.unwrap_or(report.device_total));
            // SAFETY: what callers promise: the function is good for this `user`.
            call(|| unsafe { observer(user.get(), device, report.tried, total, report.device_free) });
        };
        a.engine.hooks().on_out_of_memory(told);
        Ok(())
    })
}

/// Tells observer of requests refused before the driver was asked: the device, the bytes wanted, the bytes held, the limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_rejection_observer(
    a: *mut granule_allocator,
    observer: Option<
        unsafe extern "C-unwind" fn(user: *mut c_void, device: i64, wanted: u64, held: u64, limit: u64),
    >,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let observer = observer.ok_or_else(missing)?;
        let told = move |device: DeviceIndex, wanted, held, limit| {
            // SAFETY: what callers promise: the function is good for this `user`.
            call(|| unsafe { observer(user.get(), i64::from(device.0), wanted, held, limit) });
        };
        a.engine.hooks().on_rejection(told);
        Ok(())
    })
}

/// Runs callback when memory is short, before the device is asked for more. It may free memory, and says whether it did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_free_memory_callback(
    a: *mut granule_allocator,
    callback: Option<unsafe extern "C-unwind" fn(user: *mut c_void) -> bool>,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let callback = callback.ok_or_else(missing)?;
        let asked = move || {
            // SAFETY: what callers promise: the function is good for this `user`.
            call(|| unsafe { callback(user.get()) })
        };
        a.engine.hooks().on_low_memory(asked);
        Ok(())
    })
}

/// Where out-of-memory errors learn which processes use how much of a device. The function writes at most capacity entries,
/// and returns how many there are; it is asked again with more room where that was too little. It replaces an earlier one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_set_process_memory_source(
    a: *mut granule_allocator,
    source: Option<
        unsafe extern "C-unwind" fn(
            user: *mut c_void,
            device: i32,
            out: *mut granule_process_memory,
            capacity: u64,
        ) -> u64,
    >,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let source = source.ok_or_else(missing)?;
        let asked = move |device: DeviceIndex| {
            let nothing = granule_process_memory { pid: 0, bytes: 0 };
            // Nobody has that many processes on a device; whoever says so is not asked a third time.
            const MOST: u64 = 1 << 16;
            let mut entries = vec![nothing; 64];
            for _ in 0..2 {
                let (room, capacity) = (entries.as_mut_ptr(), entries.len() as u64);
                // SAFETY: what callers promise: the function is good for this `user`, and keeps to the room.
                let count = call(|| unsafe { source(user.get(), i32::from(device.0), room, capacity) });
                let enough = count <= capacity;
                entries.resize(count.min(MOST) as usize, nothing);
                if enough {
                    break;
                }
            }
            let used = |entry: &granule_process_memory| ProcessMemory { pid: entry.pid, bytes: entry.bytes };
            entries.iter().filter(|entry| entry.bytes > 0).map(used).collect()
        };
        a.engine.hooks().set_process_memory_source(asked);
        Ok(())
    })
}
