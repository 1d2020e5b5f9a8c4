//! Predictions beside PyTorch's own figures.

use crate::process::files;
use crate::table::Table;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Figures that have one name on both sides.
const SAME_NAME: [&str; 11] = [
    "capacity",
    "refused",
    "requested_bytes_peak",
    "allocated_bytes_peak",
    "active_bytes_peak",
    "reserved_bytes_peak",
    "num_device_alloc",
    "num_device_free",
    "num_alloc_retries",
    "num_ooms",
    "driver_peak_held",
];

/// Calls: NVIDIA's name, and the simulated device's.
const CALLS: [(&str, &str); 5] = [
    ("cudaMalloc", "orMalloc"),
    ("cudaFree", "orFree"),
    ("cuMemCreate", "orMemCreate"),
    ("cuMemMap", "orMemMap"),
    ("cuMemUnmap", "orMemUnmap"),
];

/// How many figures are compared of each.
pub(super) const FIGURES: usize = SAME_NAME.len() + CALLS.len();

/// A candidate on a device: what was predicted, and how PyTorch is asked.
pub(super) struct Wanted {
    pub(super) trace: PathBuf,
    /// The candidate's name.
    pub(super) name: String,
    pub(super) conf: String,
    pub(super) caching: bool,
    pub(super) empty_cache: bool,
    /// Bytes of the device.
    pub(super) capacity: u64,
    /// Whether it is the answer for that device.
    pub(super) recommended: bool,
    predicted: Value,
}

impl Wanted {
    pub(super) fn new(trace: &Path, candidate: &Value, outcome: &Value, recommended: bool) -> Result<Self> {
        let text = |key: &str| candidate[key].as_str().map(ToOwned::to_owned).with_context(|| key.to_owned());
        let is = |key: &str| candidate[key].as_bool().with_context(|| key.to_owned());
        Ok(Self {
            trace: trace.to_owned(),
            name: text("name")?,
            conf: text("conf")?,
            caching: is("caching")?,
            empty_cache: is("empty_cache_each_iteration")?,
            capacity: outcome["capacity"].as_u64().context("capacity")?,
            recommended,
            predicted: outcome.clone(),
        })
    }
}

/// A prediction that was compared.
pub(super) struct Compared<'r> {
    run: &'r Wanted,
    /// Those that differ, as `name predicted native`.
    pub(super) differences: Vec<String>,
}

impl<'r> Compared<'r> {
    pub(super) fn new(run: &'r Wanted, native: &Value) -> Self {
        let calls = |name: &str| run.predicted["device_calls"][name].as_u64().unwrap_or(0);
        let ours = SAME_NAME.iter().map(|name| (*name, run.predicted[*name].as_u64()));
        let ours = ours.chain(CALLS.iter().map(|(theirs, ours)| (*theirs, Some(calls(ours)))));
        let mut differences = Vec::new();
        for (name, ours) in ours {
            let theirs = native[name].as_u64();
            // What is missing on either side is no agreement.
            if ours.is_none() || ours != theirs {
                let show =
                    |figure: Option<u64>| figure.map_or_else(|| "none".into(), |figure| figure.to_string());
                differences.push(format!("{name} {} predicted, {} native", show(ours), show(theirs)));
            }
        }
        Self { run, differences }
    }
}

/// A line per prediction.
pub(super) fn table(compared: &[Compared<'_>]) -> String {
    let mut table = Table::new(["trace", "device", "settings", "result"]);
    for Compared { run, differences } in compared {
        let result = match differences.as_slice() {
            [] => format!("{FIGURES} figures, all the same"),
            some => some.join("; "),
        };
        let recommended = if run.recommended { " (recommended)" } else { "" };
        let (device, settings) =
            (format!("{} MiB", run.capacity >> 20), format!("{}{recommended}", run.name));
        table.row([files::stem(&run.trace), device, settings, result]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::{Compared, FIGURES, SAME_NAME, Wanted, table};
    use serde_json::{Value, json};
    use std::path::Path;

    fn run() -> (Wanted, Value) {
        let candidate =
            json!({"name": "default", "conf": "", "caching": true, "empty_cache_each_iteration": false});
        let mut outcome = json!({"device_calls": {"orMalloc": 3}});
        let mut native =
            json!({"cudaMalloc": 3, "cudaFree": 0, "cuMemCreate": 0, "cuMemMap": 0, "cuMemUnmap": 0});
        for (n, name) in SAME_NAME.iter().enumerate() {
            outcome[*name] = json!(n << 20);
            native[*name] = json!(n << 20);
        }
        (Wanted::new(Path::new("a/b.trace.gz"), &candidate, &outcome, true).unwrap(), native)
    }

    #[test]
    fn the_same_figures_are_the_same() {
        let (run, native) = run();
        let compared = Compared::new(&run, &native);
        assert_eq!((FIGURES, compared.differences.len()), (16, 0));
        assert!(
            table(&[compared])
                .ends_with("| b | 0 MiB | default (recommended) | 16 figures, all the same |\n")
        );
    }

    #[test]
    fn one_that_differs_or_is_missing_is_named() {
        let (one, mut native) = run();
        native["num_alloc_retries"] = json!(7);
        native["cudaFree"] = Value::Null;
        assert_eq!(
            Compared::new(&one, &native).differences,
            ["num_alloc_retries 8388608 predicted, 7 native", "cudaFree 0 predicted, none native"]
        );
    }
}
