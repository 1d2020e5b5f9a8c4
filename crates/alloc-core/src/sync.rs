//! The only module that names synchronisation primitives.
//!
//! Every lock has a rank; in debug builds taking a lock whose rank is not above all ranks the thread holds
//! panics, so a lock-order mistake fails the first test that meets it. The order is written down in
//! ARCHITECTURE.md.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod brief;
#[cfg(any(not(any(loom, shuttle)), all(test, loom)))]
mod held;
mod in_flight;
#[cfg(all(test, loom))]
pub(crate) mod models;
mod primitives;
mod slow_path;
mod threads;

pub(crate) use in_flight::{Alone, Flight, InFlight};
pub(crate) use primitives::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, OnceLock, Ordering, Weak, plain, thread_local,
};
pub(crate) use slow_path::{Attempt, MemoryInFlight, SlowPath};
pub use threads::ThreadId;
pub(crate) use threads::{this_thread, thread_number};

/// Lock order: a thread takes locks with ascending ranks only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Held while the settings of all devices change.
    Settings,
    /// Held while the configuration of new arenas changes, or a device is opened to another one.
    Configuration,
    /// Held while a thread waits for the device on behalf of all.
    Synchronisation,
    /// Parties that share the host's memory; held over limits of devices.
    Unified,
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
    inner: primitives::brief::Mutex<T>,
    rank: Rank,
}

impl<T> Mutex<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self { inner: primitives::brief::Mutex::new(value), rank }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        order::enter(self.rank);
        Guard { inner: self.inner.lock(), rank: self.rank }
    }
}

/// Access to the value of a [`Mutex`].
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    inner: primitives::brief::MutexGuard<'a, T>,
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

/// Panics in debug builds when the thread holds any lock: driver calls are made without.
#[inline]
pub(crate) fn assert_unlocked() {
    order::assert_none_above(Rank::Synchronisation);
}

/// Panics in debug builds when the thread holds a lock of any rank: a destructor of the program may ask for each.
#[inline]
pub(crate) fn assert_holds_nothing() {
    order::assert_none();
}

/// True if the thread holds no lock that others need. Only builds with debug assertions know.
#[must_use]
pub fn may_call_drivers() -> bool {
    order::none_above(Rank::Synchronisation)
}

#[cfg(debug_assertions)]
mod order {
    use super::{Rank, thread_local};
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn enter(rank: Rank) {
        // A thread that is going away has lost its list: nothing to check then.
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

    pub(super) fn assert_none() {
        let _ = HELD.try_with(|held| {
            let held = held.borrow();
            assert!(held.is_empty(), "a destructor of the program ran with locks held: {held:?}");
        });
    }

    pub(super) fn none_above(allowed: Rank) -> bool {
        HELD.try_with(|held| held.borrow().iter().all(|rank| *rank <= allowed)).unwrap_or(true)
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
    pub(super) fn assert_none() {}
    #[inline(always)]
    pub(super) fn enter(_: Rank) {}
    #[inline(always)]
    pub(super) fn leave(_: Rank) {}
    #[inline(always)]
    pub(super) fn none_above(_: Rank) -> bool {
        true
    }
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
