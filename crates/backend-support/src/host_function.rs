//! Rust closures as a driver's host functions and user objects.
//!
//! A closure that is launched into a stream stays here until the driver asks for it: [`enqueue`], [`run_queued`].
//! One that is launched into a capture belongs to the graph, which may run the function many times or never: it
//! runs once, and is dropped with the graph. For that the graph holds a [`Slot`], as the data of a user object whose
//! destructor is [`drop_slot`], and launches [`run_slot`].

use backend_api::HostFunction;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A closure that a graph holds; empty until [`put`](Self::put), and once it ran. Boxed and turned into a pointer,
/// it is the data of [`run_slot`] and [`drop_slot`].
#[derive(Default)]
pub struct Slot(Mutex<Option<HostFunction>>);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Slot {
    /// Fills the slot.
    pub fn put(&self, function: HostFunction) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(function);
    }

    fn take(&self) -> Option<HostFunction> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A panic must not cross the driver's frames.
fn guarded(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!("a host function panicked");
    }
}

/// Closures that streams will run, by number. A capture may begin between the question whether there is one and the
/// launch: then the function is a graph's and may run several times, so the closure is not the driver's to free.
static QUEUED: Mutex<Queued> = Mutex::new(Queued { last: 0, functions: BTreeMap::new() });

struct Queued {
    last: usize,
    functions: BTreeMap<usize, HostFunction>,
}

fn queued() -> MutexGuard<'static, Queued> {
    QUEUED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What [`run_queued`] takes to run the closure. Where the launch then fails, [`dequeue`] takes it back.
pub fn enqueue(function: HostFunction) -> *mut c_void {
    let mut queued = queued();
    queued.last += 1;
    let number = queued.last;
    queued.functions.insert(number, function);
    ptr::without_provenance_mut(number)
}

/// The closure, unless it ran or was taken back already. Any value may be asked.
pub fn dequeue(data: *mut c_void) -> Option<HostFunction> {
    queued().functions.remove(&data.addr())
}

/// A host function: runs what [`enqueue`] took, once; later calls do nothing. A panic of the closure is logged.
pub extern "C" fn run_queued(data: *mut c_void) {
    if let Some(function) = dequeue(data) {
        guarded(function);
    }
}

/// A host function: runs what is in a slot, once; later calls do nothing. A panic of the closure is logged.
///
/// # Safety
/// `data` is a live [`Slot`].
pub unsafe extern "C" fn run_slot(data: *mut c_void) {
    // SAFETY: the function's precondition.
    let slot = unsafe { &*data.cast::<Slot>() };
    guarded(|| {
        if let Some(function) = slot.take() {
            function();
        }
    });
}

/// A destructor: drops a slot, and what is in it without running it.
///
/// # Safety
/// `data` is a `Box<Slot>` that was turned into a pointer, and is not used again.
pub unsafe extern "C" fn drop_slot(data: *mut c_void) {
    // SAFETY: the function's precondition.
    let slot = unsafe { Box::from_raw(data.cast::<Slot>()) };
    guarded(|| drop(slot));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn counting(count: &Arc<AtomicUsize>) -> HostFunction {
        let count = Arc::clone(count);
        Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })
    }

    #[test]
    fn a_captured_function_runs_once_and_is_dropped_with_its_graph() {
        let count = Arc::new(AtomicUsize::new(0));
        let slot = Box::into_raw(Box::<Slot>::default());
        // SAFETY: the slot is live until `drop_slot`.
        unsafe { (*slot).put(counting(&count)) };
        for _ in 0..3 {
            // SAFETY: the slot is live.
            unsafe { run_slot(slot.cast()) };
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        // SAFETY: the slot came from a box and is not used again.
        unsafe { drop_slot(slot.cast()) };
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn a_function_that_never_ran_is_dropped() {
        let count = Arc::new(AtomicUsize::new(0));
        let slot = Box::<Slot>::default();
        slot.put(counting(&count));
        // SAFETY: the slot comes from a box and is not used again.
        unsafe { drop_slot(Box::into_raw(slot).cast()) };
        assert_eq!((count.load(Ordering::Relaxed), Arc::strong_count(&count)), (0, 1));
    }

    #[test]
    fn a_panic_does_not_leave_the_host_function() {
        run_queued(enqueue(Box::new(|| panic!("of a user's function"))));
    }

    /// As of a graph into which it came because a capture began just before the launch.
    #[test]
    fn a_queued_function_that_is_run_again_does_nothing() {
        let count = Arc::new(AtomicUsize::new(0));
        let data = enqueue(counting(&count));
        run_queued(data);
        run_queued(data);
        assert_eq!((count.load(Ordering::Relaxed), Arc::strong_count(&count)), (1, 1));
    }
}
