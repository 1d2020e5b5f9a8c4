//! What every entry point does first, and the macro that writes them down.

use crate::{Answer, Code, contexts, control};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs an entry point's body: counted, made to fail where a test ordered so, its panics stopped before they
/// reach C. A fatal error that was ordered stays with the current context; those of the machine stay anyway.
///
/// # Errors
/// What the body says, or what was ordered.
pub fn enter<T>(function: &'static str, body: impl FnOnce() -> Answer<T>) -> Answer<T> {
    match control::count(function) {
        Some(code) => {
            if code.is_fatal()
                && let Ok(device) = contexts::current_device()
            {
                contexts::poison(device, code);
            }
            Err(code)
        }
        None => catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN)),
    }
}

/// Wraps an argument by the word before it: `out` and `input` are pointers, `val` is what it is.
#[doc(hidden)]
#[macro_export]
macro_rules! accept {
    (val $name:ident) => {};
    (out $name:ident) => {
        // SAFETY: the caller of the entry point promises what its vendor's header says.
        let $name = unsafe { $crate::argument::Out::new($name) };
    };
    (input $name:ident) => {
        // SAFETY: the caller of the entry point promises what its vendor's header says.
        let $name = unsafe { $crate::argument::In::new($name) };
    };
}

/// Writes entry points down and asserts that each has the type, named after `as`, that the vendor's header
/// declares.
///
/// ```text
/// lookalike::entries! {
///     run: crate::entry::run, status: CUresult;
///
///     /// Takes device memory.
///     fn cuMemAlloc_v2 as cuMemAlloc_v2_t(out pointer: *mut CUdeviceptr, val bytes: usize) { ... }
/// }
/// ```
///
/// A body is an [`Answer`] and sees `out` and `input` pointers as [`Out`](crate::argument::Out) and
/// [`In`](crate::argument::In). `run` takes the name and the body and makes the driver's status of it.
#[macro_export]
macro_rules! entries {
    (
        run: $run:path, status: $status:ty;
        $(
            $(#[$meta:meta])*
            fn $name:ident as $declared:ident($($how:ident $argument:ident: $type:ty),* $(,)?) $body:block
        )*
    ) => {
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// As the vendor's header says: pointers are null or valid, sizes are true.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $status {
                $($crate::accept!($how $argument);)*
                $run(stringify!($name), || $body)
            }
            const _: $declared = $name;
        )*
    };
}
