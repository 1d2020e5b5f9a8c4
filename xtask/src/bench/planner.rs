//! Offline placement: published instances at their capacity, and recorded programs.

use super::granule::{Command, number};
use super::table::{Table, figure, median};
use super::{Options, traces};
use anyhow::Result;
use serde_json::Value;

/// What the published instances are to fit in.
const CAPACITY: &str = "1048576";

/// Seconds that google/minimalloc takes for the instances A to F, one core each, on the project's first machine: for the
/// order of magnitude, not for ratios.
const REFERENCE: [(&str, f64); 6] = [("A", 9.2), ("B", 6.8), ("C", 1.4), ("D", 6.2), ("E", 7.3), ("F", 10.3)];

pub(super) fn report(options: &Options) -> Result<String> {
    let granule = Command::build()?;
    if !granule.has("plan") {
        return Ok("## Planner\n\nSkipped: this build has no `granule plan`.\n".into());
    }
    let mut table =
        Table::new(["instance", "height / most live at once", "lowest", "seconds", "minimalloc, seconds"]);
    let mut row = |name: String, input: &str, more: &[&str]| -> Result<()> {
        let mut seconds = Vec::new();
        let mut last = Value::Null;
        for _ in 0..options.rounds.max(1) {
            let arguments: Vec<&str> = ["plan", input].into_iter().chain(more.iter().copied()).collect();
            last = granule.plain_json(&arguments)?;
            seconds.push(number(&last, "/seconds")?);
        }
        let ratio = number(&last, "/height")? / number(&last, "/max_load")?.max(1.0);
        let lowest = if last["optimal"].as_bool() == Some(true) { "yes" } else { "not known" };
        let reference = REFERENCE.iter().find(|(known, _)| *known == name);
        table.row([
            name,
            format!("{ratio:.4}"),
            lowest.to_owned(),
            median(&seconds).map_or_else(String::new, figure),
            reference.map_or_else(String::new, |(_, seconds)| seconds.to_string()),
        ]);
        Ok(())
    };
    for instance in traces::files(&traces::shared().join("minimalloc"), "csv") {
        row(traces::name(&instance), &instance.to_string_lossy(), &["--capacity", CAPACITY])?;
    }
    for trace in traces::all(options)? {
        row(traces::name(&trace), &trace.to_string_lossy(), &[])?;
    }
    Ok(format!(
        "## Planner\n\nThe command prints placements that its verifier accepts, and no others. *Lowest*: no placement needs less.\n\n{}",
        table.text()
    ))
}
