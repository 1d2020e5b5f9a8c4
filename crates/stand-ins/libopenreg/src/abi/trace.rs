//! Activity tracing, for C and as the C++ class `openreg::profiler::OpenRegTracer`.
//!
//! PyTorch's extension and test programs see that class in a header of PyTorch's library and link to its
//! members. All of them are out of line, so the object itself may be anything.

use crate::status::{Status, status};
use crate::trace;
use std::ffi::c_void;

fn done(action: impl FnOnce()) -> Status {
    status(|| {
        action();
        Ok(())
    })
}

/// Switches tracing on.
#[unsafe(no_mangle)]
pub extern "C" fn orActivityEnableTracing() -> Status {
    done(|| trace::enable(true))
}

/// Switches tracing off.
#[unsafe(no_mangle)]
pub extern "C" fn orActivityDisableTracing() -> Status {
    done(|| trace::enable(false))
}

/// Puts a number on the calling thread's stack.
#[unsafe(no_mangle)]
pub extern "C" fn orActivityPushExternalCorrelationId(id: u64) -> Status {
    done(|| trace::push(id))
}

/// Takes the newest number off the calling thread's stack, and tells it unless `id` is null; 0 where there is
/// none.
///
/// # Safety
/// `id` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orActivityPopExternalCorrelationId(id: *mut u64) -> Status {
    done(|| {
        let newest = trace::pop();
        if !id.is_null() {
            // SAFETY: the caller's promise, and not null.
            unsafe { id.write(newest) };
        }
    })
}

/// `OpenRegTracer`, of which only the address counts.
static TRACER: u64 = 0;

/// `static OpenRegTracer& instance()`
#[unsafe(export_name = "_ZN7openreg8profiler13OpenRegTracer8instanceEv")]
pub extern "C" fn tracer_instance() -> *const c_void {
    (&raw const TRACER).cast()
}

/// `void enableActivityTracing()`
#[unsafe(export_name = "_ZN7openreg8profiler13OpenRegTracer21enableActivityTracingEv")]
pub extern "C" fn tracer_enable(_this: *const c_void) {
    trace::enable(true);
}

/// `void disableActivityTracing()`
#[unsafe(export_name = "_ZN7openreg8profiler13OpenRegTracer22disableActivityTracingEv")]
pub extern "C" fn tracer_disable(_this: *const c_void) {
    trace::enable(false);
}

/// `bool isActivityTracingEnabled() const`
#[unsafe(export_name = "_ZNK7openreg8profiler13OpenRegTracer24isActivityTracingEnabledEv")]
pub extern "C" fn tracer_is_enabled(_this: *const c_void) -> bool {
    trace::is_enabled()
}

/// `void pushExternalCorrelationId(uint64_t)`
#[unsafe(export_name = "_ZN7openreg8profiler13OpenRegTracer25pushExternalCorrelationIdEm")]
pub extern "C" fn tracer_push(_this: *const c_void, id: u64) {
    trace::push(id);
}

/// `void popExternalCorrelationId()`
#[unsafe(export_name = "_ZN7openreg8profiler13OpenRegTracer24popExternalCorrelationIdEv")]
pub extern "C" fn tracer_pop(_this: *const c_void) {
    trace::pop();
}

/// `uint64_t getExternalCorrelationId() const`
#[unsafe(export_name = "_ZNK7openreg8profiler13OpenRegTracer24getExternalCorrelationIdEv")]
pub extern "C" fn tracer_newest(_this: *const c_void) -> u64 {
    trace::newest()
}
