//! What is found wrong, by whoever sees it first: operations, work of streams, the program's code that the engine calls.

use alloc_core::steps;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule is broken.
    pub oracle: &'static str,
    /// How.
    pub what: String,
}

/// The first finding, if there is one.
#[derive(Debug, Default)]
pub struct Verdict {
    any: AtomicBool,
    first: Mutex<Option<Finding>>,
}

impl Verdict {
    /// Something is wrong.
    pub fn find(&self, oracle: &'static str, what: impl Into<String>) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| Finding { oracle, what: what.into() });
        self.any.store(true, Ordering::Release);
    }

    /// Something is wrong unless `holds`.
    pub fn expect(&self, holds: bool, oracle: &'static str, what: impl FnOnce() -> String) {
        if !holds {
            self.find(oracle, what());
        }
    }

    /// An operation on one block took, since `before`, no more steps than a few for each of its users.
    pub fn few_steps(&self, what: &str, before: u64, users: usize) {
        let (took, allowed) = (steps::taken() - before, 150 + 8 * users as u64);
        self.expect(took <= allowed, "steps", || format!("{what} took {took} steps, not {allowed}"));
    }

    /// The first finding.
    #[must_use]
    pub fn found(&self) -> Option<Finding> {
        let look = || self.first.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.any.load(Ordering::Acquire).then(look).flatten()
    }
}

thread_local! {
    /// What the last panic of this thread said, and where.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are findings: they are not printed, but kept.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|panic| {
        SAID.with(|said| *said.borrow_mut() = panic.to_string());
    }));
}

/// What `work` came to, or that it panicked.
///
/// # Errors
/// The panic, as a finding.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Finding> {
    let what = |_| Finding { oracle: "panic", what: SAID.with(|said| said.borrow().clone()) };
    catch_unwind(AssertUnwindSafe(work)).map_err(what)
}
