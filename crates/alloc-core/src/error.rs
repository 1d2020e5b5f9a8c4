//! What the allocator answers when it cannot do what was asked.

use crate::backend::BackendError;
use crate::oom::OomReport;
use crate::types::{DeviceIndex, DevicePtr};
use thiserror::Error;

/// A request that was not served. The allocator stays usable, and the call can be retried.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// Every remedy was tried and no fit exists.
    #[error("{0}")]
    OutOfMemory(Box<OomReport>),
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
        crate::round::format_bytes(*requested)
    )]
    Rejected {
        /// `CUDA`, `HIP`, ...
        label: &'static str,
        /// Bytes as requested.
        requested: u64,
    },
    /// A driver call failed for another reason than memory.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The address is not one that this allocator has handed out and that is still allocated.
    #[error(
        "invalid device pointer: {ptr}; it was not allocated here, was freed already, or lies inside a block"
    )]
    InvalidPointer {
        /// The address.
        ptr: DevicePtr,
    },
    /// No such device.
    #[error("Invalid device argument {device}: there are {count} devices, numbered from 0")]
    InvalidDevice {
        /// The index.
        device: DeviceIndex,
        /// How many there are.
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
    /// A limit of the implementation; the text says which.
    #[error("{0}")]
    Limit(&'static str),
    /// Settings that cannot be honoured on this backend.
    #[error("{0}")]
    Settings(String),
}

impl AllocError {
    /// True where PyTorch would raise `OutOfMemoryError`.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_) | Self::MoreThanAnExabyte { .. } | Self::Rejected { .. })
    }
}

/// The result of an allocator call.
pub type Result<T> = std::result::Result<T, AllocError>;
