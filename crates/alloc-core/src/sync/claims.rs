//! Claims: one thread at a time does something long with a thing, foreign code included, and the others wait.

use super::primitives::{Condvar, Mutex, MutexGuard};
use super::{ThreadId, assert_unlocked, this_thread};
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// Who has what.
#[derive(Debug)]
pub(crate) struct Claims<K> {
    taken: Mutex<BTreeMap<K, ThreadId>>,
    ended: Condvar,
}

impl<K> Default for Claims<K> {
    fn default() -> Self {
        Self { taken: Mutex::new(BTreeMap::new()), ended: Condvar::new() }
    }
}

/// A claim, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'c, K: Copy + Ord> {
    claims: &'c Claims<K>,
    key: K,
}

impl<K: Copy + Ord> Claims<K> {
    /// Waits for the claim on `key`. `None`, at once, where another thread has it and the calling one has a claim of its
    /// own, or has this very one: whoever has a claim never waits for another. Hold no lock.
    pub(crate) fn take(&self, key: K) -> Option<Claim<'_, K>> {
        assert_unlocked();
        let me = this_thread();
        let mut taken = self.lock();
        while taken.contains_key(&key) {
            if taken.values().any(|thread| *thread == me) {
                return None;
            }
            taken = self.ended.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        taken.insert(key, me);
        Some(Claim { claims: self, key })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, ThreadId>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Copy + Ord> Drop for Claim<'_, K> {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.key);
        self.claims.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_thread_at_a_time_and_nested_claims_never_wait() {
        let (claims, inside) = (Claims::default(), AtomicU32::new(0));
        let first = claims.take(1).expect("nobody has it");
        let second = claims.take(2).expect("another thing");
        assert!(claims.take(1).is_none(), "its own");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let third = claims.take(3).expect("free");
                assert!(claims.take(2).is_none(), "who has one does not wait");
                drop(third);
            });
            other.join().expect("does not wait");
            for _ in 0..3 {
                scope.spawn(|| {
                    let _claim = claims.take(2).expect("a thread without a claim waits");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
            drop(second);
        });
        drop(first);
        assert!(claims.take(1).is_some());
    }
}
