//! What Granule's own layers cost the hot path, without peers.

use super::instructions::{callgrind, of_a_pair};
use crate::process::{cargo, command, output, run, target};
use crate::table::Table;
use anyhow::Result;
use std::path::Path;

/// Instructions of a pair of allocate and free with history off, on, and compiled out; and the time of snapshots without
/// traces, which must not depend on the history.
pub(super) fn history() -> Result<String> {
    let build = ["build", "--profile", "dist", "-p", "granule-tests", "--bin", "history-cost"];
    cargo(&build)?;
    let program = target().join("dist/history-cost");
    // A build folder of its own: the flag would make everything anew in each.
    let without = target().join("without-history");
    let mut build_without = command("cargo");
    build_without.args(build).env("CARGO_TARGET_DIR", &without);
    run(build_without.env("RUSTFLAGS", "--cfg granule_no_history"))?;
    let without = without.join("dist/history-cost");
    let pair = |program: &Path, mode: &str| {
        of_a_pair(4_000, 24_000, |pairs| {
            let mut valgrind = callgrind();
            valgrind.arg("--toggle-collect=*free_and_allocate*").arg(program).args([mode, pairs]);
            valgrind
        })
    };
    let (none, off) = (pair(&without, "off")?, pair(&program, "off")?);
    let (numbered, on) = (pair(&program, "numbered")?, pair(&program, "on")?);
    let (contexts, recorded) = (pair(&program, "contexts")?, pair(&program, "recorded")?);
    // A pair makes three records.
    let record = |pair: f64| format!("{:.1}", (pair - off) / 3.0);
    let mut table = Table::new(["instructions", "a pair", "more than off, a record"]);
    table.row(["recording compiled out", &format!("{none:.1}"), ""]);
    table.row(["history off", &format!("{off:.1} ({:+.1})", off - none), ""]);
    table.row(["history on, numbers for the time", &format!("{numbered:.1}"), &record(numbered)]);
    table.row(["history on", &format!("{on:.1}"), &record(on)]);
    table.row(["history on, with contexts", &format!("{contexts:.1}"), &record(contexts)]);
    table.row([
        "the program is recorded",
        &format!("{recorded:.1}"),
        &format!("{:.1} a call", (recorded - off) / 2.0),
    ]);
    let mut text = format!("## The history\n\n{}\n", table.text());
    for entries in ["0", "1000000"] {
        text += &output(command(&program).args(["snapshot", "5000", entries]))?;
    }
    Ok(text)
}

/// What sleeping and waking cost: see `tests/src/bin/sleep-cost.rs`.
pub(super) fn sleep() -> Result<String> {
    cargo(&["build", "--profile", "dist", "-p", "granule-tests", "--bin", "sleep-cost"])?;
    let program = target().join("dist/sleep-cost");
    let modelled = output(command(&program).args(["modelled", "60000000000", "8000000000", "25000000000"]))?;
    let bytes = output(command(&program).args(["bytes", "2000000000"]))?;
    Ok(format!("## Sleep and wake\n\n{modelled}\n{bytes}"))
}
