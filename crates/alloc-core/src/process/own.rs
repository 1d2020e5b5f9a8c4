//! Folders of Granule's own, and the files in them, where other users may be: run directories, temporary files, caches.

use crate::sync::Ordering;
use crate::sync::plain::AtomicPtr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;

/// Makes a folder, where it is not there, for this user alone; returns it as [`folder`] does.
///
/// # Errors
/// Errors of [`folder`], and of making it.
pub fn make_folder(path: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    folder(path)
}

/// Opens a folder that is this user's, and that nobody else can write to.
///
/// # Errors
/// A link, and a folder that another user could have made or can change, are refused.
pub fn folder(path: &Path) -> io::Result<File> {
    let refused = || {
        let why =
            "other users could change it: it must be a folder of your own, no link, and writable by you only";
        io::Error::new(ErrorKind::PermissionDenied, why)
    };
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let folder =
        folder.map_err(|error| if error.kind() == ErrorKind::NotADirectory { refused() } else { error })?;
    let there = folder.metadata()?;
    let own = there.uid() == rustix::process::geteuid().as_raw();
    if own && there.mode() & 0o022 == 0 { Ok(folder) } else { Err(refused()) }
}

/// Opens a file of such a folder: never through a link, nor a pipe, which would wait for its other end.
///
/// # Errors
/// Anything but a regular file is refused.
pub fn file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(ErrorKind::InvalidData, "it is no file"))
    }
}

/// A file that is locked for as long as its process lives: others test the lock, in whatever PID name space each of
/// them is.
#[derive(Debug)]
pub(crate) struct LockedFile {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// Its file system and number: another file may have its name by now.
    identity: (u64, u64),
}

/// Tries to make a file, at most: readers may remove each new one, as if its process had ended.
const TRIES: usize = 16;

impl LockedFile {
    /// A new file in a folder of [`make_folder`], whose name begins with `name`. May block on the file system.
    pub(crate) fn new(folder: &Path, name: &str) -> io::Result<Self> {
        for _ in 0..TRIES {
            let made = tempfile::Builder::new().prefix(name).rand_bytes(8).tempfile_in(folder)?;
            // A reader that finds it before it is locked removes it.
            if made.as_file().try_lock().is_err() {
                continue;
            }
            let there = made.as_file().metadata()?;
            let (file, path) = made.keep().map_err(|error| error.error)?;
            let this = Self { path, file, identity: (there.dev(), there.ino()) };
            if this.is_there() {
                return Ok(this);
            }
        }
        Err(io::Error::new(ErrorKind::WouldBlock, "readers removed the new file again and again"))
    }

    /// True if its name still leads to it.
    pub(crate) fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == self.identity)
    }

    fn remove(&self) {
        if self.is_there() {
            // If it stays, its next reader removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// True if a process lives that has the file as a [`LockedFile`] one. Where that cannot be known, also true.
pub(crate) fn is_locked(file: &File) -> bool {
    // Shared: two readers do not take one another for the owner.
    file.try_lock_shared().is_err()
}

/// Slot in which the edges of the process find a locked file without a lock. The thread that takes the file out owns
/// it.
#[derive(Debug, Default)]
pub(crate) struct OwnFile(AtomicPtr<LockedFile>);

impl OwnFile {
    /// Keeps a file in place of the one before, which is removed.
    ///
    /// # Safety
    /// Nobody has the reference that [`get`](Self::get) gave.
    pub(crate) unsafe fn put(&self, file: Option<LockedFile>) {
        let file = file.map_or(ptr::null_mut(), |file| Box::into_raw(Box::new(file)));
        let before = self.0.swap(file, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: it came from a box, and was taken out once; by this function's contract nobody has a reference.
            unsafe { Box::from_raw(before) }.remove();
        }
    }

    /// The file, if there is one.
    pub(crate) fn get(&self) -> Option<&LockedFile> {
        // SAFETY: null, or from a box that lives: only `put` ends one, whose caller sees to it that nobody has this.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Takes the file out for good.
    fn take(&self) -> Option<&'static LockedFile> {
        // SAFETY: null, or from a box that is never ended: it was taken out.
        unsafe { self.0.swap(ptr::null_mut(), Ordering::AcqRel).as_ref() }
    }

    /// In a forked child: the lock is the parent's alone again. Allocates nothing and gives nothing back to the heap.
    pub(super) fn let_go(&self) {
        if let Some(file) = self.take() {
            // SAFETY: the child's copy of the descriptor, which nobody uses or closes after this.
            unsafe { libc::close(file.file.as_raw_fd()) };
        }
    }

    /// At the end of the process, where other threads may still write to it.
    pub(crate) fn remove(&self) {
        if let Some(file) = self.take() {
            file.remove();
        }
    }
}
