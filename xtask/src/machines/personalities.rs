//! Machines and drivers as users have them: the command on every personality of the lookalike drivers.
//!
//! Each has to start (or say why not), pass the conformance kit but for the skips that its file lists, do without what its
//! file lists and tell that once, and serve a recorded program with the figures of the simulated device.

mod faults;
mod file;
mod replayed;

use crate::process::{self, command, root, target};
use anyhow::{Context, Result, bail};
use clap::Args;
use file::{Expect, Personality};
use replayed::References;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// What is run.
#[derive(Args)]
pub(crate) struct Options {
    /// Only this personality; can be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Also let each driver call of recorded programs fail in turn, which takes a minute for each
    #[arg(long)]
    faults: bool,
}

impl Options {
    /// What CI runs: one for each step by which less is asked for.
    pub(crate) fn slice() -> Self {
        let names = ["wsl2", "tegra", "tegra-addresses", "container", "no-imex", "cc"];
        Self { only: names.map(str::to_owned).to_vec(), faults: false }
    }
}

/// What the lookalikes never have.
const NEVER: [&str; 1] = ["every device reaches every other"];

/// What became of a personality under a backend.
#[derive(Default)]
struct Row {
    personality: String,
    backend: &'static str,
    /// What went wrong.
    failures: Vec<String>,
    /// What was done there, each thing once.
    notes: Vec<String>,
}

/// The command, and the drivers beside it.
struct Bench {
    granule: PathBuf,
    drivers: PathBuf,
}

impl Bench {
    /// The command on a machine, with lookalikes instead of drivers.
    fn command(&self, machine: &str) -> Command {
        let mut granule = command(&self.granule);
        process::unset(&mut granule)
            .env("GRANULE_LOOKALIKE", machine)
            .env("GRANULE_CUDA_LIBRARY", self.drivers.join("liblookalike_cuda.so"))
            .env("GRANULE_HIP_LIBRARY", self.drivers.join("liblookalike_hip.so"));
        granule
    }

    /// What a command says; one that died has failed.
    fn run(&self, machine: &str, arguments: &[&str], row: &mut Row) -> Result<Output> {
        let mut granule = self.command(machine);
        let output = granule.args(arguments).env("GRANULE_LOG", "warn").output();
        let output = output.context("the command could not be started")?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code().is_none() || said.contains("panicked at") {
            row.failures.push(format!("the command died ({}): {}", output.status, said.trim_end()));
        }
        Ok(output)
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let bench = Bench { granule: process::granule()?, drivers: target().join("debug/deps") };
    let chosen = file::read(&root().join("tests/personalities"), &options.only)?;
    let references = References::new(&bench)?;
    let mut rows = Vec::new();
    for personality in &chosen {
        for (backend, expect) in personality.drivers() {
            let mut row = look(&bench, &references, personality, backend, expect)?;
            if options.faults && expect.starts {
                faults::survives(&mut row)?;
            }
            print(&row);
            rows.push(row);
        }
    }
    let failed = rows.iter().filter(|row| !row.failures.is_empty()).count();
    println!("{} passed, {failed} failed", rows.len() - failed);
    if failed > 0 {
        bail!("{failed} of {} personalities failed", rows.len());
    }
    Ok(())
}

fn look(
    bench: &Bench,
    references: &References,
    personality: &Personality,
    backend: &'static str,
    expect: &Expect,
) -> Result<Row> {
    let machine = format!("personality={}", personality.name);
    let mut row = Row { personality: personality.name.clone(), backend, ..Row::default() };
    if expect.starts {
        conforms(bench, &machine, expect, &mut row)?;
        does_without(bench, &machine, expect, &mut row)?;
        tells_each_once(bench, &machine, expect, &mut row)?;
        references.serves(bench, &machine, expect, &mut row)?;
    } else {
        says_why_not(bench, &machine, &mut row)?;
    }
    Ok(row)
}

fn says_why_not(bench: &Bench, machine: &str, row: &mut Row) -> Result<()> {
    let output = bench.run(machine, &["conformance", "--backend", row.backend], row)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1) || !said.contains("hint:") {
        row.failures.push(format!("no clear error with what to do, but {}: {said}", output.status));
    }
    Ok(())
}

fn conforms(bench: &Bench, machine: &str, expect: &Expect, row: &mut Row) -> Result<()> {
    let output =
        bench.run(machine, &["conformance", "--json", "--keep-going", "--backend", row.backend], row)?;
    let lines = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let lines: Vec<Value> = lines.map_while(Result::ok).collect();
    let Some(card) = lines.last().filter(|line| line["backend"].is_string()) else {
        let said = String::from_utf8_lossy(&output.stderr);
        row.failures.push(format!("no scorecard ({}): {}", output.status, said.trim_end()));
        return Ok(());
    };
    let count = |name: &str| card[name].as_u64().unwrap_or(0);
    let [passed, failed, skipped] = ["passed", "failed", "skipped"].map(count);
    row.notes.push(format!("{passed} checks passed, {failed} failed, {skipped} skipped"));
    if passed == 0 {
        let said = String::from_utf8_lossy(&output.stdout);
        row.failures.push(format!("no check passed ({}): {}", output.status, said.trim_end()));
    }
    let mut met = Vec::new();
    for check in &lines {
        let (name, why) = (text(&check["name"]), text(&check["why"]));
        match text(&check["outcome"]) {
            "failed" if expect.fails.iter().any(|due| due == name) => met.push(name),
            "failed" => row.failures.push(format!("{name}: {why}")),
            "skipped" => {
                let listed = expect.skips.iter().find(|reason| why.contains(reason.as_str()));
                met.extend(listed.map(String::as_str));
                if listed.is_none() && !NEVER.iter().any(|reason| why.contains(reason)) {
                    row.failures.push(format!("{name} was skipped, which the file does not list: {why}"));
                }
                let note = format!("skipped: {why}");
                if !row.notes.contains(&note) {
                    row.notes.push(note);
                }
            }
            _ => {}
        }
    }
    // A reason that nobody meets would hide a mistake in the list.
    for reason in expect.skips.iter().chain(&expect.fails).filter(|reason| !met.contains(&reason.as_str())) {
        row.failures.push(format!("no check was skipped or failed as listed: `{reason}`"));
    }
    Ok(())
}

/// The devices tell what they do without, which is what the file says.
fn does_without(bench: &Bench, machine: &str, expect: &Expect, row: &mut Row) -> Result<()> {
    let output = bench.run(machine, &["devices", "--json"], row)?;
    let answer: Value = serde_json::from_slice(&output.stdout).context("`granule devices --json`")?;
    let reports = answer["backends"].as_array().into_iter().flatten();
    let Some(report) = reports.into_iter().find(|report| report["name"] == row.backend) else {
        bail!("`granule devices` has no {}", row.backend);
    };
    for device in report["devices"].as_array().into_iter().flatten() {
        let dropped: Vec<&Value> = device["dropped"].as_array().into_iter().flatten().collect();
        let properties: Vec<&str> = dropped.iter().map(|one| text(&one["property"])).collect();
        if !properties.iter().copied().eq(expect.found()) {
            row.failures.push(format!("device {} does without {properties:?}", device["index"]));
        }
        if device["index"] == 0 {
            let note =
                |one: &&Value| format!("does without {}: {}", text(&one["property"]), text(&one["reason"]));
            row.notes.extend(dropped.iter().map(note));
        }
    }
    Ok(())
}

/// The doctor finds the machine healthy, and the log tells once for each device what that does without.
fn tells_each_once(bench: &Bench, machine: &str, expect: &Expect, row: &mut Row) -> Result<()> {
    let output = bench.run(machine, &["doctor", "--json", "--backend", row.backend], row)?;
    if output.status.code() != Some(0) {
        row.failures.push(format!("the doctor says that it is not healthy ({})", output.status));
    }
    let answer: Value = serde_json::from_slice(&output.stdout).context("`granule doctor --json`")?;
    let log = String::from_utf8_lossy(&output.stderr);
    for device in answer["devices"].as_array().into_iter().flatten() {
        let index = &device["index"];
        for property in expect.found() {
            let tells = |line: &&str| {
                line.contains(&format!("{property} was refused"))
                    && line.ends_with(&format!("device={index}"))
            };
            let times = log.lines().filter(tells).count();
            if times != 1 {
                row.failures
                    .push(format!("the log tells {times} times that device {index} lacks {property}"));
            }
        }
    }
    let told = log.lines().filter(|line| line.contains(" was refused, so ")).count();
    let devices = answer["devices"].as_array().map_or(0, Vec::len);
    if told != devices * expect.found().count() {
        row.failures.push(format!("the log tells of {told} refusals on {devices} devices: {log}"));
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn print(row: &Row) {
    let Row { personality, backend, failures, notes } = row;
    println!("{personality} ({backend}): {}", if failures.is_empty() { "passed" } else { "failed" });
    for note in notes {
        println!("    {note}");
    }
    for failure in failures {
        println!("    FAILED: {failure}");
    }
}
