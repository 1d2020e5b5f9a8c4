//! Backends that are wrong in one way each, to prove that the kit fails when it should.

mod capture;
mod copies;
mod device;
mod engine;
mod errors;
mod events;
mod families;
mod host;
mod ipc;
mod memory;
mod ordering;
mod peers;
mod streams;
mod threads;
mod virtual_memory;

use backend_api::types::DeviceIndex;
use backend_api::{Backend, BackendError, ErrorKind, Readiness, Result};
use granule_conformance::interpose::{Hook, Interposed};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A deliberately broken backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    /// `area.what`, unique.
    pub(crate) name: &'static str,
    /// What is wrong with it.
    pub(crate) what: &'static str,
    /// Breaks a good backend.
    pub(crate) make: fn(Arc<dyn Backend>) -> Arc<dyn Backend>,
    /// A check that must fail on it (others may).
    pub(crate) caught_by: &'static str,
}

/// Every mutant.
pub(crate) fn all() -> impl Iterator<Item = &'static Mutant> {
    [
        device::MUTANTS,
        memory::MUTANTS,
        memory::INFO_MUTANTS,
        copies::MUTANTS,
        copies::QUEUED_MUTANTS,
        streams::MUTANTS,
        streams::RUNNING_MUTANTS,
        events::MUTANTS,
        ordering::MUTANTS,
        host::MUTANTS,
        errors::MUTANTS,
        errors::CURRENT_MUTANTS,
        threads::MUTANTS,
        virtual_memory::MUTANTS,
        ipc::MUTANTS,
        peers::MUTANTS,
        capture::MUTANTS,
        families::MUTANTS,
        engine::MUTANTS,
    ]
    .into_iter()
    .flatten()
}

/// Puts a fresh hook before a backend.
pub(crate) fn hooked<H: Hook + Default>(inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
    // One type for all of them: the code of a backend a mutant would take minutes to compile.
    Arc::new(Interposed::<dyn Hook>::boxed(inner, Box::new(H::default())))
}

/// Whether the caller is a thread that a check started, and not the check's own.
pub(crate) fn on_side_thread() -> bool {
    std::thread::current().name().is_none()
}

/// An error of a mutant.
pub(crate) fn error(kind: ErrorKind) -> BackendError {
    BackendError::new(kind, 1, "orMutant", DeviceIndex(0), "a mutant says so")
}

/// What goes wrong one time in fifty.
#[derive(Debug, Default)]
pub(crate) struct Seldom(AtomicU32);

impl Seldom {
    /// Whether this is the time.
    pub(crate) fn strikes(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) % 50 == 49
    }
}

/// Locks what a mutant remembers.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a call blocks that should not.
const BLOCKED: Duration = Duration::from_millis(130);

/// Waits until something is ready, or for a while.
pub(crate) fn block(mut query: impl FnMut() -> Result<Readiness>) {
    let end = Instant::now() + BLOCKED;
    while Instant::now() < end && matches!(query(), Ok(Readiness::NotReady)) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An error that stays behind and is the answer of a later, innocent call.
#[derive(Debug, Default)]
pub(crate) struct Sticky(AtomicBool);

impl Sticky {
    /// Leaves it behind where `answer` is an error.
    pub(crate) fn after<T>(&self, answer: Result<T>) -> Result<T> {
        if answer.is_err() {
            self.leave();
        }
        answer
    }

    pub(crate) fn leave(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// The answer of the next call.
    pub(crate) fn strike(&self) -> Result<()> {
        if self.0.swap(false, Ordering::SeqCst) { Err(error(ErrorKind::Other)) } else { Ok(()) }
    }
}

/// Makes the table of an area's mutants: `mutants!(Hook: "name", "what is wrong" => "check", ...)`, where
/// `Hook` is a type with a default.
macro_rules! mutants {
    ($($hook:ty: $name:literal, $what:literal => $caught_by:literal,)+) => {
        /// The mutants of this area.
        pub(crate) const MUTANTS: &[$crate::mutants::Mutant] = &[$(
            $crate::mutants::Mutant {
                name: $name,
                what: $what,
                make: $crate::mutants::hooked::<$hook>,
                caught_by: $caught_by,
            },
        )+];
    };
}

/// Declares a hook without state: a type and the methods that it overrides.
macro_rules! hook {
    ($name:ident { $($methods:tt)* }) => {
        #[derive(Debug, Default)]
        struct $name;
        impl granule_conformance::interpose::Hook for $name { $($methods)* }
    };
}

pub(crate) use {hook, mutants};
