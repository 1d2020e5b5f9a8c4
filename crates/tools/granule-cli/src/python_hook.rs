//! What this command adds to Python programs that import PyTorch: a folder that is put first in PYTHONPATH.
//!
//! PyTorch looks there for the entry points that the folder's metadata names, and calls them at the end of `import torch`;
//! `GRANULE_HOOK` says which of its modules start then.

use crate::failure::Failure;
use alloc_core::own;
use flate2::Crc;
use include_dir::{Dir, DirEntry, include_dir};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/python");

/// Adds the hook to a command that has not started; `modules` are started in it, in this order.
pub(crate) fn add(command: &mut Command, modules: &[&str]) -> Result<(), Failure> {
    let mut path = OsString::from(folder()?);
    if let Some(rest) = env::var_os("PYTHONPATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    // Switched off, PyTorch looks for no entry points.
    command
        .env("PYTHONPATH", path)
        .env("GRANULE_HOOK", modules.join(","))
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "1");
    Ok(())
}

/// The folder. It is written once, to the user's cache (or, where there is none, among the temporary files), and stays good
/// until another version of this command brings other files.
pub(crate) fn folder() -> Result<PathBuf, Failure> {
    let home =
        env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or(home);
    if let Some(Ok(folder)) = cache.map(|cache| write_to(&cache.join("granule"))) {
        return Ok(folder);
    }
    let other = env::temp_dir().join(format!("granule-{}", rustix::process::getuid().as_raw()));
    write_to(&other).map_err(|error| Failure::Hook { path: other, error })
}

fn write_to(cache: &Path) -> io::Result<PathBuf> {
    own::make_folder(cache)?;
    let folder = cache.join(format!("python-{:08x}", checksum(&FILES)));
    if own::folder(&folder).is_ok() {
        return Ok(folder);
    }
    // Written aside and moved into place, so that nobody ever sees a part of it.
    let aside = tempfile::tempdir_in(cache)?;
    FILES.extract(aside.path())?;
    let aside = aside.keep();
    match fs::rename(&aside, &folder) {
        Err(_) if own::folder(&folder).is_ok() => fs::remove_dir_all(&aside)?, // another process was faster
        moved => moved?,
    }
    Ok(folder)
}

/// Of all names and contents.
fn checksum(files: &Dir<'_>) -> u32 {
    fn add(sum: &mut Crc, files: &Dir<'_>) {
        for entry in files.entries() {
            sum.update(entry.path().as_os_str().as_encoded_bytes());
            match entry {
                DirEntry::Dir(inner) => add(sum, inner),
                DirEntry::File(file) => sum.update(file.contents()),
            }
        }
    }
    let mut sum = Crc::new();
    add(&mut sum, files);
    sum.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_written_once_and_is_whole() {
        let cache = tempfile::tempdir().unwrap();
        let folder = write_to(cache.path()).unwrap();
        assert!(folder.join("granule_hook.py").is_file());
        assert!(folder.join("granule_hook-1.dist-info/entry_points.txt").is_file());
        let written = fs::metadata(folder.join("granule_hook.py")).unwrap().modified().unwrap();
        assert_eq!(write_to(cache.path()).unwrap(), folder);
        assert_eq!(fs::metadata(folder.join("granule_hook.py")).unwrap().modified().unwrap(), written);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
