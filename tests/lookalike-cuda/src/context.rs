//! Initialisation, and contexts.

use crate::entry::{device, driver, here, initialise};
use crate::header::*;
use crate::personality::personality;
use alloc_core::backend::Backend;
use alloc_core::types::DeviceIndex;
use lookalike::{Code, contexts};
use std::ffi::{c_int, c_uint};
use std::ptr::without_provenance_mut;

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Initialises the driver; the first call of every program.
    fn cuInit as cuInit_t(val flags: c_uint) {
        if flags != 0 { Err(Code::INVALID_VALUE) } else { initialise() }
    }

    /// The driver's version; works before initialisation.
    fn cuDriverGetVersion as cuDriverGetVersion_t(out version: *mut c_int) {
        version.put(personality()?.version())
    }

    /// A reference to a device's primary context.
    fn cuDevicePrimaryCtxRetain as cuDevicePrimaryCtxRetain_t(out context: *mut CUcontext, val number: CUdevice) {
        let device = device(number)?;
        context.wanted()?;
        context.put(without_provenance_mut(contexts::retain(device)))
    }

    /// Gives a reference back.
    fn cuDevicePrimaryCtxRelease_v2 as cuDevicePrimaryCtxRelease_v2_t(val number: CUdevice) {
        contexts::release(device(number)?)
    }

    /// Whether a device's primary context exists.
    fn cuDevicePrimaryCtxGetState as cuDevicePrimaryCtxGetState_t(
        val number: CUdevice, out flags: *mut c_uint, out active: *mut c_int,
    ) {
        let (set, exists) = contexts::state(device(number)?);
        flags.put(set)?;
        active.put(c_int::from(exists))
    }

    /// Puts a context on the thread's stack.
    fn cuCtxPushCurrent_v2 as cuCtxPushCurrent_v2_t(val context: CUcontext) {
        driver()?;
        contexts::push(context.addr())
    }

    /// Takes the uppermost context off the thread's stack.
    fn cuCtxPopCurrent_v2 as cuCtxPopCurrent_v2_t(out context: *mut CUcontext) {
        driver()?;
        let popped = contexts::pop()?;
        context.put_if_wanted(without_provenance_mut(popped));
        Ok(())
    }

    /// Replaces the uppermost context.
    fn cuCtxSetCurrent as cuCtxSetCurrent_t(val context: CUcontext) {
        driver()?;
        contexts::set(context.addr())
    }

    /// The current context, null where there is none.
    fn cuCtxGetCurrent as cuCtxGetCurrent_t(out context: *mut CUcontext) {
        driver()?;
        context.put(without_provenance_mut(contexts::current()))
    }

    /// The device of the current context.
    fn cuCtxGetDevice as cuCtxGetDevice_t(out number: *mut CUdevice) {
        driver()?;
        let DeviceIndex(index) = contexts::current_device()?;
        number.put(CUdevice::from(index))
    }

    /// Waits for all work of the current context.
    fn cuCtxSynchronize as cuCtxSynchronize_t() {
        let here = here()?;
        Ok(here.machine.synchronize_device(here.device)?)
    }

    /// The stream priorities that make a difference.
    fn cuCtxGetStreamPriorityRange as cuCtxGetStreamPriorityRange_t(
        out least: *mut c_int, out greatest: *mut c_int,
    ) {
        here()?;
        least.put_if_wanted(crate::stream::LEAST_PRIORITY);
        greatest.put_if_wanted(crate::stream::GREATEST_PRIORITY);
        Ok(())
    }
}
