//! Rust closures as the runtime's host functions and user objects; the functions that it calls are in `backend_support`.
//!
//! A closure launched into a stream is queued until the runtime asks for it. One launched into a capture belongs to the
//! graph, which may run the function many times or never: it runs once, and is dropped with the graph.

use crate::capture::capture_info;
use crate::driver::{Site, pointer};
use crate::hip::Hip;
use crate::memory::log_undo;
use backend_api::types::Stream;
use backend_api::{CaptureStatus, HostFunction, Result};
use backend_support::host_function::{
    Slot, dequeue, drop_slot, enqueue, run_and_drop_slot, run_queued, run_slot,
};
use hip_sys::abi6::{hipError_t, hipGraph_t, hipHostFn_t, hipStream_t, hipUserObjectNoDestructorSync};
use std::ffi::c_void;
use std::ptr;

/// The same as a callback of runtimes that have no `hipLaunchHostFunc` (before 5.3).
extern "C" fn run_queued_callback(_stream: hipStream_t, _status: hipError_t, data: *mut c_void) {
    run_queued(data);
}

/// Makes a graph hold an empty slot, lets `fill` use it, and takes the hold back where that fails. `ending`
/// gets the slot when the graph and all its launches are gone.
fn hold(
    site: Site<'_>,
    graph: hipGraph_t,
    ending: hipHostFn_t,
    fill: impl FnOnce(*mut Slot) -> Result<()>,
) -> Result<()> {
    let slot = Box::into_raw(Box::<Slot>::default());
    let flags = hipUserObjectNoDestructorSync;
    let mut object = ptr::null_mut();
    // SAFETY: `ending` takes a slot, and is called once, when the last reference is gone.
    let created = unsafe { call!(site.hipUserObjectCreate(&raw mut object, slot.cast(), ending, 1, flags)) };
    if let Err(error) = created {
        // SAFETY: made by `Box::into_raw` above, and the runtime did not take it.
        drop(unsafe { Box::from_raw(slot) });
        return Err(error);
    }
    // SAFETY: the graph is under capture on a stream that the caller may use; the object was just made.
    let held = unsafe { call!(site.hipGraphRetainUserObject(graph, object, 1, 0)) };
    let done = held.and_then(|()| {
        fill(slot).inspect_err(|_| {
            // SAFETY: gives back the graph's reference that was just taken.
            log_undo(unsafe { call!(site.hipGraphReleaseUserObject(graph, object, 1)) });
        })
    });
    // SAFETY: gives back the reference of the creation; the graph keeps its own.
    log_undo(unsafe { call!(site.hipUserObjectRelease(object, 1)) });
    done
}

/// Runs `release` when the graph under capture and all its launches are gone; drops it where this fails.
pub(crate) fn run_with_last_reference(
    site: Site<'_>,
    graph: hipGraph_t,
    release: HostFunction,
) -> Result<()> {
    hold(site, graph, Some(run_and_drop_slot), |slot| {
        // SAFETY: the slot lives as long as the reference that `hold` still has.
        let slot = unsafe { &*slot };
        slot.put(release);
        Ok(())
    })
}

impl Hip {
    pub(crate) fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipLaunchHostFunc")?;
        let site = *entered;
        if site.functions().hipStreamGetCaptureInfo_v2.is_some() {
            let info = capture_info(site, stream)?;
            if let CaptureStatus::Active(_) = info.status {
                return hold(site, info.graph, Some(drop_slot), |slot| {
                    // SAFETY: the slot lives as long as the reference that `hold` still has.
                    let filled = unsafe { &*slot };
                    filled.put(function);
                    // SAFETY: rule 1; the graph keeps the slot for as long as it can run the function.
                    unsafe { call!(site.hipLaunchHostFunc(pointer(stream.raw), Some(run_slot), slot.cast())) }
                });
            }
        }
        let data = enqueue(function);
        let queued = if site.functions().hipLaunchHostFunc.is_some() {
            // SAFETY: rule 1; the function takes what `enqueue` answers, any number of times.
            unsafe { call!(site.hipLaunchHostFunc(pointer(stream.raw), Some(run_queued), data)) }
        } else {
            let (queue, callback) = (pointer(stream.raw), Some(run_queued_callback as _));
            // SAFETY: as above.
            unsafe { call!(site.hipStreamAddCallback(queue, callback, data, 0)) }
        };
        queued.inspect_err(|_| drop(dequeue(data)))
    }
}
