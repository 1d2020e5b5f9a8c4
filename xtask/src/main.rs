//! Project tasks. `cargo xtask --help` lists them.

mod bench;
mod book;
mod browser;
mod ci;
mod decisions;
mod dist;
mod generated;
mod machines;
mod new_backend;
mod night;
mod parity;
mod process;
mod python;
mod schedules;
mod structure;
mod table;

use anyhow::Result;
use bench::corpus;
use clap::{Parser, Subcommand};
use generated::{bindgen, codegen, header};
use machines::{aarch64, gpu, personalities};
use night::fuzz;
use process::files::Check;
use process::{cargo, has_nextest};
use python::{e2e_torch, integrations, tables, whatif_exact};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Granule's project tasks", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all tests (with nextest where it is installed), doc tests included
    Test {
        /// Passed on to the test runner, after `--`
        #[arg(last = true)]
        rest: Vec<String>,
    },
    /// What CI runs: formatting, lints, documentation, then the tests
    Ci,
    /// Measure Granule beside its peers in one run; ratios first
    Bench(bench::Options),
    /// Record the programs on which the allocation policy is chosen and judged, and judge it
    Corpus(corpus::Options),
    /// Write or check what allocators decide on recorded and random programs
    Decisions(decisions::Options),
    /// Make the C declarations in the tree anew from headers (needs libclang)
    Bindgen(bindgen::Options),
    /// Make the code that follows from the Backend trait anew: delegation and the C table
    Codegen(Check),
    /// Make the header of the C ABI anew from crates/granule-capi
    Header(Check),
    /// Write a crate for a new accelerator that compiles and passes the required part of the conformance kit
    NewBackend(new_backend::Options),
    /// Make docs/parity.md anew: the behaviours of PyTorch's allocator and the tests that show them; --check fails where one has none
    Parity(Check),
    /// Run the conformance kit and a recorded program on every personality of the lookalike drivers
    Personalities(personalities::Options),
    /// Make the kit for a machine with a GPU, try it on the simulated drivers, or make a page of its results (tests/gpu)
    Gpu(gpu::Options),
    /// Drive every way in with libFuzzer; --properties: long property, fuzz and fault-loop runs
    Fuzz(fuzz::Options),
    /// Run the engine's threads in chosen orders (shuttle), and its small kernels in all orders (loom)
    Schedules(schedules::Options),
    /// Build tests for 64-bit ARM and run them under an emulator, with several sizes of pages (installed on Debian, as root)
    Aarch64(aarch64::Options),
    /// Run whole histories of everything at once on simulated devices, and see that they find planted defects
    Night(night::Options),
    /// Check every combination of features (CI checks pairs of them)
    Features,
    /// Check that modules import nothing in circles, and that no backend depends on the engine
    Structure,
    /// Build what is handed out into target/dist: wheels, crates, a static binary; --check tries it
    Dist(dist::Options),
    /// Run real PyTorch programs on Granule, on the GPU-less rig (installs torch into target/e2e-torch the first time)
    E2eTorch(e2e_torch::Options),
    /// Run CCCL, RMM, cuda.core and others on Granule's memory (installs their packages into target/integrations the first time)
    Integrations(integrations::Options),
    /// Drive the page of `granule report` in a headless Chromium (installed on Debian, as root); pictures are kept
    Browser(browser::Options),
    /// Check the links, paragraphs and shell examples of README and book, and build its website (needs mdbook, installed if missing)
    Book(book::Options),
    /// Run the queries of docs/tables.md in DuckDB on exported runs (installs duckdb into target/tables the first time)
    Tables,
    /// Compare what `granule whatif` predicts with PyTorch's own allocator, on the GPU-less rig
    WhatifExact(whatif_exact::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without the stack that `RUST_BACKTRACE` would add: it says nothing to who made the mistake.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Test { rest } => test(&rest),
        Task::Ci => ci::run(),
        Task::Bench(options) => bench::run(&options),
        Task::Corpus(options) => corpus::run(&options),
        Task::Decisions(options) => decisions::run(&options),
        Task::Bindgen(options) => bindgen::run(&options),
        Task::Codegen(options) => codegen::run(options.check),
        Task::Header(options) => header::run(options.check),
        Task::NewBackend(options) => new_backend::run(&options),
        Task::Parity(options) => parity::run(options.check),
        Task::Personalities(options) => personalities::run(&options),
        Task::Gpu(options) => gpu::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Schedules(options) => schedules::run(&options),
        Task::Aarch64(options) => aarch64::run(&options),
        Task::Night(options) => night::run(&options),
        Task::Features => ci::feature_combinations(true),
        Task::Structure => structure::run(),
        Task::Dist(options) => dist::run(&options),
        Task::E2eTorch(options) => e2e_torch::run(&options),
        Task::Integrations(options) => integrations::run(&options),
        Task::Browser(options) => browser::run(&options),
        Task::Book(options) => book::run(&options),
        Task::Tables => tables::run(),
        Task::WhatifExact(options) => whatif_exact::run(&options),
    }
}

fn test(rest: &[String]) -> Result<()> {
    let runner: &[&str] = if has_nextest() {
        // The runner's closing lines come last, so that whoever reads the end of the log sees the counts.
        cargo(&[&["test", "--doc"], process::WORKSPACE, process::ALL_COMMANDS].concat())?;
        &["nextest", "run"]
    } else {
        &["test"]
    };
    let mut tests = process::command("cargo");
    tests.args(runner).arg("--no-fail-fast").args(process::WORKSPACE).args(process::ALL_COMMANDS).args(rest);
    if std::env::var_os(SEED).is_none() {
        // A change is judged by what it changes: the same cases each time. `fuzz --properties` looks for new ones.
        tests.env(SEED, "1");
    }
    process::run(&mut tests)
}

/// What random cases of property tests are made from.
const SEED: &str = "PROPTEST_RNG_SEED";
