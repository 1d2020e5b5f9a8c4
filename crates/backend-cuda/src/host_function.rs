//! Rust closures as the driver's host functions and user objects; the functions that it calls are in `backend_support`.
//!
//! A closure launched into a stream is queued until the driver asks for it. One launched into a capture belongs to the
//! graph, which may run the function many times or never: it runs once, and is dropped with the graph.

use crate::capture::capture_info;
use crate::cuda::Cuda;
use crate::driver::{Site, pointer};
use crate::memory::log_undo;
use backend_api::types::Stream;
use backend_api::{CaptureStatus, HostFunction, Result};
use backend_support::host_function::{
    Slot, dequeue, drop_slot, enqueue, run_and_drop_slot, run_queued, run_slot,
};
use cudarc::driver::sys::{CUgraph, CUhostFn, CUuserObject_flags};
use std::ffi::c_uint;
use std::ptr;

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
