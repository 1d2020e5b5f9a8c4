//! Do the tests notice broken code? Runs cargo-mutants on placement, the ladder and pools, against the tests of
//! behaviour. Hours in full; `--shard` takes a part.

use crate::process;
use anyhow::Result;
use clap::Args;

/// What is broken on purpose.
const FILES: [&str; 10] = [
    "crates/alloc-core/src/memory/index.rs",
    "crates/alloc-core/src/policy/pytorch.rs",
    "crates/alloc-core/src/arena.rs",
    "crates/alloc-core/src/arena/heap.rs",
    "crates/alloc-core/src/arena/heap/growth.rs",
    "crates/alloc-core/src/memory/layout.rs",
    "crates/alloc-core/src/device/ladder.rs",
    "crates/alloc-core/src/device/holdings.rs",
    "crates/alloc-core/src/device/pools.rs",
    "crates/alloc-core/src/arena/pool.rs",
];

#[derive(Args)]
pub(crate) struct Options {
    /// A part of the mutants, as `k/n` with k from 0
    #[arg(long)]
    shard: Option<String>,
    /// Only mutants in these files
    #[arg(long)]
    file: Vec<String>,
    /// List the mutants and stop
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    process::install_if_missing("cargo-mutants")?;
    let mut command = process::command("cargo");
    command.args(["mutants", "--package", "alloc-core", "--test-package", "alloc-core,granule-tests"]);
    let files: Vec<&str> = match options.file.as_slice() {
        [] => FILES.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    for file in files {
        command.args(["--file", file]);
    }
    if let Some(shard) = &options.shard {
        command.args(["--shard", shard]);
    }
    if options.list {
        command.arg("--list");
    }
    command.args(["--baseline", "skip", "--timeout", "300", "--no-shuffle"]);
    command.args(["--output"]).arg(process::target());
    // The fault loops take longer than all the rest, and notice nothing that the rest does not.
    command.args(["--", "--lib"]);
    for program in ["allocation", "parity", "pools", "streams", "watch"] {
        command.args(["--test", program]);
    }
    command.arg("--no-fail-fast");
    process::run(&mut command)
}
