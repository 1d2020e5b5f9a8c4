//! The page of `granule report` in a headless Chromium.

use crate::night::fuzz;
use crate::process::{self, command, debian, files, target};
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

/// What a terminal of 80 columns shows of these commands.
const SCREENS: [(&str, &str); 5] = [
    ("screen", "FILE"),
    ("inspect", "inspect FILE"),
    ("whatif", "whatif FILE"),
    ("replay", "replay FILE"),
    ("min-capacity", "min-capacity FILE"),
];

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
        let (shown, book) = (pictures.join("shown"), process::root().join("docs/pictures"));
        files::empty(&shown)?;
        files::create(&book)?;
        let granule = process::granule()?;
        let mut report = command(&granule);
        process::run(report.args(["report", RECORDING, "--force", "-o"]).arg(shown.join("page.html")))?;
        let recording = process::root().join(RECORDING).display().to_string();
        let (here, own) = (shown.display().to_string(), granule.display().to_string());
        for (name, arguments) in SCREENS {
            let mut asked = command(&granule);
            let words = arguments.split(' ').map(|word| if word == "FILE" { &recording } else { word });
            let said = asked.args(words).env("COLUMNS", "80").current_dir(&shown).output()?;
            let text = String::from_utf8_lossy(&said.stdout).replace(&recording, "train-oom.pickle.gz");
            let text = text.replace(&here, "/home/you").replace(&own, "granule");
            let typed = arguments.replace("FILE", "train-oom.pickle.gz");
            std::fs::write(shown.join(format!("{name}.txt")), format!("$ granule {typed}\n{text}"))?;
        }
        test.args(["--nocapture", "pictures_of_the_book"]);
        test.env("GRANULE_BROWSER_SHOWN", &shown).env("GRANULE_BROWSER_BOOK", &book);
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
