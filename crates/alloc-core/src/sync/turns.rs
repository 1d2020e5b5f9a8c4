//! Turns: of threads that want the same thing done, one does it, and the others wait because they may not need it
//! any more.

use super::primitives::{Condvar, Mutex, MutexGuard};
use super::{assert_unlocked, thread_local};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::PoisonError;

thread_local! {
    /// Whether the thread has a turn somewhere: code that is called meanwhile must not wait for another.
    static HAS_ONE: Cell<bool> = const { Cell::new(false) };
}

/// One turn at a time for each key.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    taken: Mutex<BTreeSet<u16>>,
    ended: Condvar,
}

/// A turn, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    key: u16,
    /// Whether another thread had it, so that things may have changed.
    pub(crate) waited: bool,
}

impl Turns {
    /// Waits for the turn of `key`. `None`, at once, where the calling thread has one already, of any key: whoever has a
    /// turn never waits for another. Hold no lock that others need to finish theirs.
    pub(crate) fn take(&self, key: u16) -> Option<Turn<'_>> {
        if HAS_ONE.with(Cell::get) {
            return None;
        }
        assert_unlocked();
        let mut taken = self.lock();
        let mut waited = false;
        while taken.contains(&key) {
            waited = true;
            taken = self.ended.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        taken.insert(key);
        HAS_ONE.with(|has_one| has_one.set(true));
        Some(Turn { turns: self, key, waited })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.key);
        HAS_ONE.with(|has_one| has_one.set(false));
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_thread_at_a_time_and_the_next_ones_know() {
        let (turns, inside, waited) = (Turns::default(), AtomicU32::new(0), AtomicU32::new(0));
        let first = turns.take(7).expect("nobody has it");
        assert!(!first.waited);
        assert!(turns.take(7).is_none() && turns.take(8).is_none(), "this thread has one");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let turn = turns.take(7).expect("a new thread has none");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    waited.fetch_add(u32::from(turn.waited), Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let other = scope.spawn(|| turns.take(8).is_some_and(|turn| !turn.waited));
            assert!(other.join().expect("does not wait for another key"));
            drop(first);
        });
        assert!(turns.take(7).is_some_and(|turn| !turn.waited), "all are over");
    }
}
