//! The book under `docs` and the README, checked as a reader meets them: links lead somewhere, paragraphs are short,
//! shell examples run. `mdbook` makes the website of them.

mod examples;
mod page;
mod website;

use crate::process::root;
use anyhow::{Context, Result, ensure};
use clap::Args;
use page::Page;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What is done besides checking links and lengths.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Without the website (what CI runs): `mdbook` is not needed
    #[arg(long)]
    check: bool,
}

impl Options {
    pub(crate) const SLICE: Self = Self { check: true };
}

/// What the front page may have: it is read in two screens.
const README_LINES: usize = 200;
const README_BYTES: usize = 11_500;

pub(crate) fn run(options: &Options) -> Result<()> {
    let pages = pages()?;
    let mut faults = pages.values().flat_map(|page| page.faults(&pages)).collect::<Vec<_>>();
    let front = fs::read_to_string(root().join("README.md"))?;
    if front.len() > README_BYTES || front.lines().count() > README_LINES {
        faults.push(format!(
            "README.md has {} lines and {} bytes; {README_LINES} and {README_BYTES} are allowed",
            front.lines().count(),
            front.len()
        ));
    }
    ensure!(faults.is_empty(), "the book has faults:\n{}", faults.join("\n"));
    println!("{} pages: every link leads somewhere, no paragraph is too long", pages.len());
    examples::run(pages.values())?;
    if options.check {
        return Ok(());
    }
    website::build()
}

/// The README, the pages beside it, and those of the book, by their file.
fn pages() -> Result<BTreeMap<PathBuf, Page>> {
    let mut files = markdown(&root())?;
    files.extend(markdown(&root().join("docs"))?);
    files.extend(markdown(&root().join("docs/results"))?);
    files.into_iter().map(|file| Ok((file.clone(), Page::read(file)?))).collect()
}

fn markdown(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "md")).collect())
}
