//! Initialisation, the thread's device, its last error, primary contexts.

use crate::entry::{activate, current, device, device_count, here, machine, ready, run_anywhere};
use crate::last_error;
use crate::personality::personality;
use alloc_core::backend::Backend;
use alloc_core::types::DeviceIndex;
use granule_hip_sys::abi6::*;
use lookalike::entry::Entry;
use lookalike::events::lag;
use lookalike::{Answer, Code, contexts};
use std::ffi::{c_int, c_uint};
use std::ptr::without_provenance_mut;

fn put_version(version: &lookalike::argument::Out<c_int>) -> Answer {
    version.put(personality()?.version())
}

lookalike::entries! {
    run: run_anywhere, status: hipError_t;

    /// The driver's version, which is the runtime's.
    fn hipDriverGetVersion as hipDriverGetVersion_t(out version: *mut c_int) {
        put_version(&version)
    }

    /// The runtime's version.
    fn hipRuntimeGetVersion as hipRuntimeGetVersion_t(out version: *mut c_int) {
        put_version(&version)
    }

    /// How many devices there are. None is an error, and written nevertheless.
    fn hipGetDeviceCount as hipGetDeviceCount_t(out count: *mut c_int) {
        let devices = device_count()?;
        count.put(c_int::from(devices))?;
        if devices == 0 { Err(Code::NO_DEVICE) } else { Ok(()) }
    }
}

lookalike::entries! {
    rows: more_entries, run: crate::entry::run, status: hipError_t;

    /// Initialises the runtime, as any other call would.
    fn hipInit as hipInit_t(val flags: c_uint) {
        if flags == 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// A device by its number, which is its handle too.
    fn hipDeviceGet as hipDeviceGet_t(out found: *mut hipDevice_t, val ordinal: c_int) {
        device(ordinal)?;
        found.put(ordinal)
    }

    /// Makes a device the thread's own.
    fn hipSetDevice as hipSetDevice_t(val number: c_int) {
        let device = device(number)?;
        Ok(machine()?.set_device(device)?)
    }

    /// The thread's device.
    fn hipGetDevice as hipGetDevice_t(out number: *mut c_int) {
        let (_, DeviceIndex(device)) = current()?;
        number.put(c_int::from(device))
    }

    /// Waits for all work of the current device.
    fn hipDeviceSynchronize as hipDeviceSynchronize_t() {
        let here = here()?;
        here.machine.synchronize_device(here.device)?;
        lag::device_waited_for(here.device);
        Ok(())
    }

    /// Whether a device was used.
    fn hipDevicePrimaryCtxGetState as hipDevicePrimaryCtxGetState_t(
        val number: hipDevice_t, out flags: *mut c_uint, out active: *mut c_int,
    ) {
        let (set, exists) = contexts::state(device(number)?);
        flags.put_if_wanted(set);
        active.put_if_wanted(c_int::from(exists));
        Ok(())
    }

    /// A device's primary context.
    fn hipDevicePrimaryCtxRetain as hipDevicePrimaryCtxRetain_t(out context: *mut hipCtx_t, val number: hipDevice_t) {
        let device = device(number)?;
        context.wanted()?;
        activate(device);
        context.put(without_provenance_mut(contexts::handle_of(device)))
    }

    /// Does nothing: contexts are there for CUDA's sake.
    fn hipDevicePrimaryCtxRelease as hipDevicePrimaryCtxRelease_t(val number: hipDevice_t) {
        device(number).map(drop)
    }
}

fn answer(status: i32) -> Answer {
    if status == 0 { Ok(()) } else { Err(Code(status)) }
}

/// Runs a question for the last error, which leaves none itself.
fn ask(entry: &'static Entry, body: impl FnOnce() -> Answer) -> hipError_t {
    let asked = || ready().and_then(|_| body());
    lookalike::entry::enter(entry, asked).map_or_else(|code| code.0.cast_unsigned(), |()| hipSuccess)
}

lookalike::entries! {
    rows: last_entries, run: crate::context::ask, status: hipError_t;

    /// The last error, which is forgotten then.
    fn hipGetLastError as hipGetLastError_t() {
        answer(last_error::take()?)
    }

    /// The last error.
    fn hipPeekAtLastError as hipPeekAtLastError_t() {
        answer(last_error::peek()?)
    }

    /// The status of the last call, which is forgotten then.
    fn hipExtGetLastError as hipExtGetLastError_t() {
        answer(last_error::take_status())
    }
}
