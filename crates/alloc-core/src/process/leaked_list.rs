//! Lists that are found without a lock, as in a forked child, which has the locks of its parent's other threads for ever.

use crate::sync::Ordering;
use crate::sync::plain::AtomicPtr;
use std::iter::successors;
use std::ptr::{from_ref, null_mut};

/// A list that only grows: its entries are never given back to the heap.
pub(super) struct LeakedList<T: 'static>(AtomicPtr<LeakedEntry<T>>);

struct LeakedEntry<T: 'static> {
    value: T,
    next: LeakedList<T>,
}

impl<T: Sync> LeakedList<T> {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    fn first(&self) -> Option<&'static LeakedEntry<T>> {
        // SAFETY: null, or from a leaked box, which is only ever shared.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The newest comes first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static T> + use<T> {
        successors(self.first(), |entry| entry.next.first()).map(|entry| &entry.value)
    }

    /// The entry that is meant, or else a new one.
    pub(super) fn find_or_add(&self, is_meant: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &'static T {
        let find = || self.iter().find(|value| is_meant(value));
        if let Some(known) = find() {
            return known;
        }
        let new: &'static LeakedEntry<T> =
            Box::leak(Box::new(LeakedEntry { value: new(), next: Self::new() }));
        let mut newest = self.0.load(Ordering::Acquire);
        loop {
            // Another thread may have been faster; this one stays out of the list then, which is a few bytes.
            if let Some(known) = find() {
                return known;
            }
            new.next.0.store(newest, Ordering::Relaxed);
            let this = from_ref(new).cast_mut();
            match self.0.compare_exchange(newest, this, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return &new.value,
                Err(newer) => newest = newer,
            }
        }
    }
}
