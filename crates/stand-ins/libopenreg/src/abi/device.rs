//! Devices.

use super::{given, put};
use crate::device;
use crate::status::{Status, status};
use crate::stream::{PRIORITIES, synchronize_device};
use std::ffi::c_int;

/// Tells how many devices there are: always 2.
///
/// # Safety
/// `count` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orGetDeviceCount(count: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe { put(count, device::COUNT) })
}

/// Chooses the calling thread's device; `orErrorUnknown` where there is no such device.
#[unsafe(no_mangle)]
pub extern "C" fn orSetDevice(device: c_int) -> Status {
    status(|| device::set_current(device))
}

/// Tells the calling thread's device: 0 until it chooses another.
///
/// # Safety
/// `device` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orGetDevice(device: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe { put(device, device::current()) })
}

/// Tells the least and the greatest stream priority: 0 and 1.
///
/// # Safety
/// Both places are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status {
    status(|| {
        given(greatest)?;
        // SAFETY: the caller's promise.
        unsafe { put(least, *PRIORITIES.start()) }?;
        // SAFETY: the caller's promise.
        unsafe { put(greatest, *PRIORITIES.end()) }
    })
}

/// Blocks until all streams of the calling thread's device have done what is queued now.
#[unsafe(no_mangle)]
pub extern "C" fn orDeviceSynchronize() -> Status {
    status(synchronize_device)
}
