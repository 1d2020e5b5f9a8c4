//! What `granule whatif` predicts, beside what PyTorch's own allocator does.
//!
//! For each trace, the settings that `granule whatif` recommends and several others of its grid are given to the CUDA wheel
//! on the GPU-less rig, by its `native-baseline.sh`, and every figure is compared. A difference is a failure.

mod compare;

use crate::process::{self, command, files, root};
use crate::python::e2e_torch::Place;
use anyhow::{Context, Result, bail};
use clap::Args;
use compare::{Compared, FIGURES, Wanted};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What is compared.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Traces [default: all that were recorded, or the one that comes with the command]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// A bounded part (what CI runs): the trace that comes with the command, and few settings
    #[arg(long, conflicts_with_all = ["traces", "all"])]
    slice: bool,
    /// Every setting of the grid
    #[arg(long)]
    all: bool,
}

impl Options {
    /// What CI compares.
    pub(crate) fn slice() -> Self {
        Self { slice: true, ..Self::default() }
    }
}

const BUNDLED: &str = "crates/tools/granule-cli/data/resnet_train.trace.gz";
/// The step in which the smallest device is searched.
const STEP: u64 = 16 << 20;

/// Prepares a place, and compares there.
pub(crate) fn run(options: &Options) -> Result<()> {
    run_in(&Place::prepare(None)?, options)
}

/// The same, in a place that is prepared.
pub(crate) fn run_in(place: &Place, options: &Options) -> Result<()> {
    let granule = process::granule()?;
    let mut runs = Vec::new();
    for trace in traces(options)? {
        let answer = predict(&granule, &trace)?;
        runs.extend(wanted(&trace, &answer, options)?);
    }
    let count = runs.len();
    let compared = process::side_by_side(&runs, |run| Ok(Compared::new(run, &native(place, run)?)))?;
    println!("\n{}", compare::table(&compared));
    let figures = count * FIGURES;
    let wrong = compared.iter().filter(|one| !one.differences.is_empty()).count();
    if wrong > 0 {
        bail!("{wrong} of {count} predictions differ from PyTorch's own allocator");
    }
    println!("{count} predictions, {figures} figures: all are those of PyTorch's own allocator");
    Ok(())
}

fn traces(options: &Options) -> Result<Vec<PathBuf>> {
    if !options.traces.is_empty() {
        return options.traces.iter().map(|trace| files::named(trace)).collect();
    }
    let recorded = files::in_folder(files::shared("traces"), "gz").ok().filter(|_| !options.slice);
    Ok(recorded.unwrap_or_else(|| vec![root().join(BUNDLED)]))
}

/// What `granule whatif` says of a trace, on a device just below what the default settings need, and on one between that and
/// what they take where memory is no object, which is a device of its own.
fn predict(granule: &Path, trace: &Path) -> Result<Value> {
    let smallest = json(granule, &["min-capacity"], trace)?;
    let smallest = smallest["min_capacity"].as_u64().context("no min_capacity")?;
    let plain = json(granule, &["replay"], trace)?;
    let taken = plain["driver_peak_held"].as_u64().context("no driver_peak_held")?;
    let below = smallest.saturating_sub(STEP);
    let between = (smallest.midpoint(taken.max(smallest)) >> 20) << 20;
    json(granule, &["whatif", "--capacity", &format!("{below},{between}")], trace)
}

fn json(granule: &Path, arguments: &[&str], trace: &Path) -> Result<Value> {
    process::json(process::unset(&mut command(granule)).args(arguments).arg("--json").arg(trace))
}

/// What `native-baseline.sh` says of PyTorch's own allocator.
fn native(place: &Place, run: &Wanted) -> Result<Value> {
    let mut baseline = command(root().join("tests/nogpu-torch/native-baseline.sh"));
    // The rig counts in MiB, which these are a whole number of.
    #[allow(clippy::cast_precision_loss)]
    let gib = (run.capacity >> 20) as f64 / 1024.0;
    baseline
        .env("TORCH_VENV", place.venv())
        .env("FAKE_GPU_LIB", place.rig())
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

/// Candidates that are compared for every trace, besides the recommended ones.
const SEVERAL: [&str; 8] = [
    "default",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "roundup_power2_divisions:8",
    "expandable_segments:True,max_split_size_mb:128",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.99",
    "empty_cache() every iteration",
    "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
];
/// Of these, those of the slice.
const FEW: usize = 3;

fn wanted(trace: &Path, answer: &Value, options: &Options) -> Result<Vec<Wanted>> {
    let verdicts = answer["verdicts"].as_array().context("no verdicts")?;
    let candidates = answer["candidates"].as_array().context("no candidates")?;
    let several = if options.slice { &SEVERAL[..FEW] } else { &SEVERAL[..] };
    let mut runs = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate["policy"] == "pytorch") {
        let name = candidate["name"].as_str().context("no name")?;
        let outcomes = candidate["outcomes"].as_array().context("no outcomes")?;
        for (index, outcome) in outcomes.iter().chain([&candidate["roomy"]]).enumerate() {
            let answer = verdicts.get(index).map(|verdict| &verdict["least_change"]["candidate"]);
            let recommended = answer.is_some_and(|answer| answer == name);
            // Without caching, PyTorch ends a program with another error, which the rig's replay does not go on from.
            let comparable = candidate["caching"] == true || outcome["refused"] == 0;
            if comparable && (recommended || options.all || several.contains(&name)) {
                runs.push(Wanted::new(trace, candidate, outcome, recommended)?);
            }
        }
    }
    Ok(runs)
}
