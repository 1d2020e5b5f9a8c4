//! Runtime calls: one way to make them, which sees that the function is there, converts the status, names the
//! call, clears the error that the runtime keeps, and remembers a lost device.

use crate::error;
use backend_api::types::DeviceIndex;
use backend_api::{BackendError, ErrorKind, Readiness, Result};
use hip_sys::abi6::{Functions, hipError_t};
use hip_sys::{Generation, Version};
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

/// Calls a runtime function: `call!(site.hipFree(ptr))` is a `Result<()>`. `site` is a variable that is, or
/// derefs to, a [`Site`].
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

/// Refuses where the library lacks one of some functions: `needs!(hip: hipMemMap, hipMemUnmap)`.
macro_rules! needs {
    ($hip:ident: $($function:ident),+ $(,)?) => {
        $hip.needs(&[$((stringify!($function), $hip.driver.functions.$function.is_some())),+])
    };
}

/// The name of code 999.
const UNKNOWN_NAME: &str = "hipErrorUnknown";

/// The loaded runtime.
pub(crate) struct Driver {
    /// What was found in the library. 6's declarations serve all generations: where a layout or a number is
    /// another one in 5 or 7, the place that uses it asks [`generation`](Self::generation).
    pub(crate) functions: Functions,
    /// The name under which it was opened.
    pub(crate) library: String,
    /// The version that it reports.
    pub(crate) version: Version,
    /// Which layouts and numbers are its.
    pub(crate) generation: Generation,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("library", &self.library).field("version", &self.version).finish()
    }
}

impl Driver {
    /// What the runtime calls a code; newer codes than the table's are asked of the runtime.
    pub(crate) fn error_name(&self, code: c_int) -> String {
        // For a code that the runtime does not know either, it gives the name of another one.
        let no_other = |name: &String| *name != UNKNOWN_NAME;
        let asked = || self.text(self.functions.hipGetErrorName, code).filter(no_other);
        error::name(code).or_else(asked).unwrap_or_else(|| "unknown".into())
    }

    fn text(
        &self,
        question: Option<unsafe extern "C" fn(hipError_t) -> *const c_char>,
        code: c_int,
    ) -> Option<String> {
        // SAFETY: the function takes any number.
        let text = unsafe { question?(code.cast_unsigned()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: the runtime points to a text of its own that ends with 0 and is never freed.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    }

    /// The typed form of a code.
    pub(crate) fn error(&self, code: c_int, call: &'static str, device: DeviceIndex) -> BackendError {
        let name = self.error_name(code);
        let detail = match error::advice(code) {
            "" if error::name(code).is_none() => match self.text(self.functions.hipGetErrorString, code) {
                Some(text) => format!("{name}: {text}"),
                None => name,
            },
            "" => name,
            advice => format!("{name}: {advice}"),
        };
        BackendError::new(error::kind(code), code, call, device, detail)
    }

    /// Clears the error that the runtime keeps for the thread.
    pub(crate) fn clear_error(&self) {
        if let Some(last_error) = self.functions.hipGetLastError {
            // SAFETY: the function takes nothing; it may be called at any time.
            unsafe { last_error() };
        }
    }

    /// Clears the kept error where it is the one that a call of this backend just answered; another one is
    /// the program's own, and stays for it.
    fn clear_own_error(&self, code: c_int) {
        // SAFETY: the function takes nothing; it may be called at any time.
        let kept = self.functions.hipPeekAtLastError.map(|peek| unsafe { peek() });
        if kept.is_none_or(|kept| kept == code.cast_unsigned()) {
            self.clear_error();
        }
    }
}

/// Where a call is made: which runtime, about which device.
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
    pub(crate) fn status(&self, call: &'static str, code: hipError_t) -> Result<()> {
        let code = code.cast_signed();
        if code == error::SUCCESS {
            return Ok(());
        }
        self.driver.clear_own_error(code);
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
    pub(crate) fn readiness(&self, call: &'static str, code: hipError_t) -> Result<Readiness> {
        if code.cast_signed() == error::NOT_READY {
            self.driver.clear_own_error(error::NOT_READY);
            return Ok(Readiness::NotReady);
        }
        self.status(call, code).map(|()| Readiness::Ready)
    }

    /// The error of a call whose function the library lacks.
    pub(crate) fn missing(&self, call: &'static str) -> BackendError {
        let Driver { library, version, .. } = self.driver;
        self.refuse(
            ErrorKind::NotSupported,
            call,
            format!("{library} (HIP {version}) has no function {call}: a newer ROCm may have it"),
        )
    }

    /// An error that this backend finds itself.
    pub(crate) fn refuse(
        &self,
        kind: ErrorKind,
        call: &'static str,
        detail: impl Into<String>,
    ) -> BackendError {
        BackendError::new(kind, 0, call, self.device, detail)
    }

    /// An error that this backend finds itself, and for which the runtime has a code.
    pub(crate) fn known(&self, code: c_int, call: &'static str) -> BackendError {
        self.driver.error(code, call, self.device)
    }

    /// An argument that is wrong before the runtime is asked.
    pub(crate) fn invalid(&self, call: &'static str, detail: impl Into<String>) -> BackendError {
        self.refuse(ErrorKind::InvalidValue, call, detail)
    }
}

/// Giving something back while the runtime unloads has no effect and is no error: it gives all back.
pub(crate) fn given_back(released: Result<()>) -> Result<()> {
    match released {
        Err(error) if error.code == error::DEINITIALIZED => Ok(()),
        other => other,
    }
}

/// A runtime pointer as the number that handles carry.
pub(crate) fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

/// A handle's number (or an address) as the runtime's pointer.
pub(crate) fn pointer<T>(number: u64) -> *mut T {
    // On a 64-bit machine, and there is no other, nothing is cut off.
    ptr::with_exposed_provenance_mut(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unloading_runtime_forgives_a_release() {
        let failed = |code| BackendError::new(error::kind(code), code, "hipFree", DeviceIndex(0), "");
        assert!(given_back(Err(failed(4))).is_ok());
        assert_eq!(given_back(Err(failed(201))).unwrap_err().kind, ErrorKind::Unusable);
        assert_eq!(given_back(Err(failed(709))).unwrap_err().kind, ErrorKind::Unusable);
        assert_eq!(given_back(Err(failed(1))).unwrap_err().kind, ErrorKind::InvalidValue);
    }
}
