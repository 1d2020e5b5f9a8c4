//! Wheels where nothing else is installed: no Rust, no compiler, no GPU.

use crate::process::{self, command, root};
use crate::python::venv::{PATIENT_PIP, Venv};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What the tests need.
const TESTS: [&str; 7] = [
    "fsspec==2026.9.0",
    "ipykernel==7.4.0",
    "mypy==2.4.1",
    "nbclient==0.11.0",
    "pyarrow==26.0.1",
    "pytest==9.2.0",
    "tqdm==4.70.1",
];
/// What else takes tables, draws, and runs on many machines. Tests of what is not there are skipped; installing these takes
/// longer than the tests.
const PEERS: [&str; 7] = [
    "dask==2026.8.0",
    "duckdb==2.0.0",
    "matplotlib==3.11.2",
    "pandas==3.1.1",
    "polars==2.1.0",
    "pyspark==4.3.0",
    "ray[data]==2.60.0",
];
const RECORDING: &str = "crates/granule-cli/data/resnet_train.trace.gz";
/// From `pip install` to the first result, without the download: a few, and more on a busy machine.
const MOST_SECONDS: f64 = 60.0;
const PIP: [&str; 6] = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"];

/// The wheel granule-alloc: the command and the module, alone; then the module's tests.
pub(super) fn alloc(wheel: &Path, quick: bool) -> Result<()> {
    let venv = Venv::empty("dist-check")?;
    let began = Instant::now();
    install(&venv, wheel)?;
    let help = process::output(there(&venv, "granule").arg("--help"))?;
    if !help.contains("whatif") {
        bail!("granule --help does not name the commands:\n{help}");
    }
    let replayed = process::output(there(&venv, "granule").args(["replay", RECORDING, "--json"]))?;
    if !replayed.contains("\"reserved_bytes_peak\"") {
        bail!("granule replay does not say what was reserved:\n{replayed}");
    }
    process::run(there(&venv, "python").args(["-c", "import granule_alloc"]))?;
    let seconds = began.elapsed().as_secs_f64();
    println!("pip install to the first results: {seconds:.1} s");
    if !quick && seconds > MOST_SECONDS {
        bail!("that is more than {MOST_SECONDS} s");
    }
    let others = if quick { &[][..] } else { &PEERS };
    process::run(there(&venv, "python").args(PIP).args(TESTS).args(others).envs(PATIENT_PIP))?;
    let tests = root().join("crates/granule-python/tests");
    process::run(there(&venv, "python").args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(tests))
}

/// The wheel granule-torch: the package and its library, without PyTorch.
pub(super) fn torch(wheel: &Path) -> Result<()> {
    let venv = Venv::empty("dist-check")?;
    install(&venv, wheel)?;
    let program = "import granule_torch; print(granule_torch._library.load().granule_version().decode())";
    let version = process::output(there(&venv, "python").args(["-c", program]))?;
    println!("granule-torch has the library of version {}", version.trim());
    Ok(())
}

fn install(venv: &Venv, wheel: &Path) -> Result<()> {
    process::run(there(venv, "python").args(PIP).args(["--no-index", "--no-deps"]).arg(wheel))
}

/// What a user has who never heard of Rust.
fn there(venv: &Venv, program: &str) -> Command {
    let bin = venv.folder().join("bin");
    let mut command = command(bin.join(program));
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env_remove("CARGO_HOME");
    command
}
