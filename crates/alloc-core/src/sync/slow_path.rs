//! The slow path of a device: misses, and everything that gives memory back.
//!
//! Threads are on it together. Memory that one of them has in flight is in no index, so another may find nothing
//! although there is a fit. A refusal is therefore final only where a whole pass failed while no other thread had
//! memory in flight. A thread whose pass was overtaken is served in turn: later threads wait at the entrance, so that
//! its next passes come to rest.

use super::in_flight::{Flight, InFlight, Mark};
use super::{ThreadId, assert_unlocked, this_thread, thread_local};
use std::cell::Cell;

thread_local! {
    /// Number of flights of memory that the thread has, on any slow path.
    static HAS_MEMORY: Cell<usize> = const { Cell::new(0) };
}

/// The slow path of a device, or of all parties that share the host's memory.
#[derive(Debug, Default)]
pub(crate) struct SlowPath {
    memory: InFlight<()>,
    /// Threads whose pass was overtaken. The first makes passes, the others wait for it.
    overtaken: InFlight<()>,
}

/// Memory in flight of the calling thread, until dropped by that thread.
#[derive(Debug)]
pub(crate) struct MemoryInFlight<'s> {
    _flight: Flight<'s, ()>,
}

impl Drop for MemoryInFlight<'_> {
    fn drop(&mut self) {
        HAS_MEMORY.with(|count| count.set(count.get() - 1));
    }
}

/// Kind of attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// All remedies.
    First,
    /// Only cheap remedies: something landed.
    Search,
    /// All remedies that need no other thread: newcomers wait.
    Again,
}

impl SlowPath {
    /// Puts memory of the calling thread in flight until the guard is dropped.
    pub(crate) fn begin(&self) -> MemoryInFlight<'_> {
        HAS_MEMORY.with(|count| count.set(count.get() + 1));
        MemoryInFlight { _flight: self.memory.begin(()) }
    }

    /// True if the calling thread has memory in flight here already: it runs foreign code that the engine called. It
    /// waits for no other thread's memory, since others may wait for its own.
    pub(crate) fn is_nested(&self) -> bool {
        let me = this_thread();
        self.memory.any(|thread, ()| thread == me)
    }

    /// A mark for this moment.
    pub(crate) fn now(&self) -> Mark {
        self.memory.now()
    }

    /// True if no other thread had memory in flight since then.
    pub(crate) fn only_mine_since(&self, mark: Mark) -> bool {
        self.memory.only_mine_since(mark)
    }

    /// Waits for all memory that other threads have in flight now.
    pub(crate) fn wait_for_others(&self) {
        self.memory.wait_for(others(), || None::<()>);
    }

    /// True if a thread that was overtaken comes first.
    pub(crate) fn others_first(&self) -> bool {
        let me = this_thread();
        self.overtaken.any(|thread, ()| thread != me) && !self.overtaken.any(|thread, ()| thread == me)
    }

    /// Lets threads that were overtaken go first, unless the calling thread has memory in flight, for which others may
    /// wait. Hold no lock.
    pub(crate) fn enter(&self) {
        assert_unlocked();
        if self.others_first() && HAS_MEMORY.with(Cell::get) == 0 {
            self.overtaken.wait_for(others(), || None::<()>);
        }
    }

    /// Makes attempts until one succeeds, or a whole one fails while nobody else has memory in flight. Hold no lock.
    pub(crate) fn until_final<T, E>(
        &self,
        mut attempt: impl FnMut(Attempt) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        self.enter();
        let mark = self.now();
        let found = attempt(Attempt::First)?;
        if found.is_some() || self.is_nested() || self.only_mine_since(mark) {
            return Ok(found);
        }
        // A thread whose work others wait for goes on beside the first in line.
        let _in_turn = self.overtaken.begin_alone(&[()].into());
        loop {
            let landed = self.memory.wait_for(others(), || attempt(Attempt::Search).transpose());
            if let Some(found) = landed {
                return found.map(Some);
            }
            if let Some(found) = attempt(Attempt::Search)? {
                return Ok(Some(found));
            }
            let mark = self.now();
            let found = attempt(Attempt::Again)?;
            if found.is_some() || self.only_mine_since(mark) {
                return Ok(found);
            }
        }
    }
}

/// Tests if a flight is another thread's than the calling one's.
fn others() -> impl Fn(ThreadId, &()) -> bool {
    let me = this_thread();
    move |thread, ()| thread != me
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicBool, Ordering};
    use std::time::Duration;

    /// Attempts of a request that nothing serves, next to three threads that never rest; more than 50 are an error.
    fn attempts_next_to_restless() -> Result<usize, usize> {
        let (slow_path, ended) = (SlowPath::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Acquire) {
                        slow_path.enter();
                        drop(slow_path.begin());
                    }
                });
            }
            let mut attempts = 0;
            let refused = slow_path.until_final(|attempt| {
                if attempt != Attempt::Search {
                    attempts += 1;
                    std::thread::sleep(Duration::from_millis(2));
                }
                if attempts > 50 { Err(attempts) } else { Ok(None::<()>) }
            });
            ended.store(true, Ordering::Release);
            refused.map(|_| attempts)
        })
    }

    #[test]
    fn a_request_comes_to_an_end_next_to_threads_that_never_rest() {
        let attempts = attempts_next_to_restless();
        assert!(attempts.is_ok_and(|attempts| attempts < 10), "{attempts:?}");
    }

    #[test]
    fn a_thread_that_is_served_in_turn_uses_the_slow_path_itself() {
        let slow_path = SlowPath::default();
        let mut attempts = Vec::new();
        let found = slow_path.until_final(|attempt| {
            // Neither its own flights nor those it begins meanwhile hold it up.
            slow_path.enter();
            let memory = slow_path.begin();
            slow_path.enter();
            attempts.push(attempt);
            if attempt == Attempt::First {
                std::thread::scope(|scope| scope.spawn(|| drop(slow_path.begin())).join().expect("it ends"));
            }
            drop(memory);
            Ok::<_, ()>((attempts.len() == 3).then_some(()))
        });
        assert_eq!(found, Ok(Some(())));
        assert_eq!(attempts, [Attempt::First, Attempt::Search, Attempt::Again]);
    }
}
