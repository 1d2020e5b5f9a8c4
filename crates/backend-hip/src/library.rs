//! Seeing that the library that was opened can serve as the runtime. Finding it is `granule-hip-sys`'s business.

use backend_api::types::DeviceIndex;
use backend_api::{BackendError, ErrorKind, Result};
use granule_hip_sys::abi6::Functions;
use granule_hip_sys::{LIBRARY_VARIABLE, Library, LoadError, Version};
use std::ffi::c_int;
use std::fmt;

/// AMD's runtime: its functions, and its devices once they were counted.
pub struct HipDriver {
    /// What was found in the library. 6's declarations serve 7 too.
    pub(crate) functions: Functions,
    /// The name under which it was opened.
    pub(crate) library: String,
    /// The version that it reports.
    pub(crate) version: Version,
    /// The driver-like calls' number for each device; the others take the index. Empty until they were counted.
    pub(crate) devices: Vec<c_int>,
}

impl fmt::Debug for HipDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HipDriver").field("library", &self.library).field("version", &self.version).finish()
    }
}

impl HipDriver {
    /// The driver-like calls' number for a device.
    pub(crate) fn number(&self, device: DeviceIndex) -> Result<c_int> {
        self.devices.get(usize::from(device.0)).copied().ok_or_else(|| {
            let detail = format!("there is no device {device}; there are {}", self.devices.len());
            BackendError::new(ErrorKind::InvalidValue, 0, "hipDeviceGet", device, detail)
        })
    }
}

/// The runtime's number of a device.
pub(crate) fn ordinal(device: DeviceIndex) -> c_int {
    c_int::from(device.0)
}

macro_rules! missing {
    ($functions:ident: $($name:ident),+ $(,)?) => {{
        let mut missing: Vec<&'static str> = Vec::new();
        $(if $functions.$name.is_none() { missing.push(stringify!($name)); })+
        missing
    }};
}

/// The functions without which there is no backend, where the library lacks them.
fn missing(functions: &Functions) -> Vec<&'static str> {
    missing!(functions:
        hipGetDeviceCount, hipDeviceGet, hipGetDevice, hipSetDevice, hipDeviceGetAttribute, hipDeviceGetName,
        hipDeviceTotalMem, hipDevicePrimaryCtxGetState, hipDeviceSynchronize, hipDeviceGetStreamPriorityRange,
        hipMalloc, hipFree, hipMemGetInfo, hipPointerGetAttributes, hipMemGetAddressRange,
        hipMemcpy, hipMemcpyAsync, hipMemsetAsync,
        hipStreamCreateWithPriority, hipStreamDestroy, hipStreamQuery, hipStreamSynchronize, hipStreamWaitEvent,
        hipEventCreateWithFlags, hipEventDestroy, hipEventRecord, hipEventQuery, hipEventSynchronize,
        hipHostMalloc, hipHostFree, hipGetLastError,
    )
}

/// Takes the library's functions, and refuses one that lacks what every backend needs.
pub(crate) fn check(opened: std::result::Result<Library, LoadError>) -> Result<HipDriver> {
    let library = opened.map_err(|error| no_driver("dlopen", error.to_string()))?;
    // SAFETY: the library is of 6 or newer, whose signatures and layouts these are, and it is never unloaded.
    let functions = unsafe { Functions::load(|name| library.symbol(name)) };
    let driver = HipDriver {
        functions,
        library: library.path().display().to_string(),
        version: library.version(),
        devices: Vec::new(),
    };
    match missing(&driver.functions).as_slice() {
        [] => Ok(driver),
        names => Err(no_driver(
            "dlsym",
            format!(
                "{} (HIP {}) lacks {}: install a complete HIP runtime, or name another library in {LIBRARY_VARIABLE}",
                driver.library,
                driver.version,
                names.join(", "),
            ),
        )),
    }
}

fn no_driver(call: &'static str, detail: String) -> BackendError {
    BackendError::new(ErrorKind::NoDriver, 0, call, DeviceIndex(0), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_missing_library_is_a_typed_error_that_says_what_was_tried() {
        let error = check(Library::open_file(Path::new("/nonexistent/libamdhip64.so.6"))).unwrap_err();
        assert_eq!((error.kind, error.call), (ErrorKind::NoDriver, "dlopen"));
        assert!(error.detail.contains("/nonexistent/libamdhip64.so.6"), "{}", error.detail);
        assert!(error.detail.contains(LIBRARY_VARIABLE), "{}", error.detail);
    }

    #[test]
    fn without_a_library_loading_is_an_error_and_no_panic() {
        let error = check(Library::open_file(Path::new("/nonexistent/libamdhip64.so.6"))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoDriver);
    }

    #[test]
    fn a_library_that_is_no_runtime_is_a_typed_error() {
        let error = check(Library::open_file(Path::new("libc.so.6"))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoDriver);
        assert!(error.detail.contains("hipRuntimeGetVersion"), "{}", error.detail);
    }

    #[test]
    fn what_a_library_lacks_is_named() {
        // SAFETY: there is no address, so none that could be wrong.
        let nothing = unsafe { Functions::load(|_| None) };
        let missing = missing(&nothing);
        assert!(missing.contains(&"hipMalloc") && missing.contains(&"hipGetLastError"));
        assert!(!missing.contains(&"hipMemCreate"), "virtual memory is optional");
    }
}
