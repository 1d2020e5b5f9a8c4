//! How a call ends.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `orError_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub c_int);

impl Status {
    /// `orSuccess`.
    pub const SUCCESS: Self = Self(0);
    /// `orErrorUnknown`: everything that is wrong.
    pub const UNKNOWN: Self = Self(1);
    /// `orErrorNotReady`: work is left, no error.
    pub const NOT_READY: Self = Self(2);
}

/// A call was wrong or could not be done; there is one code for it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl From<std::io::Error> for Refused {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl From<rustix::io::Errno> for Refused {
    fn from(_: rustix::io::Errno) -> Self {
        Self
    }
}

pub(crate) type Answer<T = ()> = Result<T, Refused>;

/// Runs the body of a C function; nothing unwinds out of it.
pub(crate) fn status(body: impl FnOnce() -> Answer) -> Status {
    query(|| body().map(|()| true))
}

/// The same for a question whose answer may be "not yet".
pub(crate) fn query(body: impl FnOnce() -> Answer<bool>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(true)) => Status::SUCCESS,
        Ok(Ok(false)) => Status::NOT_READY,
        Ok(Err(Refused)) | Err(_) => Status::UNKNOWN,
    }
}
