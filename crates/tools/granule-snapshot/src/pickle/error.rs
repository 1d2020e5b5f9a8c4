//! What can be wrong with a pickle.

use super::opcode;
use std::fmt;
use std::io;

/// An operation of a pickle and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Byte offset in the unpacked pickle.
    pub offset: u64,
    /// The operation's byte.
    pub opcode: u8,
}

impl Location {
    /// The operation's name as in Python's `pickletools`, `unknown` for none.
    #[must_use]
    pub fn name(&self) -> &'static str {
        opcode::name(self.opcode).unwrap_or("unknown")
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}, {} (0x{:02x})", self.offset, self.name(), self.opcode)
    }
}

/// A pickle that cannot be read as a snapshot. Messages say where and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PickleError {
    /// Reading failed.
    #[error("byte {offset}: reading failed: {source}; check the path and that you may read the file")]
    Io {
        /// Byte offset in the unpacked pickle.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The gzip archive is damaged or ends in the middle.
    #[error("byte {offset}: the gzip archive is damaged or cut ({detail}); fetch or record the file again")]
    Gzip {
        /// Byte offset in the unpacked pickle.
        offset: u64,
        /// What the decompressor said.
        detail: String,
    },
    /// The input ends before the pickle does.
    #[error(
        "{at}: the file ends at byte {end}, before the pickle does; it was cut: fetch or record it again"
    )]
    Truncated {
        /// The last operation begun; at the end itself where none was.
        at: Location,
        /// Length of the unpacked pickle.
        end: u64,
    },
    /// The first byte begins no pickle.
    #[error("{at}: this is not a pickle; give a file that torch.cuda.memory._dump_snapshot wrote")]
    NotAPickle {
        /// The first byte.
        at: Location,
    },
    /// An operation that could import or call something.
    #[error(
        "{at}: refused, because it can import or call Python code and a snapshot never needs that; \
         do not load this file with Python's pickle"
    )]
    Refused {
        /// The operation.
        at: Location,
    },
    /// An operation that makes something no snapshot has (bytes, sets), or an unknown one.
    #[error("{at}: {what}; this is not a memory snapshot")]
    Unsupported {
        /// The operation.
        at: Location,
        /// What it makes.
        what: &'static str,
    },
    /// An operation that does not fit what came before, or has bad data.
    #[error("{at}: {what}; the file is damaged")]
    Malformed {
        /// The operation.
        at: Location,
        /// What is wrong.
        what: String,
    },
    /// The file takes more than [`super::Limits`] allows.
    #[error("byte {offset}: {what}; {}", crate::limits::LARGER)]
    Limit {
        /// Byte offset in the unpacked pickle.
        offset: u64,
        /// Which limit.
        what: String,
    },
    /// A dictionary without the key that every snapshot has.
    #[error(
        "not a PyTorch memory snapshot: it is a dictionary without 'segments' and 'device_traces'; \
         give a file that torch.cuda.memory._dump_snapshot wrote"
    )]
    NotASnapshot,
    /// A well-formed pickle that is not a snapshot.
    #[error(
        "{place}: {what}; without it, nothing can be said about the memory: \
         if PyTorch wrote the file, record it again, else ask for a fix where the program that wrote it is made"
    )]
    Schema {
        /// Where in the structure, as Python would write it.
        place: String,
        /// What was expected and what was found.
        what: String,
    },
}

impl PickleError {
    /// Sorts a reading error into damaged archive and others.
    pub(crate) fn from_io(offset: u64, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                Self::Gzip { offset, detail: source.to_string() }
            }
            _ => Self::Io { offset, source },
        }
    }
}
