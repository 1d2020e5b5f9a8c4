//! PyTorch's own viewer as the judge of our snapshots.

use crate::process::{self, cargo, command, root, target};
use crate::python::venv::Venv;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;

/// How the viewer is run.
#[derive(Args)]
pub(crate) struct Options {
    /// Snapshots to check; without any, one written by `granule replay` of the bundled trace
    files: Vec<PathBuf>,
    /// A Python that has torch; without it one is installed into the build folder (about 6 GB)
    #[arg(long, env = "GRANULE_TORCH_PYTHON")]
    python: Option<PathBuf>,
}

fn run_viewer(python: &std::path::Path, files: &[PathBuf]) -> Result<()> {
    process::run(command(python).arg(root().join("tests/viewer.py")).args(files))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let python = match &options.python {
        Some(python) => python.clone(),
        None => install()?,
    };
    if !options.files.is_empty() {
        return run_viewer(&python, &options.files);
    }
    let folder = target().join("viewer");
    std::fs::create_dir_all(&folder)?;
    let mut files = Vec::new();
    for (name, conf) in [("fixed", ""), ("growable", "expandable_segments:True")] {
        let file = folder.join(format!("{name}.pickle"));
        let trace = root().join("crates/granule-cli/data/resnet_train.trace.gz");
        let (Some(trace), Some(path)) = (trace.to_str(), file.to_str()) else {
            bail!("the workspace's path is not UTF-8");
        };
        cargo(&[
            "run",
            "--quiet",
            "--release",
            "-p",
            "granule-cli",
            "--",
            "replay",
            trace,
            "--conf",
            conf,
            "--snapshot",
            path,
            "--json",
        ])?;
        files.push(file);
    }
    run_viewer(&python, &files)
}

fn install() -> Result<PathBuf> {
    Ok(Venv::prepare("viewer-venv", "torch==2.15.0\nnumpy\n", None)?.python())
}
