//! How fast recorded programs are replayed: time, and instructions where valgrind is installed.

use super::Options;
use super::instructions::{self, callgrind, of_a_pair};
use super::peers::{CONFIGURATIONS, Configuration};
use crate::process::{cargo, command, files, output, side_by_side, target};
use crate::table::{Table, figure, median};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Replays in a row, of which the program says the median.
const TIMES: &str = "5";

pub(super) fn report(options: &Options) -> Result<String> {
    cargo(&["build", "--profile", "dist", "-p", "granule-analysis", "--example", "replay_speed"])?;
    let traces = options.traces()?;
    let cases: Vec<_> =
        traces.iter().flat_map(|trace| CONFIGURATIONS.iter().map(move |of| (trace.as_path(), of))).collect();
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..options.rounds.max(1) {
        for ((trace, of), times) in cases.iter().zip(&mut times) {
            times.push(number(&mut replay(trace, TIMES, of))?);
        }
    }
    let counts = if instructions::available() {
        // These do not depend on what else runs.
        side_by_side(&cases, |(trace, of)| instructions_an_event(trace, of).map(Some))?
    } else {
        println!("skipped: instructions; valgrind is not installed");
        vec![None; cases.len()]
    };
    let mut table = Table::new(std::iter::once("trace").chain(CONFIGURATIONS.iter().map(|of| of.name)));
    let cells: Vec<String> = times.iter().zip(counts).map(|(times, count)| cell(times, count)).collect();
    for (trace, cells) in traces.iter().zip(cells.chunks(CONFIGURATIONS.len())) {
        table.row(std::iter::once(files::stem(trace)).chain(cells.iter().cloned()));
    }
    Ok(format!(
        "## Replays\n\nMillion events a second on one core, then nanoseconds and instructions an event. Device and allocator \
         are made and dropped anew each time.\n\n{}",
        table.text()
    ))
}

fn cell(times: &[f64], count: Option<f64>) -> String {
    let ns = median(times).unwrap_or_default();
    let count = count.map_or_else(String::new, |count| format!("; {count:.0}"));
    format!("**{}** ({ns:.0} ns{count})", figure(1e3 / ns))
}

fn speed() -> Command {
    command(target().join("dist/examples/replay_speed"))
}

/// So many replays in a row.
fn replay(trace: &Path, times: &str, of: &Configuration) -> Command {
    let mut speed = speed();
    speed.arg("replay").arg(trace).args([times, of.policy, of.conf]);
    speed
}

/// What the program printed.
fn number(run: &mut Command) -> Result<f64> {
    let text = output(run)?;
    text.trim().parse().with_context(|| format!("{run:?} printed {text:?}"))
}

/// The difference of two replays and one.
fn instructions_an_event(trace: &Path, of: &Configuration) -> Result<f64> {
    let replay = of_a_pair(1, 2, |times| {
        let bare = replay(trace, times, of);
        let mut valgrind = callgrind();
        valgrind.arg(bare.get_program()).args(bare.get_args());
        valgrind
    })?;
    Ok(replay / number(speed().arg("events").arg(trace))?)
}

#[cfg(test)]
mod tests {
    use super::{CONFIGURATIONS, cell, replay};
    use std::path::Path;

    #[test]
    fn replays_are_asked_for_with_their_policy() {
        let of = CONFIGURATIONS.iter().find(|of| of.conf == "expandable_segments:True").unwrap();
        let arguments: Vec<_> =
            replay(Path::new("a.trace"), "2", of).get_args().map(|a| a.to_owned()).collect();
        assert_eq!(arguments, ["replay", "a.trace", "2", "pytorch", "expandable_segments:True"]);
        assert_eq!(cell(&[80.0, 100.0, 125.0], Some(900.4)), "**10.0** (100 ns; 900)");
    }
}
