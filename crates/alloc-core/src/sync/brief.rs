//! A mutex for critical sections of a few dozen nanoseconds: one exchange takes it, one store gives it back.
//!
//! Other mutexes learn by an exchange, when they are given back, if a thread sleeps; this one reads a count beside the
//! word. It may overlook a thread that goes to sleep in the very moment in which the mutex is given back. So sleepers
//! look again by themselves, at first soon, then ever more seldom.

use super::held::Held;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, PoisonError};
use std::time::Duration;

/// Looks at the word before a thread sleeps.
const LOOKS: u32 = 100;
/// A sleeper's first and longest wait before it looks again.
const WAITS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(50));

pub(crate) struct Mutex<T> {
    held: Held,
    /// Threads that sleep, or are about to.
    sleepers: AtomicU32,
    bed: std::sync::Mutex<()>,
    given_back: Condvar,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and there is one guard at a time: a thread that makes one has
// taken `held` from the guard before, and sees everything done under that. So sharing the mutex only sends the value.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to the value.
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// A guard is used by the thread that made it.
    not_shared: PhantomData<*mut T>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            held: Held::new(),
            sleepers: AtomicU32::new(0),
            bed: std::sync::Mutex::new(()),
            given_back: Condvar::new(),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if !self.held.try_take() {
            self.take_contended();
        }
        MutexGuard { mutex: self, not_shared: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn take_contended(&self) {
        for _ in 0..LOOKS {
            if self.held.looks_free() && self.held.try_take() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let (mut wait, longest) = WAITS;
        while !self.held.try_take() {
            (bed, _) = self.given_back.wait_timeout(bed, wait).unwrap_or_else(PoisonError::into_inner);
            wait = longest.min(wait * 2);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        // A thread that counted itself has looked since, or sleeps: it does both under this lock.
        drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
        self.given_back.notify_one();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this is the one guard there is, so nobody changes the value while it is borrowed from it.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the one guard there is, and it is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.mutex.held.give_back();
        if self.mutex.sleepers.load(Ordering::Relaxed) > 0 {
            self.mutex.wake();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Mutex");
        if self.held.try_take() {
            let guard = MutexGuard { mutex: self, not_shared: PhantomData };
            shown.field("value", &*guard);
        }
        shown.finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Rounds. Miri, which tries orders that other processors have, takes a second for few of them.
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 20_000 };

    #[test]
    fn one_thread_at_a_time() {
        let mutex = Mutex::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mutex = &mutex;
                scope.spawn(move || {
                    for n in 0..ROUNDS {
                        let mut pair = mutex.lock();
                        pair.0 += 1;
                        if (n + thread) % 1000 == 0 {
                            // Long enough for the others to go to sleep.
                            std::thread::sleep(Duration::from_micros(50));
                        }
                        pair.1 += 1;
                        assert_eq!(pair.0, pair.1, "nobody is in between");
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), (4 * ROUNDS, 4 * ROUNDS));
    }

    #[test]
    fn a_sleeper_is_woken() {
        let mutex = Mutex::new(0);
        let guard = mutex.lock();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| *mutex.lock() += 1);
            while mutex.sleepers.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // By now it waits for the longest time that it ever waits by itself.
            std::thread::sleep(Duration::from_millis(150));
            drop(guard);
            let since = Instant::now();
            sleeper.join().expect("ends well");
            assert!(since.elapsed() < Duration::from_secs(5));
        });
        assert_eq!((*mutex.lock(), mutex.sleepers.load(Ordering::SeqCst)), (1, 0));
    }

    #[test]
    fn a_panic_gives_it_back() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _guard = mutex.lock();
                panic!("as planned");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(*mutex.lock(), 1);
    }
}
