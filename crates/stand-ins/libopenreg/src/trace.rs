//! Activity tracing: whether it is on, and the numbers by which a thread's activities are found again.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

static ENABLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CORRELATIONS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn enable(enabled: bool) {
    ENABLED.store(enabled, Ordering::Release);
}

pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Acquire)
}

/// The calling thread's numbers; a thread that is ending has none any more.
fn visit<T: Default>(visit: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    CORRELATIONS.try_with(|ids| visit(&mut ids.borrow_mut())).unwrap_or_default()
}

pub(crate) fn push(id: u64) {
    visit(|ids| ids.push(id));
}

/// Takes the calling thread's newest number away, and tells it; 0 where there is none.
pub(crate) fn pop() -> u64 {
    visit(|ids| ids.pop().unwrap_or(0))
}

/// The calling thread's newest number; 0 where there is none.
pub(crate) fn newest() -> u64 {
    visit(|ids| ids.last().copied().unwrap_or(0))
}
