//! The allocators of pinned memory, for what pins memory below them: where a backend has one, it takes that from there.

use crate::backend::Result;
use crate::sync::plain::Mutex;
use crate::sync::{Arc, Weak};
use crate::types::{BackendId, DevicePtr};
use std::sync::PoisonError;

/// An allocator of pinned memory.
pub(crate) trait Pins: Send + Sync {
    /// Gives back what is cached, and where it may wait, what devices are done with then. Calls the driver.
    fn give_back(&self, may_wait: bool);
    /// Memory of just so many bytes, and what names it. It is not cached after its [end](Self::end). **Blocks.**
    fn take(&self, bytes: u64) -> Result<(DevicePtr, u64)>;
    /// Such memory is not needed any more, and no work uses it. Calls the driver.
    fn end(&self, id: u64);
}

/// The newest comes last.
static ALL: Mutex<Vec<(BackendId, Weak<dyn Pins>)>> = Mutex::new(Vec::new());

/// From here on this is the backend's.
pub(crate) fn install(backend: BackendId, pins: &Arc<dyn Pins>) {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).push((backend, Arc::downgrade(pins)));
}

/// This one gives nothing out any more.
pub(crate) fn remove(pins: &Arc<dyn Pins>) {
    let is_other = |other: &Weak<dyn Pins>| !std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(pins));
    ALL.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, other)| is_other(other));
}

/// The newest of a backend.
pub(crate) fn of(backend: BackendId) -> Option<Arc<dyn Pins>> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut own = all.iter().rev().filter(|(of, _)| *of == backend);
    own.find_map(|(_, pins)| pins.upgrade())
}
