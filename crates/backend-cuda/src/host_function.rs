//! Rust closures as the driver's host functions and user objects.
//!
//! A closure launched into a stream stays here until the driver asks for it. One launched into a capture belongs to the
//! graph, which may run the function many times or never: it runs once, and is dropped with the graph.

use crate::capture::capture_info;
use crate::cuda::Cuda;
use crate::driver::{Site, pointer};
use crate::memory::log_undo;
use alloc_core::backend::{CaptureStatus, HostFunction, Result};
use alloc_core::types::Stream;
use cudarc::driver::sys::{CUgraph, CUhostFn, CUuserObject_flags};
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A closure that a graph holds; empty once it ran.
#[derive(Default)]
struct Slot(Mutex<Option<HostFunction>>);

impl Slot {
    fn put(&self, function: HostFunction) {
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

/// What [`run_queued`] takes to run the closure.
fn enqueue(function: HostFunction) -> *mut c_void {
    let mut queued = queued();
    queued.last += 1;
    let number = queued.last;
    queued.functions.insert(number, function);
    ptr::without_provenance_mut(number)
}

/// The closure, unless it ran already.
fn dequeue(data: *mut c_void) -> Option<HostFunction> {
    queued().functions.remove(&data.addr())
}

extern "C" fn run_queued(data: *mut c_void) {
    if let Some(function) = dequeue(data) {
        guarded(function);
    }
}

/// # Safety
/// `data` is a live `Slot`.
unsafe extern "C" fn run_slot(data: *mut c_void) {
    // SAFETY: the function's precondition.
    let slot = unsafe { &*data.cast::<Slot>() };
    guarded(|| {
        if let Some(function) = slot.take() {
            function();
        }
    });
}

/// # Safety
/// `data` is a `Box<Slot>` that was turned into a pointer, and is not used again.
unsafe extern "C" fn drop_slot(data: *mut c_void) {
    // SAFETY: the function's precondition.
    let slot = unsafe { Box::from_raw(data.cast::<Slot>()) };
    guarded(|| drop(slot));
}

/// # Safety
/// As for [`drop_slot`].
unsafe extern "C" fn run_and_drop_slot(data: *mut c_void) {
    // SAFETY: the function's precondition.
    let slot = unsafe { Box::from_raw(data.cast::<Slot>()) };
    guarded(|| {
        if let Some(function) = slot.take() {
            function();
        }
    });
}

/// Makes a graph hold an empty slot, lets `fill` use it, and takes the hold back where that fails. `ending`
/// gets the slot when the graph and all its launches are gone.
fn hold(
    site: Site<'_>,
    graph: CUgraph,
    ending: CUhostFn,
    fill: impl FnOnce(*mut Slot) -> Result<()>,
) -> Result<()> {
    let slot = Box::into_raw(Box::<Slot>::default());
    let flags = CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as c_uint;
    let mut object = ptr::null_mut();
    // SAFETY: `ending` takes a slot, and is called once, when the last reference is gone.
    let created = unsafe { call!(site.cuUserObjectCreate(&raw mut object, slot.cast(), ending, 1, flags)) };
    if let Err(error) = created {
        // SAFETY: made by `Box::into_raw` above, and the driver did not take it.
        drop(unsafe { Box::from_raw(slot) });
        return Err(error);
    }
    // SAFETY: the graph is under capture on a stream that the caller may use; the object was just made.
    let held = unsafe { call!(site.cuGraphRetainUserObject(graph, object, 1, 0)) };
    let done = held.and_then(|()| {
        fill(slot).inspect_err(|_| {
            // SAFETY: gives back the graph's reference that was just taken.
            log_undo(unsafe { call!(site.cuGraphReleaseUserObject(graph, object, 1)) });
        })
    });
    // SAFETY: gives back the reference of the creation; the graph keeps its own.
    log_undo(unsafe { call!(site.cuUserObjectRelease(object, 1)) });
    done
}

/// Runs `release` when the graph under capture and all its launches are gone; drops it where this fails.
pub(crate) fn run_with_last_reference(site: Site<'_>, graph: CUgraph, release: HostFunction) -> Result<()> {
    hold(site, graph, Some(run_and_drop_slot), |slot| {
        // SAFETY: the slot lives as long as the reference that `hold` still has.
        let slot = unsafe { &*slot };
        slot.put(release);
        Ok(())
    })
}

impl Cuda {
    pub(crate) fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuLaunchHostFunc")?;
        let site = *entered;
        if site.functions().cuStreamGetCaptureInfo_v2.is_some() {
            let info = capture_info(site, stream)?;
            if let CaptureStatus::Active(_) = info.status {
                return hold(site, info.graph, Some(drop_slot), |slot| {
                    // SAFETY: the slot lives as long as the reference that `hold` still has.
                    let filled = unsafe { &*slot };
                    filled.put(function);
                    // SAFETY: rule 1; the graph keeps the slot for as long as it can run the function.
                    unsafe { call!(site.cuLaunchHostFunc(pointer(stream.raw), Some(run_slot), slot.cast())) }
                });
            }
        }
        let data = enqueue(function);
        // SAFETY: rule 1; the function takes what `enqueue` answers, any number of times.
        unsafe { call!(site.cuLaunchHostFunc(pointer(stream.raw), Some(run_queued), data)) }
            .inspect_err(|_| drop(dequeue(data)))
    }
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
    fn a_function_that_never_ran_is_dropped_and_a_release_runs() {
        let count = Arc::new(AtomicUsize::new(0));
        for (ending, runs) in [(drop_slot as unsafe extern "C" fn(_), 0), (run_and_drop_slot, 1)] {
            let slot = Box::<Slot>::default();
            slot.put(counting(&count));
            // SAFETY: the slot comes from a box and is not used again.
            unsafe { ending(Box::into_raw(slot).cast()) };
            assert_eq!((count.load(Ordering::Relaxed), Arc::strong_count(&count)), (runs, 1));
        }
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
