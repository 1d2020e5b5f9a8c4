//! The recorded programs.

use super::Options;
use crate::process::root;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// Files that lie beside the repository, where they do.
pub(super) fn shared() -> PathBuf {
    std::env::var_os("GRANULE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from)
}

/// Those that were named, else those that lie beside the repository.
pub(super) fn all(options: &Options) -> Result<Vec<PathBuf>> {
    if !options.traces.is_empty() {
        return Ok(options.traces.clone());
    }
    let found = files(&shared().join("traces"), "gz");
    ensure!(!found.is_empty(), "there are no traces beside the repository: name some with --trace");
    Ok(found)
}

/// Files of a folder with this ending, by name; none where there is no such folder.
pub(super) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    found.sort();
    found
}

/// The file's name up to the first dot.
pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}
