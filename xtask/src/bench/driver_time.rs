//! Modelled driver time of whole recorded programs, beside PyTorch's own calls under the same cost model.

use super::granule::{Command, number};
use super::table::{Table, mean_and_worst};
use super::{Options, traces};
use anyhow::Result;
use serde_json::Value;
use std::fmt::Write;

/// Memory of the device: more than enough, and as a multiple of the most requested bytes.
const DEVICES: [(&str, &[&str]); 2] = [
    ("ample capacity (80 GiB)", &["--capacity", "80GiB"]),
    ("1.02 times the peak requested", &["--of-peak", "1.02"]),
];

/// Whose recorded calls and whose replay others are compared with.
const REFERENCE: &str = "pytorch policy, expandable";

pub(super) fn report(options: &Options) -> Result<String> {
    let (granule, traces) = (Command::build()?, traces::all(options)?);
    let mut text = String::from(
        "## Modelled driver time\n\nIn each cell: ratio to PyTorch with expandable segments, then milliseconds. The \
         `pytorch` policy makes PyTorch's calls one for one; the last column is the calls that PyTorch itself was counted \
         to make (a lower bound, and recorded at ample capacity only).\n",
    );
    for (name, device) in DEVICES {
        let header = ["trace"].into_iter().chain(granule.accepted.iter().map(|of| of.name));
        let mut table = Table::new(header.chain(["PyTorch's counted calls"]));
        let mut columns: Vec<Vec<f64>> = vec![Vec::new(); granule.accepted.len()];
        for trace in &traces {
            let file = trace.to_string_lossy();
            let arguments: Vec<&str> = ["replay", &*file].into_iter().chain(device.iter().copied()).collect();
            let answers = granule
                .accepted
                .iter()
                .map(|of| granule.json(of, &arguments))
                .collect::<Result<Vec<Value>>>()?;
            let reference = granule.accepted.iter().zip(&answers).find(|(of, _)| of.name == REFERENCE);
            let base = reference.map(|(_, answer)| number(answer, "/modelled_driver_ns")).transpose()?;
            let mut cells = vec![traces::name(trace)];
            for (answer, column) in answers.iter().zip(&mut columns) {
                let ns = number(answer, "/modelled_driver_ns")?;
                column.extend(base.map(|base| ns / base));
                cells.push(cell(ns, base, answer["refused"].as_u64().unwrap_or(0)));
            }
            let counted = reference.and_then(|(_, answer)| answer["native"]["modelled_driver_ns"].as_f64());
            cells.push(counted.map_or_else(|| "–".into(), |ns| cell(ns, base, 0)));
            table.row(cells);
        }
        let summary = columns.iter().map(|column| {
            mean_and_worst(column)
                .map_or_else(String::new, |(mean, worst)| format!("{mean:.2}, worst {worst:.2}"))
        });
        table.row(std::iter::once("**mean**".to_owned()).chain(summary).chain([String::new()]));
        let _ = write!(text, "\n### {name}\n\n{}", table.text());
    }
    Ok(text)
}

fn cell(ns: f64, base: Option<f64>, refused: u64) -> String {
    let ratio = base.map_or_else(String::new, |base| format!("{:.2} ", ns / base));
    let refusals = if refused > 0 { format!("; {refused} requests refused") } else { String::new() };
    format!("{ratio}({:.1}{refusals})", ns / 1e6)
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn cells_say_the_ratio_first() {
        assert_eq!(cell(50e6, Some(100e6), 0), "0.50 (50.0)");
        assert_eq!(cell(1e6, None, 2), "(1.0; 2 requests refused)");
    }
}
