//! What Granule's allocators in the processes of a user say of themselves: a file each.
//!
//! The folder is `granule` in the user's run directory: `$XDG_RUNTIME_DIR`, else `/run/user/UID`, else one of the user's own in
//! `/tmp`. It is used only where it is the user's and nobody else may write to it. Under another `system_root` it is
//! `run/user/UID/granule` there.
//!
//! A file has the device's UUID and the bytes that are held of it, which its allocator changes in place. Its name has the process's
//! number and start, so that a number that is used again is told apart. It goes with its allocator; that of a process which was
//! killed is removed by the next reader.

use crate::features::share::process::Process;
use crate::process::own;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first word of a file: its kind and version.
const MAGIC: u64 = u64::from_le_bytes(*b"granule1");
/// Words of a file: kind, two of UUID, bytes held.
const WORDS: usize = 4;
const HELD: usize = 3;

/// What identifies a device in every process that sees it.
pub type Uuid = [u8; 16];

/// What an allocator holds of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its process.
    pub pid: u32,
    /// Bytes.
    pub held: u64,
}

/// The folder for allocators made with this `system_root`.
#[must_use]
pub fn folder(system_root: &Path) -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    let run = PathBuf::from(format!("run/user/{user}"));
    if system_root != Path::new("/") {
        return system_root.join(run).join("granule");
    }
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match named.unwrap_or_else(|| system_root.join(run)) {
        there if there.is_dir() => there.join("granule"),
        _ => PathBuf::from(format!("/tmp/granule-{user}")),
    }
}

/// The file of an allocator, for one device.
#[derive(Debug)]
pub(crate) struct Published {
    path: PathBuf,
    process: Process,
    /// Written, not mapped: who cuts it harms nobody.
    file: File,
}

impl Published {
    /// A file that says that nothing is held, in a folder of [`own::make_folder`]. May block on the file system.
    pub(crate) fn new(folder: &Path, uuid: Uuid) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let process = Process::current()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{}-{number}", process.id, process.started));
        let mut words = vec![MAGIC];
        words.extend(
            uuid.chunks_exact(8).map(|half| half.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))),
        );
        words.push(0);
        // Whole before it has its name, for whoever reads meanwhile.
        let mut file = tempfile::Builder::new().prefix(".new").tempfile_in(folder)?;
        io::Write::write_all(&mut file, &words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>())?;
        let file = file.persist(&path).map_err(|error| error.error)?;
        Ok(Self { path, process, file })
    }

    /// So much is held from here on.
    pub(crate) fn set(&self, held: u64) {
        if let Err(error) = self.file.write_all_at(&held.to_le_bytes(), 8 * HELD as u64) {
            tracing::debug!(%error, path = %self.path.display(), "published figures are not the latest");
        }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Not in a forked child: the file is the parent's.
        if self.process.id == std::process::id()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "published figures stay; a reader removes them");
        }
    }
}

/// What others have published of a device, without the file `own`. Removes files of processes that have ended. Reads a file for every
/// allocator that publishes.
pub(crate) fn others(folder: &Path, uuid: Uuid, own: Option<&Path>) -> Vec<Entry> {
    if own::folder(folder).is_err() {
        return Vec::new();
    }
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let files = files.filter_map(Result::ok).map(|file| file.path());
    files.filter(|path| own != Some(path)).filter_map(|path| read(&path, uuid)).collect()
}

/// What the file of an allocator says of a device; `None` where it is about another one, and of a process that has ended.
fn read(path: &Path, uuid: Uuid) -> Option<Entry> {
    let mut parts = path.file_name()?.to_str()?.split('-').map(str::parse::<u32>);
    let (Some(Ok(id)), Some(Ok(started))) = (parts.next(), parts.next()) else { return None };
    if !(Process { id, started }).is_alive() {
        // Another reader may have been faster.
        let _ = fs::remove_file(path);
        return None;
    }
    let mut bytes = [0; WORDS * 8];
    own::file(path, File::options().read(true)).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        .collect();
    let there: Vec<u8> = words[1..HELD].iter().copied().flat_map(u64::to_be_bytes).collect();
    (words[0] == MAGIC && there == uuid).then_some(Entry { pid: id, held: words[HELD] })
}
