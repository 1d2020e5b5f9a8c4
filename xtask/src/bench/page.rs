//! A page of results: what was measured, on which machine, at which commit.

use crate::process::{command, cores, output, root};
use anyhow::{Context, Result};
use std::fmt::Write;

/// Writes `docs/results/DATE-benchmarks.md`.
pub(super) fn write(reports: &[String]) -> Result<()> {
    let date = output(command("date").arg("+%F"))?.trim().to_owned();
    let path = root().join(format!("docs/results/{date}-benchmarks.md"));
    let mut text = format!("# Benchmarks, {date}\n\n{}\n", conditions()?);
    for report in reports {
        let _ = writeln!(text, "\n{}", report.trim_end());
    }
    std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    println!("written: {}", path.display());
    Ok(())
}

/// The commit and the machine.
fn conditions() -> Result<String> {
    let commit = output(command("git").args(["rev-parse", "--short", "HEAD"]))?;
    let changed = !output(command("git").args(["status", "--porcelain", "-uno"]))?.is_empty();
    let compiler = output(command("rustc").arg("--version"))?;
    let cores = cores();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    Ok(format!(
        "Commit {}{}. {cores} cores of {}, {}, {}; load {} when the page was written. Made by `cargo xtask {}`. On a shared \
         machine the ratios are what counts.",
        commit.trim(),
        if changed { ", with changes" } else { "" },
        processor(),
        std::env::consts::OS,
        compiler.trim(),
        load(),
        arguments.iter().map(|argument| without_folders(argument)).collect::<Vec<_>>().join(" "),
    ))
}

/// Paths of this machine say nothing to others.
fn without_folders(argument: &str) -> String {
    argument.rsplit('/').next().unwrap_or(argument).to_owned()
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "an unknown processor".into(), |(_, name)| name.trim().to_owned())
}

fn load() -> String {
    let average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    average.split_whitespace().next().unwrap_or("unknown").to_owned()
}
