//! Files in which Granule's allocators in the processes of a user publish their holdings, one each.
//!
//! The folder is `granule` in the user's run directory: `$XDG_RUNTIME_DIR`, else `/run/user/UID`, else one of the user's own in
//! `/tmp`. It is used only where it is the user's and nobody else may write to it. Under another `system_root` it is
//! `run/user/UID/granule` there.
//!
//! A file has the device's UUID and the bytes held, which its allocator changes in place; a removed file is made again
//! by the next change. Its name has the process's number and the PID name space of that number. Its process keeps it
//! locked, which readers in any name space see: they remove a file that is not.

use crate::process::attention::Attention;
use crate::process::own::{self, LockedFile, OwnFile};
use crate::process::state;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first word of a file: its kind and version.
const MAGIC: u64 = u64::from_le_bytes(*b"granule1");
/// Words of a file: kind, two of UUID, bytes held.
const WORDS: usize = 4;
const HELD: usize = 3;
/// Prefix of the files' names.
const NAME: &str = "held.";

/// Identity of a device in every process that sees it.
pub type Uuid = [u8; 16];

/// Bytes of a device that an allocator holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// The PID name space of its process; 0 for that of this one.
    pub name_space: u64,
    /// Number of its process.
    pub pid: u32,
    /// Bytes held.
    pub held: u64,
}

/// PID name space of this process; 0 where the system does not tell.
fn name_space() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |there| there.ino())
}

/// Folder for allocators made with this `system_root`.
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

/// Entry by which an allocator tells other processes about one device.
#[derive(Debug)]
pub(crate) struct Published {
    uuid: Uuid,
    system_root: Arc<Path>,
    attention: &'static Attention,
    /// Written, not mapped: a file that is cut harms nobody.
    file: &'static OwnFile,
    /// The last change was not written.
    failed: bool,
}

impl Published {
    /// Publishes that nothing is held. May block on the file system.
    pub(crate) fn new(uuid: Uuid, system_root: Arc<Path>, attention: &'static Attention) -> Option<Self> {
        let file = state::published_of(attention)?;
        let mut this = Self { uuid, system_root, attention, file, failed: false };
        this.set(0);
        Some(this)
    }

    /// Publishes the bytes held from here on.
    pub(crate) fn set(&mut self, held: u64) {
        // A forked child has no file, and the end of the process has removed it.
        if self.attention.process_state().is_some() {
            return;
        }
        let written = match self.file.get().filter(|file| file.is_there()) {
            Some(LockedFile { file, .. }) => file.write_all_at(&held.to_le_bytes(), 8 * HELD as u64),
            None => self.make(held),
        };
        let failed = std::mem::replace(&mut self.failed, written.is_err());
        if let (Err(error), false) = (written, failed) {
            let folder = folder(&self.system_root);
            let folder = folder.display();
            tracing::warn!(%error, %folder, "other processes are not told what is held; XDG_RUNTIME_DIR can name a folder of your own");
        }
    }

    fn make(&mut self, held: u64) -> io::Result<()> {
        let folder = folder(&self.system_root);
        own::make_folder(&folder)?;
        let file = LockedFile::new(&folder, &format!("{NAME}{}.{}.", name_space(), std::process::id()))?;
        let uuid = self.uuid.chunks_exact(8).flat_map(|half| half.iter().rev()).copied();
        let words = MAGIC.to_le_bytes().into_iter().chain(uuid).chain(held.to_le_bytes());
        file.file.write_all_at(&words.collect::<Vec<_>>(), 0)?;
        // SAFETY: everything that looks at the file has a reference to this.
        unsafe { self.file.put(Some(file)) };
        // The process may have begun to end meanwhile.
        if self.attention.process_state().is_some() {
            self.file.remove();
        }
        Ok(())
    }

    /// The file, while there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.get().map(|file| &*file.path)
    }
}

/// Entries that others have published about a device, without the file `own`. Removes files whose processes have ended.
/// Reads a file for every allocator that publishes.
pub(crate) fn others(folder: &Path, uuid: Uuid, own: Option<&Path>) -> Vec<ProcessUsage> {
    if own::folder(folder).is_err() {
        return Vec::new();
    }
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let here = name_space();
    let files = files.filter_map(Result::ok).map(|file| file.path());
    files.filter(|path| own != Some(path)).filter_map(|path| read(&path, uuid, here)).collect()
}

/// Reads an allocator's entry about a device; `None` where it is about another one, or its process has ended.
fn read(path: &Path, uuid: Uuid, here: u64) -> Option<ProcessUsage> {
    let mut name = path.file_name()?.to_str()?.strip_prefix(NAME)?.split('.');
    let (name_space, pid) = (name.next()?.parse().ok()?, name.next()?.parse().ok()?);
    let file = own::file(path, File::options().read(true)).ok()?;
    if !own::is_locked(&file) {
        // Another reader may have been faster.
        let _ = fs::remove_file(path);
        return None;
    }
    let mut bytes = [0; WORDS * 8];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        .collect();
    let there: Vec<u8> = words[1..HELD].iter().copied().flat_map(u64::to_be_bytes).collect();
    let name_space = match name_space {
        same if same == here => 0,
        // The system did not tell its process.
        0 => u64::MAX,
        other => other,
    };
    (words[0] == MAGIC && there == uuid).then_some(ProcessUsage { name_space, pid, held: words[HELD] })
}
