//! Streams.

use crate::entry::{here, ready};
use granule_hip_sys::abi6::*;
use granule_hip_sys::abi7::hipStreamGetId_t;
use lookalike::callback::Callback;
use lookalike::streams;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ops::RangeInclusive;

/// The runtime's priorities, the most urgent first.
const PRIORITIES: RangeInclusive<c_int> = -1..=1;
/// What stands for the device of a stream that has none.
const NO_DEVICE: c_int = -1;

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// A new stream.
    fn hipStreamCreate as hipStreamCreate_t(out stream: *mut hipStream_t) {
        streams::create(here()?, &stream, hipStreamDefault, 0, &PRIORITIES)
    }

    /// A new stream with flags.
    fn hipStreamCreateWithFlags as hipStreamCreateWithFlags_t(out stream: *mut hipStream_t, val flags: c_uint) {
        streams::create(here()?, &stream, flags, 0, &PRIORITIES)
    }

    /// A new stream with flags and a priority.
    fn hipStreamCreateWithPriority as hipStreamCreateWithPriority_t(
        out stream: *mut hipStream_t, val flags: c_uint, val priority: c_int,
    ) {
        streams::create(here()?, &stream, flags, priority, &PRIORITIES)
    }

    /// The stream priorities that make a difference.
    fn hipDeviceGetStreamPriorityRange as hipDeviceGetStreamPriorityRange_t(
        out least: *mut c_int, out greatest: *mut c_int,
    ) {
        least.put_if_wanted(*PRIORITIES.end());
        greatest.put_if_wanted(*PRIORITIES.start());
        Ok(())
    }

    /// Destroys a stream; what is queued still runs.
    fn hipStreamDestroy as hipStreamDestroy_t(val stream: hipStream_t) {
        streams::destroy(here()?, stream)
    }

    /// Whether everything queued is done.
    fn hipStreamQuery as hipStreamQuery_t(val stream: hipStream_t) {
        streams::query(here()?, stream)
    }

    /// Waits until everything queued is done.
    fn hipStreamSynchronize as hipStreamSynchronize_t(val stream: hipStream_t) {
        streams::synchronize(here()?, stream)
    }

    /// Lets later work wait for an event.
    fn hipStreamWaitEvent as hipStreamWaitEvent_t(
        val stream: hipStream_t, val event: hipEvent_t, val flags: c_uint,
    ) {
        streams::wait_event(here()?, stream, event, flags)
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
        id.put(streams::id(here()?, stream)?)
    }

    /// Runs a function on the host.
    fn hipLaunchHostFunc as hipLaunchHostFunc_t(
        val stream: hipStream_t, val function: hipHostFn_t, val data: *mut c_void,
    ) {
        // SAFETY: the caller promises a function that may be called with its data, on a thread of the runtime.
        streams::call(here()?, stream, unsafe { Callback::new(function, data) }?)
    }

    /// Runs a function on the host; the older form, which captures refuse.
    fn hipStreamAddCallback as hipStreamAddCallback_t(
        val stream: hipStream_t, val function: hipStreamCallback_t, val data: *mut c_void, val flags: c_uint,
    ) {
        streams::add_callback(here()?, stream, function, data, flags)
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
