//! The calling thread's last error.

use crate::boundary::guard::guard;
use crate::boundary::pass::{given, growing};
use crate::boundary::report;
use crate::bytes::granule_bytes;
use crate::error::{Failure, GRANULE_OK, granule_status, last};
use granule::AllocError;
use granule::oom::HostRoom;
use std::ffi::{CStr, c_char};

/// What the calling thread's last failure was.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_error {
    /// sizeof(granule_error), set by the caller.
    pub size: u32,
    /// Its status; GRANULE_OK where there was none.
    pub status: granule_status,
    /// The device it was about; -1 where it was about none.
    pub device: i32,
    /// The driver's number; 0 where there is none.
    pub driver_code: i32,
    /// Out of memory: bytes as asked for. 0 for other failures, like all that follows.
    pub requested: u64,
    /// Bytes that were asked from the device.
    pub tried: u64,
    /// The device's memory in bytes.
    pub device_total: u64,
    /// What of it was free.
    pub device_free: u64,
    /// What the process may hold; UINT64_MAX where that is not limited, also for other failures.
    pub allowed: u64,
    /// Bytes that the program has.
    pub allocated: u64,
    /// Bytes that the allocator holds.
    pub reserved: u64,
    /// What can be had of the host's memory, where the device's is of it; 0 for other devices.
    pub host_available: u64,
    /// What host_reserve leaves of that to the rest of the machine.
    pub host_reserve: u64,
}

growing!(granule_error);

fn details(failure: &Failure) -> granule_error {
    let mut details = granule_error { status: failure.status(), ..NONE };
    let Failure::Engine(error) = failure else { return details };
    let mut host = None;
    match error {
        AllocError::OutOfMemory(report) => {
            details.device = i32::from(report.device.0);
            details.requested = report.requested;
            details.tried = report.tried;
            details.device_total = report.device_total;
            details.device_free = report.device_free;
            details.allowed = report.allowed.unwrap_or(u64::MAX);
            details.allocated = report.allocated;
            details.reserved = report.reserved;
            host = report.host;
        }
        AllocError::PinnedOutOfMemory(refusal) => {
            details.device = i32::from(refusal.device.0);
            (details.requested, details.tried) = (refusal.requested, refusal.bytes);
            host = refusal.host;
        }
        AllocError::Rejected { requested, .. } => details.requested = *requested,
        AllocError::Backend(error) => {
            details.device = i32::from(error.device.0);
            details.driver_code = error.code;
        }
        AllocError::WrongDevice { device, .. }
        | AllocError::InvalidDevice { device, .. }
        | AllocError::NoCapture { device } => details.device = i32::from(device.0),
        AllocError::NoRoomToWake { bytes, free, host: of_host, .. } => {
            (details.requested, details.device_free) = (*bytes, *free);
            host = *of_host;
        }
        _ => {}
    }
    if let Some(HostRoom { available, reserve, .. }) = host {
        (details.host_available, details.host_reserve) = (available, reserve);
    }
    details
}

const NONE: granule_error = granule_error {
    size: 0,
    status: GRANULE_OK,
    device: -1,
    driver_code: 0,
    requested: 0,
    tried: 0,
    device_total: 0,
    device_free: 0,
    allowed: u64::MAX,
    allocated: 0,
    reserved: 0,
    host_available: 0,
    host_reserve: 0,
};

/// The text of the calling thread's last failure; empty where there was none. It is good until the thread's next failure.
/// A success does not change it.
#[unsafe(no_mangle)]
pub extern "C" fn granule_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    last(|last| last.text.as_ptr()).unwrap_or(NOTHING.as_ptr())
}

/// The same in PyTorch's words where it has some (want of memory, sharing): for what stands between PyTorch and this library.
#[unsafe(no_mangle)]
pub extern "C" fn granule_last_error_for_pytorch() -> *const c_char {
    const NOTHING: &CStr = c"";
    last(|last| last.pytorch.as_ptr()).unwrap_or(NOTHING.as_ptr())
}

/// What the calling thread's last failure was, in figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_last_error_details(out: *mut granule_error) -> granule_status {
    guard(|| {
        let out = given!(sized_out out);
        out.set(last(|last| details(&last.failure)).unwrap_or(NONE));
        Ok(())
    })
}

/// The calling thread's last failure as a JSON object: the status and the text, and for want of memory the whole report
/// (what keeps memory apart, what would help, which pools have how much). {} where there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_last_error_json(out: *mut granule_bytes) -> granule_status {
    guard(|| {
        let out = given!(out out);
        let json = last(|last| report::failure(&last.failure)).unwrap_or_else(|| serde_json::json!({}));
        out.set(granule_bytes::new(json.to_string()));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use granule::oom::PinnedRefusal;
    use granule::types::DeviceIndex;

    #[test]
    fn who_is_refused_by_the_host_is_told_its_figures() {
        let host = HostRoom { available: 5, reserve: 3, usual: 2 };
        let refusal = |host| PinnedRefusal {
            label: "CUDA",
            device: DeviceIndex(1),
            requested: 4,
            bytes: 4,
            held: 0,
            pinned: 0,
            limit: "host_reserve".into(),
            allowed: 0,
            host,
        };
        let told = |host| details(&Failure::Engine(AllocError::PinnedOutOfMemory(Box::new(refusal(host)))));
        let short = told(Some(host));
        assert_eq!((short.device, short.requested, short.host_available, short.host_reserve), (1, 4, 5, 3));
        let limited = told(None);
        assert_eq!((limited.host_available, limited.host_reserve), (0, 0));
    }
}
