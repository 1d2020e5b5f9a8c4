//! The only module that names synchronisation primitives.
//!
//! Every lock has a rank; in debug builds taking a lock whose rank is not above all ranks the thread holds
//! panics, so a lock-order mistake fails the first test that meets it. The order is written down in
//! ARCHITECTURE.md.

use std::collections::BTreeSet;
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, OnceLock};
use std::sync::{Condvar, PoisonError};

/// Lock order: a thread takes locks with ascending ranks only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Held by the one thread that is about to report out of memory.
    LastResort,
    /// Held while a thread waits for the device on behalf of all.
    Synchronisation,
    /// The recorded peaks, taken before all arenas.
    Peaks,
    /// Arena number n of a device.
    Arena(u16),
    /// A device's segments, regions and limits.
    Device,
    /// Queues of pending frees and spare events.
    Pending,
    /// The list of arenas, callbacks and other registries.
    Registry,
}

/// A mutex with a rank. A panic while it is held does not poison it: the engine keeps its structures
/// consistent at every point where foreign code could panic.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    inner: std::sync::Mutex<T>,
    rank: Rank,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> Self {
        Self { inner: std::sync::Mutex::new(value), rank }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        order::enter(self.rank);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { inner, rank: self.rank }
    }
}

/// Access to what a [`Mutex`] guards.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    inner: std::sync::MutexGuard<'a, T>,
    rank: Rank,
}

impl<T> std::ops::Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> std::ops::DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        order::leave(self.rank);
    }
}

/// Counts threads that hold memory in transit: taken out of every index, on the way to or from the driver.
/// A thread that finds no fit can wait for them before it gives up.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    state: std::sync::Mutex<Tickets>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Tickets {
    next: u64,
    under_way: BTreeSet<u64>,
}

/// Memory is in transit while this lives.
#[derive(Debug)]
pub(crate) struct InTransit<'t> {
    transit: &'t Transit,
    ticket: u64,
}

impl Transit {
    pub(crate) fn begin(&self) -> InTransit<'_> {
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        state.under_way.insert(ticket);
        InTransit { transit: self, ticket }
    }

    /// The ticket of the next transit: all that are under way now have smaller ones.
    pub(crate) fn next(&self) -> u64 {
        self.lock().next
    }

    /// Waits until one of the transits with tickets under `bound` ends. `false`, at once, where there is none.
    pub(crate) fn wait_for_one_before(&self, bound: u64) -> bool {
        let earlier = |state: &Tickets| state.under_way.range(..bound).count();
        let state = self.lock();
        let before = earlier(&state);
        if before == 0 {
            return false;
        }
        let ended = self.ended.wait_while(state, |state| earlier(state) == before);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tickets> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InTransit<'_> {
    fn drop(&mut self) {
        self.transit.lock().under_way.remove(&self.ticket);
        self.transit.ended.notify_all();
    }
}

/// Panics in debug builds when the thread holds any lock: driver calls are made without.
#[inline]
pub(crate) fn assert_unlocked() {
    order::assert_none_above(Rank::Synchronisation);
}

#[cfg(debug_assertions)]
mod order {
    use super::Rank;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn enter(rank: Rank) {
        // A thread that is going away has lost its list; nothing to check then.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(highest) = held.iter().max() {
                assert!(rank > *highest, "lock order: {rank:?} was asked for while {highest:?} is held");
            }
            held.push(rank);
        });
    }

    pub(super) fn leave(rank: Rank) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|r| *r == rank) {
                held.remove(at);
            }
        });
    }

    pub(super) fn assert_none_above(allowed: Rank) {
        let _ = HELD.try_with(|held| {
            let held = held.borrow();
            assert!(held.iter().all(|r| *r <= allowed), "a driver call was made with locks held: {held:?}");
        });
    }
}

#[cfg(not(debug_assertions))]
mod order {
    use super::Rank;
    #[inline(always)]
    pub(super) fn enter(_: Rank) {}
    #[inline(always)]
    pub(super) fn leave(_: Rank) {}
    #[inline(always)]
    pub(super) fn assert_none_above(_: Rank) {}
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "lock order")]
    fn descending_ranks_are_caught() {
        let device = Mutex::new(Rank::Device, ());
        let arena = Mutex::new(Rank::Arena(3), ());
        let _device = device.lock();
        let _arena = arena.lock();
    }

    #[test]
    fn ascending_ranks_are_fine_and_leave_in_any_order() {
        let low = Mutex::new(Rank::Arena(1), 1);
        let high = Mutex::new(Rank::Arena(2), 2);
        let first = low.lock();
        let second = high.lock();
        drop(first);
        drop(second);
        assert_unlocked();
        assert_eq!(*low.lock(), 1);
    }
}
