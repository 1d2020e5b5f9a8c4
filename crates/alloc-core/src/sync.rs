//! The only module that names synchronisation primitives.
//!
//! Every lock has a rank; in debug builds taking a lock whose rank is not above all ranks the thread holds
//! panics, so a lock-order mistake fails the first test that meets it. The order is written down in
//! ARCHITECTURE.md.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod brief;
mod claims;
#[cfg(any(not(any(loom, shuttle)), all(test, loom)))]
mod held;
#[cfg(all(test, loom))]
pub(crate) mod models;
mod primitives;
mod threads;
mod turns;

use crate::base::steps::step;
pub(crate) use claims::{Claim, Claims};
use primitives::Condvar;
pub(crate) use primitives::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, OnceLock, Ordering, Weak, plain, thread_local,
};
use std::collections::BTreeMap;
use std::sync::PoisonError;
pub use threads::ThreadId;
pub(crate) use threads::{this_thread, thread_number};
pub(crate) use turns::Turns;

/// Lock order: a thread takes locks with ascending ranks only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Held while the settings of all devices change.
    Settings,
    /// Held by the one thread that is about to report out of memory.
    LastResort,
    /// Held while a thread waits for the device on behalf of all.
    Synchronisation,
    /// Who has a part of memory that devices share with the host; held over limits of devices.
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

/// Access to what a [`Mutex`] guards.
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

/// Driver calls, and memory, on their way: each is a *transit* with a ticket while it lasts, and says what it concerns
/// (`T`). Whoever needs to be sure that nothing is under way waits for the tickets given out before.
#[derive(Debug)]
pub(crate) struct Transit<T> {
    state: primitives::Mutex<Tickets<T>>,
    ended: Condvar,
}

#[derive(Debug)]
struct Tickets<T> {
    next: u64,
    under_way: BTreeMap<u64, T>,
    /// All tickets from this one on concern the same.
    latest: Option<(u64, T)>,
    /// Threads that wait for an end: mostly none, and then nobody is woken, which would be a call of the system.
    waiting: usize,
}

/// A transit is under way while this lives.
#[derive(Debug)]
pub(crate) struct InTransit<'t, T> {
    transit: &'t Transit<T>,
    ticket: u64,
}

/// A moment, to ask later whether there were transits since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    next: u64,
    idle: bool,
}

impl<T> Default for Transit<T> {
    fn default() -> Self {
        let tickets = Tickets { next: 0, under_way: BTreeMap::new(), latest: None, waiting: 0 };
        Self { state: primitives::Mutex::new(tickets), ended: Condvar::new() }
    }
}

impl<T: Copy + PartialEq> Transit<T> {
    pub(crate) fn begin(&self, what: T) -> InTransit<'_, T> {
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        state.under_way.insert(ticket, what);
        if state.latest.is_none_or(|(_, latest)| latest != what) {
            state.latest = Some((ticket, what));
        }
        InTransit { transit: self, ticket }
    }

    /// Waits until all transits that are under way now and of the kind `which` have ended; calls `each` after every
    /// one, without a lock, until that returns something.
    pub(crate) fn wait_for<R>(
        &self,
        which: impl Fn(T) -> bool,
        mut each: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let bound = self.lock().next;
        let count =
            |state: &Tickets<T>| state.under_way.range(..bound).filter(|(_, what)| which(**what)).count();
        loop {
            let mut state = self.lock();
            let before = count(&state);
            if before == 0 {
                return None;
            }
            while count(&state) == before {
                state.waiting += 1;
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
            }
            drop(state);
            if let Some(found) = each() {
                return Some(found);
            }
        }
    }

    /// Whether one that concerns `what` is under way.
    pub(crate) fn concerns(&self, what: T) -> bool {
        self.lock().under_way.values().any(|other| *other == what)
    }

    /// A mark for this moment.
    pub(crate) fn now(&self) -> Mark {
        let state = self.lock();
        Mark { next: state.next, idle: state.under_way.is_empty() }
    }

    /// Whether no transit was under way at that moment, and all since concern `what`.
    pub(crate) fn only_since(&self, mark: Mark, what: T) -> bool {
        let state = self.lock();
        let same = |(first, latest): (u64, T)| latest == what && first <= mark.next;
        mark.idle && (state.next == mark.next || state.latest.is_some_and(same))
    }
}

impl<T> Transit<T> {
    fn lock(&self) -> primitives::MutexGuard<'_, Tickets<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for InTransit<'_, T> {
    fn drop(&mut self) {
        let mut state = self.transit.lock();
        state.under_way.remove(&self.ticket);
        if state.waiting > 0 {
            step();
            self.transit.ended.notify_all();
        }
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

/// Whether the thread holds no lock that others need. Only builds with debug assertions know.
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

    #[test]
    fn a_moment_tells_whose_transits_there_were_since() {
        let transit = Transit::default();
        let idle = transit.now();
        assert!(transit.only_since(idle, 1) && transit.only_since(idle, 2));
        drop(transit.begin(1));
        let one = transit.begin(1);
        assert!(transit.only_since(idle, 1) && !transit.only_since(idle, 2));
        let busy = transit.now();
        drop(one);
        assert!(!transit.only_since(busy, 1), "one was under way");
        let between = transit.now();
        drop(transit.begin(2));
        assert!(
            transit.only_since(between, 2) && !transit.only_since(idle, 2) && !transit.only_since(idle, 1)
        );
        drop(transit.begin(1));
        assert!(!transit.only_since(between, 1) && !transit.only_since(between, 2));
    }

    /// To wake is a call of the system, whoever sleeps.
    #[test]
    fn an_end_that_nobody_waits_for_wakes_nobody() {
        let transit = Transit::default();
        let wakes = |end: &dyn Fn()| {
            let before = crate::base::steps::taken();
            end();
            crate::base::steps::taken() - before
        };
        assert_eq!(wakes(&|| drop(transit.begin(1))), 0);
        let awaited = std::cell::Cell::new(Some(transit.begin(1)));
        std::thread::scope(|scope| {
            scope.spawn(|| transit.wait_for(|what| what == 1, || None::<()>));
            while transit.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(wakes(&|| drop(awaited.take())), 1);
        });
        assert_eq!(wakes(&|| drop(transit.begin(1))), 0, "it has gone");
    }

    #[test]
    fn who_waits_waits_for_what_it_means_only() {
        let transit = Transit::default();
        let _other = transit.begin(1);
        assert!(transit.concerns(1) && !transit.concerns(2));
        assert_eq!(transit.wait_for(|what| what == 2, || Some(())), None);
        let mine = transit.begin(2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| transit.wait_for(|what| what == 2, || Some("ended")));
            drop(mine);
            assert!(waits.join().is_ok_and(|ended| ended.is_none_or(|ended| ended == "ended")));
        });
    }
}
