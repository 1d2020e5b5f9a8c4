//! Finding the driver's library, loading it, and seeing that it is one.

use crate::symbols::Functions;
use backend_api::types::DeviceIndex;
use backend_api::{BackendError, ErrorKind, Result};
use backend_support::errors::NO_DEVICE;
use backend_support::{Site, call};
use libloading::Library;
use std::error::Error;
use std::ffi::{OsStr, OsString, c_int};
use std::fmt;
use std::sync::OnceLock;

/// The environment variable that names the driver's library; then no other is tried.
pub const LIBRARY_VARIABLE: &str = "GRANULE_CUDA_LIBRARY";

/// The oldest driver that has all required functions in the form used here (CUDA 11.4).
const OLDEST: c_int = 11_040;
const INSUFFICIENT_DRIVER: c_int = 35;

/// The names to try, in order. The driver installs the first; the second is often the toolkit's stub.
pub(crate) fn candidates(named: Option<OsString>) -> Vec<OsString> {
    match named.filter(|name| !name.is_empty()) {
        Some(name) => vec![name],
        None => vec!["libcuda.so.1".into(), "libcuda.so".into()],
    }
}

/// NVIDIA's driver: its functions, and its devices once it was started.
pub struct CudaDriver {
    /// What was found in the library.
    pub(crate) functions: Functions,
    /// The name under which it was opened.
    pub(crate) library: String,
    /// CUDA's version times 1000, plus its minor version times 10.
    pub(crate) version: c_int,
    /// Empty until it was started.
    pub(crate) devices: Vec<Device>,
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDriver").field("library", &self.library).field("version", &self.version).finish()
    }
}

/// One device, with its primary context once it was needed.
#[derive(Debug)]
pub(crate) struct Device {
    /// The driver's number for it.
    pub(crate) number: c_int,
    /// The primary context, retained; as a number, since a raw pointer cannot be shared between threads.
    pub(crate) context: OnceLock<u64>,
}

impl Device {
    pub(crate) fn new(number: c_int) -> Self {
        Self { number, context: OnceLock::new() }
    }
}

impl CudaDriver {
    /// The device with this index.
    pub(crate) fn device(&self, device: DeviceIndex) -> Result<&Device> {
        self.devices.get(usize::from(device.0)).ok_or_else(|| {
            let detail = format!("there is no device {device}; there are {}", self.devices.len());
            BackendError::new(ErrorKind::InvalidValue, 0, "cuDeviceGet", device, detail)
        })
    }

    /// Whether this backend retains the device's primary context.
    pub(crate) fn is_retained(&self, device: DeviceIndex) -> bool {
        self.device(device).is_ok_and(|device| device.context.get().is_some())
    }
}

/// Loads the first candidate that opens, and sees that it is a driver that has what every device needs. Nothing is initialised:
/// the process may still fork.
pub(crate) fn find(candidates: &[OsString]) -> Result<CudaDriver> {
    let (library, name) = open(candidates)?;
    let functions = Functions::look_up(&library);
    // Never unloaded: the driver runs threads and exit handlers of its own, and handles outlive the backend.
    std::mem::forget(library);
    let mut driver = CudaDriver { functions, library: name, version: 0, devices: Vec::new() };

    driver.version = version(&driver)?;
    if driver.version < OLDEST {
        return Err(no_driver(
            "cuDriverGetVersion",
            INSUFFICIENT_DRIVER,
            format!(
                "{} is a driver for CUDA {}; CUDA {} is the oldest that works: update NVIDIA's driver",
                driver.library,
                version_text(driver.version),
                version_text(OLDEST),
            ),
        ));
    }
    let missing = driver.functions.missing();
    if !missing.is_empty() {
        return Err(no_driver(
            "dlsym",
            0,
            format!(
                "{} (CUDA {}) lacks {}: install a complete driver from NVIDIA, or name another library in {LIBRARY_VARIABLE}",
                driver.library,
                version_text(driver.version),
                missing.join(", "),
            ),
        ));
    }
    Ok(driver)
}

fn open(candidates: &[OsString]) -> Result<(Library, String)> {
    let mut tried = Vec::new();
    for name in candidates {
        // SAFETY: loading runs the library's initialisers; the names are those of NVIDIA's driver, or what the
        // user named, who answers for it.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((library, display(name))),
            Err(error) => {
                let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                // The system's words name the library.
                tried.push(cause);
            }
        }
    }
    Err(no_driver(
        "dlopen",
        0,
        format!(
            "NVIDIA's driver library was not found; tried {}. Install NVIDIA's driver, or name the library in {LIBRARY_VARIABLE}",
            tried.join("; "),
        ),
    ))
}

fn version(driver: &CudaDriver) -> Result<c_int> {
    // SAFETY: for questions that name no handle.
    let site = unsafe { Site::of_driver(driver) };
    let mut version = 0;
    // SAFETY: the function writes one integer, and may be called before the driver is initialised.
    let asked = unsafe { call!(site.cuDriverGetVersion(&raw mut version)) };
    asked.map(|()| version).map_err(|error| match error.code {
        // Not a CUDA driver at all.
        0 => no_driver("dlsym", 0, format!("{} is no CUDA driver: {}", driver.library, error.detail)),
        NO_DEVICE => error,
        code => no_driver(error.call, code, error.detail),
    })
}

fn no_driver(call: &'static str, code: c_int, detail: String) -> BackendError {
    BackendError::new(ErrorKind::NoDriver, code, call, DeviceIndex(0), detail)
}

fn display(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// A version of CUDA as people write it: 12010 is 12.1.
#[must_use]
pub fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_own_name_comes_first() {
        assert_eq!(candidates(None), ["libcuda.so.1", "libcuda.so"]);
        assert_eq!(candidates(Some(OsString::new())), ["libcuda.so.1", "libcuda.so"]);
    }

    #[test]
    fn a_named_library_is_the_only_candidate() {
        assert_eq!(candidates(Some("/opt/driver.so".into())), ["/opt/driver.so"]);
    }

    #[test]
    fn a_missing_library_is_a_typed_error_that_says_what_was_tried() {
        let error = find(&["/nonexistent/libcuda.so.1".into()]).unwrap_err();
        assert_eq!((error.kind, error.call), (ErrorKind::NoDriver, "dlopen"));
        assert!(error.detail.contains("/nonexistent/libcuda.so.1"), "{}", error.detail);
        assert!(error.detail.contains("Install NVIDIA's driver"), "{}", error.detail);
        assert!(error.detail.contains("No such file"), "the system's reason: {}", error.detail);
    }

    #[test]
    fn without_a_library_loading_is_an_error_and_no_panic() {
        let error = find(&["/nonexistent/libcuda.so.1".into()]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoDriver);
    }

    #[test]
    fn a_library_that_is_no_driver_is_a_typed_error() {
        let error = find(&["libc.so.6".into()]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoDriver);
        assert!(error.detail.contains("libc.so.6"), "{}", error.detail);
        assert!(error.detail.contains("cuDriverGetVersion"), "{}", error.detail);
    }

    #[test]
    fn versions_read_as_the_driver_prints_them() {
        assert_eq!(version_text(12_010), "12.1");
        assert_eq!(version_text(11_040), "11.4");
        assert_eq!(version_text(13_000), "13.0");
    }
}
