//! The pickles of `torch.cuda.memory._dump_snapshot`: [`write()`] and [`read`].
//!
//! A pickle is a program for a small stack machine, and a hostile one can make Python run anything. The
//! reader here knows only the operations that build plain data; every operation that could import or call
//! is refused where it stands. Memory is bounded by the length of the input (see [`Limits`]), also for
//! pickles that grow exponentially by referring to their own parts.

mod convert;
mod entry;
mod error;
mod heap;
mod input;
mod labels;
mod machine;
mod memo;
mod opcode;
mod room;
mod shape;
mod write;

#[cfg(test)]
mod tests;

pub use crate::limits::Limits;
pub use error::{Location, PickleError};
pub use write::{Protocol, write};

use alloc_core::snapshot::Snapshot;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads a snapshot, gzip'd or plain, from a reader or a byte slice (`&bytes[..]` is a reader), with the
/// default [`Limits`]. Blocks on the reader; buffers by itself.
///
/// Understands protocols 0 to 5 and what older PyTorch versions left out: missing sizes of segments are
/// computed from their blocks, other missing parts are empty. A pickle that is a list is taken as the
/// segments. Unknown keys are kept. Bytes after the end of the pickle are ignored, as Python does.
///
/// # Errors
/// [`PickleError`] with the byte offset and the operation, or with the place in the structure.
///
/// # Examples
/// ```
/// use alloc_core::snapshot::Snapshot;
/// use granule_snapshot::pickle::{self, Protocol};
///
/// let mut file = Vec::new();
/// pickle::write(&Snapshot::default(), &mut file, Protocol::V4)?;
/// assert_eq!(pickle::read(&file[..])?, Snapshot::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(reader: impl Read) -> Result<Snapshot, PickleError> {
    read_with(reader, &Limits::default())
}

/// As [`read`], with limits of the caller's choice.
///
/// # Errors
/// As [`read`].
pub fn read_with(reader: impl Read, limits: &Limits) -> Result<Snapshot, PickleError> {
    let input = crate::gzip::Input::new(reader, limits).map_err(|source| PickleError::from_io(0, source))?;
    read_plain(input, limits)
}

/// Reads a snapshot file. Blocks on file input.
///
/// # Errors
/// As [`read`]; the error does not name the file ([`crate::load`] adds it).
pub fn read_file(path: impl AsRef<Path>) -> Result<Snapshot, PickleError> {
    read(File::open(path).map_err(|source| PickleError::Io { offset: 0, source })?)
}

/// Reads a pickle that is already unpacked.
pub(crate) fn read_plain(reader: impl Read, limits: &Limits) -> Result<Snapshot, PickleError> {
    let (built, root) = machine::run(reader, limits, true)?;
    built.into_snapshot(root)
}
