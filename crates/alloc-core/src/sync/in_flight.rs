//! Flights of threads: memory between an index and the driver, driver calls that name a stream, visits, and work that
//! one thread at a time does.

use super::primitives::{Condvar, Mutex, MutexGuard};
use super::{ThreadId, assert_unlocked, this_thread, thread_local};
use crate::base::steps::step;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

thread_local! {
    /// Number of things of the thread's that others may wait for.
    static HOLDS: Cell<usize> = const { Cell::new(0) };
}

/// Something that others may wait for, until dropped on the same thread: meanwhile the thread waits for nobody.
#[derive(Debug)]
pub(super) struct Holds;

impl Holds {
    pub(super) fn begin() -> Self {
        HOLDS.with(|count| count.set(count.get() + 1));
        Self
    }

    /// True if others may wait for the calling thread.
    pub(super) fn anything() -> bool {
        HOLDS.with(Cell::get) > 0
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        HOLDS.with(|count| count.set(count.get() - 1));
    }
}

/// Registry of flights. Each has a number and names its subject.
#[derive(Debug)]
pub(crate) struct InFlight<K> {
    flights: Mutex<Flights<K>>,
    landed: Condvar,
}

#[derive(Debug)]
struct Flights<K> {
    next: u64,
    under_way: BTreeMap<u64, (ThreadId, K)>,
    /// All flights from this one on are the thread's.
    latest: Option<(u64, ThreadId)>,
    /// Threads that wait for an end. Mostly none: then nobody is woken, which would be a call of the system.
    waiting: usize,
}

/// Something in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct Flight<'f, K> {
    registry: &'f InFlight<K>,
    number: u64,
}

/// Things that no other thread has until this is dropped.
#[derive(Debug)]
pub(crate) struct Alone<'f, K> {
    _flights: Vec<Flight<'f, K>>,
    _holds: Holds,
}

/// A moment, to ask later whether others had anything in flight since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    next: u64,
    idle: bool,
}

impl<K> Default for InFlight<K> {
    fn default() -> Self {
        let flights = Flights { next: 0, under_way: BTreeMap::new(), latest: None, waiting: 0 };
        Self { flights: Mutex::new(flights), landed: Condvar::new() }
    }
}

impl<K: Copy + Ord> InFlight<K> {
    pub(crate) fn begin(&self, what: K) -> Flight<'_, K> {
        self.add(&mut self.lock(), what)
    }

    /// Waits until no flight that began before concerns any of `keys`, so that threads come in their order. Fails at
    /// once, with the key in the way, where the calling thread holds anything, here or elsewhere: it waits for nobody,
    /// because others may wait for it. Hold no lock that others need to finish.
    pub(crate) fn begin_alone(&self, keys: &BTreeSet<K>) -> Result<Alone<'_, K>, K> {
        let flights = self.begin_after(keys, !Holds::anything())?;
        Ok(Alone { _flights: flights, _holds: Holds::begin() })
    }

    /// Waits until no flight that began before concerns `key`, whatever the thread holds: nobody whom it waits for may wait for
    /// that. Hold no lock.
    pub(super) fn begin_in_line(&self, key: K) -> Vec<Flight<'_, K>> {
        self.begin_after(&[key].into(), true).unwrap_or_default()
    }

    /// An error where an earlier flight concerns one of `keys` and the thread may not wait.
    fn begin_after(&self, keys: &BTreeSet<K>, may_wait: bool) -> Result<Vec<Flight<'_, K>>, K> {
        assert_unlocked();
        let mut state = self.lock();
        let bound = state.next;
        let flights: Vec<_> = keys.iter().map(|key| self.add(&mut state, *key)).collect();
        let in_the_way = |state: &Flights<K>| {
            state.under_way.range(..bound).find(|(_, (_, key))| keys.contains(key)).map(|(_, (_, key))| *key)
        };
        while let Some(key) = in_the_way(&state) {
            if !may_wait {
                drop(state);
                return Err(key);
            }
            state = self.sleep(state);
        }
        Ok(flights)
    }

    fn add(&self, state: &mut Flights<K>, what: K) -> Flight<'_, K> {
        let (number, thread) = (state.next, this_thread());
        state.next += 1;
        state.under_way.insert(number, (thread, what));
        if state.latest.is_none_or(|(_, latest)| latest != thread) {
            state.latest = Some((number, thread));
        }
        Flight { registry: self, number }
    }
}

impl<K> InFlight<K> {
    /// Waits until all flights that are under way now and `concern` the caller have landed. Calls `each` after every
    /// one, without a lock, until that returns something.
    pub(crate) fn wait_for<R>(
        &self,
        concern: impl Fn(ThreadId, &K) -> bool,
        mut each: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let bound = self.lock().next;
        let count = |state: &Flights<K>| {
            state.under_way.range(..bound).filter(|(_, (thread, key))| concern(*thread, key)).count()
        };
        loop {
            let mut state = self.lock();
            let before = count(&state);
            if before == 0 {
                return None;
            }
            while count(&state) == before {
                state = self.sleep(state);
            }
            drop(state);
            if let Some(found) = each() {
                return Some(found);
            }
        }
    }

    /// True if any flight under way is meant.
    pub(crate) fn any(&self, meant: impl Fn(ThreadId, &K) -> bool) -> bool {
        self.lock().under_way.values().any(|(thread, key)| meant(*thread, key))
    }

    /// A mark for this moment.
    pub(crate) fn now(&self) -> Mark {
        let state = self.lock();
        Mark { next: state.next, idle: state.under_way.is_empty() }
    }

    /// True if nothing was in flight at that moment, and nothing of another thread's since.
    pub(crate) fn only_mine_since(&self, mark: Mark) -> bool {
        let (state, me) = (self.lock(), this_thread());
        let mine = |(first, latest): (u64, ThreadId)| latest == me && first <= mark.next;
        mark.idle && (state.next == mark.next || state.latest.is_some_and(mine))
    }

    fn sleep<'f>(&self, mut state: MutexGuard<'f, Flights<K>>) -> MutexGuard<'f, Flights<K>> {
        state.waiting += 1;
        let mut state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    fn lock(&self) -> MutexGuard<'_, Flights<K>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Drop for Flight<'_, K> {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        state.under_way.remove(&self.number);
        if state.waiting > 0 {
            step();
            self.registry.landed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Runs `work` on another thread, to its end.
    fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| scope.spawn(work).join().expect("ends well"))
    }

    #[test]
    fn a_mark_tells_whether_others_had_anything_in_flight_since() {
        let memory = InFlight::default();
        let idle = memory.now();
        assert!(memory.only_mine_since(idle) && elsewhere(|| memory.only_mine_since(idle)));
        drop(memory.begin(()));
        let mine = memory.begin(());
        assert!(memory.only_mine_since(idle) && !elsewhere(|| memory.only_mine_since(idle)));
        let busy = memory.now();
        drop(mine);
        assert!(!memory.only_mine_since(busy), "something was in flight");
        let between = memory.now();
        elsewhere(|| drop(memory.begin(())));
        assert!(elsewhere(|| !memory.only_mine_since(between)), "a third thread's");
        assert!(!memory.only_mine_since(between) && !memory.only_mine_since(idle));
        drop(memory.begin(()));
        assert!(!memory.only_mine_since(between));
    }

    /// Waking is a call of the system, even if nobody sleeps.
    #[test]
    fn an_end_that_nobody_waits_for_wakes_nobody() {
        let flights = InFlight::default();
        let wakes = |end: &dyn Fn()| {
            let before = crate::base::steps::taken();
            end();
            crate::base::steps::taken() - before
        };
        assert_eq!(wakes(&|| drop(flights.begin(1))), 0);
        let awaited = std::cell::Cell::new(Some(flights.begin(1)));
        std::thread::scope(|scope| {
            scope.spawn(|| flights.wait_for(|_, key| *key == 1, || None::<()>));
            while flights.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(wakes(&|| drop(awaited.take())), 1);
        });
        assert_eq!(wakes(&|| drop(flights.begin(1))), 0, "it has gone");
    }

    #[test]
    fn a_thread_waits_for_what_concerns_it_only() {
        let flights = InFlight::default();
        let _other = flights.begin(1);
        assert!(flights.any(|_, key| *key == 1) && !flights.any(|_, key| *key == 2));
        assert_eq!(flights.wait_for(|_, key| *key == 2, || Some(())), None);
        let mine = flights.begin(2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| flights.wait_for(|_, key| *key == 2, || Some("ended")));
            drop(mine);
            assert!(waits.join().is_ok_and(|ended| ended.is_none_or(|ended| ended == "ended")));
        });
    }

    #[test]
    fn one_thread_at_a_time_and_who_has_something_never_waits() {
        let (work, elsewhere_too, inside) = (InFlight::default(), InFlight::default(), AtomicU32::new(0));
        let first = work.begin_alone(&[1].into()).expect("nobody has it");
        let second = work.begin_alone(&[2].into()).expect("another thing");
        assert_eq!(work.begin_alone(&[1, 4].into()).err(), Some(1), "one of them is its own");
        elsewhere(|| {
            let third = elsewhere_too.begin_alone(&[3].into()).expect("free");
            assert_eq!(work.begin_alone(&[2].into()).err(), Some(2), "not even for another registry's");
            drop(third);
        });
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _alone = work.begin_alone(&[2].into()).expect("a thread that has nothing waits");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
            drop(second);
        });
        drop(first);
        let all = work.begin_alone(&[1, 2, 3].into());
        assert!(all.is_ok(), "all are free, and nothing was taken by those who got none");
    }
}
