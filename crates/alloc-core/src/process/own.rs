//! Folders of Granule's own, and the files in them, where other users may be: run directories, temporary files, caches.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Makes a folder, where it is not there, for this user alone; gives what [`folder`] does.
///
/// # Errors
/// Those of [`folder`], and that it cannot be made.
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

/// Opens a file of such a folder: never a link's, nor a pipe, which would wait for its other end.
///
/// # Errors
/// Whatever is no regular file is refused.
pub fn file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(ErrorKind::InvalidData, "it is no file"))
    }
}
