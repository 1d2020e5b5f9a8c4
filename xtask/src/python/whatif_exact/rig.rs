//! PyTorch's own allocator on the GPU-less rig.

use crate::process::{self, command, root};
use crate::python::e2e_torch::Place;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where torch and the rig's libraries are.
pub(super) struct Rig {
    venv: PathBuf,
    libraries: PathBuf,
}

/// A candidate on a device: what was predicted, and how PyTorch is asked.
pub(super) struct Wanted {
    pub(super) trace: PathBuf,
    /// The candidate's name.
    pub(super) name: String,
    conf: String,
    caching: bool,
    empty_cache: bool,
    /// Bytes of the device.
    pub(super) capacity: u64,
    /// Whether it is the answer for that device.
    pub(super) recommended: bool,
    pub(super) predicted: Value,
}

impl Wanted {
    pub(super) fn new(trace: &Path, candidate: &Value, outcome: &Value, recommended: bool) -> Result<Self> {
        let text = |key: &str| candidate[key].as_str().map(ToOwned::to_owned).with_context(|| key.to_owned());
        let is = |key: &str| candidate[key].as_bool().with_context(|| key.to_owned());
        Ok(Self {
            trace: trace.to_owned(),
            name: text("name")?,
            conf: text("conf")?,
            caching: is("caching")?,
            empty_cache: is("empty_cache_each_iteration")?,
            capacity: outcome["capacity"].as_u64().context("capacity")?,
            recommended,
            predicted: outcome.clone(),
        })
    }
}

impl Rig {
    pub(super) fn new(venv: &Path, libraries: &Path) -> Self {
        Self { venv: venv.to_owned(), libraries: libraries.to_owned() }
    }

    pub(super) fn of(place: &Place) -> Self {
        Self::new(place.venv(), place.rig())
    }

    /// What `native-baseline.sh` says.
    pub(super) fn native(&self, run: &Wanted) -> Result<Value> {
        let mut baseline = command(root().join("tests/nogpu-torch/native-baseline.sh"));
        // The rig counts in MiB, which these are a whole number of.
        #[allow(clippy::cast_precision_loss)]
        let gib = (run.capacity >> 20) as f64 / 1024.0;
        baseline
            .env("TORCH_VENV", &self.venv)
            .env("FAKE_GPU_LIB", &self.libraries)
            .env("FAKE_GPU_MEM_GB", gib.to_string())
            .env("JSON", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        if !run.caching {
            baseline.env("PYTORCH_NO_CUDA_MEMORY_CACHING", "1");
        }
        if run.empty_cache {
            baseline.env("EMPTY_CACHE", "1");
        }
        let text = process::output(baseline.arg(&run.trace).arg(&run.conf))?;
        let line = text.lines().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("no JSON from {baseline:?}: {text}"))?;
        serde_json::from_str(line).with_context(|| line.to_owned())
    }
}
