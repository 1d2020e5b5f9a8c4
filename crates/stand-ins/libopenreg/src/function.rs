//! A C++ `std::function<void()>` that was handed over.

use std::ffi::c_void;
use std::ptr::NonNull;

unsafe extern "C" {
    fn openreg_function_keep(function: *mut c_void) -> *mut c_void;
    fn openreg_function_call(function: *mut c_void);
    fn openreg_function_end(function: *mut c_void);
}

/// Owns the function.
#[derive(Debug)]
pub(crate) struct Function(NonNull<c_void>);

// SAFETY: C++ moves functions between threads as freely as their makers allow, and whoever queues one allows
// the stream's worker to call it and to end it.
unsafe impl Send for Function {}

impl Function {
    /// Moves out of the caller's function; `None` if it is empty.
    ///
    /// # Safety
    /// `function` points to a `std::function<void()>` that nobody else uses now.
    pub(crate) unsafe fn keep(function: NonNull<c_void>) -> Option<Self> {
        // SAFETY: the caller's promise is what it asks for.
        NonNull::new(unsafe { openreg_function_keep(function.as_ptr()) }).map(Self)
    }

    pub(crate) fn call(&self) {
        // SAFETY: the function is ours since `keep`, and not empty.
        unsafe { openreg_function_call(self.0.as_ptr()) }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: the function is ours since `keep`, and this ends it once.
        unsafe { openreg_function_end(self.0.as_ptr()) }
    }
}
