//! Claims: one thread at a time does something long with a thing, foreign code included, and the others wait.

use super::primitives::{Condvar, Mutex, MutexGuard};
use super::{ThreadId, assert_unlocked, this_thread};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Waits for the claims on all of `keys`, and takes them together. An error, at once, with the key that another thread
    /// has while the calling one has a claim of its own, or that this one has: whoever has a claim never waits for another.
    /// Hold no lock.
    pub(crate) fn take_all(&self, keys: &BTreeSet<K>) -> Result<Vec<Claim<'_, K>>, K> {
        assert_unlocked();
        let me = this_thread();
        let mut taken = self.lock();
        while let Some(key) = keys.iter().find(|key| taken.contains_key(key)) {
            if taken.values().any(|thread| *thread == me) {
                return Err(*key);
            }
            taken = self.ended.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        taken.extend(keys.iter().map(|key| (*key, me)));
        Ok(keys.iter().map(|key| Claim { claims: self, key: *key }).collect())
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
        let first = claims.take_all(&[1].into()).expect("nobody has it");
        let second = claims.take_all(&[2].into()).expect("another thing");
        assert!(claims.take_all(&[1, 4].into()).is_err(), "one of them is its own");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let third = claims.take_all(&[3].into()).expect("free");
                assert!(claims.take_all(&[2].into()).is_err(), "who has one does not wait");
                drop(third);
            });
            other.join().expect("does not wait");
            for _ in 0..3 {
                scope.spawn(|| {
                    let _claim = claims.take_all(&[2].into()).expect("a thread without a claim waits");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
            drop(second);
        });
        drop(first);
        assert!(
            claims.take_all(&[1, 2, 3].into()).is_ok(),
            "all are free, and nothing was taken by those who got none"
        );
    }
}
