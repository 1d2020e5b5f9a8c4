//! Streams.

use crate::entry::{here, ready};
use alloc_core::backend::{Backend, Readiness};
use granule_hip_sys::abi6::*;
use granule_hip_sys::abi7::hipStreamGetId_t;
use lookalike::argument::Out;
use lookalike::callback::Callback;
use lookalike::{Answer, Code, events, graphs, streams};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::without_provenance_mut;

/// The least urgent priority of the runtime's streams.
const LEAST_PRIORITY: c_int = 1;
/// The most urgent.
const GREATEST_PRIORITY: c_int = -1;
/// What stands for the device of a stream that has none.
const NO_DEVICE: c_int = -1;

fn create(stream: &Out<hipStream_t>, flags: c_uint, priority: c_int) -> Answer {
    let here = here()?;
    stream.wanted()?;
    if flags & !hipStreamNonBlocking != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    // The machine has no priority below the normal one, and clamps.
    stream.put(without_provenance_mut(streams::create(here.machine, here.device, flags, priority)?))
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// A new stream.
    fn hipStreamCreate as hipStreamCreate_t(out stream: *mut hipStream_t) {
        create(&stream, hipStreamDefault, 0)
    }

    /// A new stream with flags.
    fn hipStreamCreateWithFlags as hipStreamCreateWithFlags_t(out stream: *mut hipStream_t, val flags: c_uint) {
        create(&stream, flags, 0)
    }

    /// A new stream with flags and a priority.
    fn hipStreamCreateWithPriority as hipStreamCreateWithPriority_t(
        out stream: *mut hipStream_t, val flags: c_uint, val priority: c_int,
    ) {
        create(&stream, flags, priority)
    }

    /// The stream priorities that make a difference.
    fn hipDeviceGetStreamPriorityRange as hipDeviceGetStreamPriorityRange_t(
        out least: *mut c_int, out greatest: *mut c_int,
    ) {
        least.put_if_wanted(LEAST_PRIORITY);
        greatest.put_if_wanted(GREATEST_PRIORITY);
        Ok(())
    }

    /// Destroys a stream; what is queued still runs.
    fn hipStreamDestroy as hipStreamDestroy_t(val stream: hipStream_t) {
        let here = here()?;
        here.stream(stream)?;
        streams::destroy(here.machine, stream.addr())
    }

    /// Whether everything queued is done.
    fn hipStreamQuery as hipStreamQuery_t(val stream: hipStream_t) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        match here.machine.query_stream(stream)? {
            Readiness::Ready => Ok(()),
            Readiness::NotReady => Err(Code::NOT_READY),
        }
    }

    /// Waits until everything queued is done.
    fn hipStreamSynchronize as hipStreamSynchronize_t(val stream: hipStream_t) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        Ok(here.machine.synchronize_stream(stream)?)
    }

    /// Lets later work wait for an event.
    fn hipStreamWaitEvent as hipStreamWaitEvent_t(
        val stream: hipStream_t, val event: hipEvent_t, val flags: c_uint,
    ) {
        let here = here()?;
        if flags > hipEventWaitExternal {
            return Err(Code::INVALID_VALUE);
        }
        let event = events::resolve(event.addr())?.event;
        let stream = here.work_stream(stream)?;
        Ok(here.machine.wait_event(stream, event)?)
    }

    /// A stream's flags.
    fn hipStreamGetFlags as hipStreamGetFlags_t(val stream: hipStream_t, out flags: *mut c_uint) {
        flags.put(here()?.stream(stream)?.flags)
    }

    /// A stream's priority.
    fn hipStreamGetPriority as hipStreamGetPriority_t(val stream: hipStream_t, out priority: *mut c_int) {
        priority.put(here()?.stream(stream)?.priority)
    }

    /// A stream's device.
    fn hipStreamGetDevice as hipStreamGetDevice_t(val stream: hipStream_t, out device: *mut hipDevice_t) {
        device.put(hipDevice_t::from(here()?.stream(stream)?.stream.device.0))
    }

    /// A number that no other stream of the process ever has.
    fn hipStreamGetId as hipStreamGetId_t(val stream: hipStream_t, out id: *mut c_ulonglong) {
        let stream = here()?.stream(stream)?.stream;
        // Default streams have no number in the machine: theirs come from the device.
        id.put(if stream.raw == 0 { u64::MAX - u64::from(stream.device.0) } else { stream.raw })
    }

    /// Runs a function on the host.
    fn hipLaunchHostFunc as hipLaunchHostFunc_t(
        val stream: hipStream_t, val function: hipHostFn_t, val data: *mut c_void,
    ) {
        let here = here()?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller promises a function that may be called with its data, on a thread of the runtime.
        let function = unsafe { Callback::new(function, data) };
        let stream = here.work_stream(stream)?;
        Ok(here.machine.launch_host_function(stream, function.into_host_function())?)
    }

    /// Runs a function on the host; the older form, which captures refuse.
    fn hipStreamAddCallback as hipStreamAddCallback_t(
        val stream: hipStream_t, val function: hipStreamCallback_t, val data: *mut c_void, val flags: c_uint,
    ) {
        let here = here()?;
        let called = function.ok_or(Code::INVALID_VALUE)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (handle, data) = (stream.addr(), data.expose_provenance());
        let stream = here.work_stream(stream)?;
        if here.machine.capture().is_ok() && graphs::info(here.machine, stream)?.status != hipStreamCaptureStatusNone {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let function = move || {
            let (stream, data) = (without_provenance_mut(handle), std::ptr::with_exposed_provenance_mut(data));
            // SAFETY: the caller promises a function that may be called with its data, on a thread of the runtime.
            unsafe { called(stream, hipSuccess, data) };
        };
        Ok(here.machine.launch_host_function(stream, Box::new(function))?)
    }
}

/// A stream's device; answers it instead of a status.
///
/// # Safety
/// None is needed: any handle may be asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetStreamDeviceId(stream: hipStream_t) -> c_int {
    let find = || Ok(c_int::from(streams::resolve(ready()?, here()?.device, stream.addr())?.stream.device.0));
    static ENTRY: lookalike::entry::Entry = lookalike::entry::Entry::new("hipGetStreamDeviceId");
    lookalike::entry::enter(&ENTRY, find).unwrap_or(NO_DEVICE)
}
const _: hipGetStreamDeviceId_t = hipGetStreamDeviceId;
