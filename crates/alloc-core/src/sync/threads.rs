//! Identity of the calling thread. The standard library forgets it before a thread's last destructors run, and these
//! may free memory.

use super::primitives::{Ordering, plain::AtomicU64, thread_local};
use std::cell::Cell;

#[cfg(loom)]
pub use loom::thread::ThreadId;
#[cfg(shuttle)]
pub use shuttle::thread::ThreadId;

/// A thread of the process; no other one ever has the same.
#[cfg(not(any(loom, shuttle)))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(u64);

/// The calling thread.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn this_thread() -> ThreadId {
    ThreadId(thread_number())
}

/// The calling thread.
#[cfg(loom)]
pub(crate) fn this_thread() -> ThreadId {
    loom::thread::current().id()
}

/// The calling thread.
#[cfg(shuttle)]
pub(crate) fn this_thread() -> ThreadId {
    shuttle::thread::current().id()
}

/// The calling thread's number, counted from 1; no other thread ever has it.
pub(crate) fn thread_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        /// 0 until it is first asked for. It needs no destructor, so it can be asked for as long as the thread runs.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}
