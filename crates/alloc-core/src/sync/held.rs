//! The word of a mutex: a thread that takes it sees everything done before it was given back.

#[cfg(loom)]
use loom::sync::atomic::AtomicBool;
#[cfg(not(loom))]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

/// Set while somebody has it.
#[derive(Debug)]
pub(super) struct Held(AtomicBool);

impl Held {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    #[cfg(all(test, loom))]
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes it, unless somebody has it. May fail now and then where nobody has.
    #[inline(always)]
    pub(super) fn try_take(&self) -> bool {
        self.0.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// True if it is worth while to try.
    #[inline(always)]
    pub(super) fn looks_free(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn give_back(&self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::Held;
    use crate::sync::{Arc, AtomicU64, Ordering, models};

    /// The guarded value is reached by one thread at a time, and each sees what the one before has written.
    #[test]
    fn who_takes_a_mutex_sees_what_was_done_under_it() {
        models::check(|| {
            let mutex = Arc::new((Held::new(), AtomicU64::new(0)));
            let adds = |mutex: Arc<(Held, AtomicU64)>| {
                move || {
                    let (held, value) = &*mutex;
                    while !(held.looks_free() && held.try_take()) {
                        loom::thread::yield_now();
                    }
                    let before = value.load(Ordering::Relaxed);
                    value.store(before + 1, Ordering::Relaxed);
                    held.give_back();
                }
            };
            let others = [0, 1].map(|_| loom::thread::spawn(adds(Arc::clone(&mutex))));
            others.into_iter().for_each(|other| other.join().expect("each gets it"));
            assert_eq!(mutex.1.load(Ordering::Relaxed), 2, "nothing is lost");
        });
    }
}
