//! Streams.

use crate::entry::here;
use crate::event::lag;
use crate::header::*;
use crate::personality::since;
use backend_api::types::DevicePtr;
use backend_api::{Backend, Readiness};
use backend_openreg::Driver;
use lookalike::callback::Callback;
use lookalike::{Answer, Code, contexts, events, streams};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::without_provenance_mut;

/// The least urgent priority of the driver's streams.
pub const LEAST_PRIORITY: c_int = 0;
/// The most urgent.
pub const GREATEST_PRIORITY: c_int = -5;

fn create(flags: c_uint, priority: c_int) -> Answer<CUstream> {
    let here = here()?;
    if flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    // The machine has fewer priorities, and clamps.
    streams::create(here.machine, here.device, flags, priority).map(without_provenance_mut)
}

fn callback(function: CUhostFn, data: *mut c_void) -> Answer<Callback> {
    let function = function.ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller promises a function that may be called with its data, on a thread of the driver.
    Ok(unsafe { Callback::new(function, data) })
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// A new stream.
    fn cuStreamCreate as cuStreamCreate_t(out stream: *mut CUstream, val flags: c_uint) {
        stream.wanted()?;
        stream.put(create(flags, 0)?)
    }

    /// A new stream with a priority.
    fn cuStreamCreateWithPriority as cuStreamCreateWithPriority_t(
        out stream: *mut CUstream, val flags: c_uint, val priority: c_int,
    ) {
        stream.wanted()?;
        stream.put(create(flags, priority)?)
    }

    /// Destroys a stream; what is queued still runs.
    fn cuStreamDestroy_v2 as cuStreamDestroy_v2_t(val stream: CUstream) {
        let here = here()?;
        here.stream(stream)?;
        streams::destroy(here.machine, stream.addr())
    }

    /// Whether everything queued is done.
    fn cuStreamQuery as cuStreamQuery_t(val stream: CUstream) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        match here.machine.query_stream(stream)? {
            Readiness::Ready => Ok(()),
            Readiness::NotReady => Err(Code::NOT_READY),
        }
    }

    /// Waits until everything queued is done.
    fn cuStreamSynchronize as cuStreamSynchronize_t(val stream: CUstream) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        here.machine.synchronize_stream(stream)?;
        lag::stream_waited_for(stream);
        Ok(())
    }

    /// Lets later work wait for an event.
    fn cuStreamWaitEvent as cuStreamWaitEvent_t(val stream: CUstream, val event: CUevent, val flags: c_uint) {
        let here = here()?;
        if flags & !CU_EVENT_WAIT_EXTERNAL != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let event = events::resolve(event.addr())?.event;
        let stream = here.work_stream(stream)?;
        Ok(here.machine.wait_event(stream, event)?)
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
        let stream = here()?.stream(stream)?.stream;
        // Default streams have no number in the machine: theirs come from the device.
        id.put(if stream.raw == 0 { u64::MAX - u64::from(stream.device.0) } else { stream.raw })
    }

    /// Runs a function on the host.
    fn cuLaunchHostFunc as cuLaunchHostFunc_t(val stream: CUstream, val function: CUhostFn, val data: *mut c_void) {
        let here = here()?;
        let function = callback(function, data)?;
        let stream = here.work_stream(stream)?;
        Ok(Driver(here.machine).host_call(stream, move || function.run())?)
    }

    /// Runs a function on the host; the older form, which captures refuse.
    fn cuStreamAddCallback as cuStreamAddCallback_t(
        val stream: CUstream, val function: CUstreamCallback, val data: *mut c_void, val flags: c_uint,
    ) {
        let here = here()?;
        let called = function.ok_or(Code::INVALID_VALUE)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (handle, data) = (stream.addr(), data.addr());
        let stream = here.work_stream(stream)?;
        if lookalike::graphs::info(here.machine, stream)?.status != CU_STREAM_CAPTURE_STATUS_NONE {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let function = move || {
            let (stream, data) = (without_provenance_mut(handle), without_provenance_mut(data));
            // SAFETY: the caller promises a function that may be called with its data, on a thread of the driver.
            unsafe { called(stream, CUDA_SUCCESS, data) };
        };
        Ok(here.machine.launch_host_function(stream, Box::new(function))?)
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
