//! What every entry point does first, and the macro that writes them down.

use crate::{Answer, Code, contexts, control};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a call ended, for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was asked to.
    Done,
    /// There was no memory for it.
    OutOfMemory,
    /// Work that it asked about still runs.
    NotReady,
    /// An argument was none that a correct program passes.
    Refused,
    /// Anything else.
    Failed,
}

/// An entry point of a driver: a row of its table.
#[derive(Debug)]
pub struct Entry {
    /// The symbol.
    pub name: &'static str,
    outcomes: [AtomicU64; 5],
}

impl Entry {
    /// Not called yet.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, outcomes: [const { AtomicU64::new(0) }; 5] }
    }

    /// How many calls ended like that.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    fn note<T>(&self, answer: &Answer<T>) {
        let outcome = match answer {
            Ok(_) => Outcome::Done,
            Err(Code::OUT_OF_MEMORY) => Outcome::OutOfMemory,
            Err(Code::NOT_READY) => Outcome::NotReady,
            Err(Code::INVALID_VALUE | Code::INVALID_HANDLE | Code::INVALID_DEVICE) => Outcome::Refused,
            Err(_) => Outcome::Failed,
        };
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs an entry point's body: counted, made to fail where a test ordered so, its panics stopped before they
/// reach C. A fatal error that was ordered stays with the current context; those of the machine stay anyway.
///
/// # Errors
/// What the body says, or what was ordered.
pub fn enter<T>(entry: &'static Entry, body: impl FnOnce() -> Answer<T>) -> Answer<T> {
    let answer = match control::count(entry.name) {
        Some(code) => {
            if code.is_fatal()
                && let Ok(device) = contexts::current_device()
            {
                contexts::poison(device, code);
            }
            Err(code)
        }
        None => catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN)),
    };
    entry.note(&answer);
    answer
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
/// [`In`](crate::argument::In). `run` takes the entry point's row and the body and makes the driver's status of it.
#[macro_export]
macro_rules! entries {
    (run: $run:path, status: $status:ty; $($written:tt)*) => {
        $crate::entries! { rows: entries, run: $run, status: $status; $($written)* }
    };
    (
        rows: $rows:ident, run: $run:path, status: $status:ty;
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
                $run(&$rows::$name, || $body)
            }
            const _: $declared = $name;
        )*

        /// The rows of these entry points.
        #[allow(non_upper_case_globals, reason = "they have their vendor's names")]
        pub(crate) mod $rows {
            use $crate::entry::Entry;

            $(pub(crate) static $name: Entry = Entry::new(stringify!($name));)*

            /// All of them.
            #[allow(dead_code, reason = "not every driver asks for its table")]
            pub(crate) static ALL: &[&Entry] = &[$(&$name),*];
        }
    };
}
