//! Errors of the allocator.

use crate::backend::BackendError;
use crate::config::ConfigError;
use crate::process::attention::ProcessState;
use crate::process::host_reserve::HostRoom;
use crate::process::unified::PinnedRefusal;
use crate::types::{DeviceIndex, DevicePtr, PoolId};
use crate::watch::oom::OomReport;
use crate::watch::pointer::BadPointer;
use std::fmt;
use thiserror::Error;

/// A request that was not served. The allocator stays usable, and the call can be retried.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// Every remedy was tried and no fit exists.
    #[error("{0}")]
    OutOfMemory(Box<OomReport>),
    /// A limit of a device that shares the host's memory leaves none to be pinned.
    #[error("{0}")]
    PinnedOutOfMemory(Box<PinnedRefusal>),
    /// One exabyte or more was asked for.
    #[error("{label} out of memory. Tried to allocate more than 1EB memory.")]
    MoreThanAnExabyte {
        /// `CUDA`, `HIP`, ...
        label: &'static str,
    },
    /// `throw_on_cudamalloc_oom` is on and the limit would be exceeded.
    #[error(
        "{label} out of memory. Allocation was preemptively rejected because it would exceed \
         per_process_memory_fraction limit. Requested size: {}",
        crate::base::round::format_bytes(*requested)
    )]
    Rejected {
        /// `CUDA`, `HIP`, ...
        label: &'static str,
        /// Bytes as requested.
        requested: u64,
        /// Bytes that would have been taken for it.
        wanted: u64,
        /// Bytes that were held.
        held: u64,
        /// Bytes that may be held.
        limit: u64,
    },
    /// A driver call failed for another reason than memory.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The address is not one that this allocator has handed out and that is still allocated.
    #[error("{0}")]
    InvalidPointer(Box<BadPointer>),
    /// The block is another device's; nothing was freed.
    #[error(
        "invalid device pointer: {ptr}: it is a block of device {owner}, and was to be freed on device {device}"
    )]
    WrongDevice {
        /// The address.
        ptr: DevicePtr,
        /// The device named.
        device: DeviceIndex,
        /// The device whose block it is.
        owner: DeviceIndex,
    },
    /// No such device.
    #[error("Invalid device argument {device}: there are {count} devices, numbered from 0")]
    InvalidDevice {
        /// The index.
        device: DeviceIndex,
        /// Number of devices.
        count: u16,
    },
    /// A stream made by another backend.
    #[error("the stream belongs to another backend than this allocator; streams do not cross backends")]
    ForeignStream,
    /// A memory fraction outside 0 to 1.
    #[error("invalid fraction:{fraction}. Please set within [0, 1].")]
    InvalidFraction {
        /// The value.
        fraction: f64,
    },
    /// No pool of that id was made on this device, or it is gone with all its memory.
    #[error("Could not find pool of id {pool}: create it first, or begin it")]
    UnknownPool {
        /// The id.
        pool: PoolId,
    },
    /// The pool was released by everyone: it gives its memory back and cannot be used again.
    #[error("pool {pool} was released and cannot be used again; make a new one with another id")]
    DeadPool {
        /// The id.
        pool: PoolId,
    },
    /// The call is not possible on the pool now.
    #[error("pool {pool}: {problem}")]
    Pool {
        /// The id.
        pool: PoolId,
        /// Reason, in PyTorch's words where it has some.
        problem: &'static str,
    },
    /// A limit or a budget that is not possible; nothing was changed.
    #[error("budget of {owner}: {problem}")]
    Budget {
        /// Owner of the limit or budget.
        owner: String,
        /// Reason, and what to do instead.
        problem: String,
    },
    /// No such tenant, or it was removed.
    #[error("there is no tenant {tenant}: make it first (create_tenant)")]
    UnknownTenant {
        /// The tenant.
        tenant: crate::base::tenant_marks::TenantId,
    },
    /// The end of a capture was marked, and none is under way.
    #[error("no capture is under way on device {device}: mark_capture_begin comes first")]
    NoCapture {
        /// The device.
        device: DeviceIndex,
    },
    /// No free block holds the range.
    #[error("Could not allocate storage at exact address {ptr}: {problem}")]
    ExactAddress {
        /// The address.
        ptr: DevicePtr,
        /// Reason.
        problem: &'static str,
    },
    /// A checkpoint could not be taken or restored; nothing was changed.
    #[error("checkpoint of pool {pool}: {problem}")]
    Checkpoint {
        /// The pool.
        pool: PoolId,
        /// Reason.
        problem: String,
    },
    /// The block cannot be shared with other processes; nothing was changed.
    #[error("{problem}")]
    Share {
        /// The block.
        ptr: DevicePtr,
        /// Reason, and what to do.
        problem: Explanation,
    },
    /// A block that another process shared cannot be opened; nothing was mapped.
    #[error("{problem}")]
    Open {
        /// Reason, and what to do.
        problem: Explanation,
    },
    /// The block lies in growable memory, which has no allocation of the driver's under it.
    #[error(
        "the block lies in growable memory, whose parts come and go; share() gives the block to another process"
    )]
    Growable {
        /// True if memory of this policy grows whatever the settings say.
        always: bool,
    },
    /// The program does not have a pinned block of that name.
    #[error(
        "there is no pinned block with id {id} in use: it was freed before, or it belongs to another allocator; free it with \
         the id that came with it, once"
    )]
    UnknownHostBlock {
        /// The [`HostBlockId`](crate::host::HostBlockId)'s number.
        id: u64,
    },
    /// The process is a fork of the one that made the allocator, or its backend. Nothing was done, and no lock was
    /// touched.
    #[error(
        "device memory cannot be used after a fork: the allocator belongs to the parent process. Start workers with \
         `spawn` (Python: multiprocessing.set_start_method(\"spawn\")), or fork before devices are used, and \
         make the backend and the allocator in the worker"
    )]
    Forked,
    /// The driver goes away: the process is at its end, the driver is unloading, or
    /// [`abandon`](crate::CachingAllocator::abandon) was called.
    #[error(
        "the driver is going away (process exit, unload, or abandon): no device memory can be had any more"
    )]
    DriverGone,
    /// The call needs memory that sleeps.
    #[error("{what} sleeps: wake its tag first (sleep_mode().wake)")]
    Asleep {
        /// A block or a pool.
        what: String,
    },
    /// There is no memory for a pool to wake; what is asleep keeps its contents.
    #[error(
        "{label} out of memory. Pool {pool} needs {} to wake; the device has {} free, and limits may allow less. A \
         tenant's budget may, too: look at its statistics. Free memory, or put another tag to sleep, and wake again: what sleeps \
         keeps its contents; what was woken before this stays awake, and can be put to sleep again{}",
        crate::base::round::format_bytes(*bytes), crate::base::round::format_bytes(*free),
        host.map_or_else(String::new, |host| format!(". {host}"))
    )]
    NoRoomToWake {
        /// `CUDA`, `HIP`, ...
        label: &'static str,
        /// The pool.
        pool: PoolId,
        /// Bytes it needs in one go.
        bytes: u64,
        /// Bytes that the driver has free.
        free: u64,
        /// The host's memory, where `host_reserve` refuses.
        host: Option<HostRoom>,
    },
    /// Memory could not be put to sleep or woken; the text says why and what to do. What is asleep keeps its contents.
    #[error("{0}")]
    Sleep(String),
    /// A limit of the implementation; the text says which.
    #[error("{0}")]
    Limit(&'static str),
    /// Settings name another policy than the allocator has.
    #[error(
        "policy:{asked} is refused: this allocator has policy:{policy}, which is chosen when an allocator is made and stays; make \
         another one, or name the policy before the program starts"
    )]
    PolicyFixed {
        /// The allocator's.
        policy: crate::config::PolicyName,
        /// The policy that the settings name.
        asked: crate::config::PolicyName,
    },
    /// Settings name another release of PyTorch than the allocator decides as.
    #[error(
        "pytorch_release:{asked} is refused: this allocator decides as {release}, which is chosen when an allocator is made and \
         stays; make another one, or name the release before the program starts"
    )]
    ReleaseFixed {
        /// The allocator's.
        release: crate::config::PytorchRelease,
        /// The release that the settings name.
        asked: crate::config::PytorchRelease,
    },
    /// Settings that cannot be honoured on this backend.
    #[error("{0}")]
    Settings(String),
}

/// Same as `Display`: `main` shows errors by `Debug`.
impl fmt::Debug for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ConfigError> for AllocError {
    fn from(error: ConfigError) -> Self {
        Self::Settings(error.to_string())
    }
}

/// Reason of a refusal, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    text: String,
    pytorch: Option<String>,
}

impl Explanation {
    /// A problem that PyTorch has words for.
    pub(crate) fn with_pytorch(text: impl Into<String>, pytorch: impl Into<String>) -> Self {
        Self { text: text.into(), pytorch: Some(pytorch.into()) }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for Explanation {
    fn from(text: String) -> Self {
        Self { text, pytorch: None }
    }
}

impl From<&str> for Explanation {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl AllocError {
    /// The text in PyTorch's words where it has some: for programs in which PyTorch runs.
    #[must_use]
    pub fn pytorch_message(&self) -> String {
        match self {
            Self::OutOfMemory(report) => report.pytorch_message(),
            Self::Share { problem, .. } | Self::Open { problem } => {
                problem.pytorch.as_ref().unwrap_or(&problem.text).clone()
            }
            Self::Growable { always: false } => {
                "Tensors allocated with expandable_segments:True cannot be shared between processes. Consider using \
                 expandable_segments:False in data loading workers via \
                 torch.cuda.memory._set_allocator_settings('expandable_segments:False')"
                    .into()
            }
            _ => self.to_string(),
        }
    }

    /// True where PyTorch would raise `OutOfMemoryError`.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory(_)
                | Self::PinnedOutOfMemory(_)
                | Self::MoreThanAnExabyte { .. }
                | Self::Rejected { .. }
                | Self::NoRoomToWake { .. }
        )
    }
}

/// The result of an allocator call.
pub type Result<T> = std::result::Result<T, AllocError>;

impl ProcessState {
    /// The answer to calls that ask for something.
    #[cold]
    pub(crate) fn refusal(self) -> AllocError {
        match self {
            Self::Forked => AllocError::Forked,
            Self::DriverGone => AllocError::DriverGone,
        }
    }

    /// The answer to calls that give something back: without a driver there is nobody to give it to.
    #[cold]
    pub(crate) fn of_release(self) -> Result<()> {
        match self {
            Self::Forked => Err(AllocError::Forked),
            Self::DriverGone => Ok(()),
        }
    }
}

/// Logs an error at a value's end. An edge of the process is no error; besides, in a forked child other threads may
/// have left the log's locks locked.
pub(crate) fn log_end(ended: Result<()>, problem: &'static str) {
    match ended {
        Ok(()) | Err(AllocError::Forked | AllocError::DriverGone) => {}
        Err(error) => tracing::error!(%error, "{problem}"),
    }
}
