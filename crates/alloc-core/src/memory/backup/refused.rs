//! Page-locked memory of stores that drivers did not take back. It is tried again with other leftovers.

use crate::backend::{Backend, BackendError, PinnedHost, Result};
use crate::sync::assert_unlocked;
use crate::sync::plain::{AtomicBool, Mutex};
use crate::types::{BackendId, DevicePtr};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Refused memory, with its backend. Stores may end in any thread, also where no device is known.
static LEFT: Mutex<Vec<(BackendId, DevicePtr)>> = Mutex::new(Vec::new());
/// True if there is any.
static ANY: AtomicBool = AtomicBool::new(false);

fn host_free(backend: &dyn Backend, ptr: DevicePtr) -> Result<()> {
    // SAFETY: rule 3: from `host_malloc`, and given back once; every copy has returned.
    let free = |pinned: &dyn PinnedHost| unsafe { pinned.host_free(ptr) };
    backend.pinned_host().map_err(BackendError::from).and_then(free).inspect_err(|_| backend.clear_error())
}

/// Gives the memory at `ptr` back, now or later. Calls the driver; hold no lock.
pub(super) fn give_back(backend: &dyn Backend, ptr: DevicePtr) {
    assert_unlocked();
    if let Err(error) = host_free(backend, ptr) {
        tracing::warn!(%error, "a backup's host memory could not be given back; it is tried again later");
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).push((backend.id(), ptr));
        ANY.store(true, Ordering::Release);
    }
}

/// Tries again to give back what the driver refused, until it refuses one. Calls the driver; hold no lock.
pub(crate) fn retry(backend: &dyn Backend) {
    if !ANY.load(Ordering::Acquire) {
        return;
    }
    assert_unlocked();
    loop {
        let next = {
            let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
            ANY.store(!left.is_empty(), Ordering::Release);
            left.iter().position(|(owner, _)| *owner == backend.id()).map(|place| left.remove(place))
        };
        let Some((owner, ptr)) = next else { return };
        if host_free(backend, ptr).is_err() {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push((owner, ptr));
            ANY.store(true, Ordering::Release);
            return;
        }
    }
}
