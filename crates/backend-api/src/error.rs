//! Driver errors, as one small typed value.

use crate::types::DeviceIndex;
use std::fmt;

/// What went wrong, in the terms in which the engine reacts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device has not that much memory left: the only kind after which Granule frees
    /// memory and tries again.
    OutOfMemory,
    /// A driver resource other than memory ran out (file descriptors, address space): emptying a cache
    /// does not help.
    ResourceLimit,
    /// An argument is wrong: unknown pointer, misaligned size, wrong device.
    InvalidValue,
    /// This backend, driver or device cannot do that; the text of the failure says why.
    NotSupported,
    /// The driver library, or a symbol in it, is missing or too old.
    NoDriver,
    /// The driver works and finds no device.
    NoDevice,
    /// The device or its context is gone: every later call fails the same way.
    DeviceLost,
    /// Not allowed while a stream is being captured.
    CaptureViolation,
    /// A deadline passed.
    Timeout,
    /// The process is a fork of the one that initialised the driver, or the driver is unloading.
    Unusable,
    /// Anything else; the driver's number and text say what.
    Other,
}

/// A failed driver call. "Not ready" is a [`Readiness`](crate::Readiness), never an error.
#[derive(Clone, PartialEq, Eq)]
pub struct BackendError {
    /// The class of the failure.
    pub kind: ErrorKind,
    /// The driver's own number; 0 where there is none.
    pub code: i32,
    /// The driver function (`cuMemAlloc`, `hipMalloc`, `orMalloc`, ...).
    pub call: &'static str,
    /// The device the call was about.
    pub device: DeviceIndex,
    /// What the driver says, or what to do.
    pub detail: String,
    /// The backend's name, where `call` does not tell it.
    pub backend: Option<&'static str>,
}

/// As people read it, for `main` shows errors so.
impl fmt::Debug for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for BackendError {}

impl BackendError {
    /// A new error; `code` 0 stands for "no driver number".
    pub fn new(
        kind: ErrorKind,
        code: i32,
        call: &'static str,
        device: DeviceIndex,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, code, call, device, detail: detail.into(), backend: None }
    }

    /// The same, of a backend that is named: its functions have the names of the contract, as those of others do.
    #[must_use]
    pub fn of(self, backend: &'static str) -> Self {
        Self { backend: Some(backend), ..self }
    }

    /// Without a driver there is no device to speak of, and 0 is no driver's number.
    fn text(&self) -> String {
        let Self { kind, code, call, device, detail, backend } = self;
        let of = backend.map_or_else(String::new, |backend| format!("{backend}: "));
        match (kind, code) {
            (ErrorKind::NoDriver, 0) => format!("{of}{detail}"),
            (ErrorKind::NoDriver, code) => format!("{of}{detail} ({call} answered {code})"),
            (_, 0) => format!("{of}{call} failed on device {device}: {detail} ({kind:?})"),
            _ => format!("{of}{call} failed on device {device}: {detail} ({kind:?}, driver code {code})"),
        }
    }

    /// True where the same call may work later: the error says what is now, and not what the device can do.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self.kind {
            ErrorKind::OutOfMemory
            | ErrorKind::ResourceLimit
            | ErrorKind::DeviceLost
            | ErrorKind::CaptureViolation
            | ErrorKind::Timeout
            | ErrorKind::Unusable => true,
            ErrorKind::InvalidValue
            | ErrorKind::NotSupported
            | ErrorKind::NoDriver
            | ErrorKind::NoDevice
            | ErrorKind::Other => false,
        }
    }

    /// True where giving memory back and trying again can help.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.kind == ErrorKind::OutOfMemory
    }
}

/// Why an optional family is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The family asked for (`virtual memory`, `IPC`, ...).
    pub family: &'static str,
    /// What was probed and what it answered.
    pub reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not available: {}", self.family, self.reason)
    }
}

impl std::error::Error for Unsupported {}

/// Something that a device was asked for and refused, and that is done without since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// What was refused, as a noun (`remote direct memory access`).
    pub property: &'static str,
    /// Which call refused it, and what it answered.
    pub reason: String,
    /// What comes of doing without it.
    pub consequence: &'static str,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was refused, so {}: {}", self.property, self.consequence, self.reason)
    }
}

impl From<Unsupported> for BackendError {
    fn from(absent: Unsupported) -> Self {
        Self::new(ErrorKind::NotSupported, 0, absent.family, DeviceIndex(0), absent.reason)
    }
}

/// The result of a driver call.
pub type Result<T> = std::result::Result<T, BackendError>;
