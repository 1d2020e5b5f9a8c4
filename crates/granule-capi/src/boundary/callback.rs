//! Functions of the program that the library calls.

use crate::error::CallbackUnwound;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Ends a `user`.
pub(crate) type Drop = unsafe extern "C-unwind" fn(user: *mut c_void);

/// What a callback gets back, and how it ends.
pub(crate) struct User {
    pub(crate) pointer: *mut c_void,
    drop: Option<Drop>,
}

// SAFETY: what callers promise: callbacks and their `user` are good on any thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    /// One that is never let go.
    pub(crate) fn forever(pointer: *mut c_void) -> Self {
        Self { pointer, drop: None }
    }

    /// One that ends when the library lets go of it.
    pub(crate) fn new(pointer: *mut c_void, drop: Option<Drop>) -> Self {
        Self { pointer, drop }
    }

    /// For functions: a closure that named the field would take the pointer alone.
    pub(crate) fn get(&self) -> *mut c_void {
        self.pointer
    }
}

impl std::ops::Drop for User {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: what callers promise: it is good for this `user`, and this is the last that is heard of it.
            call_at_end(|| unsafe { drop(self.pointer) });
        }
    }
}

/// Calls a function of the program. Where it panics, which it must not, the call that led here fails with GRANULE_CALLBACK. Rust
/// ends the process for what other languages, and other copies of its own library, throw.
pub(crate) fn call<T>(function: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(function)).unwrap_or_else(|payload| {
        // Its end may do anything.
        std::mem::forget(payload);
        resume_unwind(Box::new(CallbackUnwound))
    })
}

/// [`call`] where something ends: nothing can fail there any more.
pub(crate) fn call_at_end(function: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(function)) {
        std::mem::forget(payload);
        tracing::error!(
            "a callback that ends something unwound; callbacks must catch what is thrown in them"
        );
    }
}
