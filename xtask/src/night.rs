//! A night: whole histories of everything at once, one for each seed, on all cores; and planted defects, which it has to notice.

pub(crate) mod fuzz;
mod plant;

use crate::{process, schedules};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct Options {
    /// How long; without it a minute, and with --seed alone that one seed
    #[arg(long)]
    minutes: Option<f64>,
    /// The first seed; without it one that follows from the commit
    #[arg(long)]
    seed: Option<u64>,
    /// Look for this defect of tests/night/plants.toml, or for `all` one after another, in a copy of the tree that has them
    #[arg(long)]
    plant: Option<String>,
    /// Several threads, too, in orders that follow from the seed
    #[arg(long, conflicts_with = "plant")]
    threads: bool,
    /// Write what became of it to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Seeds that reached rare states, one a line, with what they reached.
const KEPT: &str = "tests/night/seeds.txt";
/// How long one process runs: it can make so many machines, and no more.
const SLICE: Duration = Duration::from_secs(600);

/// New seeds that CI runs: about a minute of a processor that nobody else wants, in the build that tests have. A number of seeds,
/// and not a time, so that a second run of the same commit runs the same.
const NEW: u64 = 64;
/// Of these, so many have several threads, too.
const THREADED: u64 = 16;
/// The most minutes that they may take.
const PATIENCE: u32 = 10;

/// What CI runs: the kept seeds, and new ones that follow from the commit, in the build that tests have.
pub(crate) fn slice() -> Result<()> {
    let run = |program: &Path, seed: u64, seeds: u64| {
        let options = format!("--no-shrink --seed {seed} --seeds {seeds} --minutes {PATIENCE}");
        process::run(process::command(program).args(options.split(' ')))
    };
    let program = process::build_as_tests(&["--bin", "night"])?.join("night");
    kept()?.into_iter().try_for_each(|seed| run(&program, seed, 1))?;
    let first = of_commit()?;
    println!("{NEW} new seeds, from {first} on");
    run(&program, first, NEW)?;
    println!("{THREADED} of them with several threads");
    let program = build(&process::root(), &process::target(), "dev", true)?;
    run(&program, first, THREADED)
}

/// Where something was found, the process ends with 1; where it could not be looked for, with 2.
pub(crate) fn run(options: &Options) -> Result<()> {
    let outcome = match &options.plant {
        Some(name) => plant::run(name, minutes(options), options.json.as_deref()),
        None => look(options),
    };
    match outcome {
        Ok(0) => Ok(()),
        Ok(code) => std::process::exit(code.into()),
        Err(error) => {
            eprintln!("{error:#}");
            std::process::exit(2)
        }
    }
}

fn minutes(options: &Options) -> Duration {
    Duration::from_secs_f64(options.minutes.unwrap_or(1.0).clamp(0.0, 1e6) * 60.0)
}

fn look(options: &Options) -> Result<u8> {
    let program = build(&process::root(), &process::target(), "night", options.threads)?;
    let one = options.seed.is_some() && options.minutes.is_none();
    let first = options.seed.map_or_else(of_commit, Ok)?;
    let jobs = if one { 1 } else { process::cores() as u64 };
    let night = Night { program, first, jobs, plant: None };
    let report = night.run(if one { Duration::ZERO } else { minutes(options) })?;
    if let Some(file) = &options.json {
        process::write_json(file, &report.json())?;
    }
    if !one {
        report.print();
    }
    if let Some(last) = report.last_line() {
        println!("{last}");
    }
    Ok(u8::from(report.failed()))
}

/// Builds the program of a tree by itself, in this profile, or the one with several threads in chosen orders, and says where it is.
fn build(tree: &Path, target: &Path, profile: &str, threads: bool) -> Result<PathBuf> {
    let mut cargo = process::command("cargo");
    cargo.current_dir(tree).env("CARGO_TARGET_DIR", target).env_remove("CARGO_MANIFEST_DIR");
    if threads {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", schedules::compiler("shuttle")?);
    }
    process::run(cargo.args(["build", "--quiet", "--package", "night", "--profile", profile]))?;
    Ok(target.join(if profile == "dev" { "debug" } else { profile }).join("night"))
}

/// The first seed of what the checked-out commit has: a commit that is made anew of the same files has the same. In a folder without
/// git it follows from the list of changes.
fn of_commit() -> Result<u64> {
    let tree = process::command("git").args(["rev-parse", "HEAD^{tree}"]).output();
    let name = match tree {
        Ok(said) if said.status.success() => said.stdout,
        _ => std::fs::read(process::root().join("CHANGELOG.md"))
            .context("there is neither git nor CHANGELOG.md to take a seed from")?,
    };
    let digest = Sha256::digest(name);
    Ok(digest.iter().take(6).fold(0, |seed, byte| seed << 8 | u64::from(*byte)))
}

fn kept() -> Result<Vec<u64>> {
    let text = process::files::read(KEPT)?;
    let seeds =
        text.lines().filter_map(|line| line.split_whitespace().next()).filter(|word| !word.starts_with('#'));
    seeds.map(|seed| seed.parse().with_context(|| format!("{KEPT}: {seed}"))).collect()
}

/// Seeds from a first one on, side by side.
struct Night {
    program: PathBuf,
    first: u64,
    jobs: u64,
    /// The planted defect that is looked for. A finding is neither made short nor printed then.
    plant: Option<String>,
}

/// What became of a night.
#[derive(Default)]
struct Report {
    seeds: u64,
    ops: u64,
    /// Of all processes together.
    core_seconds: f64,
    failures: Vec<Value>,
    pairs: Map<String, Value>,
}

impl Night {
    fn run(&self, time: Duration) -> Result<Report> {
        let folder = tempfile::tempdir()?;
        let (mut report, begun) = (Report::default(), Instant::now());
        let mut next: Vec<u64> = (0..self.jobs).map(|job| self.first.wrapping_add(job)).collect();
        loop {
            let left = time.saturating_sub(begun.elapsed());
            let files: Vec<_> = (0..self.jobs).map(|job| folder.path().join(job.to_string())).collect();
            let begin = |(seed, file): (&u64, &PathBuf)| self.begin(*seed, left.min(SLICE), file);
            let children: Vec<Child> = next.iter().zip(&files).map(begin).collect::<Result<_>>()?;
            for (child, (file, next)) in children.into_iter().zip(files.iter().zip(&mut next)) {
                let status = child.wait_with_output()?.status;
                if !matches!(status.code(), Some(0 | 1)) {
                    bail!("the program ended with {status}, on its way from seed {next}");
                }
                let one: Value = serde_json::from_slice(&std::fs::read(file)?)?;
                *next = one["next"].as_u64().context("next")?;
                report.add(&one);
            }
            if report.failed() || begun.elapsed() >= time {
                return Ok(report);
            }
        }
    }

    fn begin(&self, seed: u64, time: Duration, file: &Path) -> Result<Child> {
        let minutes = time.as_secs_f64() / 60.0;
        let mut command = process::command(&self.program);
        command.args(["--seed", &seed.to_string(), "--stride", &self.jobs.to_string()]);
        command.args(["--minutes", &minutes.to_string()]);
        if let Some(plant) = &self.plant {
            command.arg("--no-shrink").env("NIGHT_PLANT", plant).stdout(Stdio::null());
        }
        command.arg("--json").arg(file).spawn().context("the program could not be started")
    }
}

impl Report {
    fn add(&mut self, one: &Value) {
        let number = |key: &str| one[key].as_u64().unwrap_or(0);
        let rate = one["ops_per_core_second"].as_f64().unwrap_or(0.0).max(1.0);
        self.seeds += number("seeds");
        self.ops += number("ops");
        self.core_seconds += number("ops") as f64 / rate;
        self.failures.extend(one["failures"].as_array().into_iter().flatten().cloned());
        for (pair, count) in one["pairs"].as_object().into_iter().flatten() {
            let before = self.pairs.get(pair).and_then(Value::as_u64).unwrap_or(0);
            self.pairs.insert(pair.clone(), (before + count.as_u64().unwrap_or(0)).into());
        }
    }

    fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    fn rate(&self) -> f64 {
        (self.ops as f64 / self.core_seconds.max(1e-9)).round()
    }

    fn json(&self) -> Value {
        json!({
            "seeds": self.seeds, "ops": self.ops, "ops_per_core_second": self.rate(), "failures": self.failures,
            "pairs": self.pairs,
        })
    }

    fn print(&self) {
        let never: Vec<_> =
            self.pairs.iter().filter(|(_, count)| **count == 0).map(|(pair, _)| pair.as_str()).collect();
        println!(
            "{} seeds, {} operations, {} a second and core; of {} pairs of features {} never met",
            self.seeds,
            self.ops,
            self.rate(),
            self.pairs.len(),
            never.len()
        );
        never.iter().for_each(|pair| println!("never met: {pair}"));
    }

    fn last_line(&self) -> Option<String> {
        let failure = self.failures.first()?;
        let oracle = failure["oracle"].as_str().unwrap_or("");
        Some(format!("seed={} op={} oracle={oracle}", failure["seed"], failure["op"]))
    }
}
