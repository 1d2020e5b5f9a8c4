//! Driver calls: one way to make them, which sees that the function is there, converts the status, names the
//! call, and remembers a lost device.

use crate::error;
use crate::library::version_text;
use crate::symbols::Functions;
use backend_api::types::DeviceIndex;
use backend_api::{BackendError, ErrorKind, Readiness, Result};
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

/// Calls a driver function: `call!(site.cuMemFree_v2(ptr))` is a `Result<()>`. `site` is a variable that is,
/// or derefs to, a [`Site`].
macro_rules! call {
    ($site:ident.$function:ident($($argument:expr),* $(,)?)) => {
        match $site.functions().$function {
            Some(function) => $site.status(stringify!($function), function($($argument),*)),
            None => Err($site.missing(stringify!($function))),
        }
    };
}

/// [`call!`] for a query: its answer is a [`Readiness`].
macro_rules! query {
    ($site:ident.$function:ident($($argument:expr),* $(,)?)) => {
        match $site.functions().$function {
            Some(function) => $site.readiness(stringify!($function), function($($argument),*)),
            None => Err($site.missing(stringify!($function))),
        }
    };
}

/// Sees that the library has all of some functions: `needs!(cuda: cuMemMap, cuMemUnmap)` is a `Result<()>`.
macro_rules! needs {
    ($cuda:ident: $($function:ident),+ $(,)?) => {
        $cuda.needs(&[$((stringify!($function), $cuda.driver.functions.$function.is_some())),+])
    };
}

/// The loaded driver.
pub(crate) struct Driver {
    /// What was found in the library.
    pub(crate) functions: Functions,
    /// The name under which it was opened.
    pub(crate) library: String,
    /// CUDA's version times 1000, plus its minor version times 10.
    pub(crate) version: c_int,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("library", &self.library).field("version", &self.version).finish()
    }
}

impl Driver {
    /// What the driver calls a code; newer codes than the table's are asked of the driver.
    pub(crate) fn error_name(&self, code: c_int) -> String {
        let asked = || self.text(self.functions.cuGetErrorName, code);
        error::name(code).or_else(asked).unwrap_or_else(|| "unknown".into())
    }

    fn text(
        &self,
        question: Option<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>,
        code: c_int,
    ) -> Option<String> {
        let mut text = ptr::null();
        // SAFETY: the function writes one pointer, and answers an error for a code that it does not know.
        let status = unsafe { question?(code, &raw mut text) };
        if status != error::SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: on success the driver points to a text of its own that ends with 0 and is never freed.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    }

    /// The typed form of a code.
    pub(crate) fn error(&self, code: c_int, call: &'static str, device: DeviceIndex) -> BackendError {
        let name = self.error_name(code);
        let detail = match error::advice(code) {
            "" if error::name(code).is_none() => match self.text(self.functions.cuGetErrorString, code) {
                Some(text) => format!("{name}: {text}"),
                None => name,
            },
            "" => name,
            advice => format!("{name}: {advice}"),
        };
        BackendError::new(error::kind(code), code, public_name(call), device, detail)
    }
}

/// The name in the header, without the version that the symbol carries.
fn public_name(symbol: &'static str) -> &'static str {
    symbol.trim_end_matches("_v2")
}

/// Where a call is made: which driver, about which device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'c> {
    driver: &'c Driver,
    device: DeviceIndex,
    lost: Option<&'c OnceLock<c_int>>,
}

impl<'c> Site<'c> {
    /// For calls about no device.
    pub(crate) fn of_driver(driver: &'c Driver) -> Self {
        Self { driver, device: DeviceIndex(0), lost: None }
    }

    /// For calls about a device; `lost` is set by the first fatal error.
    pub(crate) fn of_device(driver: &'c Driver, device: DeviceIndex, lost: &'c OnceLock<c_int>) -> Self {
        Self { driver, device, lost: Some(lost) }
    }

    pub(crate) fn device(&self) -> DeviceIndex {
        self.device
    }

    pub(crate) fn functions(&self) -> &'c Functions {
        &self.driver.functions
    }

    /// The result of a call that answered `code`.
    pub(crate) fn status(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == error::SUCCESS {
            return Ok(());
        }
        let failed = self.driver.error(code, call, self.device);
        if failed.kind == ErrorKind::DeviceLost
            && let Some(lost) = self.lost
            && lost.set(code).is_ok()
        {
            tracing::error!(error = %failed, "the device is lost");
        }
        Err(failed)
    }

    /// The answer of a query: "not ready" is a value, and is told without making an error first.
    pub(crate) fn readiness(&self, call: &'static str, code: c_int) -> Result<Readiness> {
        if code == error::NOT_READY {
            return Ok(Readiness::NotReady);
        }
        self.status(call, code).map(|()| Readiness::Ready)
    }

    /// The error of a call whose function the library lacks.
    pub(crate) fn missing(&self, call: &'static str) -> BackendError {
        let Driver { library, version, .. } = self.driver;
        let version = version_text(*version);
        self.refuse(
            ErrorKind::NotSupported,
            call,
            format!("{library} (CUDA {version}) has no function {call}: a newer driver may have it"),
        )
    }

    /// An error that this backend finds itself.
    pub(crate) fn refuse(
        &self,
        kind: ErrorKind,
        call: &'static str,
        detail: impl Into<String>,
    ) -> BackendError {
        BackendError::new(kind, 0, public_name(call), self.device, detail)
    }

    /// An argument that is wrong before the driver is asked.
    pub(crate) fn invalid(&self, call: &'static str, detail: impl Into<String>) -> BackendError {
        self.refuse(ErrorKind::InvalidValue, call, detail)
    }
}

/// Giving something back while the driver unloads has no effect and is no error: the driver gives all back.
pub(crate) fn given_back(released: Result<()>) -> Result<()> {
    match released {
        Err(error) if error.code == error::DEINITIALIZED => Ok(()),
        other => other,
    }
}

/// A driver pointer as the number that handles carry.
pub(crate) fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

/// A handle's number (or an address) as the driver's pointer.
pub(crate) fn pointer<T>(number: u64) -> *mut T {
    // On a 64-bit machine, and there is no other, nothing is cut off.
    ptr::with_exposed_provenance_mut(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_as_in_the_header() {
        assert_eq!(public_name("cuMemAlloc_v2"), "cuMemAlloc");
        assert_eq!(public_name("cuInit"), "cuInit");
    }

    #[test]
    fn only_an_unloading_driver_forgives_a_release() {
        let failed = |code| BackendError::new(error::kind(code), code, "cuMemFree", DeviceIndex(0), "");
        assert!(given_back(Err(failed(4))).is_ok());
        assert_eq!(given_back(Err(failed(201))).unwrap_err().kind, ErrorKind::Unusable);
        assert_eq!(given_back(Err(failed(709))).unwrap_err().kind, ErrorKind::Unusable);
        assert_eq!(given_back(Err(failed(1))).unwrap_err().kind, ErrorKind::InvalidValue);
    }
}
