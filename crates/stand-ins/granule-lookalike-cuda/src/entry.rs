//! What entry points need before they do their work: an initialised driver, a current context, a stream.

pub mod proc_address;

use crate::header::{CUDA_SUCCESS, CUdevice, CUresult, CUstream};
use crate::personality::personality;
use backend_api::Backend;
use backend_api::types::{DeviceIndex, Stream};
use backend_openreg::OpenReg;
use lookalike::entry::Entry;
use lookalike::streams::StreamInfo;
use lookalike::{Answer, Code, contexts, graphs, rules, streams};
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

/// Where the calling thread is: the machine and the device of its current context.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// The machine.
    pub machine: &'static Arc<OpenReg>,
    /// The current device.
    pub device: DeviceIndex,
}

/// Where the calling thread is.
///
/// # Errors
/// `NOT_INITIALIZED`, `INVALID_CONTEXT` without a current context, `CONTEXT_IS_DESTROYED`, or the fatal error
/// that the context met.
pub fn here() -> Answer<Here> {
    let machine = driver()?;
    let device = contexts::current_device()?;
    contexts::usable(device)?;
    Ok(Here { machine, device })
}

impl Here {
    /// What a stream's handle stands for.
    ///
    /// # Errors
    /// `INVALID_HANDLE`, or what its context answers.
    pub fn stream(&self, handle: CUstream) -> Answer<StreamInfo> {
        let known = streams::resolve(self.machine, self.device, handle.addr())?;
        contexts::usable(known.stream.device)?;
        Ok(known)
    }

    /// A stream to queue work on.
    ///
    /// # Errors
    /// As [`Here::stream`]; `CAPTURE_IMPLICIT` for a default stream that a captured stream waits for.
    pub fn work_stream(&self, handle: CUstream) -> Answer<Stream> {
        let known = self.stream(handle)?;
        graphs::default_stream_is_free(self.machine, known.stream)?;
        streams::wait_by_default(self.machine, &known);
        Ok(known.stream)
    }
}

/// Refuses a request for memory, or addresses, of a device by its size.
///
/// # Errors
/// What the personality says.
pub fn of_size(function: &str, device: DeviceIndex, bytes: usize) -> Answer {
    let machine = driver()?;
    let held = || Ok((machine.used(device), machine.properties(device)?.total_memory));
    personality()?.driver.of_size(function, bytes as u64, held)
}

/// The same for page-locked memory.
///
/// # Errors
/// What the personality says.
pub fn of_pinned(function: &str, bytes: usize) -> Answer {
    personality()?.driver.of_size(function, bytes as u64, || Ok((rules::pinned_bytes(), u64::MAX)))
}
