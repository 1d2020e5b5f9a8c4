//! The functions that C and C++ programs call, by subject as in `include/openreg.h`.
//!
//! Each checks what it is given, hands the work to the module of its subject, and lets no panic out. Null
//! where a pointer is needed is `orErrorUnknown`; a handle that is not live is too.

pub mod device;
pub mod event;
pub mod ipc;
pub mod memory;
pub mod stream;
#[cfg(openreg_cxx)]
pub mod task;
pub mod trace;

use crate::status::{Answer, Refused};

/// Answers in a place of the caller's.
///
/// # Safety
/// `place` is null or writable for a `T`.
unsafe fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(Refused);
    }
    // SAFETY: the caller's promise, and not null.
    unsafe { place.write(value) };
    Ok(())
}

/// Refuses null before anything is done that would have to be undone.
fn given<T>(place: *const T) -> Answer {
    if place.is_null() { Err(Refused) } else { Ok(()) }
}
