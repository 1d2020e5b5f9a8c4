//! How the cost of each operation grows with the number of everything else that there is.

use crate::process::{cargo, command, output, target};
use crate::table::{Table, figure};
use anyhow::{Context, Result};
use serde::Deserialize;

/// Shares of the most that there are: a hundredth, a tenth, all.
const SHARES: [&str; 3] = ["100", "10", "1"];
/// Those at which steps are counted, which takes longer.
const COUNTED: [&str; 2] = ["100", "10"];

/// A line of `scale-cost`.
#[derive(Debug, Deserialize)]
struct Line {
    many: String,
    operation: String,
    number: u64,
    ns: f64,
    steps: Option<f64>,
    grown_bytes: f64,
    aim_ns: Option<f64>,
    known: Option<String>,
}

/// What an operation costs beside many of something: time besides the driver, and steps from a build that counts them.
pub(super) fn report() -> Result<String> {
    let timed = lines(&["--profile", "dist"], "dist", &SHARES)?;
    let counted = lines(&[], "debug", &COUNTED)?;
    Ok(format!(
        "## What an operation costs beside many\n\nNanoseconds besides the driver at a hundredth, a tenth and all of so many, and \
         steps at a hundredth and a tenth; MiB by which the process grew.\n\n{}",
        table(&timed, &counted)
    ))
}

fn lines(profile: &[&str], folder: &str, shares: &[&str]) -> Result<Vec<Line>> {
    let build = ["build", "-p", "granule-tests", "--bin", "scale-cost"];
    cargo(&[&build[..], profile].concat())?;
    let text = output(command(target().join(folder).join("scale-cost")).args(shares))?;
    let line =
        |line: &str| serde_json::from_str(line).with_context(|| format!("scale-cost printed {line:?}"));
    text.lines().map(line).collect()
}

fn table(timed: &[Line], counted: &[Line]) -> String {
    let columns =
        ["operation", "beside", "ns", "", "", "steps", "", "MiB", "aim, ns", "known to grow because"];
    let mut table = Table::new(columns);
    let cases = timed.chunks(SHARES.len()).zip(counted.chunks(COUNTED.len()));
    for (timed, counted) in cases {
        let Some(most) = timed.last() else { continue };
        let aim = most.aim_ns.map_or_else(String::new, |aim| {
            format!("{aim:.0}{}", if most.ns > aim { ", missed" } else { "" })
        });
        let mut cells = vec![most.operation.clone(), format!("{} {}", most.number, most.many)];
        cells.extend(timed.iter().map(|line| figure(line.ns)));
        cells.extend(counted.iter().map(|line| line.steps.map_or_else(String::new, figure)));
        cells.push(figure(most.grown_bytes / f64::from(1 << 20)));
        cells.extend([aim, most.known.clone().unwrap_or_default()]);
        table.row(cells);
    }
    table.text()
}
