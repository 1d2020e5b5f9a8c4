//! The page of `granule report` in a headless Chromium.

use crate::process::{self, command, target};
use anyhow::{Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};

/// What is looked at.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Also measure a run of 5 000 000 entries (takes minutes)
    #[arg(long)]
    big: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let (browser, driver) = find_or_install()?;
    let pictures = target().join("browser");
    let mut test = command("cargo");
    test.args(["test", "--workspace"]);
    if options.big {
        test.arg("--release");
    }
    // Browsers are hungry: two at a time.
    test.args(["--test", "report", "--", "--test-threads=2"])
        .env("GRANULE_BROWSER", &pictures)
        .env("GRANULE_CHROMIUM", browser)
        .env("GRANULE_CHROMEDRIVER", driver);
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
    let root = process::output(command("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if root && Path::new("/usr/bin/apt-get").exists() {
        println!("installing chromium and chromium-driver");
        process::run(command("apt-get").args(["update", "-q"]))?;
        let install = ["install", "-q", "-y", "--no-install-recommends", "chromium", "chromium-driver"];
        process::run(command("apt-get").args(install))?;
        if let Some(found) = find() {
            return Ok(found);
        }
    }
    bail!(
        "no Chromium with its driver: install both (Debian: apt-get install chromium chromium-driver; elsewhere Chrome and the \
         chromedriver of the same version, on the PATH), and run this again"
    )
}

fn find() -> Option<(PathBuf, PathBuf)> {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(on_path)?;
    Some((browser, on_path("chromedriver")?))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file())
}
