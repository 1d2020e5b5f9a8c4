//! Why a buffer could not be had.

use cudarc::driver::DriverError;
use granule::AllocError;
use granule::backend::BackendError;

/// What a function of this crate answers.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a buffer could not be had, or a stream not be given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Granule refused. Out of memory is [`AllocError::OutOfMemory`], with the report that says what would have helped.
    #[error(transparent)]
    Granule(#[from] AllocError),
    /// The driver refused what cudarc asked it.
    #[error("the driver refused: {0}")]
    Driver(#[from] DriverError),
    /// The stream is of another `CudaContext` value than the allocator, perhaps of another device.
    #[error(
        "the stream belongs to another CudaContext (device {stream}) than the allocator (device {allocator}): use \
         Allocator::of(stream.context()), and one CudaContext per device"
    )]
    OtherContext {
        /// The allocator's device.
        allocator: usize,
        /// The stream's device.
        stream: usize,
    },
    /// Granule's memory belongs to a device's primary context, and this is another one.
    #[error(
        "this CudaContext is not the primary context of device {ordinal}: make it with CudaContext::new({ordinal})"
    )]
    NotPrimary {
        /// The device.
        ordinal: usize,
    },
    /// The size in bytes is no number of 64 bits.
    #[error("{len} elements of {size} bytes are more than an address can tell apart: ask for fewer")]
    TooLong {
        /// Elements asked for.
        len: usize,
        /// Bytes of each.
        size: usize,
    },
    /// The stream cannot be given up yet.
    #[error("the stream has {holders} more owners: drop its buffers and the clones of its Arc first")]
    StreamInUse {
        /// Buffers and others that own it.
        holders: usize,
    },
}

impl Error {
    /// Whether memory ran out, of the device or of a limit.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Granule(AllocError::OutOfMemory(_)))
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        Self::Granule(AllocError::Backend(error))
    }
}
