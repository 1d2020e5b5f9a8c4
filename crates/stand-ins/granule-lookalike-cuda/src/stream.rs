//! Streams.

use crate::entry::here;
use crate::header::*;
use crate::personality::since;
use backend_api::types::DevicePtr;
use backend_openreg::Driver;
use lookalike::callback::Callback;
use lookalike::{Code, contexts, streams};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ops::RangeInclusive;
use std::ptr::without_provenance_mut;

/// The driver's priorities, the most urgent first.
pub const PRIORITIES: RangeInclusive<c_int> = -5..=0;

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// A new stream.
    fn cuStreamCreate as cuStreamCreate_t(out stream: *mut CUstream, val flags: c_uint) {
        streams::create(here()?, &stream, flags, 0, &PRIORITIES)
    }

    /// A new stream with a priority.
    fn cuStreamCreateWithPriority as cuStreamCreateWithPriority_t(
        out stream: *mut CUstream, val flags: c_uint, val priority: c_int,
    ) {
        streams::create(here()?, &stream, flags, priority, &PRIORITIES)
    }

    /// Destroys a stream; what is queued still runs.
    fn cuStreamDestroy_v2 as cuStreamDestroy_v2_t(val stream: CUstream) {
        streams::destroy(here()?, stream)
    }

    /// Whether everything queued is done.
    fn cuStreamQuery as cuStreamQuery_t(val stream: CUstream) {
        streams::query(here()?, stream)
    }

    /// Waits until everything queued is done.
    fn cuStreamSynchronize as cuStreamSynchronize_t(val stream: CUstream) {
        streams::synchronize(here()?, stream)
    }

    /// Lets later work wait for an event.
    fn cuStreamWaitEvent as cuStreamWaitEvent_t(val stream: CUstream, val event: CUevent, val flags: c_uint) {
        streams::wait_event(here()?, stream, event, flags)
    }

    /// A stream's priority.
    fn cuStreamGetPriority as cuStreamGetPriority_t(val stream: CUstream, out priority: *mut c_int) {
        priority.put(here()?.stream(stream)?.priority)
    }

    /// A stream's flags.
    fn cuStreamGetFlags as cuStreamGetFlags_t(val stream: CUstream, out flags: *mut c_uint) {
        flags.put(here()?.stream(stream)?.flags)
    }

    /// A stream's device.
    fn cuStreamGetDevice as cuStreamGetDevice_t(val stream: CUstream, out device: *mut CUdevice) {
        since(12_080)?;
        device.put(CUdevice::from(here()?.stream(stream)?.stream.device.0))
    }

    /// A stream's context.
    fn cuStreamGetCtx as cuStreamGetCtx_t(val stream: CUstream, out context: *mut CUcontext) {
        let device = here()?.stream(stream)?.stream.device;
        context.put(without_provenance_mut(contexts::handle_of(device)))
    }

    /// A number that no other stream of the process ever has.
    fn cuStreamGetId as cuStreamGetId_t(val stream: CUstream, out id: *mut c_ulonglong) {
        since(12_000)?;
        id.put(streams::id(here()?, stream)?)
    }

    /// Runs a function on the host.
    fn cuLaunchHostFunc as cuLaunchHostFunc_t(val stream: CUstream, val function: CUhostFn, val data: *mut c_void) {
        // SAFETY: the caller promises a function that may be called with its data, on a thread of the driver.
        streams::call(here()?, stream, unsafe { Callback::new(function, data) }?)
    }

    /// Runs a function on the host; the older form, which captures refuse.
    fn cuStreamAddCallback as cuStreamAddCallback_t(
        val stream: CUstream, val function: CUstreamCallback, val data: *mut c_void, val flags: c_uint,
    ) {
        streams::add_callback(here()?, stream, function, data, flags)
    }

    /// Writes a word.
    fn cuStreamWriteValue32_v2 as cuStreamWriteValue32_v2_t(
        val stream: CUstream, val at: CUdeviceptr, val value: cuuint32_t, val flags: c_uint,
    ) {
        since(11_070)?;
        let here = here()?;
        if flags & !CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER != 0 || !at.is_multiple_of(4) {
            return Err(Code::INVALID_VALUE);
        }
        let stream = here.work_stream(stream)?;
        Ok(Driver(here.machine).fill(stream, DevicePtr(at), &value.to_ne_bytes(), 4)?)
    }
}
