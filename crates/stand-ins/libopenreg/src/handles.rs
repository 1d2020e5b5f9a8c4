//! Handles that C programs hold: names of live objects, never their addresses.

use crate::status::{Answer, Refused};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The live objects of one kind. A handle is never used twice, so a stale one is noticed.
#[derive(Debug)]
pub(crate) struct Handles<T>(Mutex<Live<T>>);

#[derive(Debug)]
struct Live<T> {
    last: usize,
    objects: BTreeMap<usize, Arc<T>>,
}

/// Handles look like aligned pointers: PyTorch's extension keeps flags in their low bits.
const STEP: usize = 16;

impl<T> Handles<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Live { last: 0, objects: BTreeMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Live<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, object: Arc<T>) -> *mut c_void {
        let mut live = self.lock();
        live.last += STEP;
        let handle = live.last;
        live.objects.insert(handle, object);
        std::ptr::without_provenance_mut(handle)
    }

    pub(crate) fn get(&self, handle: *mut c_void) -> Answer<Arc<T>> {
        self.lock().objects.get(&handle.addr()).cloned().ok_or(Refused)
    }

    pub(crate) fn remove(&self, handle: *mut c_void) -> Answer<Arc<T>> {
        self.lock().objects.remove(&handle.addr()).ok_or(Refused)
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.lock().objects.values().cloned().collect()
    }
}
