//! Memory of a driver's pools.

use backend_api::Result;
use backend_api::types::DevicePtr;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the pools have handed out, for drivers that do not say of an address whether it may be shared by IPC.
#[derive(Debug, Default)]
pub(crate) struct Pooled(Mutex<HashSet<u64>>);

impl Pooled {
    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, ptr: DevicePtr) {
        self.lock().insert(ptr.0);
    }

    pub(crate) fn contains(&self, ptr: DevicePtr) -> bool {
        self.lock().contains(&ptr.0)
    }

    /// Forgets an address for the length of a call that gives it back, before the driver can hand it out again.
    pub(crate) fn giving_back(&self, ptr: DevicePtr, give_back: impl FnOnce() -> Result<()>) -> Result<()> {
        let known = self.lock().remove(&ptr.0);
        give_back().inspect_err(|_| {
            if known {
                self.lock().insert(ptr.0);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::types::DeviceIndex;
    use backend_api::{BackendError, ErrorKind};

    #[test]
    fn a_refused_free_leaves_the_memory_known() {
        let pooled = Pooled::default();
        let ptr = DevicePtr(0x1000);
        pooled.insert(ptr);
        let refused = BackendError::new(ErrorKind::InvalidValue, 1, "freeAsync", DeviceIndex(0), "");
        pooled.giving_back(ptr, || Err(refused)).unwrap_err();
        assert!(pooled.contains(ptr));
        pooled.giving_back(ptr, || Ok(())).unwrap();
        assert!(!pooled.contains(ptr));
    }
}
