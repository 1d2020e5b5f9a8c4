//! What CI runs, step by step, with the minutes that each takes.

use crate::generated::{bindgen, header};
use crate::process::{self, cargo};
use crate::python::{e2e_torch, tables};
use crate::{browser, disk, parity, schedules, structure, test, whatif_exact};
use anyhow::Result;
use std::time::{Duration, Instant};

pub(crate) fn run() -> Result<()> {
    let mut minutes = Minutes::default();
    minutes.of("lints", lints)?;
    minutes.of("documentation", documentation)?;
    minutes.of("schedules", || schedules::run(&schedules::Options::SLICE))?;
    minutes.of("tests", || test(&[]))?;
    minutes.of("tables and pages", || {
        tables::run()?;
        browser::run(&browser::Options::default())
    })?;
    // Last, and with a time budget of its own: it installs PyTorch, which wants as much room as all of the above.
    disk::make_room(&process::target(), e2e_torch::ROOM, &["debug", "doc"])?;
    let options = e2e_torch::Options::default();
    let place = minutes.of("installing PyTorch", || e2e_torch::place(&options))?;
    minutes
        .of("predictions beside PyTorch", || whatif_exact::run_in(&place, &whatif_exact::Options::slice()))?;
    minutes.print();
    // Its closing lines, with its time, are the last.
    e2e_torch::test(&place, &options)
}

/// What each step took.
#[derive(Default)]
struct Minutes(Vec<(&'static str, Duration)>);

impl Minutes {
    fn of<T>(&mut self, step: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let done = work()?;
        self.0.push((step, begun.elapsed()));
        Ok(done)
    }

    fn print(&self) {
        println!("minutes so far:");
        for (step, time) in &self.0 {
            println!("{:6.1}  {step}", time.as_secs_f64() / 60.0);
        }
        let whole: Duration = self.0.iter().map(|(_, time)| *time).sum();
        println!("{:6.1}  in all; the tests of PyTorch follow", whole.as_secs_f64() / 60.0);
    }
}

fn lints() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    structure::run(&structure::Options::default())?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    peers()?;
    feature_combinations(false)?;
    bindgen::check_where_headers_are()?;
    parity::run(&parity::Options { check: true })?;
    header::run(&header::Options { check: true })
}

fn documentation() -> Result<()> {
    process::run(
        process::command("cargo")
            .args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// The benchmark's peers are a workspace of their own, which nothing above looks at.
fn peers() -> Result<()> {
    let manifest = ["--manifest-path", "tests/peers/Cargo.toml"];
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

/// Combinations of the facade's features build on a bare machine: every one, or each feature alone, with each other one, and
/// with all.
pub(crate) fn feature_combinations(every: bool) -> Result<()> {
    process::install_if_missing("cargo-hack")?;
    for package in ["granule", "granule-metrics", "granule-capi", "cuda-program"] {
        let mut arguments = vec!["hack", "check", "-p", package, "--feature-powerset"];
        if !every {
            arguments.extend(["--depth", "2"]);
        }
        match package {
            // They only pass features of `granule-metrics` on, which is checked by itself.
            "granule" => arguments.extend(["--group-features", "metrics,opentelemetry,ranges"]),
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
