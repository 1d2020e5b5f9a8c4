//! The engine's threads in chosen orders: whole scenarios under shuttle, the small kernels under loom, and under Miri where that is
//! asked for.

use crate::process;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Options {
    /// Many more schedules, other ones each time (minutes)
    #[arg(long)]
    long: bool,
    /// Under Miri instead, whose memory is as weak as that of ARM: the lock kernels and the address map, with many seeds. Needs a
    /// nightly toolchain with the component `miri`
    #[arg(long, conflicts_with = "replay")]
    miri: bool,
    /// Run one schedule again: what a failure printed; give the name of its test, too
    #[arg(long, requires = "name")]
    replay: Option<String>,
    /// Only scenarios with this in their names, `module::test`; only models where it has `models` in it
    name: Option<String>,
}

impl Options {
    /// What CI runs: the same schedules each time.
    pub(crate) const SLICE: Self = Self { long: false, miri: false, replay: None, name: None };
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.miri {
        return under_miri(options);
    }
    let names_models = options.name.as_ref().map(|name| name.contains("models"));
    if names_models != Some(false) {
        under("loom", &["alloc-core"], "models", options)?;
    }
    if names_models != Some(true) {
        // Nights have no test there: with their features, too, they find the engine built.
        under("shuttle", &["schedules", "night"], "", options)?;
    }
    Ok(())
}

/// What is tried under Miri: kernels without a lock, and those that locks are made of.
const KERNELS: [&str; 3] = ["sync::", "process::attention::tests", "arena::directory::tests"];
/// The same, in tables of millions of cells: where Miri checks who borrows what, it walks them at each reference, and no test ends.
const LARGE: &str = "memory::address_map::tests::threads";
const UNCHECKED_BORROWS: &str = "-Zmiri-disable-stacked-borrows";

/// Unit tests with threads, interpreted: loads see old values where the memory model allows it, otherwise with each seed.
fn under_miri(options: &Options) -> Result<()> {
    println!("-- miri");
    let seeds = if options.long { 256 } else { 16 };
    match &options.name {
        Some(name) if LARGE.contains(name.as_str()) => interpret(&[name], seeds, UNCHECKED_BORROWS),
        Some(name) => interpret(&[name], seeds, ""),
        None => {
            interpret(&KERNELS, seeds, "")?;
            interpret(&[LARGE], seeds, UNCHECKED_BORROWS)
        }
    }
}

/// Runs the engine's unit tests with these in their names, once for each seed.
fn interpret(names: &[&str], seeds: u32, more: &str) -> Result<()> {
    let mut command = process::command("cargo");
    command.args(["+nightly", "miri", "test", "--lib", "--package", "alloc-core", "--"]).args(names);
    command.env("MIRIFLAGS", format!("-Zmiri-many-seeds=0..{seeds} -Zmiri-disable-isolation {more}"));
    process::run(&mut command)
}

/// Builds unit tests of packages for one of the tools, and runs those meant for it.
fn under(tool: &str, packages: &[&str], only: &str, options: &Options) -> Result<()> {
    println!("-- {tool}");
    let mut command = process::command("cargo");
    // Shuttle's atomics belong to one run, and some of the engine's are the process's: each test gets a process, or its turn.
    let processes = tool == "shuttle" && process::has_nextest();
    command.args(if processes { ["nextest", "run"].as_slice() } else { &["test"] });
    command.arg("--lib").args(packages.iter().flat_map(|package| ["--package", package]));
    command.env("RUSTC_WORKSPACE_WRAPPER", compiler(tool)?);
    if options.long {
        command.env("GRANULE_LONG", "1");
    }
    if let Some(schedule) = &options.replay {
        let encoded: String = schedule.split_whitespace().collect();
        command.env("GRANULE_SCHEDULE", encoded);
    }
    command.arg("--");
    if tool == "shuttle" && !processes {
        command.arg("--test-threads=1");
    }
    command.args(options.name.as_deref().or(Some(only)).filter(|name| !name.is_empty()));
    process::run(&mut command)
}

/// A compiler that sets the tool's cfg, for this workspace alone: what others wrote is shared with every other build, which
/// it is not where RUSTFLAGS say the same.
pub(crate) fn compiler(tool: &str) -> Result<PathBuf> {
    let script = process::target().join(format!("rustc-{tool}"));
    // One that is newer than the last build has everything built again.
    process::files::script(&script, &format!("exec \"$@\" --cfg {tool}"))?;
    Ok(script)
}
