//! The slow path of a device: misses, and everything that gives memory back.
//!
//! Threads are on it together. Memory that one of them has in flight is in no index, so another may find nothing
//! although there is a fit. A refusal is therefore final only where a whole attempt failed while no other thread had
//! memory in flight. Threads that were overtaken stand in line. The first waits until the memory of others has landed, and
//! tries again.
//!
//! Nobody else is held up meanwhile: the device's work, or code of the program, may wait for what another thread is about
//! to do after its own miss. So the number of attempts is bounded, because others may never rest.

use super::in_flight::{Flight, Holds, InFlight, Mark};
use super::{ThreadId, this_thread};

/// Most whole attempts of a thread that is overtaken again and again.
const ATTEMPTS: usize = 32;

/// The slow path of a device, or of all parties that share the host's memory.
#[derive(Debug, Default)]
pub(crate) struct SlowPath {
    memory: InFlight<()>,
    /// Threads that were overtaken, in line.
    overtaken: InFlight<()>,
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
    /// All remedies that ask no code of the program, for which others in line would wait.
    Again,
}

impl SlowPath {
    /// Puts memory of the calling thread in flight until the guard is dropped.
    pub(crate) fn begin(&self) -> MemoryInFlight<'_> {
        MemoryInFlight { _flight: self.memory.begin(()), _holds: Holds::begin() }
    }

    /// True if the calling thread is on the slow path already, with memory in flight or in line: it runs foreign code that
    /// the engine called. It waits for no other thread, since others may wait for it.
    pub(crate) fn is_nested(&self) -> bool {
        let me = this_thread();
        self.memory.any(|thread, ()| thread == me) || self.overtaken.any(|thread, ()| thread == me)
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

    /// Makes attempts until one succeeds, or a whole one fails while nobody else has memory in flight. Hold no lock.
    pub(crate) fn until_final<T, E>(
        &self,
        mut attempt: impl FnMut(Attempt) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let mark = self.now();
        let found = attempt(Attempt::First)?;
        if found.is_some() || self.only_mine_since(mark) || self.is_nested() {
            return Ok(found);
        }
        let _in_line = self.overtaken.begin_in_line(());
        for _ in 0..ATTEMPTS {
            let landed = self.memory.wait_for(others(), || attempt(Attempt::Search).transpose());
            let found = landed.map_or_else(|| attempt(Attempt::Search), |found| found.map(Some))?;
            if found.is_some() {
                return Ok(found);
            }
            let mark = self.now();
            let found = attempt(Attempt::Again)?;
            if found.is_some() || self.only_mine_since(mark) {
                return Ok(found);
            }
        }
        Ok(None)
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

    #[test]
    fn a_request_comes_to_an_end_next_to_threads_that_never_rest() {
        let (slow_path, ended) = (SlowPath::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Acquire) {
                        drop(slow_path.begin());
                    }
                });
            }
            let mut attempts = 0;
            let refused = slow_path.until_final(|attempt| {
                if attempt != Attempt::Search {
                    attempts += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok::<_, ()>(None::<()>)
            });
            ended.store(true, Ordering::Release);
            assert_eq!(refused, Ok(None));
            assert!(attempts <= ATTEMPTS + 1, "{attempts}");
        });
    }

    /// Attempts of a request that finds something in the one of this number, where another thread has memory in flight during those
    /// of these kinds, and lands before the next.
    fn attempts(by: &[Attempt], found_at: usize) -> Vec<Attempt> {
        let slow_path = SlowPath::default();
        let mut attempts = Vec::new();
        let found = slow_path.until_final(|attempt| {
            // What the thread itself has in flight does not hold it up, nor a request that its code makes.
            let memory = slow_path.begin();
            attempts.push(attempt);
            if by.contains(&attempt) {
                std::thread::scope(|scope| scope.spawn(|| drop(slow_path.begin())).join().expect("it lands"));
            }
            drop(memory);
            if attempt != Attempt::First {
                assert!(slow_path.is_nested(), "it stands in line");
                assert_eq!(slow_path.until_final(|_| Ok::<_, ()>(None::<()>)), Ok(None));
            }
            Ok::<_, ()>((attempts.len() == found_at).then_some(()))
        });
        assert_eq!(found, Ok((found_at == attempts.len()).then_some(())));
        attempts
    }

    #[test]
    fn a_request_is_refused_once_nothing_else_was_in_flight() {
        use Attempt::{Again, First, Search};
        assert_eq!(attempts(&[], 0), [First]);
        assert_eq!(attempts(&[First], 0), [First, Search, Again]);
        assert_eq!(attempts(&[First, Again], 5), [First, Search, Again, Search, Again]);
        assert_eq!(attempts(&[First, Search, Again], 0).len(), 1 + 2 * ATTEMPTS);
    }
}
