//! Error codes: what a vendor's table says about them, and the numbers that CUDA and HIP share.
//!
//! Codes stay integers. Newer drivers answer with numbers that no table knows.

use backend_api::{BackendError, ErrorKind, Result};
use std::ffi::c_int;

/// Success.
pub const SUCCESS: c_int = 0;
/// An argument is wrong.
pub const INVALID_VALUE: c_int = 1;
/// The driver is unloading.
pub const DEINITIALIZED: c_int = 4;
/// There is no device.
pub const NO_DEVICE: c_int = 100;
/// The context cannot be used here.
pub const INVALID_CONTEXT: c_int = 201;
/// A handle is wrong.
pub const INVALID_HANDLE: c_int = 400;
/// Nothing of that name, or at that address.
pub const NOT_FOUND: c_int = 500;
/// Work is under way.
pub const NOT_READY: c_int = 600;
/// The device reaches the other one already.
pub const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
/// A capture forbids the call.
pub const STREAM_CAPTURE_UNSUPPORTED: c_int = 900;
/// The default stream would wait for a captured stream.
pub const STREAM_CAPTURE_IMPLICIT: c_int = 906;
/// Another thread began the capture.
pub const STREAM_CAPTURE_WRONG_THREAD: c_int = 908;

/// Code, name without the prefix, kind, and what to say where the name does not say it.
pub type ErrorRow = (c_int, &'static str, ErrorKind, &'static str);

/// What is known about a vendor's error codes.
#[derive(Clone, Copy, Debug)]
pub struct ErrorTable {
    /// The name of code 0.
    pub success: &'static str,
    /// How all other names begin.
    pub prefix: &'static str,
    /// Ascending by code.
    pub rows: &'static [ErrorRow],
}

impl ErrorTable {
    fn row(&self, code: c_int) -> Option<&'static ErrorRow> {
        let at = self.rows.binary_search_by_key(&code, |row| row.0).ok()?;
        self.rows.get(at)
    }

    /// The driver's name for a code, where the table has it.
    #[must_use]
    pub fn name(&self, code: c_int) -> Option<String> {
        if code == SUCCESS {
            return Some(self.success.into());
        }
        self.row(code).map(|row| format!("{}{}", self.prefix, row.1))
    }

    /// What the engine should make of a code.
    #[must_use]
    pub fn kind(&self, code: c_int) -> ErrorKind {
        self.row(code).map_or(ErrorKind::Other, |row| row.2)
    }

    /// What to say beyond the name; often nothing.
    #[must_use]
    pub fn advice(&self, code: c_int) -> &'static str {
        self.row(code).map_or("", |row| row.3)
    }
}

/// Giving something back while the driver unloads has no effect and is no error: the driver gives all back.
pub(crate) fn given_back(released: Result<()>) -> Result<()> {
    match released {
        Err(error) if error.code == DEINITIALIZED => Ok(()),
        other => other,
    }
}

/// "Not ready" from a call that takes memory: the system could not make the memory resident (WSL2 does so while the driver
/// still tells free bytes). This request lacks memory; another may succeed.
pub(crate) fn memory_is_short(error: BackendError) -> BackendError {
    if error.code != NOT_READY {
        return error;
    }
    let detail =
        format!("{}: the system has no memory to make it resident (on WSL2 less than is told)", error.detail);
    BackendError { kind: ErrorKind::OutOfMemory, detail, ..error }
}

/// Logs that the first half of something could not be undone; the error of the second half is what the caller gets.
pub fn log_undo(undone: Result<()>) {
    if let Err(error) = undone {
        tracing::error!(%error, "could not undo a call that failed half way");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::types::DeviceIndex;

    const TABLE: ErrorTable = ErrorTable {
        success: "SUCCESS",
        prefix: "ERROR_",
        rows: &[
            (1, "INVALID_VALUE", ErrorKind::InvalidValue, ""),
            (2, "OUT_OF_MEMORY", ErrorKind::OutOfMemory, "buy more"),
        ],
    };

    #[test]
    fn what_a_table_lacks_has_no_name_and_no_kind() {
        assert_eq!(TABLE.name(0).as_deref(), Some("SUCCESS"));
        assert_eq!(TABLE.name(2).as_deref(), Some("ERROR_OUT_OF_MEMORY"));
        assert_eq!((TABLE.kind(2), TABLE.advice(2)), (ErrorKind::OutOfMemory, "buy more"));
        assert_eq!((TABLE.name(3), TABLE.kind(3), TABLE.advice(3)), (None, ErrorKind::Other, ""));
    }

    #[test]
    fn only_an_unloading_driver_forgives_a_release() {
        let failed = |code, kind| Err(BackendError::new(kind, code, "memFree", DeviceIndex(0), ""));
        assert!(given_back(failed(4, ErrorKind::Unusable)).is_ok());
        assert_eq!(given_back(failed(201, ErrorKind::Unusable)).unwrap_err().kind, ErrorKind::Unusable);
        assert_eq!(given_back(failed(1, ErrorKind::InvalidValue)).unwrap_err().kind, ErrorKind::InvalidValue);
    }
}
