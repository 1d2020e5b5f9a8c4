//! What can be wrong with a trace.

use std::io;

/// A trace that cannot be read. Messages name the line (from 1) and say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be opened.
    #[error("cannot open the trace: {source}; check the path and that you may read the file")]
    Open {
        /// What the operating system said.
        source: io::Error,
    },
    /// Reading failed.
    #[error("line {line}: reading failed: {source}")]
    Io {
        /// The line being read.
        line: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The gzip archive is damaged.
    #[error("line {line}: the gzip archive is damaged ({detail}); fetch or record the file again")]
    CorruptGzip {
        /// The line being read.
        line: u64,
        /// What the decompressor said.
        detail: String,
    },
    /// The gzip archive ends in the middle.
    #[error("line {line}: the gzip archive ends in the middle; the file was cut: fetch or record it again")]
    TruncatedGzip {
        /// The line being read.
        line: u64,
    },
    /// The first line is not a header.
    #[error("line 1: {reason}; a trace begins with '# ' and a JSON object")]
    Header {
        /// What is wrong with it.
        reason: String,
    },
    /// The file ends inside a line.
    #[error(
        "line {line}: the file ends inside this line, after {found} of {expected} events; \
         it was cut: fetch or record it again"
    )]
    TruncatedLine {
        /// The last line.
        line: u64,
        /// Events read, this line included.
        found: u64,
        /// Events the header promises.
        expected: u64,
    },
    /// A line is longer than any event can be.
    #[error("line {line}: longer than {limit} bytes; this is not a trace, or a damaged one")]
    LineTooLong {
        /// The line.
        line: u64,
        /// Bytes allowed.
        limit: usize,
    },
    /// A line is not an event.
    #[error(
        "line {line}: {reason}: {text:?}; the file is damaged or was edited: record it again, or mend the line"
    )]
    BadLine {
        /// The line.
        line: u64,
        /// What is wrong with it and what was expected.
        reason: String,
        /// The line's beginning.
        text: String,
    },
    /// An event that cannot follow the earlier ones.
    #[error("line {line}: {reason}")]
    BadOrder {
        /// The line.
        line: u64,
        /// What is wrong and what to do.
        reason: String,
    },
}

impl TraceError {
    /// Sorts a reading error into damaged archive, cut archive and others.
    pub(crate) fn from_io(line: u64, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Self::TruncatedGzip { line },
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                Self::CorruptGzip { line, detail: source.to_string() }
            }
            _ => Self::Io { line, source },
        }
    }
}
