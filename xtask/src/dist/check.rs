//! The wheel where nothing else is installed: no Rust, no compiler, no GPU.

use crate::process::{self, command, root, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What the tests need.
const TESTS: [&str; 10] = [
    "pytest",
    "mypy",
    "pyarrow",
    "pandas",
    "polars",
    "duckdb",
    "matplotlib",
    "tqdm",
    "nbclient",
    "ipykernel",
];
const RECORDING: &str = "crates/granule-cli/data/resnet_train.trace.gz";
/// From `pip install` to the first result, without the download.
const MOST_SECONDS: f64 = 20.0;

pub(super) fn run(wheel: &Path, quick: bool) -> Result<()> {
    let folder = target().join("dist-check");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    process::run(command("python3").args(["-m", "venv"]).arg(&folder))?;
    let bin = folder.join("bin");
    // What a user has who never heard of Rust.
    let there = |program: &str| {
        let mut command = command(bin.join(program));
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env_remove("CARGO_HOME");
        command
    };
    let began = Instant::now();
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    process::run(there("python").args(pip).args(["--no-index", "--no-deps"]).arg(wheel))?;
    let help = process::output(there("granule").arg("--help"))?;
    if !help.contains("whatif") {
        bail!("granule --help does not name the commands:\n{help}");
    }
    let replayed = process::output(there("granule").args(["replay", RECORDING, "--json"]))?;
    if !replayed.contains("\"reserved_bytes_peak\"") {
        bail!("granule replay does not say what was reserved:\n{replayed}");
    }
    process::run(there("python").args(["-c", "import granule_alloc"]))?;
    let seconds = began.elapsed().as_secs_f64();
    println!("pip install to the first results: {seconds:.1} s");
    if !quick && seconds > MOST_SECONDS {
        bail!("that is more than {MOST_SECONDS} s");
    }
    process::run(there("python").args(pip).args(TESTS))?;
    pytest(there("python"))
}

fn pytest(mut python: Command) -> Result<()> {
    let tests = root().join("crates/granule-python/tests");
    process::run(python.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(tests))
}
