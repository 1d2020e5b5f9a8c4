//! The slow path of a device: misses, and everything that gives memory back.
//!
//! Threads are on it together. Memory that one of them has in flight is in no index, so another may find nothing
//! although there is a fit. A refusal is therefore final only where a whole attempt failed while no other thread had
//! memory in flight. A thread that others overtook waits until their memory has landed and tries again. If it is
//! overtaken once more, it is served in turn: newcomers wait at the entrance while it makes attempts that wait for nothing,
//! neither for the device nor for code of the program.

use super::in_flight::{Flight, Holds, InFlight, Mark};
use super::primitives::{Condvar, Mutex, MutexGuard};
use super::{AtomicBool, Ordering, ThreadId, assert_unlocked, this_thread};
use std::sync::PoisonError;

/// The slow path of a device, or of all parties that share the host's memory.
#[derive(Debug, Default)]
pub(crate) struct SlowPath {
    memory: InFlight<()>,
    /// Threads that were overtaken twice, in line.
    overtaken: InFlight<()>,
    entrance: Entrance,
}

/// The entrance: closed for all threads but one, or open.
#[derive(Debug, Default)]
struct Entrance {
    closed_by: Mutex<Option<ThreadId>>,
    opened: Condvar,
    /// Spares others the lock, mostly.
    is_closed: AtomicBool,
}

/// Memory in flight of the calling thread, until dropped by that thread.
#[derive(Debug)]
pub(crate) struct MemoryInFlight<'s> {
    _flight: Flight<'s, ()>,
    _holds: Holds,
}

/// Kind of attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// All remedies.
    First,
    /// A search, and new memory: something landed.
    Search,
    /// All remedies that ask no code of the program.
    Again,
    /// All remedies that wait for nothing: newcomers wait.
    Last,
}

impl SlowPath {
    /// Puts memory of the calling thread in flight until the guard is dropped.
    pub(crate) fn begin(&self) -> MemoryInFlight<'_> {
        MemoryInFlight { _flight: self.memory.begin(()), _holds: Holds::begin() }
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

    /// True if the entrance is closed, and not by the calling thread.
    pub(crate) fn is_closed(&self) -> bool {
        self.entrance.is_closed.load(Ordering::Acquire)
            && self.entrance.lock().is_some_and(|thread| thread != this_thread())
    }

    /// Waits until the entrance is open, unless others may wait for something that the calling thread holds. True if it
    /// was closed. Hold no lock.
    pub(crate) fn enter(&self) -> bool {
        assert_unlocked();
        if !self.is_closed() || Holds::anything() {
            return false;
        }
        let me = this_thread();
        let mut closed_by = self.entrance.lock();
        while closed_by.is_some_and(|thread| thread != me) {
            closed_by = self.entrance.opened.wait(closed_by).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Runs code that may wait for other threads: the entrance is open meanwhile.
    pub(crate) fn while_open<R>(&self, code: impl FnOnce() -> R) -> R {
        let me = this_thread();
        let closed_by = *self.entrance.lock();
        let _closes = (closed_by == Some(me)).then(|| {
            self.entrance.set(None);
            Closes(&self.entrance, closed_by)
        });
        code()
    }

    /// Makes attempts until one succeeds, or a whole one fails while nobody else has memory in flight. Hold no lock.
    pub(crate) fn until_final<T, E>(
        &self,
        mut attempt: impl FnMut(Attempt) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let mark = self.now();
        let found = attempt(Attempt::First)?;
        if found.is_some() || self.is_nested() || self.only_mine_since(mark) {
            return Ok(found);
        }
        let found = self.after_landings(&mut attempt)?;
        if found.is_some() {
            return Ok(found);
        }
        let mark = self.now();
        let found = attempt(Attempt::Again)?;
        if found.is_some() || self.only_mine_since(mark) {
            return Ok(found);
        }
        let _in_line = self.overtaken.begin_in_line(());
        self.entrance.set(Some(this_thread()));
        let _opens = Closes(&self.entrance, None);
        loop {
            let found = self.after_landings(&mut attempt)?;
            if found.is_some() {
                return Ok(found);
            }
            let mark = self.now();
            let found = attempt(Attempt::Last)?;
            if found.is_some() || self.only_mine_since(mark) {
                return Ok(found);
            }
        }
    }

    /// Waits for all memory that others have in flight now, and searches after each landing.
    fn after_landings<T, E>(
        &self,
        attempt: &mut impl FnMut(Attempt) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let landed = self.memory.wait_for(others(), || attempt(Attempt::Search).transpose());
        landed.map_or_else(|| attempt(Attempt::Search), |found| found.map(Some))
    }
}

impl Entrance {
    fn lock(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.closed_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes it for all but a thread, or opens it.
    fn set(&self, closed_by: Option<ThreadId>) {
        *self.lock() = closed_by;
        self.is_closed.store(closed_by.is_some(), Ordering::Release);
        self.opened.notify_all();
    }
}

/// Sets the entrance once dropped.
struct Closes<'e>(&'e Entrance, Option<ThreadId>);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.set(self.1);
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

    /// Another thread has memory in flight during these attempts, and lands before the next.
    fn attempts_overtaken(by: &[Attempt], found_at: usize) -> Vec<Attempt> {
        let slow_path = SlowPath::default();
        let mut attempts = Vec::new();
        let found = slow_path.until_final(|attempt| {
            // Nothing holds the thread itself up: not what it has in flight, nor the entrance that it closed.
            assert!(!slow_path.enter() && !slow_path.is_closed());
            let memory = slow_path.begin();
            attempts.push(attempt);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(slow_path.is_closed(), attempts.len() > 3);
                    if by.contains(&attempt) {
                        drop(slow_path.begin());
                    }
                });
            });
            drop(memory);
            Ok::<_, ()>((attempts.len() == found_at).then_some(()))
        });
        assert_eq!(found, Ok((found_at == attempts.len()).then_some(())));
        attempts
    }

    #[test]
    fn a_request_is_refused_once_nothing_else_was_in_flight() {
        use Attempt::{Again, First, Last, Search};
        assert_eq!(attempts_overtaken(&[], 0), [First]);
        assert_eq!(attempts_overtaken(&[First], 0), [First, Search, Again]);
        assert_eq!(attempts_overtaken(&[First, Again], 0), [First, Search, Again, Search, Last]);
        assert_eq!(
            attempts_overtaken(&[First, Again, Last], 7),
            [First, Search, Again, Search, Last, Search, Last]
        );
    }

    #[test]
    fn code_that_may_wait_finds_the_entrance_open() {
        let slow_path = SlowPath::default();
        let enters =
            || std::thread::scope(|scope| scope.spawn(|| slow_path.enter()).join().expect("it enters"));
        slow_path.entrance.set(Some(this_thread()));
        let _opens = Closes(&slow_path.entrance, None);
        assert!(!slow_path.while_open(enters), "it waited for nobody");
        assert_eq!(*slow_path.entrance.lock(), Some(this_thread()), "closed again");
    }
}
