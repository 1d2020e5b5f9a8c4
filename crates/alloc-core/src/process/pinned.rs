//! The allocators of pinned memory, for what pins memory below them: where a backend has one, it takes that from there.

use super::leaked_list::LeakedList;
use crate::backend::Result;
use crate::sync::plain::{Mutex, MutexGuard};
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

/// The allocators over a backend. The newest comes last.
struct PinsOver {
    backend: BackendId,
    all: Mutex<Vec<Weak<dyn Pins>>>,
}

static ALL: LeakedList<PinsOver> = LeakedList::new();

/// Those of one backend: a forked child, which has backends of its own, waits for no lock of its parent's threads.
fn over(backend: BackendId) -> MutexGuard<'static, Vec<Weak<dyn Pins>>> {
    let new = || PinsOver { backend, all: Mutex::default() };
    let own = ALL.find_or_add(|one| one.backend == backend, new);
    own.all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on this is the backend's.
pub(crate) fn install(backend: BackendId, pins: &Arc<dyn Pins>) {
    over(backend).push(Arc::downgrade(pins));
}

/// This one gives nothing out any more.
pub(crate) fn remove(backend: BackendId, pins: &Arc<dyn Pins>) {
    over(backend).retain(|other| !std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(pins)));
}

/// The newest of a backend.
pub(crate) fn of(backend: BackendId) -> Option<Arc<dyn Pins>> {
    over(backend).iter().rev().find_map(Weak::upgrade)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Nothing;

    impl Pins for Nothing {
        fn give_back(&self, _: bool) {}
        fn take(&self, _: u64) -> Result<(DevicePtr, u64)> {
            Ok((DevicePtr::NULL, 0))
        }
        fn end(&self, _: u64) {}
    }

    /// True if an allocator is found while it is there.
    fn comes_and_goes(backend: BackendId) -> bool {
        let pins = Arc::new(Nothing) as Arc<dyn Pins>;
        install(backend, &pins);
        let found = of(backend).is_some();
        remove(backend, &pins);
        found && of(backend).is_none()
    }

    #[test]
    fn a_forked_child_waits_for_no_thread_of_its_parent() {
        let (of_parent, of_child, ended) = (BackendId(911), BackendId(912), AtomicBool::new(false));
        let in_child = || {
            // SAFETY: the child calls what is under test, which must take no lock of the parent's, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: no handler is there: the alarm ends a child that hangs.
                unsafe { libc::alarm(10) };
                // SAFETY: nothing of the parent's is touched at the end.
                unsafe { libc::_exit(i32::from(!comes_and_goes(of_child))) };
            }
            let mut status = 0;
            // SAFETY: `status` lives until the call has returned.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            (waited, status) == (child, 0)
        };
        std::thread::scope(|scope| {
            let parent = scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    assert!(comes_and_goes(of_parent));
                }
            });
            let all = (0..100).all(|_| in_child());
            ended.store(true, Ordering::Release);
            parent.join().expect("it ends");
            assert!(all, "a child hung");
        });
    }
}
