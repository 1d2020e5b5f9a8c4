//! Files about device memory: PyTorch memory snapshots and allocation traces.
//!
//! - [`pickle`] reads and writes the pickles of `torch.cuda.memory._dump_snapshot`; reading never imports or
//!   calls anything and its memory is bounded;
//! - [`json`] writes the same structure as JSON, which the web viewer opens too;
//! - [`trace`] reads and writes the text format of an allocation trace, event by event;
//! - [`convert`] makes a trace of a snapshot that has a history;
//! - [`load`] opens a file of either kind.
//!
//! The model of a snapshot is [`alloc_core::snapshot`].

mod gzip;
mod schema;

pub mod convert;
pub mod json;
pub mod pickle;
pub mod trace;

pub use gzip::Input;

use alloc_core::snapshot::Snapshot;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// What [`load`] found.
#[derive(Debug)]
pub enum Loaded {
    /// The file is an allocation trace.
    Trace(Box<trace::Trace>),
    /// The file is a snapshot.
    Snapshot(Box<Snapshot>),
}

/// A file that [`load`] could not read; the message begins with the path.
#[derive(thiserror::Error)]
pub enum LoadError {
    /// The file could not be opened or its beginning could not be read.
    #[error("{}: {source}: check the path and that you may read the file", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file has nothing in it.
    #[error("{}: the file is empty: what wrote it did not finish; record again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is neither a trace nor a pickle.
    #[error(
        "{}: neither a trace (it would begin with '# {{') nor a snapshot pickle; \
         give a trace file or what torch.cuda.memory._dump_snapshot wrote",
        path.display()
    )]
    Unrecognised {
        /// The file.
        path: PathBuf,
    },
    /// A trace with something wrong in it.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        source: trace::TraceError,
    },
    /// A pickle with something wrong in it.
    #[error("{}: {source}", path.display())]
    Pickle {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        source: pickle::PickleError,
    },
}

/// As people read it, for `main` shows errors so.
impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads a trace or a snapshot, plain or gzip'd, whichever the file is.
///
/// # Errors
/// [`LoadError`] says which file, what is wrong where in it, and what to do.
pub fn load(path: impl AsRef<Path>) -> Result<Loaded, LoadError> {
    load_with(path, &pickle::Limits::default())
}

/// As [`load`], with limits of the caller's choice.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: impl AsRef<Path>, limits: &pickle::Limits) -> Result<Loaded, LoadError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| LoadError::Open { path: path.to_owned(), source })?;
    load_from_with(file, path, limits)
}

/// As [`load`], from a reader; `name` stands for the path in errors. Blocks on the reader.
///
/// # Errors
/// As [`load`].
pub fn load_from(reader: impl Read, name: impl AsRef<Path>) -> Result<Loaded, LoadError> {
    load_from_with(reader, name, &pickle::Limits::default())
}

/// As [`load_from`], with limits of the caller's choice.
///
/// # Errors
/// As [`load`].
pub fn load_from_with(
    reader: impl Read,
    name: impl AsRef<Path>,
    limits: &pickle::Limits,
) -> Result<Loaded, LoadError> {
    let path = name.as_ref();
    let open_error = |source| LoadError::Open { path: path.to_owned(), source };
    let mut input = BufReader::with_capacity(1 << 16, Input::new(reader, limits).map_err(open_error)?);
    let first = match input.fill_buf() {
        Ok(bytes) => bytes.first().copied(),
        // A damaged archive: the trace reader words that best.
        Err(_) => Some(b'#'),
    };
    match first {
        Some(b'#') => trace::Trace::from_plain(input)
            .map(|trace| Loaded::Trace(Box::new(trace)))
            .map_err(|source| LoadError::Trace { path: path.to_owned(), source }),
        Some(b'\x80' | b']' | b'}' | b'(') => pickle::read_plain(input.by_ref(), limits)
            .map(|snapshot| Loaded::Snapshot(Box::new(snapshot)))
            .map_err(|source| LoadError::Pickle { path: path.to_owned(), source }),
        None => Err(LoadError::Empty { path: path.to_owned() }),
        Some(_) => Err(LoadError::Unrecognised { path: path.to_owned() }),
    }
}
