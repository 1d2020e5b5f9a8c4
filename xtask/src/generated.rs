//! Sources that follow from others: what would drift if people wrote it by hand.

pub(crate) mod bindgen;
pub(crate) mod codegen;
pub(crate) mod header;

use crate::process::files;
use anyhow::{Context, Result};
use std::path::Path;

/// What a file in Rust says; a path that is not absolute is from the workspace's root.
fn syntax(file: impl AsRef<Path>) -> Result<syn::File> {
    let file = file.as_ref();
    syn::parse_file(&files::read(file)?).with_context(|| format!("could not parse {}", file.display()))
}
