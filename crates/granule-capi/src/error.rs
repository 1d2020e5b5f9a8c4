//! What went wrong: a status, and what each thread remembers of its last failure.

use granule::AllocError;
use granule::backend::{BackendError, ErrorKind};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_void};

/// How a call ended: one of the GRANULE_... numbers below. What is not GRANULE_OK is a failure, but for GRANULE_NOT_READY.
pub type granule_status = i32;

/// It worked.
pub const GRANULE_OK: granule_status = 0;
/// There is no memory, after every remedy was tried. granule_last_error_json has the whole report.
pub const GRANULE_OUT_OF_MEMORY: granule_status = 1;
/// Refused before the driver was asked, because a limit would be exceeded (throw_on_cudamalloc_oom). PyTorch raises
/// OutOfMemoryError for this, too.
pub const GRANULE_REJECTED: granule_status = 2;
/// An argument is wrong: null, not UTF-8, not aligned, out of range.
pub const GRANULE_INVALID_ARGUMENT: granule_status = 3;
/// The address is no live block of the allocator.
pub const GRANULE_INVALID_POINTER: granule_status = 4;
/// There is no such device.
pub const GRANULE_INVALID_DEVICE: granule_status = 5;
/// The stream cannot be used here.
pub const GRANULE_INVALID_STREAM: granule_status = 6;
/// There is no pool of that id on the device.
pub const GRANULE_UNKNOWN_POOL: granule_status = 7;
/// What was asked of the pool is not possible: it was released, or its scope is (not) open.
pub const GRANULE_POOL: granule_status = 8;
/// A checkpoint could not be taken or restored.
pub const GRANULE_CHECKPOINT: granule_status = 9;
/// Not possible during a capture, or without one.
pub const GRANULE_CAPTURE: granule_status = 10;
/// No free block holds the range.
pub const GRANULE_EXACT_ADDRESS: granule_status = 11;
/// A block cannot be shared, or what was shared cannot be opened.
pub const GRANULE_SHARE: granule_status = 12;
/// The settings cannot be read or honoured.
pub const GRANULE_SETTINGS: granule_status = 13;
/// A budget or a limit that cannot be, or an unknown tenant.
pub const GRANULE_BUDGET: granule_status = 14;
/// The memory sleeps.
pub const GRANULE_ASLEEP: granule_status = 15;
/// Memory could not be put to sleep or woken.
pub const GRANULE_SLEEP: granule_status = 16;
/// This backend, or this build, cannot do that.
pub const GRANULE_UNSUPPORTED: granule_status = 17;
/// No backend can be used: no driver, no device, or not compiled in.
pub const GRANULE_NO_BACKEND: granule_status = 18;
/// The driver failed in another way; granule_error has its number.
pub const GRANULE_DRIVER: granule_status = 19;
/// The process is a fork of the one that made the allocator.
pub const GRANULE_FORKED: granule_status = 20;
/// The driver is going away: the process ends, or the allocator was abandoned.
pub const GRANULE_DRIVER_GONE: granule_status = 21;
/// The answer of queries about work that is still under way. It is no failure: the last error stays what it was.
pub const GRANULE_NOT_READY: granule_status = 22;
/// A struct says that it is smaller than its first version.
pub const GRANULE_ABI: granule_status = 23;
/// The library has a bug, and stopped there. The allocator stays usable.
pub const GRANULE_PANIC: granule_status = 24;
/// A callback of Rust panicked, which it must not, in a program that has this library linked in: a request has handed nothing out
/// then, and a free is done. What other languages throw ends the process, since Rust can catch it nowhere.
pub const GRANULE_CALLBACK: granule_status = 25;
/// A recording cannot begin, or is not complete.
pub const GRANULE_RECORDING: granule_status = 26;

/// Why a call failed.
pub(crate) enum Failure {
    /// The engine says so.
    Engine(AllocError),
    /// This layer does.
    Own(granule_status, String),
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        Self::Engine(error)
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::Engine(AllocError::Backend(error))
    }
}

/// What a callback that unwound leaves behind.
pub(crate) struct CallbackUnwound;

/// A failure, and its texts as C reads them.
pub(crate) struct LastError {
    pub(crate) failure: Failure,
    pub(crate) text: CString,
    /// In PyTorch's words.
    pub(crate) pytorch: CString,
}

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

impl Failure {
    #[cold]
    pub(crate) fn own(status: granule_status, text: impl Into<String>) -> Self {
        Self::Own(status, text.into())
    }

    #[cold]
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::own(GRANULE_INVALID_ARGUMENT, text)
    }

    #[cold]
    pub(crate) fn no_block(ptr: *mut c_void) -> Self {
        Self::own(GRANULE_INVALID_POINTER, format!("invalid device pointer: {ptr:?}: it is no live block"))
    }

    /// What stopped a body before its end.
    #[cold]
    pub(crate) fn unwound(payload: Box<dyn Any + Send>) -> Self {
        if payload.is::<CallbackUnwound>() {
            return Self::own(
                GRANULE_CALLBACK,
                "a callback unwound: callbacks must catch what is thrown in them",
            );
        }
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        // Whatever it is, its end may do anything.
        std::mem::forget(payload);
        Self::own(
            GRANULE_PANIC,
            format!("internal error: {}", text.as_deref().unwrap_or("a panic without a text")),
        )
    }

    pub(crate) fn status(&self) -> granule_status {
        match self {
            Self::Own(status, _) => *status,
            Self::Engine(error) => status_of(error),
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::Own(_, text) => text.clone(),
            // What happened; why, and what would help, is in the report.
            Self::Engine(AllocError::OutOfMemory(report)) => report.message(),
            Self::Engine(error) => error.to_string(),
        }
    }

    /// The text for programs in which PyTorch runs.
    pub(crate) fn pytorch_text(&self) -> String {
        match self {
            Self::Engine(error) => error.pytorch_message(),
            Self::Own(..) => self.text(),
        }
    }

    /// Makes it the thread's last error.
    #[cold]
    #[inline(never)]
    pub(crate) fn remember(self) -> granule_status {
        let status = self.status();
        let kept = |text: String| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        let (text, pytorch) = (kept(self.text()), kept(self.pytorch_text()));
        // A thread that ends has no last error any more.
        let before = LAST.try_with(|last| last.replace(Some(LastError { failure: self, text, pytorch })));
        drop(before);
        status
    }
}

fn status_of(error: &AllocError) -> granule_status {
    match error {
        AllocError::OutOfMemory(_)
        | AllocError::PinnedOutOfMemory(_)
        | AllocError::MoreThanAnExabyte { .. } => GRANULE_OUT_OF_MEMORY,
        AllocError::Rejected { .. } => GRANULE_REJECTED,
        AllocError::Backend(error) => match error.kind {
            ErrorKind::OutOfMemory => GRANULE_OUT_OF_MEMORY,
            ErrorKind::NotSupported => GRANULE_UNSUPPORTED,
            ErrorKind::NoDriver | ErrorKind::NoDevice => GRANULE_NO_BACKEND,
            ErrorKind::CaptureViolation => GRANULE_CAPTURE,
            ErrorKind::Unusable => GRANULE_DRIVER_GONE,
            _ => GRANULE_DRIVER,
        },
        AllocError::InvalidPointer(_)
        | AllocError::WrongDevice { .. }
        | AllocError::UnknownHostBlock { .. } => GRANULE_INVALID_POINTER,
        AllocError::InvalidDevice { .. } => GRANULE_INVALID_DEVICE,
        AllocError::ForeignStream => GRANULE_INVALID_STREAM,
        AllocError::InvalidFraction { .. } => GRANULE_INVALID_ARGUMENT,
        AllocError::UnknownPool { .. } => GRANULE_UNKNOWN_POOL,
        AllocError::DeadPool { .. } | AllocError::Pool { .. } => GRANULE_POOL,
        AllocError::Budget { .. } | AllocError::UnknownTenant { .. } => GRANULE_BUDGET,
        AllocError::NoCapture { .. } => GRANULE_CAPTURE,
        AllocError::ExactAddress { .. } => GRANULE_EXACT_ADDRESS,
        AllocError::Checkpoint { .. } => GRANULE_CHECKPOINT,
        AllocError::Share { .. } | AllocError::Open { .. } => GRANULE_SHARE,
        AllocError::Forked => GRANULE_FORKED,
        AllocError::DriverGone => GRANULE_DRIVER_GONE,
        AllocError::Asleep { .. } => GRANULE_ASLEEP,
        AllocError::NoRoomToWake { .. } | AllocError::Sleep(_) => GRANULE_SLEEP,
        AllocError::Settings(_) | AllocError::PolicyFixed { .. } | AllocError::ReleaseFixed { .. } => {
            GRANULE_SETTINGS
        }
        // `Limit`, `Growable`, and what the engine may learn to say.
        _ => GRANULE_UNSUPPORTED,
    }
}

/// Looks at the thread's last failure, if there was one.
pub(crate) fn last<T>(look: impl FnOnce(&LastError) -> T) -> Option<T> {
    LAST.try_with(|last| last.borrow().as_ref().map(look)).ok().flatten()
}
