//! Room on the disk that holds the build folder.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Sees to it that `bytes` are free on the disk of `build`, by deleting those of its `folders` that can be built again,
/// one after the other, until there are. Where that is not enough it says so and goes on: what is not enough for a
/// first run may do for what is already there.
pub(crate) fn make_room(build: &Path, bytes: u64, folders: &[&str]) -> Result<()> {
    for folder in folders.iter().map(|folder| build.join(folder)).filter(|folder| folder.exists()) {
        if has_room(build, bytes)? {
            return Ok(());
        }
        println!("deleting {} to make room", folder.display());
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let left = free(build)?;
    if left < bytes {
        println!("{} MiB are free on this disk; the next step may need {} MiB", left >> 20, bytes >> 20);
    }
    Ok(())
}

/// Whether `bytes` are free on the disk of `build`.
pub(crate) fn has_room(build: &Path, bytes: u64) -> Result<bool> {
    Ok(free(build)? >= bytes)
}

/// Bytes that may be written to the disk of `path`.
fn free(path: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(path).with_context(|| path.display().to_string())?;
    Ok(disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::{free, make_room};
    use std::fs;

    #[test]
    fn only_what_may_go_goes_and_only_where_there_is_no_room() {
        let build = tempfile::tempdir().unwrap();
        for folder in ["debug", "release"] {
            fs::create_dir(build.path().join(folder)).unwrap();
        }
        make_room(build.path(), 1, &["debug", "doc"]).unwrap();
        assert!(build.path().join("debug").exists());
        make_room(build.path(), u64::MAX, &["debug", "doc"]).unwrap();
        assert!(!build.path().join("debug").exists());
        assert!(build.path().join("release").exists());
        assert!(free(&build.path().join("missing")).is_err());
    }
}
