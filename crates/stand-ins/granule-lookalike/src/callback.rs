//! Functions of the program that a stream, or the end of a graph, calls.

use crate::{Answer, Code};
use std::ffi::c_void;

/// A C function and what it is called with.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: drivers call these functions on threads of their own, and their documentation says so: whoever
// passed it expects that.
unsafe impl Send for Callback {}
// SAFETY: as above; nothing is done through a shared reference but copying it.
unsafe impl Sync for Callback {}

impl Callback {
    /// Takes the caller's word.
    ///
    /// # Errors
    /// `INVALID_VALUE` without a function.
    ///
    /// # Safety
    /// `function` may be called with `data`, once for every time it is [run](Self::run), on any thread.
    pub unsafe fn new(
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        data: *mut c_void,
    ) -> Answer<Self> {
        Ok(Self { function: function.ok_or(Code::INVALID_VALUE)?, data })
    }

    /// Calls it.
    pub fn run(self) {
        // SAFETY: promised to `new`.
        unsafe { (self.function)(self.data) }
    }
}
