//! Replays of a trace under everything that is compared.

use crate::process::{self, cargo, command, target};
use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Whose figures are compared: name, policy, settings.
pub(super) const ALLOCATORS: [(&str, &str, &str); 3] = [
    ("pytorch", "pytorch", ""),
    ("expandable", "pytorch", "expandable_segments:True"),
    ("granule", "granule", ""),
];

/// A device on which nothing is refused.
const AMPLE: [&str; 2] = ["--capacity", "1TiB"];

/// What a device is like, and what the `granule` policy is told.
#[derive(Args, Clone, Default)]
pub(super) struct Conditions {
    /// Settings of the `granule` policy, as `GRANULE_CONF` has them
    #[arg(long, value_name = "CONF", default_value = "")]
    pub(super) settings: String,
    /// What driver calls cost, as `granule replay --cost` takes it: a text, or the driver.jsonl of a card
    #[arg(long, value_name = "COSTS", default_value = "")]
    pub(super) cost: String,
    /// How many events late devices are behind: of a card, the median and the 99th percentile that the kit's lag.py saw
    #[arg(long, value_name = "EVENTS,EVENTS", value_delimiter = ',', default_value = "1000,10000")]
    pub(super) lag: Vec<u64>,
}

/// A figure of every program: its title, the replay that has it.
pub(super) struct Figure {
    pub(super) title: &'static str,
    replay: usize,
    /// From an allocator's answer.
    read: fn(&Value) -> Result<f64>,
    pub(super) digits: usize,
}

pub(super) const FIGURES: [Figure; 6] = [
    Figure { title: "at once", replay: 0, read: ratio, digits: 4 },
    Figure { title: "late", replay: 1, read: ratio, digits: 4 },
    Figure { title: "later", replay: 2, read: ratio, digits: 4 },
    Figure { title: "refused at 1.02", replay: 3, read: refused, digits: 0 },
    Figure { title: "refused at 1.005", replay: 4, read: refused, digits: 0 },
    Figure { title: "driver ms an iteration", replay: 0, read: driver_ms, digits: 2 },
];

/// The command that replays.
pub(super) struct Granule {
    program: PathBuf,
    conditions: Conditions,
}

impl Granule {
    pub(super) fn build(conditions: Conditions) -> Result<Self> {
        cargo(&["build", "--release", "-p", "granule-cli"])?;
        Ok(Self { program: target().join("release/granule"), conditions })
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
        let behind: Vec<String> = self.conditions.lag.iter().map(u64::to_string).collect();
        let late = |events: usize| [AMPLE, ["--lag", &behind[events]]].concat();
        let tight = |factor: &'static str| vec!["--of-peak", factor];
        let replays = [AMPLE.to_vec(), late(0), late(1), tight("1.02"), tight("1.005")];
        for (replay, arguments) in replays.iter().enumerate() {
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

    /// What one replay says.
    fn answer(&self, trace: &Path, policy: &str, conf: &str, arguments: &[&str]) -> Result<Value> {
        let mut replay = command(&self.program);
        process::unset(&mut replay);
        if policy == "granule" && !self.conditions.settings.is_empty() {
            replay.env("GRANULE_CONF", &self.conditions.settings);
        }
        replay.arg("replay").arg(trace).args(["--json", "--cost", &self.conditions.cost]);
        replay.args(["--policy", policy, "--conf", conf]).args(arguments);
        process::json(&mut replay)
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
