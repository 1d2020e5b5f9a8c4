//! Other libraries on Granule's memory: CCCL, RMM, cuda.core, CuPy, Numba. Their real packages, over the driver that
//! the simulated device is behind; the tests are those of `tests/integrations`.

use crate::process::{self, command, files, root, target};
use crate::python::venv::Venv;
use anyhow::{Context, Result};
use clap::Args;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// How the tests are run.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// With the larger packages, too: CuPy, Numba, RMM's Python package
    #[arg(long)]
    long: bool,
    /// Passed on to pytest, after `--`
    #[arg(last = true)]
    rest: Vec<String>,
}

const TESTS: &str = "tests/integrations";

pub(crate) fn run(options: &Options) -> Result<()> {
    let venv = Venv::prepare("integrations/venv", &requirements(options.long)?, None)?;
    process::libraries()?;
    let mut pytest = command(venv.python());
    process::unset(&mut pytest)
        .args(["-m", "pytest", TESTS, "-p", "no:cacheprovider", "-q", "-ra"])
        .args(&options.rest)
        .env("GRANULE_CAPI_LIBRARY", target().join("debug/libgranule_capi.so"))
        .env("LD_LIBRARY_PATH", driver()?)
        .env("PYTHONPATH", root().join("crates/granule-torch"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // The driver says CUDA 12, and the newest bindings work with it.
        .env("CUDA_PYTHON_DISABLE_MAJOR_VERSION_WARNING", "1")
        .env("GRANULE_BACKEND", "cuda");
    process::run(&mut pytest)
}

fn requirements(long: bool) -> Result<String> {
    let lists = if long { &["requirements.txt", "requirements-long.txt"][..] } else { &["requirements.txt"] };
    lists.iter().map(|name| files::read(Path::new(TESTS).join(name))).collect()
}

/// A folder in which the simulated driver has the name that libraries look for.
fn driver() -> Result<PathBuf> {
    let folder = target().join("integrations/driver");
    files::create(&folder)?;
    let name = folder.join("libcuda.so.1");
    if !name.exists() {
        symlink(target().join("debug/liblookalike_cuda.so"), &name)
            .with_context(|| name.display().to_string())?;
    }
    Ok(folder)
}
