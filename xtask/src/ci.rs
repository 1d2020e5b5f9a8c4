//! What CI runs, step by step, with the minutes that each takes: by the clock, and of processors. A shared machine takes
//! longer by the clock; what its processors did is the same everywhere.

use crate::generated::{bindgen, header};
use crate::machines::{aarch64, gpu, personalities};
use crate::process::{self, cargo, disk};
use crate::python::{e2e_torch, integrations, tables, whatif_exact};
use crate::{book, browser, dist, night, parity, schedules, structure, test};
use anyhow::{Result, ensure};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) fn run() -> Result<()> {
    let mut minutes = Minutes::default();
    minutes.of("lints", lints)?;
    minutes.of("documentation", documentation)?;
    minutes.of("schedules", || schedules::run(&schedules::Options::SLICE))?;
    minutes.of("tests", || test(&[]))?;
    let ahead = e2e_torch::install_ahead()?;
    minutes.of("personalities", || personalities::run(&personalities::Options::slice()))?;
    minutes.of("a driver: OpenCL", opencl)?;
    minutes.of("emulation", aarch64::slice)?;
    minutes.of("nights: kept seeds, and new ones", night::slice)?;
    minutes.of("book, tables and pages", || {
        book::run(&book::Options { check: true })?;
        tables::run()?;
        browser::run(&browser::Options::default())
    })?;
    minutes.of("the Python module", || dist::run(&dist::Options::SLICE))?;
    minutes.of("other libraries", || integrations::run(&integrations::Options::default()))?;
    // Last, and with a time budget of its own: it wants PyTorch, which takes as much room as all of the above.
    if !minutes.of("waiting for PyTorch", || Ok(is_done(ahead)))? {
        disk::make_room(&process::target(), e2e_torch::ROOM, &["debug", "doc"])?;
    }
    let oldest = minutes.of("the oldest PyTorch", e2e_torch::oldest)?;
    minutes.of("the kit for a GPU", || gpu::slice(&oldest))?;
    oldest.remove()?;
    let options = e2e_torch::Options::default();
    let place = minutes.of("installing PyTorch", || e2e_torch::place(&options))?;
    minutes
        .of("predictions beside PyTorch", || whatif_exact::run_in(&place, &whatif_exact::Options::slice()))?;
    minutes.print();
    // Its closing lines, with its time, are the last.
    e2e_torch::test(&place, &options)
}

/// Waits for what was begun. Whoever needs what failed here tries it again.
fn is_done(begun: Option<JoinHandle<Result<()>>>) -> bool {
    let Some(begun) = begun else { return false };
    let done = begun.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    done.inspect_err(|error| println!("PyTorch was not installed ahead: {error:#}")).is_ok()
}

/// What each step took: by the clock, and of processors.
#[derive(Default)]
struct Minutes(Vec<(&'static str, [Duration; 2])>);

impl Minutes {
    fn of<T>(&mut self, step: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (done, times) = process::timed(work)?;
        self.0.push((step, times));
        Ok(done)
    }

    fn print(&self) {
        let line = |step: &str, times: [Duration; 2]| {
            let [clock, processors] = times.map(|time| time.as_secs_f64() / 60.0);
            println!("{clock:6.1} {processors:10.1}  {step}");
        };
        println!("minutes, of processors:");
        self.0.iter().for_each(|(step, times)| line(step, *times));
        let whole = |which: usize| self.0.iter().map(|(_, times)| times[which]).sum();
        line("in all; the tests of PyTorch follow", [whole(0), whole(1)]);
    }
}

fn lints() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    structure::run()?;
    cargo(
        &[&["clippy", "--workspace", "--all-targets"], process::ALL_COMMANDS, &["--", "-D", "warnings"]]
            .concat(),
    )?;
    // The first look, as `cargo run --release` builds it.
    cargo(&["clippy", "--", "-D", "warnings"])?;
    for manifest in ["tests/peers/Cargo.toml", "docs/examples/backend-opencl/Cargo.toml"] {
        workspace_of_its_own(manifest)?;
    }
    feature_combinations(false)?;
    bindgen::check_where_headers_are()?;
    parity::run(true)?;
    header::run(true)
}

fn documentation() -> Result<()> {
    process::run(
        process::command("cargo")
            .args(["doc", "--workspace", "--no-deps"])
            // The features that lints have: so dependencies are checked once.
            .args(process::ALL_COMMANDS)
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// Nothing else looks at it.
fn workspace_of_its_own(manifest: &str) -> Result<()> {
    let manifest = ["--manifest-path", manifest];
    cargo(&[&["fmt"], &manifest[..], &["--check"]].concat())?;
    let target = process::target().display().to_string();
    cargo(
        &[
            &["clippy"],
            &manifest[..],
            &["--locked", "--all-targets", "--target-dir", &target, "--", "-D", "warnings"],
        ]
        .concat(),
    )
}

/// The example over a driver that nobody here wrote: the kit, faults and real work, with one thread of the driver's and several.
fn opencl() -> Result<()> {
    let cargo = |words: &str, [threads, devices]: [&str; 2]| {
        let mut cargo = process::command("cargo");
        cargo.args(words.split(' ')).current_dir(process::root().join("docs/examples/backend-opencl"));
        // As the test of `new-backend` builds: what both need is there.
        cargo.env("CARGO_TARGET_DIR", process::target().join("new-backend").join("target"));
        cargo.env("RUSTFLAGS", "-D warnings").env("CARGO_PROFILE_DEV_DEBUG", "false");
        cargo.env("POCL_MAX_PTHREAD_COUNT", threads).env("POCL_DEVICES", devices);
        cargo
    };
    for machine in [["1", "pthread"], ["4", "pthread pthread"]] {
        let kit = cargo("run --locked --quiet --example conformance", machine).status()?;
        if kit.code() == Some(2) {
            println!("no OpenCL to run on, as said above: the example was built, and nothing else");
            return Ok(());
        }
        ensure!(kit.success(), "the kit over OpenCL, {machine:?}: {kit}");
        process::run(&mut cargo("test --locked --quiet", machine))?;
        process::run(&mut cargo("run --locked --quiet --example work", machine))?;
    }
    Ok(())
}

/// Combinations of the facade's features build on a bare machine: every one, or each feature alone, with each other one, and
/// with all.
pub(crate) fn feature_combinations(every: bool) -> Result<()> {
    process::install_if_missing("cargo-hack")?;
    for package in ["granule", "granule-export", "granule-capi", "cuda-program"] {
        let mut arguments = vec!["hack", "check", "-p", package, "--feature-powerset"];
        if !every {
            arguments.extend(["--depth", "2"]);
        }
        match package {
            // They only pass features of `granule-export` on, which is checked by itself.
            // `cuda-of-cudarc` alone leaves the choice of CUDA's version to a program, and here is none.
            "granule" => {
                arguments.extend(["--group-features", "metrics,ranges"]);
                arguments.extend(["--exclude-features", "cuda-of-cudarc"]);
            }
            // The same, of the default build.
            "granule-capi" => arguments.extend(["--exclude-features", "metrics"]),
            // It is a program for one of the two.
            "cuda-program" => arguments.extend(["--at-least-one-of", "cuda,hip-as-cuda"]),
            _ => {}
        }
        cargo(&arguments)?;
    }
    Ok(())
}
