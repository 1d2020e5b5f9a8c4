//! Replays of a trace under everything that is compared.

use crate::process::{self, cargo, command, target};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Whose figures are compared: name, policy, settings.
pub(super) const ALLOCATORS: [(&str, &str, &str); 3] = [
    ("pytorch", "pytorch", ""),
    ("expandable", "pytorch", "expandable_segments:True"),
    ("granule", "granule", ""),
];

/// A device on which nothing is refused.
const AMPLE: &[&str] = &["--capacity", "1TiB"];

/// A figure of every program: its key, its title, the replay that has it.
pub(super) struct Figure {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    replay: usize,
    /// From an allocator's answer.
    read: fn(&Value) -> Result<f64>,
    pub(super) digits: usize,
}

const REPLAYS: [&[&str]; 5] = [
    AMPLE,
    &["--capacity", "1TiB", "--lag", "1000"],
    &["--capacity", "1TiB", "--lag", "10000"],
    &["--of-peak", "1.02"],
    &["--of-peak", "1.005"],
];

pub(super) const FIGURES: [Figure; 6] = [
    Figure { key: "ratio", title: "at once", replay: 0, read: ratio, digits: 4 },
    Figure { key: "ratio_lag_1000", title: "1 000 events behind", replay: 1, read: ratio, digits: 4 },
    Figure { key: "ratio_lag_10000", title: "10 000 behind", replay: 2, read: ratio, digits: 4 },
    Figure { key: "refused_at_1_02", title: "refused at 1.02", replay: 3, read: refused, digits: 0 },
    Figure { key: "refused_at_1_005", title: "refused at 1.005", replay: 4, read: refused, digits: 0 },
    Figure { key: "driver_ms", title: "driver ms an iteration", replay: 0, read: driver_ms, digits: 2 },
];

/// The smallest device that serves a program, and how many larger ones were tried; those that refuse, in bytes.
pub(super) struct Larger {
    pub(super) smallest: u64,
    pub(super) tried: u64,
    pub(super) refused: Vec<u64>,
}

/// The command that replays.
pub(super) struct Granule {
    program: PathBuf,
    /// What `GRANULE_CONF` says under the `granule` policy.
    settings: String,
}

impl Granule {
    /// One that was built before, or one that is built now.
    pub(super) fn at(program: Option<&Path>) -> Result<Self> {
        let program = if let Some(program) = program {
            program.to_owned()
        } else {
            cargo(&["build", "--release", "-p", "granule-cli"])?;
            target().join("release/granule")
        };
        Ok(Self { program, settings: String::new() })
    }

    /// The same with settings of the `granule` policy.
    pub(super) fn with_settings(self, settings: &str) -> Self {
        Self { settings: settings.to_owned(), ..self }
    }

    /// The figures of a trace in the order of [`FIGURES`], each of all allocators: in the mean of replays in which requests have
    /// these multiples of their sizes.
    pub(super) fn figures(&self, trace: &Path, scales: &[f64]) -> Result<Vec<[f64; 3]>> {
        let mut mean = vec![[0.0; 3]; FIGURES.len()];
        #[allow(clippy::cast_precision_loss)] // a few
        let count = scales.len() as f64;
        for scale in scales {
            let figures = self.figures_at(trace, &scale.to_string())?;
            for (cell, figure) in mean.iter_mut().flatten().zip(figures.iter().flatten()) {
                *cell += figure / count;
            }
        }
        Ok(mean)
    }

    fn figures_at(&self, trace: &Path, scale: &str) -> Result<Vec<[f64; 3]>> {
        let mut figures = vec![[0.0; 3]; FIGURES.len()];
        for (replay, arguments) in REPLAYS.iter().enumerate() {
            let answers = ALLOCATORS
                .iter()
                .map(|(_, policy, conf)| {
                    let arguments = [arguments, &["--scale", scale][..]].concat();
                    self.answer(trace, policy, conf, &arguments)
                })
                .collect::<Result<Vec<Value>>>()?;
            for (row, figure) in figures.iter_mut().zip(&FIGURES).filter(|(_, it)| it.replay == replay) {
                for (cell, answer) in row.iter_mut().zip(&answers) {
                    *cell = (figure.read)(answer)?;
                }
            }
        }
        Ok(figures)
    }

    /// The smallest device, and larger ones.
    pub(super) fn larger(&self, trace: &Path, count: u64, step: &str, conf: &str) -> Result<Larger> {
        let mut search = command(&self.program);
        search.env("GRANULE_CONF", conf).arg("min-capacity").arg(trace).arg("--json");
        search.args([
            "--policy",
            "granule",
            "--conf",
            "",
            "--step",
            step,
            "--try-larger",
            &count.to_string(),
        ]);
        let answer: Value = serde_json::from_str(&process::output(&mut search)?)?;
        let whole = |pointer: &str| answer.pointer(pointer).and_then(Value::as_u64).context("no such figure");
        let refused = answer.pointer("/larger/refused").and_then(Value::as_array);
        let refused = refused.into_iter().flatten().filter_map(Value::as_u64).collect();
        Ok(Larger { smallest: whole("/min_capacity")?, tried: whole("/larger/tried")?, refused })
    }

    fn answer(&self, trace: &Path, policy: &str, conf: &str, arguments: &[&str]) -> Result<Value> {
        let mut replay = command(&self.program);
        // The environment's settings would count on top.
        replay.env_remove("GRANULE_CONF");
        if policy == "granule" && !self.settings.is_empty() {
            replay.env("GRANULE_CONF", &self.settings);
        }
        replay.arg("replay").arg(trace).arg("--json");
        replay.args(["--policy", policy, "--conf", conf]).args(arguments);
        let text = process::output(&mut replay)?;
        serde_json::from_str(&text).with_context(|| format!("{replay:?} printed no JSON"))
    }
}

fn number(answer: &Value, pointer: &str) -> Result<f64> {
    let found = answer.pointer(pointer).and_then(Value::as_f64);
    found.with_context(|| format!("the answer of `granule replay` has no {pointer}"))
}

/// Beside what the program itself holds: what waits for other streams counts as waste.
fn ratio(answer: &Value) -> Result<f64> {
    number(answer, "/reserved_over_live")
}

fn refused(answer: &Value) -> Result<f64> {
    number(answer, "/refused")
}

/// Modelled, in the mean of the iterations after the second: a program sets up what it keeps in the first ones.
fn driver_ms(answer: &Value) -> Result<f64> {
    Ok(number(answer, "/after_second_iteration/all/mean/modelled_driver_ns")? / 1e6)
}
