//! The recorded programs.

use super::Options;
use crate::process::files;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Those that were named, else those that lie beside the repository.
pub(super) fn all(options: &Options) -> Result<Vec<PathBuf>> {
    if !options.traces.is_empty() {
        return Ok(options.traces.clone());
    }
    files::in_folder(files::shared("traces"), "gz")
        .context("there are no traces beside the repository: name some with --trace")
}
