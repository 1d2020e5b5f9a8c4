//! Opaque handles: addresses at which nothing lies, never used twice.

use crate::{Answer, Code};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Handles of one kind. The address of the `n`-th is `BASE + n * STRIDE`.
#[derive(Debug)]
pub struct Handles<T, const BASE: usize, const STRIDE: usize = 64> {
    known: LazyLock<Mutex<Known<T>>>,
}

#[derive(Debug)]
struct Known<T> {
    last: usize,
    objects: HashMap<usize, T>,
}

impl<T: Clone, const BASE: usize, const STRIDE: usize> Handles<T, BASE, STRIDE> {
    /// None yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "only statics are made of it")]
    pub const fn new() -> Self {
        Self { known: LazyLock::new(|| Mutex::new(Known { last: 0, objects: HashMap::new() })) }
    }

    fn known(&self) -> MutexGuard<'_, Known<T>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for `object`.
    pub fn insert(&self, object: T) -> usize {
        let mut known = self.known();
        known.last += 1;
        let handle = BASE + known.last * STRIDE;
        known.objects.insert(handle, object);
        handle
    }

    /// What a handle stands for.
    ///
    /// # Errors
    /// `INVALID_HANDLE` where it stands for nothing, or no longer.
    pub fn get(&self, handle: usize) -> Answer<T> {
        self.known().objects.get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// All objects that have a handle now.
    pub fn all(&self) -> Vec<T> {
        self.known().objects.values().cloned().collect()
    }

    /// Lets a known handle stand for something else.
    pub fn replace(&self, handle: usize, object: T) {
        let before = self.known().objects.insert(handle, object);
        // Outside of the lock: its drop may be foreign code.
        drop(before);
    }

    /// Ends a handle.
    pub fn remove(&self, handle: usize) -> Answer<T> {
        self.known().objects.remove(&handle).ok_or(Code::INVALID_HANDLE)
    }
}
