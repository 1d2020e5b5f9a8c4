//! What the tools are made of: replaying a recorded program, reading its file, reading a snapshot. Time beside Python's for
//! snapshots; instructions for replays where valgrind is installed.

use super::granule::{CONFIGURATIONS, Configuration};
use super::instructions::{self, callgrind, of_a_pair};
use super::table::{Table, figure, median};
use super::{Options, traces};
use crate::process::{cargo, command, output, target};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Replays in a row, of which the program says the median.
const TIMES: &str = "5";
/// Entries of the snapshots that are read.
const SNAPSHOTS: [&str; 2] = ["1000000", "5000000"];

pub(super) fn report(options: &Options) -> Result<String> {
    cargo(&["build", "--profile", "dist", "-p", "granule", "--example", "replay_speed"])?;
    cargo(&["build", "--profile", "dist", "-p", "granule-snapshot", "--example", "pickle_speed"])?;
    let traces = traces::all(options)?;
    Ok(format!(
        "## The tools\n\n### Replay\n\n{}\n### Reading a trace\n\n{}\n### Reading a snapshot\n\n{}",
        replays(&traces, options)?,
        loads(&traces, options)?,
        snapshots()?
    ))
}

fn program(name: &str) -> PathBuf {
    target().join("dist/examples").join(name)
}

/// `replay_speed`, `times` times in a row.
fn replay(trace: &Path, times: &str, of: &Configuration) -> Command {
    let mut speed = command(program("replay_speed"));
    speed.arg("replay").arg(trace).args([times, of.policy, of.conf]);
    speed
}

/// What a run printed: nanoseconds an event.
fn nanoseconds(run: &mut Command) -> Result<f64> {
    let text = output(run)?;
    text.trim().parse().with_context(|| format!("{run:?} printed {text:?}"))
}

/// Median of interleaved rounds.
fn in_rounds(options: &Options, mut runs: Vec<Command>) -> Result<Vec<f64>> {
    let mut times = vec![Vec::new(); runs.len()];
    for _ in 0..options.rounds.max(1) {
        for (run, times) in runs.iter_mut().zip(&mut times) {
            times.push(nanoseconds(run)?);
        }
    }
    Ok(times.iter().filter_map(|times| median(times)).collect())
}

fn replays(traces: &[PathBuf], options: &Options) -> Result<String> {
    let cases: Vec<_> =
        traces.iter().flat_map(|trace| CONFIGURATIONS.iter().map(move |of| (trace, of))).collect();
    let times = in_rounds(options, cases.iter().map(|(trace, of)| replay(trace, TIMES, of)).collect())?;
    let counts = if instructions::available() {
        counted(&cases)?
    } else {
        println!("skipped: instructions; valgrind is not installed");
        vec![None; cases.len()]
    };
    let names = CONFIGURATIONS.iter().map(|of| of.name);
    let mut table = Table::new(std::iter::once("trace").chain(names));
    for (trace, row) in
        traces.iter().zip(times.iter().zip(&counts).collect::<Vec<_>>().chunks(CONFIGURATIONS.len()))
    {
        let cells = row.iter().map(|(ns, count)| {
            let count = count.map_or_else(String::new, |count| format!("; {count:.0}"));
            format!("**{}** ({ns:.0} ns{count})", figure(1e3 / *ns))
        });
        table.row(std::iter::once(traces::name(trace)).chain(cells));
    }
    let all = together(&cases)?;
    Ok(format!(
        "Million events a second on one core, then nanoseconds and instructions an event. Device and allocator are made and \
         dropped anew each time.\n\n{}\n{all}\n",
        table.text()
    ))
}

/// Instructions an event, on all cores at once: the difference of two replays and one. These do not depend on what else runs.
fn counted(cases: &[(&PathBuf, &Configuration)]) -> Result<Vec<Option<f64>>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut counts = Vec::new();
    for chunk in cases.chunks(cores) {
        let chunk: Vec<Result<f64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = chunk.iter().map(|case| scope.spawn(move || count(case))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a count ended early"))))
                .collect()
        });
        for count in chunk {
            counts.push(Some(count?));
        }
    }
    Ok(counts)
}

fn count((trace, of): &(&PathBuf, &Configuration)) -> Result<f64> {
    let replay = of_a_pair(1, 2, |times| {
        let bare = replay(trace, times, of);
        let mut valgrind = callgrind();
        valgrind.arg(bare.get_program()).args(bare.get_args());
        valgrind
    })?;
    Ok(replay / events(trace)?)
}

/// How many events a trace has.
fn events(trace: &Path) -> Result<f64> {
    let text = output(command(program("replay_speed")).arg("events").arg(trace))?;
    text.trim().parse().with_context(|| format!("{} has {text} events", trace.display()))
}

/// One replay of the first case on each core at the same time.
fn together(cases: &[(&PathBuf, &Configuration)]) -> Result<String> {
    let Some((trace, of)) = cases.first() else { return Ok(String::new()) };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let running = (0..cores).map(|_| replay(trace, "25", of).stdout(Stdio::piped()).spawn());
    let running = running.collect::<std::io::Result<Vec<_>>>()?;
    let mut sum = 0.0;
    for child in running {
        let text = child.wait_with_output()?.stdout;
        sum += 1e3 / String::from_utf8_lossy(&text).trim().parse::<f64>()?;
    }
    Ok(format!(
        "{cores} replays of {} ({}) at once, one on each core: {} million events a second together.",
        traces::name(trace),
        of.name,
        figure(sum)
    ))
}

fn loads(traces: &[PathBuf], options: &Options) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let mut runs = Vec::new();
    for trace in traces {
        let plain = folder.path().join(traces::name(trace));
        let text = command("gzip").arg("-dc").arg(trace).output()?.stdout;
        std::fs::write(&plain, text)?;
        for file in [trace, &plain] {
            let mut load = command(program("replay_speed"));
            load.arg("load").arg(file).arg(TIMES);
            runs.push(load);
        }
    }
    let times = in_rounds(options, runs)?;
    let mut table = Table::new(["trace", "gzip'd", "text"]);
    for (trace, row) in traces.iter().zip(times.chunks(2)) {
        let cells = row.iter().map(|ns| format!("**{}** ({ns:.0} ns)", figure(1e3 / ns)));
        table.row(std::iter::once(traces::name(trace)).chain(cells));
    }
    Ok(format!("Million events a second, and nanoseconds an event.\n\n{}", table.text()))
}

fn snapshots() -> Result<String> {
    let mut text = String::from(
        "Beside Python's pickle, in turn. *PyTorch's*: every entry has its own parts, as PyTorch hands them to Python; *ours*: \
         they are shared.\n\n",
    );
    let speed = || command(program("pickle_speed"));
    for entries in SNAPSHOTS {
        let runs = if entries == SNAPSHOTS[0] { "3" } else { "1" };
        text += &format!("{entries} entries:\n\n{}\n", list(&output(speed().args([entries, runs]))?));
    }
    let recorded = traces::files(&traces::shared().join("snapshots"), "gz");
    if !recorded.is_empty() {
        text += &format!("Recorded:\n\n{}", list(&output(speed().arg("--recorded").args(&recorded))?));
    }
    Ok(text)
}

/// Lines as a list in Markdown.
fn list(lines: &str) -> String {
    lines.lines().map(|line| format!("- {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::{CONFIGURATIONS, list, replay};
    use std::path::Path;

    #[test]
    fn replays_are_asked_for_with_their_policy() {
        let of = CONFIGURATIONS.iter().find(|of| of.conf == "expandable_segments:True").unwrap();
        let arguments: Vec<_> =
            replay(Path::new("a.trace"), "2", of).get_args().map(|a| a.to_owned()).collect();
        assert_eq!(arguments, ["replay", "a.trace", "2", "pytorch", "expandable_segments:True"]);
    }

    #[test]
    fn lines_become_a_list() {
        assert_eq!(list("a\nb\n"), "- a\n- b\n");
    }
}
