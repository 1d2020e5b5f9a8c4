//! Reserved over requested on recorded programs, and what it took to stay there.

use super::granule::{Command, number};
use super::table::{Table, figure, mean_and_worst};
use super::{Options, traces};
use anyhow::Result;
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;

/// Events that streams are behind.
const LAGS: [&str; 3] = ["0", "1000", "10000"];

/// The figures of an iteration that are shown: name, and key of the answer.
const WORK: [(&str, &str); 5] = [
    ("moved", "granules_moved"),
    ("unmapped", "granules_unmapped"),
    ("creations", "physical_creations"),
    ("host waits", "host_waits"),
    ("device-wide", "device_wide_waits"),
];

pub(super) fn report(options: &Options) -> Result<String> {
    let (granule, traces) = (Command::build()?, traces::all(options)?);
    let mut text = String::from("## Memory: peak reserved over peak requested\n");
    for lag in LAGS {
        // One row of answers for each trace.
        let answers = traces
            .iter()
            .map(|trace| {
                let file = trace.to_string_lossy();
                let arguments = ["replay", &*file, "--lag", lag];
                granule.accepted.iter().map(|of| granule.json(of, &arguments)).collect()
            })
            .collect::<Result<Vec<Vec<Value>>>>()?;
        let _ = write!(text, "\n### Streams {lag} events behind\n\n{}", ratios(&granule, &traces, &answers)?);
        let _ = write!(text, "\n{}", work(&granule, &traces, &answers));
    }
    Ok(text)
}

fn ratios(granule: &Command, traces: &[PathBuf], answers: &[Vec<Value>]) -> Result<String> {
    let mut table = Table::new(std::iter::once("trace").chain(granule.accepted.iter().map(|of| of.name)));
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); granule.accepted.len()];
    for (trace, row) in traces.iter().zip(answers) {
        let mut cells = vec![traces::name(trace)];
        for (answer, column) in row.iter().zip(&mut columns) {
            let ratio = number(answer, "/reserved_bytes_peak")? / number(answer, "/requested_bytes_peak")?;
            column.push(ratio);
            let traps = number(answer, "/traps")?;
            cells.push(if traps > 0.0 {
                format!("{ratio:.4} ({traps} traps)")
            } else {
                format!("{ratio:.4}")
            });
        }
        table.row(cells);
    }
    let of_all = |which: fn((f64, f64)) -> f64| {
        columns.iter().map(move |column| {
            mean_and_worst(column).map_or_else(String::new, |found| format!("{:.4}", which(found)))
        })
    };
    table.row(std::iter::once("**mean**".to_owned()).chain(of_all(|(mean, _)| mean)));
    table.row(std::iter::once("**worst**".to_owned()).chain(of_all(|(_, worst)| worst)));
    Ok(table.text())
}

/// What an iteration after the second asks of the driver: mean of all, and the most of a repeating one.
fn work(granule: &Command, traces: &[PathBuf], answers: &[Vec<Value>]) -> String {
    let mut columns =
        vec!["an iteration after the second: mean / most of a repeating one".to_owned(), String::new()];
    columns.extend(WORK.iter().map(|(name, _)| (*name).to_owned()));
    let mut table = Table::new(columns);
    for (trace, row) in traces.iter().zip(answers) {
        for (of, answer) in granule.accepted.iter().zip(row) {
            let after = &answer["after_second_iteration"];
            let cells = WORK.iter().map(|(_, key)| {
                let mean = after["all"]["mean"][key].as_f64().map_or_else(|| "–".into(), figure);
                let most = after["repeating"]["max"][key]
                    .as_u64()
                    .map_or_else(|| "–".into(), |most| most.to_string());
                format!("{mean} / {most}")
            });
            table.row([traces::name(trace), of.name.to_owned()].into_iter().chain(cells));
        }
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::{Command, ratios, work};
    use crate::bench::granule::CONFIGURATIONS;
    use serde_json::json;

    #[test]
    fn answers_become_rows() {
        let granule = Command::accepting(&CONFIGURATIONS[..1]);
        let answer = |reserved: u64| {
            json!({
                "reserved_bytes_peak": reserved, "requested_bytes_peak": 100, "traps": 0,
                "after_second_iteration": {
                    "all": { "mean": { "granules_moved": 1.5, "host_waits": 0.0 } },
                    "repeating": { "max": { "granules_moved": 3 } },
                },
            })
        };
        let traces = ["a.trace.gz".into(), "b.gz".into()];
        let answers = [vec![answer(110)], vec![answer(102)]];
        let table = ratios(&granule, &traces, &answers).unwrap();
        assert!(
            table.contains("| a | 1.1000 |\n| b | 1.0200 |\n| **mean** | 1.0600 |\n| **worst** | 1.1000 |"),
            "{table}"
        );
        let table = work(&granule, &traces, &answers);
        assert!(table.contains("| a | granule | 1.50 / 3 | – / – | – / – | 0.00 / – | – / – |"), "{table}");
    }
}
