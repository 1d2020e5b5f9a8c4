//! PyTorch on Granule on a real GPU: a training step against PyTorch's own allocator, and those of the end-to-end
//! tests that say something about real hardware.

use crate::process::{self, command, output, root};
use crate::python::e2e_torch::{self, Place};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the run is done.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the page and the figures go [default: docs/results]
    #[arg(long)]
    into: Option<PathBuf>,
    /// The page's date, for its name
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
    /// Steps of each training run
    #[arg(long, default_value_t = 60)]
    steps: u32,
    /// Training runs with each allocator, taken in turn; the fastest counts
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// An environment that has torch: its packages are used, and it is not changed
    #[arg(long, env = "GRANULE_TORCH_VENV", value_name = "FOLDER")]
    venv: Option<PathBuf>,
    /// Try this command on the GPU-less rig: the figures mean nothing, and `--into` must be given
    #[arg(long, requires = "into")]
    on_rig: bool,
}

const ALLOCATORS: [&str; 2] = ["native", "granule"];

/// What one training run said.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Training {
    allocator: String,
    torch: String,
    device: String,
    losses: Vec<f64>,
    step_ms: f64,
    peak_allocated: u64,
    peak_reserved: u64,
    device_allocations: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let place = e2e_torch::prepare(None, options.venv.as_deref(), "dist")?;
    let device = device(&place, options.on_rig)?;
    println!("device: {device}");
    let into = root().join(options.into.as_deref().unwrap_or(Path::new("docs/results")));
    std::fs::create_dir_all(&into).with_context(|| format!("{} cannot be made", into.display()))?;
    let mut fastest: [Option<Training>; 2] = [None, None];
    for round in 1..=options.rounds {
        for (name, best) in ALLOCATORS.iter().zip(&mut fastest) {
            println!("training with {name}, {round} of {}", options.rounds);
            let run = training(&place, name, options)?;
            if best.as_ref().is_none_or(|best| run.step_ms < best.step_ms) {
                *best = Some(run);
            }
        }
    }
    let [Some(native), Some(granule)] = fastest else { bail!("no training run was asked for") };
    println!("end-to-end tests");
    let tests = tests(&place, options.on_rig);
    let date = match &options.date {
        Some(date) => date.clone(),
        None => output(command("date").arg("+%Y-%m-%d"))?.trim().to_owned(),
    };
    let commit = output(command("git").args(["describe", "--always", "--dirty"])).unwrap_or("unknown".into());
    let head = format!("# PyTorch on {device}\n\nCommit {}.\n", commit.trim());
    let (page, failed) = page(&head, &native, &granule, &tests);
    let file = into.join(format!("{date}-torch.md"));
    std::fs::write(&file, page).with_context(|| file.display().to_string())?;
    let figures = into.join(format!("{date}-torch.json"));
    std::fs::write(&figures, serde_json::to_string_pretty(&[&native, &granule])? + "\n")
        .with_context(|| figures.display().to_string())?;
    println!("written: {} and {}", file.display(), figures.display());
    if !failed.is_empty() {
        bail!("{}; the page says more", failed.join(" and "));
    }
    Ok(())
}

/// Python as it runs here: on the GPU, or on the rig.
fn python(place: &Place, on_rig: bool) -> Command {
    let mut python = if on_rig { place.python_on_rig() } else { place.python() };
    python.env("PYTHONPATH", root().join(e2e_torch::TESTS));
    python
}

/// The name of the device that PyTorch finds.
fn device(place: &Place, on_rig: bool) -> Result<String> {
    let program = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')";
    let found = output(python(place, on_rig).args(["-c", program]))?;
    let name = found.lines().last().unwrap_or_default().trim();
    if name.is_empty() {
        bail!(
            "PyTorch finds no GPU on this machine: install a driver, or run this where there is one. \
             `cargo xtask e2e-torch` needs none"
        );
    }
    Ok(name.to_owned())
}

fn training(place: &Place, allocator: &str, options: &Options) -> Result<Training> {
    let program = root().join(e2e_torch::TESTS).join("training_step.py");
    let mut run = python(place, options.on_rig);
    let said = output(run.arg(program).args([allocator, &options.steps.to_string()]))?;
    let line = said.lines().last().context("the training program said nothing")?;
    serde_json::from_str(line).with_context(|| format!("the training program said {line}"))
}

/// Whether the tests passed, in words.
fn tests(place: &Place, on_rig: bool) -> Result<String, String> {
    let mut pytest = place.python();
    pytest.args(["-m", "pytest", e2e_torch::TESTS, "-p", "no:cacheprovider", "-q"]);
    if !on_rig {
        pytest.env("GRANULE_E2E_REAL", "1");
    }
    match process::output(&mut pytest) {
        Ok(said) => Ok(said.lines().last().unwrap_or_default().trim_matches('=').trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The page, and what failed.
fn page(
    head: &str,
    native: &Training,
    granule: &Training,
    tests: &Result<String, String>,
) -> (String, Vec<String>) {
    let mut failed = Vec::new();
    let mut page = format!(
        "{head}\n## A training step\n\ntorch {}, GPT-2 (124 M) in bfloat16 with AdamW, 8 sequences of varying length, \
         {} steps; the fastest run of each allocator.\n\n| | native | Granule | ratio |\n|---|---|---|---|\n",
        native.torch,
        native.losses.len()
    );
    let mut row = |name: &str, native: f64, granule: f64| {
        let _ = writeln!(page, "| {name} | {native:.2} | {granule:.2} | {:.3} |", granule / native);
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    row("median step, ms", native.step_ms, granule.step_ms);
    row("peak allocated, MiB", mib(native.peak_allocated), mib(granule.peak_allocated));
    row("peak reserved, MiB", mib(native.peak_reserved), mib(granule.peak_reserved));
    row("device allocations", native.device_allocations as f64, granule.device_allocations as f64);
    let apart = native.losses.iter().zip(&granule.losses).position(|(a, b)| a.to_bits() != b.to_bits());
    let losses = match apart {
        None if native.losses.len() == granule.losses.len() => {
            "The losses are equal to the last bit.".to_owned()
        }
        _ => {
            failed.push("losses differ".to_owned());
            format!("**The losses differ**, first at step {}.", apart.map_or(0, |at| at + 1))
        }
    };
    let verdict = match tests {
        Ok(said) => said.clone(),
        Err(error) => {
            failed.push("tests fail".to_owned());
            format!("**FAILED**: {error}; run `cargo xtask e2e-torch` by itself to see why")
        }
    };
    let _ = writeln!(page, "\n{losses}\n\n## PyTorch's behaviours\n\nTests of `tests/torch`: {verdict}");
    (page, failed)
}

#[cfg(test)]
mod tests {
    use super::{Training, page};

    fn run(losses: &[f64], step_ms: f64) -> Training {
        Training {
            allocator: "native".into(),
            torch: "2.15.0".into(),
            device: "a device".into(),
            losses: losses.to_vec(),
            step_ms,
            peak_allocated: 1 << 30,
            peak_reserved: 2 << 30,
            device_allocations: 10,
        }
    }

    #[test]
    fn the_page_says_what_differs() {
        let passed = Ok("90 passed in 100s".to_owned());
        let (text, failed) = page("# A\n", &run(&[3.5, 2.5], 10.0), &run(&[3.5, 2.5], 9.0), &passed);
        assert!(failed.is_empty(), "{failed:?}");
        assert!(text.contains("| median step, ms | 10.00 | 9.00 | 0.900 |"), "{text}");
        assert!(text.contains("equal to the last bit") && text.contains("90 passed"), "{text}");
        let (text, failed) =
            page("# A\n", &run(&[3.5, 2.5], 10.0), &run(&[3.5, 2.6], 9.0), &Err("rc 1".into()));
        assert_eq!(failed, ["losses differ", "tests fail"]);
        assert!(text.contains("first at step 2") && text.contains("**FAILED**: rc 1"), "{text}");
        let (_, failed) = page("# A\n", &run(&[3.5], 10.0), &run(&[], 9.0), &passed);
        assert_eq!(failed, ["losses differ"]);
    }
}
