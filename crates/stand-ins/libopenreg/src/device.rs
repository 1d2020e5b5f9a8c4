//! The devices: how many there are, and which one a thread uses.

use crate::status::{Answer, Refused};
use std::cell::Cell;
use std::ffi::c_int;

/// How many devices there are.
pub(crate) const COUNT: c_int = 2;

thread_local! {
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
}

/// The calling thread's device; 0 until it chooses another.
pub(crate) fn current() -> c_int {
    CURRENT.get()
}

pub(crate) fn set_current(device: c_int) -> Answer {
    if !(0..COUNT).contains(&device) {
        return Err(Refused);
    }
    CURRENT.set(device);
    Ok(())
}
