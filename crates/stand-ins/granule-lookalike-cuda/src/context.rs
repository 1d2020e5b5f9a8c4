//! Initialisation, and contexts.

pub mod peers;

use crate::entry::{device, driver, here, initialise};
use crate::header::*;
use crate::personality::personality;
use crate::stream::PRIORITIES;
use backend_api::Backend;
use backend_api::types::DeviceIndex;
use lookalike::events::lag;
use lookalike::{Answer, Code, contexts};
use std::ffi::{c_int, c_uint};
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

static LIMITS: [AtomicUsize; CU_LIMIT_MAX as usize] = [const { AtomicUsize::new(0) }; CU_LIMIT_MAX as usize];

fn limit(which: CUlimit) -> Answer<&'static AtomicUsize> {
    LIMITS.get(which as usize).ok_or(Code(CUDA_ERROR_UNSUPPORTED_LIMIT.cast_signed()))
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Initialises the driver; the first call of every program.
    fn cuInit as cuInit_t(val flags: c_uint) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        initialise()?;
        crate::statistics::write_at_exit();
        Ok(())
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

    /// Sets the flags of a device's primary context.
    fn cuDevicePrimaryCtxSetFlags_v2 as cuDevicePrimaryCtxSetFlags_v2_t(val number: CUdevice, val flags: c_uint) {
        contexts::set_flags(device(number)?, flags);
        Ok(())
    }

    /// The version of a context.
    fn cuCtxGetApiVersion as cuCtxGetApiVersion_t(val _context: CUcontext, out version: *mut c_uint) {
        driver()?;
        version.put(3020)
    }

    /// The flags of the current context.
    fn cuCtxGetFlags as cuCtxGetFlags_t(out flags: *mut c_uint) {
        flags.put(contexts::state(here()?.device).0)
    }

    /// Sets a limit, of which nothing can be seen.
    fn cuCtxSetLimit as cuCtxSetLimit_t(val which: CUlimit, val value: usize) {
        here()?;
        limit(which)?.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// A limit as it was set last.
    fn cuCtxGetLimit as cuCtxGetLimit_t(out value: *mut usize, val which: CUlimit) {
        here()?;
        value.put(limit(which)?.load(Ordering::Relaxed))
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
        here.machine.synchronize_device(here.device)?;
        lag::device_waited_for(here.device);
        Ok(())
    }

    /// The stream priorities that make a difference.
    fn cuCtxGetStreamPriorityRange as cuCtxGetStreamPriorityRange_t(
        out least: *mut c_int, out greatest: *mut c_int,
    ) {
        here()?;
        least.put_if_wanted(*PRIORITIES.end());
        greatest.put_if_wanted(*PRIORITIES.start());
        Ok(())
    }
}
