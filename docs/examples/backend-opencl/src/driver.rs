//! The driver: its devices, its errors, and when a command is done.

use backend_api::{BackendError, ErrorKind, HostFunction, Readiness, Result, types::DeviceIndex};
use opencl3::device::{CL_DEVICE_SVM_COARSE_GRAIN_BUFFER as SHARED, CL_DEVICE_TYPE_ALL, Device};
use opencl3::event::{CL_COMPLETE, Event as Command};
use opencl3::{error_codes::*, platform::get_platforms};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// The devices of the first platform that has some with shared virtual memory. Where `GRANULE_OPENCL` is set, only those
/// count that have it in their names.
pub(crate) fn devices() -> Result<Vec<Device>> {
    // PoCL 3.1 finds none where two threads are the first to ask.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let refused = |kind, why| BackendError::new(kind, 0, "clGetPlatformIDs", DeviceIndex(0), why);
    let choice = std::env::var("GRANULE_OPENCL").unwrap_or_default().to_lowercase();
    let needs = "needs libOpenCL.so.1 (Debian: ocl-icd-libopencl1) and a driver (pocl-opencl-icd)";
    let missing = |error| refused(ErrorKind::NoDriver, format!("{needs}: {error}"));
    for platform in get_platforms().map_err(missing)? {
        let fits = |device: &Device| {
            let name = platform.name().unwrap_or_default() + " " + &device.name().unwrap_or_default();
            name.to_lowercase().contains(&choice) && device.svm_mem_capability() & SHARED != 0
        };
        let all = platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default();
        let devices: Vec<Device> = all.into_iter().map(Device::new).filter(fits).collect();
        if !devices.is_empty() {
            return Ok(devices);
        }
    }
    Err(refused(ErrorKind::NoDevice, format!("no device with shared virtual memory is named {choice:?}")))
}

/// The driver's error in the contract's terms.
pub(crate) fn failed(call: &'static str, device: DeviceIndex) -> impl Fn(ClError) -> BackendError {
    move |error| {
        let kind = match error.0 {
            CL_OUT_OF_RESOURCES | CL_OUT_OF_HOST_MEMORY => ErrorKind::ResourceLimit,
            CL_DEVICE_NOT_AVAILABLE => ErrorKind::DeviceLost,
            _ => ErrorKind::Other,
        };
        BackendError::new(kind, error.0, call, device, error.to_string())
    }
}

/// The last command of a queue, where there was one. A queue runs in order: all before it are done when it is.
pub(crate) type Mark = Option<Arc<Command>>;

pub(crate) fn readiness(mark: &Mark) -> opencl3::Result<Readiness> {
    let status = mark.as_ref().map_or(Ok(CL_COMPLETE), |it| it.command_execution_status().map(|it| it.0))?;
    // A command that failed is over, too; whoever waits for it is told.
    Ok(if status > CL_COMPLETE { Readiness::NotReady } else { Readiness::Ready })
}

/// Calls a function when a command is done.
pub(crate) fn call(command: &Command, function: HostFunction) -> opencl3::Result<()> {
    let task = Box::into_raw(Box::new(function));
    // SAFETY: a refused function is still ours.
    command.set_callback(CL_COMPLETE, run, task.cast()).inspect_err(|_| drop(unsafe { Box::from_raw(task) }))
}

extern "C" fn run(_: *mut c_void, _: i32, task: *mut c_void) {
    // SAFETY: the driver calls this once, with what `call` handed it.
    unsafe { Box::from_raw(task.cast::<HostFunction>())() };
}
