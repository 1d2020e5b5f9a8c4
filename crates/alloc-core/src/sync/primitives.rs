//! Source of the primitives: the standard library, or a tool that runs the engine's threads in chosen orders. Only
//! `cargo xtask schedules` builds with `--cfg shuttle` or `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize},
    sync::{Condvar, Mutex, MutexGuard},
};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize},
    sync::{Condvar, Mutex, MutexGuard},
    thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize},
    sync::{Condvar, Mutex, MutexGuard},
    thread_local,
};

pub(crate) use std::sync::atomic::Ordering;
/// The tools switch no threads here: values that are counted or set once are reached through locks at which they do.
pub(crate) use std::sync::{Arc, OnceLock, Weak};

/// Always the standard library's: for statics, which outlive a schedule, and for tables of zeroed memory.
pub(crate) mod plain {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

/// Locks that are held briefly.
#[cfg(not(any(loom, shuttle)))]
pub(crate) use super::brief;

/// The tools' own, so that they see the waits of threads.
#[cfg(any(loom, shuttle))]
pub(crate) mod brief {
    pub(crate) use super::MutexGuard;
    use std::sync::PoisonError;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(super::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(super::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// Loom's own has no constant initial values.
#[cfg(loom)]
macro_rules! local_to_models {
    ($($(#[$attribute:meta])* static $name:ident: $type:ty = const { $initial:expr };)*) => {
        loom::thread_local! { $($(#[$attribute])* static $name: $type = $initial;)* }
    };
}
#[cfg(loom)]
pub(crate) use local_to_models as thread_local;
