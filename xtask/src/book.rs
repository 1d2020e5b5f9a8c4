//! The book under `docs` and the README, checked as a reader meets them: links lead somewhere, paragraphs are short,
//! shell examples run. `mdbook` makes the website of them.

mod examples;
mod page;
mod website;

use crate::process::files;
use anyhow::{Result, ensure};
use clap::Args;
use page::Page;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is done besides checking links and lengths.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Without the website (what CI runs): `mdbook` is not needed
    #[arg(long)]
    pub(crate) check: bool,
}

/// What the front page may have: it is read in two screens.
const README_LINES: usize = 150;

pub(crate) fn run(options: &Options) -> Result<()> {
    let pages = pages()?;
    let mut faults = pages.values().flat_map(|page| page.faults(&pages)).collect::<Vec<_>>();
    let lines = files::read("README.md")?.lines().count();
    if lines > README_LINES {
        faults.push(format!("README.md has {lines} lines; {README_LINES} are allowed"));
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
    let mut files = files::in_folder("", "md")?;
    files.extend(files::in_folder("docs", "md")?);
    files.extend(files::in_folder("docs/results", "md")?);
    files.into_iter().map(|file| Ok((file.clone(), Page::read(file)?))).collect()
}
