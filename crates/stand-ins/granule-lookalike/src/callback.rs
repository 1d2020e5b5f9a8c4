//! Functions of the program that a stream, or the end of a graph, calls.

use backend_api::HostFunction;
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
    /// # Safety
    /// `function` may be called with `data`, once for every time it is [run](Self::run), on any thread.
    #[must_use]
    pub const unsafe fn new(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Self {
        Self { function, data }
    }

    /// Calls it.
    pub fn run(self) {
        // SAFETY: promised to `new`.
        unsafe { (self.function)(self.data) }
    }

    /// It as work for a stream.
    #[must_use]
    pub fn into_host_function(self) -> HostFunction {
        Box::new(move || self.run())
    }
}
