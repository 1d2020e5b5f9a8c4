//! The engine's threads in chosen orders: whole scenarios under shuttle, the small kernels under loom.

use crate::process;
use anyhow::Result;
use clap::Args;

#[derive(Args)]
pub(crate) struct Options {
    /// Many more schedules, other ones each time (minutes)
    #[arg(long)]
    long: bool,
    /// Run one schedule again: what a failure printed; give the name of its test, too
    #[arg(long, requires = "name")]
    replay: Option<String>,
    /// Only scenarios with this in their names, `module::test`; only models where it has `models` in it
    name: Option<String>,
}

impl Options {
    /// What CI runs: the same schedules each time.
    pub(crate) const SLICE: Self = Self { long: false, replay: None, name: None };
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let names_models = options.name.as_ref().map(|name| name.contains("models"));
    if names_models != Some(false) {
        under("loom", "alloc-core", "models", options)?;
    }
    if names_models != Some(true) {
        under("shuttle", "schedules", "", options)?;
    }
    Ok(())
}

/// Builds a package's unit tests for one of the tools, in a folder of its own, and runs those meant for it.
fn under(tool: &str, package: &str, only: &str, options: &Options) -> Result<()> {
    println!("-- {tool}");
    let mut command = process::command("cargo");
    // Shuttle's atomics belong to one run, and some of the engine's are the process's: each test gets a process, or its turn.
    let processes = tool == "shuttle" && process::has_nextest();
    command.args(if processes { ["nextest", "run"].as_slice() } else { &["test"] });
    command.args(["--lib", "--package", package]);
    command.env("RUSTFLAGS", format!("--cfg {tool}"));
    command.env("CARGO_TARGET_DIR", process::target().join("schedules").join(tool));
    // Enough for a backtrace, and quicker to build.
    command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
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
