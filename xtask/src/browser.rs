//! The page of `granule report` in a headless Chromium.

use crate::night::fuzz;
use crate::process::{self, command, debian, target};
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;

/// What is looked at.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Also measure a run of 5 000 000 entries (takes minutes)
    #[arg(long)]
    big: bool,
    /// Only make the book's pictures, of the recording that comes with the command
    #[arg(long, conflicts_with = "big")]
    pictures: bool,
}

/// What the book's pictures show.
const RECORDING: &str = "crates/tools/granule-cli/data/train-oom.pickle.gz";

pub(crate) fn run(options: &Options) -> Result<()> {
    // The decoder first, of any bytes.
    if !options.pictures {
        fuzz::page(2, false)?;
    }
    let (browser, driver) = find_or_install()?;
    let pictures = target().join("browser");
    let mut test = command("cargo");
    test.arg("test").args(process::WORKSPACE);
    if options.big {
        test.arg("--release");
    }
    // Browsers are hungry: two at a time.
    test.args(["--test", "report", "--", "--test-threads=2"])
        .env("GRANULE_BROWSER", &pictures)
        .env("GRANULE_CHROMIUM", browser)
        .env("GRANULE_CHROMEDRIVER", driver);
    if options.pictures {
        let (page, book) = (pictures.join("page.html"), process::root().join("docs/pictures"));
        std::fs::create_dir_all(&pictures)?;
        std::fs::create_dir_all(&book)?;
        let mut report = command(process::granule()?);
        process::run(report.args(["report", RECORDING, "--force", "-o"]).arg(&page))?;
        test.args(["--nocapture", "pictures_of_the_book"]);
        test.env("GRANULE_BROWSER_PAGE", &page).env("GRANULE_BROWSER_BOOK", &book);
    }
    if options.big {
        test.args(["--nocapture", "five_million_entries"]).env("GRANULE_BROWSER_BIG", "1");
    }
    process::run(&mut test)?;
    println!("pictures: {}", pictures.display());
    Ok(())
}

/// Chromium and its driver.
fn find_or_install() -> Result<(PathBuf, PathBuf)> {
    if let Some(found) = find() {
        return Ok(found);
    }
    debian::programs(&["chromium", "chromedriver"], &["chromium", "chromium-driver"])
        .context("no Chrome with the chromedriver of the same version either")?;
    find().context("Chromium and its driver were installed and not found")
}

fn find() -> Option<(PathBuf, PathBuf)> {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(debian::on_path)?;
    Some((browser, debian::on_path("chromedriver")?))
}
