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

pub use error::{Location, PickleError};
pub use write::{Protocol, write};

use alloc_core::snapshot::Snapshot;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How much a file may take; all but [`expansion`](Self::expansion) is about pickles. The defaults hold for any file that
/// PyTorch can write and a machine can load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of the unpacked pickle.
    pub max_bytes: u64,
    /// Most bytes of memory while reading, whatever the input's length.
    pub max_memory: u64,
    /// Bytes of memory allowed for each byte of the unpacked pickle, beyond the first 64 MiB of memory.
    /// PyTorch's files take about 4.
    pub memory_per_byte: u64,
    /// Values that parts referred to several times may become when they are written out, for each byte of
    /// the unpacked pickle. Call stacks and texts stay shared and cost nothing here.
    pub copies_per_byte: u64,
    /// Deepest nesting of lists, tuples and dictionaries. PyTorch's files have 7 levels.
    pub max_depth: usize,
    /// Bytes unpacked for each byte read of a gzip'd pickle, trace or plan, beyond the first 4 MiB. Real ones
    /// reach 13; deflate's own limit is 1032, and only an archive made to fill memory comes near it.
    pub expansion: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 16 << 30,
            max_memory: 32 << 30,
            memory_per_byte: 24,
            copies_per_byte: 4,
            max_depth: 100,
            expansion: 64,
        }
    }
}

impl Limits {
    /// For files of which it is known who wrote them: as long and as large as memory allows.
    #[must_use]
    pub fn trusting() -> Self {
        Self {
            max_bytes: u64::MAX,
            max_memory: u64::MAX,
            memory_per_byte: 1 << 32,
            copies_per_byte: 1 << 32,
            expansion: u64::MAX,
            ..Self::default()
        }
    }
}

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
