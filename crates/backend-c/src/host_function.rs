//! Host functions on their way through C.

use backend_api::HostFunction;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What C calls when a stream reaches a host function; once, with the argument that came with it.
pub type HostCallback = unsafe extern "C" fn(argument: *mut c_void);

/// A host function on loan to C; dropped, it is freed unused.
#[derive(Debug)]
pub(crate) struct HandedOver(*mut HostFunction);

impl HandedOver {
    pub(crate) fn new(function: HostFunction) -> Self {
        Self(Box::into_raw(Box::new(function)))
    }

    /// What C gives back to [`run_on_host`].
    pub(crate) fn argument(&self) -> *mut c_void {
        self.0.cast()
    }

    /// C has it now and will run it.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        // SAFETY: the pointer is `new`'s, and C did not take it: after a failed launch it never calls.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Runs a host function and frees it. A panic ends here, told in the log.
pub(crate) unsafe extern "C" fn run_on_host(argument: *mut c_void) {
    // SAFETY: C passes each argument of an accepted launch once, so this is `HandedOver::new`'s, and is ours.
    let function = unsafe { Box::from_raw(argument.cast::<HostFunction>()) };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(function)) {
        tracing::error!("a host function panicked; the stream goes on");
        // Dropping a payload may panic again.
        std::mem::forget(payload);
    }
}
