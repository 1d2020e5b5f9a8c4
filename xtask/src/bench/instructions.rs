//! Instructions, counted with callgrind: the same on every run, and near enough on every machine.

use crate::process::{answers, command};
use anyhow::{Context, Result};
use std::process::Command;

/// Callgrind, before a program.
pub(super) fn callgrind() -> Command {
    let mut valgrind = command("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind
}

/// Whether it can be used.
pub(super) fn available() -> bool {
    answers(command("valgrind").arg("--version"))
}

/// What callgrind counts of a command.
fn count(valgrind: &mut Command) -> Result<f64> {
    let output = valgrind.output().context("could not start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text
        .lines()
        .find_map(|line| line.split("Collected :").nth(1))
        .with_context(|| format!("callgrind counted nothing: {text}"))?;
    Ok(line.trim().parse()?)
}

/// What a pair takes: the difference of two runs, over the difference of their pairs.
pub(super) fn of_a_pair(few: u64, many: u64, mut run: impl FnMut(&str) -> Command) -> Result<f64> {
    let difference = count(&mut run(&many.to_string()))? - count(&mut run(&few.to_string()))?;
    #[allow(clippy::cast_precision_loss)]
    let pairs = (many - few) as f64;
    Ok(difference / pairs)
}
