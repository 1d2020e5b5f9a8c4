//! Files about device memory: PyTorch memory snapshots and allocation traces.
//!
//! - [`pickle`] reads and writes the pickles of `torch.cuda.memory._dump_snapshot`; reading never imports or
//!   calls anything and its memory is bounded;
//! - [`json`] writes the same structure as JSON, which the web viewer opens too;
//! - [`trace`] reads and writes the text format of an allocation trace, event by event;
//! - [`convert`] makes a trace of a snapshot that has a history;
//! - [`record`] writes the requests of a running program as traces;
//! - [`load`] opens a file of either kind.
//!
//! The model of a snapshot is [`alloc_core::snapshot`].

mod gzip;
mod limits;
mod places;
mod schema;

pub mod convert;
pub mod json;
pub mod pickle;
pub mod record;
pub mod trace;

pub use gzip::Input;

use alloc_core::snapshot::Snapshot;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
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
    /// The file is neither a trace nor a snapshot.
    #[error("{}: {what}", path.display())]
    Unrecognised {
        /// The file.
        path: PathBuf,
        /// What it is instead or what is wrong with it, and what to do.
        what: String,
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

/// Reads a trace or a snapshot, whichever the file is: plain, gzip'd, zipped or from `torch.save`.
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
    let failed = |source| LoadError::Open { path: path.to_owned(), source };
    let unrecognised = |what| LoadError::Unrecognised { path: path.to_owned(), what };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(unrecognised(
            "this is a folder: give a file in it, or write only `granule FOLDER`".into(),
        ));
    }
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
    let unrecognised = |what| LoadError::Unrecognised { path: path.to_owned(), what };
    let input = Input::new(reader, limits).map_err(|error| unrecognised(error.to_string()))?;
    let first = match input.head.first() {
        // A damaged archive: the trace reader words that best.
        None if input.failed.is_some() => Some(b'#'),
        first => first.copied(),
    };
    let head = input.head.clone();
    if let Some(what) = named(&head) {
        return Err(unrecognised(what.into()));
    }
    let snapshot = |read: Result<Snapshot, pickle::PickleError>| {
        read.map(|snapshot| Loaded::Snapshot(Box::new(snapshot))).map_err(|source| match source {
            _ if is_converted(&head) => unrecognised(CONVERTED.into()),
            source => LoadError::Pickle { path: path.to_owned(), source },
        })
    };
    match first {
        Some(b'#') => trace::Trace::from_plain(BufReader::with_capacity(1 << 16, input))
            .map(|trace| Loaded::Trace(Box::new(trace)))
            .map_err(|source| LoadError::Trace { path: path.to_owned(), source }),
        Some(b'\x80' | b']' | b'}' | b'(') => snapshot(pickle::read_plain(input, limits)),
        None => Err(LoadError::Empty { path: path.to_owned() }),
        Some(_) => Err(unrecognised(NEITHER.into())),
    }
}

/// What is said of a pickle whose line ends were changed on the way.
const CONVERTED: &str = "this was sent or written as text, which turned its line ends into those of Windows and spoiled it: write \
     it with open(name, 'wb'), and send it as binary";

/// Whether no line ends without a carriage return, and some do with one.
fn is_converted(head: &[u8]) -> bool {
    let mut ends = memchr::memchr_iter(b'\n', head).peekable();
    ends.peek().is_some() && ends.all(|end| end > 0 && head[end - 1] == b'\r')
}

/// What is said where nothing tells what a file is.
const NEITHER: &str = "neither a trace (it would begin with '# {') nor a snapshot; \
     give a trace file or what torch.cuda.memory._dump_snapshot wrote";

/// What a file is that begins so, and what to do with it; `None` where nothing tells. Some begin as a pickle might.
fn named(head: &[u8]) -> Option<&'static str> {
    const JSON: &str =
        "this is JSON and not the snapshot itself: save that with torch.cuda.memory._dump_snapshot";
    const KNOWN: [(&[u8], &str); 12] = [
        (b"BZh", "this is packed with bzip2: unpack it with `bunzip2`, and give what comes out"),
        (b"\xfd7zXZ\0", "this is packed with xz: unpack it with `unxz`, and give what comes out"),
        (b"\x5d\0\0", "this is packed with lzma: unpack it with `unlzma`, and give what comes out"),
        (b"\x28\xb5\x2f\xfd", "this is packed with zstd: unpack it with `unzstd`, and give what comes out"),
        (b"\x04\x22\x4d\x18", "this is packed with lz4: unpack it with `unlz4`, and give what comes out"),
        (b"7z\xbc\xaf", "this is a 7z archive: unpack it with `7z x`, and give the file inside"),
        (
            b"version https://git-lfs",
            "this is a pointer of Git LFS and not the file itself: run `git lfs pull`",
        ),
        (b"\xff\xfe", "this is text in UTF-16: save it as UTF-8"),
        (b"{", JSON),
        (b"[", JSON),
        (b"<", "this is a web page and not the file itself: download the raw file"),
        (b"\x1f\x8b", "these are archives in archives in archives: unpack some, and give what comes out"),
    ];
    const TAR: &str = "this is a tar archive: unpack it with `tar xf`, and give the file inside";
    let text = head.trim_ascii_start();
    let known = KNOWN.iter().find(|(begin, _)| text.starts_with(begin)).map(|(_, what)| *what);
    known.or_else(|| (head.get(257..262) == Some(b"ustar")).then_some(TAR))
}
