//! The smallest device on which nothing is refused.

use super::granule::{Command, number};
use super::table::{Table, mean_and_worst};
use super::{Options, traces};
use anyhow::Result;

/// How exact the search is.
const STEP: &str = "2MiB";

pub(super) fn report(options: &Options) -> Result<String> {
    let (granule, traces) = (Command::build()?, traces::all(options)?);
    let mut columns = vec!["trace".to_owned()];
    for of in &granule.accepted {
        columns.extend([of.name.to_owned(), "waits".to_owned()]);
    }
    let mut table = Table::new(columns);
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); granule.accepted.len()];
    for trace in &traces {
        let file = trace.to_string_lossy();
        let mut cells = vec![traces::name(trace)];
        for (of, ratios) in granule.accepted.iter().zip(&mut ratios) {
            let answer = granule.json(of, &["min-capacity", &file, "--step", STEP])?;
            let ratio = number(&answer, "/min_capacity")? / number(&answer, "/peak_live")?;
            ratios.push(ratio);
            let repeating = number(&answer, "/repeating_iterations")?;
            let waits = number(&answer, "/device_wide_waits_in_repeating_iterations")?;
            let waits = if repeating > 0.0 { format!("{waits} in {repeating}") } else { "–".into() };
            cells.extend([format!("{ratio:.4}"), waits]);
        }
        table.row(cells);
    }
    let mut cells = vec!["**mean**".to_owned()];
    for ratios in &ratios {
        let summary = mean_and_worst(ratios).map(|(mean, worst)| format!("{mean:.4}, worst {worst:.4}"));
        cells.extend([summary.unwrap_or_default(), String::new()]);
    }
    table.row(cells);
    Ok(format!(
        "## Smallest device that fits, over the peak requested\n\nBisection to {STEP}; *waits*: device-wide waits in \
         iterations that repeat, on that device, and how many these are.\n\n{}",
        table.text()
    ))
}
