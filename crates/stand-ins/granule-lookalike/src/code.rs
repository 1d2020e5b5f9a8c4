//! Driver numbers. CUDA and HIP share those that the machine's errors come down to.

use backend_api::{BackendError, ErrorKind, Unsupported};
use std::ffi::CStr;

/// A driver's error number. Never 0: success is `Ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

/// What an entry point answers.
pub type Answer<T = ()> = Result<T, Code>;

impl Code {
    /// An argument is wrong.
    pub const INVALID_VALUE: Self = Self(1);
    /// The device has not that much memory left.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// The driver was not initialised.
    pub const NOT_INITIALIZED: Self = Self(3);
    /// The driver is going away.
    pub const DEINITIALIZED: Self = Self(4);
    /// The library is the stub that programs are linked with.
    pub const STUB_LIBRARY: Self = Self(34);
    /// There is no device.
    pub const NO_DEVICE: Self = Self(100);
    /// There is no such device.
    pub const INVALID_DEVICE: Self = Self(101);
    /// No context is current, or it is not one.
    pub const INVALID_CONTEXT: Self = Self(201);
    /// A device cannot reach the other.
    pub const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    /// A handle is unknown, or of another context.
    pub const INVALID_HANDLE: Self = Self(400);
    /// The object is in no state for that.
    pub const ILLEGAL_STATE: Self = Self(401);
    /// A name is unknown.
    pub const NOT_FOUND: Self = Self(500);
    /// Work is still running.
    pub const NOT_READY: Self = Self(600);
    /// The device hung; its context is gone.
    pub const LAUNCH_TIMEOUT: Self = Self(702);
    /// Peer access was enabled before.
    pub const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    /// Peer access was never enabled.
    pub const PEER_ACCESS_NOT_ENABLED: Self = Self(705);
    /// The context was destroyed.
    pub const CONTEXT_IS_DESTROYED: Self = Self(709);
    /// The range is registered.
    pub const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    /// The range is not registered.
    pub const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    /// The device failed; its context is gone.
    pub const LAUNCH_FAILED: Self = Self(719);
    /// The driver or device cannot do that.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// Not allowed while a stream is captured.
    pub const CAPTURE_UNSUPPORTED: Self = Self(900);
    /// An earlier error broke the capture.
    pub const CAPTURE_INVALIDATED: Self = Self(901);
    /// Two captures would become one.
    pub const CAPTURE_MERGE: Self = Self(902);
    /// The capture began on another stream.
    pub const CAPTURE_UNMATCHED: Self = Self(903);
    /// A stream was not joined back.
    pub const CAPTURE_UNJOINED: Self = Self(904);
    /// A captured stream would depend on work outside.
    pub const CAPTURE_ISOLATION: Self = Self(905);
    /// The legacy stream would depend on a capture.
    pub const CAPTURE_IMPLICIT: Self = Self(906);
    /// The event was recorded in a capture.
    pub const CAPTURED_EVENT: Self = Self(907);
    /// The capture began in another thread.
    pub const CAPTURE_WRONG_THREAD: Self = Self(908);
    /// Anything else.
    pub const UNKNOWN: Self = Self(999);

    /// What both vendors say of a number, where they say the same.
    #[must_use]
    pub const fn text(self) -> Option<&'static CStr> {
        Some(match self.0 {
            0 => c"no error",
            1 => c"invalid argument",
            2 => c"out of memory",
            3 => c"initialization error",
            4 => c"driver shutting down",
            101 => c"invalid device ordinal",
            201 => c"invalid device context",
            217 => c"peer access is not supported between these two devices",
            400 => c"invalid resource handle",
            401 => c"the operation cannot be performed in the present state",
            500 => c"named symbol not found",
            600 => c"device not ready",
            700 => c"an illegal memory access was encountered",
            702 => c"the launch timed out and was terminated",
            704 => c"peer access is already enabled",
            705 => c"peer access has not been enabled",
            709 => c"context is destroyed",
            712 => c"part or all of the requested memory range is already mapped",
            713 => c"pointer does not correspond to a registered memory region",
            719 => c"unspecified launch failure",
            801 => c"operation not supported",
            900 => c"operation not permitted when stream is capturing",
            901 => c"operation failed due to a previous error during capture",
            902 => c"operation would result in a merge of separate capture sequences",
            903 => c"capture was not ended in the same stream as it began",
            904 => c"capturing stream has unjoined work",
            905 => c"dependency created on uncaptured work in another stream",
            906 => c"operation would make the legacy stream depend on a capturing blocking stream",
            907 => c"operation not permitted on an event last recorded in a capturing stream",
            908 => c"attempt to terminate a thread-local capture sequence from another thread",
            999 => c"unknown error",
            _ => return None,
        })
    }

    /// Whether a context that met this error answers with it for ever after.
    #[must_use]
    pub const fn is_fatal(self) -> bool {
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719)
    }
}

impl From<BackendError> for Code {
    fn from(error: BackendError) -> Self {
        match error.kind {
            // Drivers have no number for descriptors that ran out; both vendors answer like that.
            ErrorKind::OutOfMemory | ErrorKind::ResourceLimit => Self::OUT_OF_MEMORY,
            ErrorKind::InvalidValue => Self::INVALID_VALUE,
            ErrorKind::NotSupported => Self::NOT_SUPPORTED,
            ErrorKind::NoDevice => Self::NO_DEVICE,
            ErrorKind::DeviceLost => Self::LAUNCH_FAILED,
            ErrorKind::CaptureViolation => violation(&error.detail),
            ErrorKind::Timeout => Self::LAUNCH_TIMEOUT,
            ErrorKind::Unusable => Self::DEINITIALIZED,
            _ => Self::UNKNOWN,
        }
    }
}

impl From<Unsupported> for Code {
    fn from(_: Unsupported) -> Self {
        Self::NOT_SUPPORTED
    }
}

/// Drivers have a number for every way to break a capture, the contract has one kind for all; the machine's
/// text tells them apart. The capture tests of `lookalike-cuda` provoke every row.
fn violation(detail: &str) -> Code {
    const TEXTS: &[(&str, Code)] = &[
        ("the stream is captured already", Code::ILLEGAL_STATE),
        ("was broken by an earlier call", Code::CAPTURE_INVALIDATED),
        ("the capture was invalidated", Code::CAPTURE_INVALIDATED),
        ("two captures", Code::CAPTURE_MERGE),
        ("on the stream where it began", Code::CAPTURE_UNMATCHED),
        ("was not joined back", Code::CAPTURE_UNJOINED),
        ("outside its capture", Code::CAPTURE_ISOLATION),
        ("queued work cannot join", Code::CAPTURE_ISOLATION),
        ("the event was recorded in a capture", Code::CAPTURED_EVENT),
        ("ends in the thread that began it", Code::CAPTURE_WRONG_THREAD),
    ];
    let known = TEXTS.iter().find(|(text, _)| detail.contains(text));
    known.map_or(Code::CAPTURE_UNSUPPORTED, |&(_, code)| code)
}
