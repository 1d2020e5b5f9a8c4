//! Sources that follow from others: what would drift if people wrote it by hand.

pub(crate) mod bindgen;
pub(crate) mod codegen;
pub(crate) mod header;

use crate::process::files;
use anyhow::{Context, Result};

/// What a file in Rust says; a path that is not absolute is from the workspace's root.
fn syntax(file: &str) -> Result<syn::File> {
    syn::parse_file(&files::read(file)?).with_context(|| format!("could not parse {file}"))
}
