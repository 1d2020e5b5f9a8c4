//! What a test can ask and order, by functions that the drivers export beside the vendor's.
//!
//! A test finds them with `dlsym` in the library that the backend loaded. Calls are calls of vendor entry
//! points, queries included.

use crate::machine::machine;
use crate::{Code, argument::In};
use backend_api::types::DeviceIndex;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A call that is to fail.
#[derive(Debug)]
struct Failure {
    /// Only calls of this name count.
    function: Option<String>,
    /// How many more calls until it fails.
    left: u64,
    code: Code,
}

static CALLS: AtomicU64 = AtomicU64::new(0);
static FAILURES: Mutex<Vec<Failure>> = Mutex::new(Vec::new());
/// Misuses of a driver that are not about memory.
static MISUSES: AtomicU64 = AtomicU64::new(0);
/// Spares calls the lock while nothing is to fail.
static TO_FAIL: AtomicU64 = AtomicU64::new(0);

/// Counts a call; the code if it is to fail.
pub(crate) fn count(function: &str) -> Option<Code> {
    CALLS.fetch_add(1, Ordering::Relaxed);
    if TO_FAIL.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut struck = None;
    failures.retain_mut(|failure| {
        if failure.function.as_ref().is_some_and(|wanted| wanted != function) {
            return true;
        }
        failure.left -= 1;
        if failure.left == 0 {
            struck = struck.or(Some(failure.code));
        }
        failure.left > 0
    });
    TO_FAIL.store(failures.len() as u64, Ordering::Release);
    struck
}

/// Counts a misuse of the driver that the machine cannot see, beside the machine's traps, and prints what it was.
pub fn trap(what: &str) {
    MISUSES.fetch_add(1, Ordering::Relaxed);
    eprintln!("lookalike driver: trap: {what}");
}

fn plan(function: Option<String>, nth: u64, code: i32) {
    let mut failures = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    failures.retain(|failure| failure.function != function);
    if nth > 0 {
        failures.push(Failure { function, left: nth, code: Code(code) });
    }
    TO_FAIL.store(failures.len() as u64, Ordering::Release);
}

/// How many entry points were called so far.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Lets the `call_number`-th call from now (from 1) fail with `code` before it does anything; 0 takes that
/// back. Replaces what was ordered before.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_fail(call_number: u64, code: i32) {
    plan(None, call_number, code);
}

/// The same for the `nth` call of one function, counted for itself; 0 takes that back. A null name is
/// ignored.
///
/// # Safety
/// `name` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_lookalike_fail_function(name: *const c_char, nth: u64, code: i32) {
    // SAFETY: the caller's promise is that of `In::new`.
    let name = unsafe { In::new(name) };
    if let Ok(name) = name.text() {
        plan(Some(name), nth, code);
    }
}

/// Bytes in use on a device; 0 where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_used(device: u16) -> u64 {
    machine().map_or(0, |machine| machine.used(DeviceIndex(device)))
}

/// Most bytes that were in use on a device since the last [`granule_lookalike_reset_peak`].
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_peak(device: u16) -> u64 {
    machine().map_or(0, |machine| machine.peak_used(DeviceIndex(device)))
}

/// Lets the peak begin again from what is in use now.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_reset_peak(device: u16) {
    if let Ok(machine) = machine() {
        machine.reset_peak(DeviceIndex(device));
    }
}

/// How many wrong uses of memory, and of the driver, were trapped so far.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_traps() -> u64 {
    let of_machine = machine().map_or(0, |machine| machine.traps().len() as u64);
    of_machine + MISUSES.load(Ordering::Relaxed)
}

/// Sets a device's capacity in bytes; less than is used now lets nothing more fit.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_set_capacity(device: u16, bytes: u64) {
    if let Ok(machine) = machine() {
        machine.set_capacity(DeviceIndex(device), bytes);
    }
}

/// Loses a device: later calls about it fail as after a fatal error.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_lose_device(device: u16) {
    if let Ok(machine) = machine() {
        machine.lose_device(DeviceIndex(device));
    }
}

/// Moves a virtual clock on by so many ticks.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_advance(ticks: u64) {
    if let Ok(machine) = machine() {
        machine.advance(ticks);
    }
}
