//! What entry points need before they do their work: an initialised driver, a current context, a stream.

pub mod proc_address;

use crate::header::{CUDA_SUCCESS, CUdevice, CUresult};
use crate::personality::personality;
use backend_api::Backend;
use backend_api::types::DeviceIndex;
use backend_openreg::OpenReg;
use lookalike::entry::Entry;
use lookalike::{Answer, Code, Here, contexts};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Runs an entry point's body and makes a status of its answer.
pub fn run(entry: &'static Entry, body: impl FnOnce() -> Answer) -> CUresult {
    let answer = lookalike::entry::enter(entry, || {
        personality()?.driver.of_call(entry.name)?;
        body()
    });
    answer.map_or_else(|code| code.0.cast_unsigned(), |()| CUDA_SUCCESS)
}

/// What programs such as PyTorch get, where the settings say so.
///
/// # Errors
/// `UNKNOWN` for settings that make no sense.
pub fn is_h100() -> Answer<bool> {
    lookalike::settings().map(|settings| settings.is_h100).map_err(|_| Code::UNKNOWN)
}

/// Initialises the driver.
///
/// # Errors
/// `NO_DEVICE`; `UNKNOWN` where the settings make no machine, which is printed.
pub fn initialise() -> Answer {
    let machine = lookalike::machine().map_err(|message| {
        eprintln!("lookalike driver: {message}");
        Code::UNKNOWN
    })?;
    if machine.device_count()? == 0 {
        return Err(Code::NO_DEVICE);
    }
    INITIALISED.store(true, Ordering::Release);
    Ok(())
}

/// The machine.
///
/// # Errors
/// `NOT_INITIALIZED` before `cuInit`.
pub fn driver() -> Answer<&'static Arc<OpenReg>> {
    if !INITIALISED.load(Ordering::Acquire) {
        return Err(Code::NOT_INITIALIZED);
    }
    lookalike::machine().map_err(|_| Code::NOT_INITIALIZED)
}

/// A device by its number, which is its handle too.
///
/// # Errors
/// `NOT_INITIALIZED`, `INVALID_DEVICE`.
pub fn device(number: CUdevice) -> Answer<DeviceIndex> {
    let count = driver()?.device_count()?;
    u16::try_from(number).ok().filter(|&known| known < count).map(DeviceIndex).ok_or(Code::INVALID_DEVICE)
}

/// Where the calling thread is.
///
/// # Errors
/// `NOT_INITIALIZED`, `INVALID_CONTEXT` without a current context, `CONTEXT_IS_DESTROYED`, or the fatal error
/// that the context met.
pub fn here() -> Answer<Here> {
    Here::new(driver()?, contexts::current_device()?)
}
