//! What entry points need before they do their work: a machine with a device, the thread's device, a stream.

use crate::last_error;
use crate::personality::personality;
use alloc_core::backend::Backend;
use alloc_core::types::DeviceIndex;
use backend_openreg::OpenReg;
use granule_hip_sys::abi6::{hipError_t, hipSuccess};
use lookalike::entry::Entry;
use lookalike::{Answer, Code, Here, contexts};
use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

/// Runs an entry point's body and makes a status of its answer. Any call initialises the runtime, and fails
/// on a machine without a device. A fatal error stays with the current device.
pub fn run(entry: &'static Entry, body: impl FnOnce() -> Answer) -> hipError_t {
    run_anywhere(entry, || ready().and_then(|_| body()))
}

/// [`run`] for the few entry points that need no device.
pub fn run_anywhere(entry: &'static Entry, body: impl FnOnce() -> Answer) -> hipError_t {
    let answer = lookalike::entry::enter(entry, || {
        personality()?.driver.of_call(entry.name)?;
        body()
    });
    last_error::record(answer.map_or_else(|code| code.0, |()| 0));
    match answer {
        Ok(()) => hipSuccess,
        Err(code) => {
            if code.is_fatal()
                && let Ok((_, device)) = current()
            {
                contexts::poison(device, code);
            }
            code.0.cast_unsigned()
        }
    }
}

/// The machine, which may have no device.
///
/// # Errors
/// `UNKNOWN` where the settings make no machine, which is printed.
pub fn machine() -> Answer<&'static Arc<OpenReg>> {
    lookalike::machine().map_err(|message| {
        eprintln!("lookalike driver: {message}");
        Code::UNKNOWN
    })
}

/// The machine, which has a device.
///
/// # Errors
/// As [`machine`]; `NO_DEVICE`.
pub fn ready() -> Answer<&'static Arc<OpenReg>> {
    let machine = machine()?;
    if device_count()? == 0 { Err(Code::NO_DEVICE) } else { Ok(machine) }
}

/// How many devices the machine has.
///
/// # Errors
/// As [`machine`].
pub fn device_count() -> Answer<u16> {
    // Asked once: every question is a call that takes the machine's time.
    static COUNT: OnceLock<Answer<u16>> = OnceLock::new();
    *COUNT.get_or_init(|| Ok(machine()?.device_count()?))
}

/// A device by its number.
///
/// # Errors
/// `INVALID_DEVICE`.
pub fn device(number: c_int) -> Answer<DeviceIndex> {
    ready()?;
    let count = device_count()?;
    u16::try_from(number).ok().filter(|&known| known < count).map(DeviceIndex).ok_or(Code::INVALID_DEVICE)
}

/// The machine and the calling thread's device, which stays as unused as it is.
///
/// # Errors
/// As [`ready`].
pub fn current() -> Answer<(&'static Arc<OpenReg>, DeviceIndex)> {
    let machine = ready()?;
    Ok((machine, machine.current_device()?))
}

/// Where the calling thread is, about to use its device: the primary context exists from now on.
///
/// # Errors
/// As [`current`], or the fatal error that the device met.
pub fn here() -> Answer<Here> {
    let (machine, device) = current()?;
    activate(device);
    Here::new(machine, device)
}

/// Lets a device's primary context exist. It never ends: releasing it does nothing in HIP.
pub fn activate(device: DeviceIndex) {
    if !contexts::state(device).1 {
        contexts::retain(device);
    }
}
