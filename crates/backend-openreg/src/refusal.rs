//! Why a call was refused, before it has a name and a device.

use crate::TrapKind;
use backend_api::ErrorKind;
use std::borrow::Cow;

/// A failure inside the machine; the call that hit it makes a `BackendError` of it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: ErrorKind,
    pub(crate) detail: Cow<'static, str>,
    /// What to trap: kind, first address, bytes.
    pub(crate) trap: Option<(TrapKind, u64, u64)>,
}

pub(crate) type Answer<T> = Result<T, Refusal>;

impl Refusal {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), trap: None }
    }

    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidValue, detail)
    }

    pub(crate) fn unsupported(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::NotSupported, detail)
    }

    pub(crate) fn capture(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::CaptureViolation, detail)
    }

    pub(crate) fn trap(kind: TrapKind, at: u64, bytes: u64, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { trap: Some((kind, at, bytes)), ..Self::invalid(detail) }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        let kind = match error.raw_os_error() {
            // EMFILE, ENFILE: emptying a cache would not help.
            Some(23 | 24) => ErrorKind::ResourceLimit,
            Some(12) => ErrorKind::OutOfMemory,
            _ => ErrorKind::Other,
        };
        Self::new(kind, format!("the operating system refused: {error}"))
    }
}
