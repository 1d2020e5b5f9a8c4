//! Granule's own configurations, and its command.

use crate::process::{cargo, command, target};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A policy with settings.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) name: &'static str,
    pub(super) policy: &'static str,
    pub(super) conf: &'static str,
}

/// The first that a build accepts is what others are compared with.
pub(super) const CONFIGURATIONS: [Configuration; 3] = [
    Configuration { name: "granule", policy: "granule", conf: "" },
    Configuration { name: "pytorch policy", policy: "pytorch", conf: "" },
    Configuration { name: "pytorch policy, expandable", policy: "pytorch", conf: "expandable_segments:True" },
];

/// The `granule` command.
pub(super) struct Command {
    program: PathBuf,
    pub(super) accepted: Vec<&'static Configuration>,
}

impl Command {
    /// Builds it and finds out which configurations it accepts; the others are named.
    pub(super) fn build() -> Result<Self> {
        cargo(&["build", "--profile", "dist", "-p", "granule-cli", "--features", "full"])?;
        let program = target().join("dist/granule");
        let mut accepted = Vec::new();
        for configuration in &CONFIGURATIONS {
            if accepts(&program, configuration)? {
                accepted.push(configuration);
            } else {
                println!("skipped: this build has no policy '{}'", configuration.policy);
            }
        }
        Ok(Self { program, accepted })
    }

    /// One that is not there, for tests of what is made of its answers.
    #[cfg(test)]
    pub(super) fn accepting(configurations: &'static [Configuration]) -> Self {
        Self { program: PathBuf::new(), accepted: configurations.iter().collect() }
    }

    /// Runs it and reads the JSON object that it prints.
    pub(super) fn json(&self, configuration: &Configuration, arguments: &[&str]) -> Result<Value> {
        let (first, rest) = arguments.split_first().context("no command")?;
        let mut granule = command(&self.program);
        granule.arg(first).args(["--policy", configuration.policy, "--conf", configuration.conf]).args(rest);
        read(granule.arg("--json"))
    }

    /// As [`json`](Self::json), of a command that has no configuration.
    pub(super) fn plain_json(&self, arguments: &[&str]) -> Result<Value> {
        read(command(&self.program).args(arguments).arg("--json"))
    }

    /// Whether it has this command.
    pub(super) fn has(&self, name: &str) -> bool {
        let help = command(&self.program).args([name, "--help"]).output();
        help.is_ok_and(|output| output.status.success())
    }
}

fn read(command: &mut std::process::Command) -> Result<Value> {
    let line = format!("{command:?}");
    let output = command.output().with_context(|| format!("could not start {line}"))?;
    if !output.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{line} printed no JSON"))
}

/// Whether a workload of one request runs.
fn accepts(program: &Path, configuration: &Configuration) -> Result<bool> {
    let mut child = command(program)
        .args(["replay", "-", "--json", "--policy", configuration.policy, "--conf", configuration.conf])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("could not start {}", program.display()))?;
    if let Some(mut input) = child.stdin.take() {
        // One that refuses its arguments does not read.
        let _ = input.write_all(b"# {}\na 0 512 0\n");
    }
    Ok(child.wait()?.success())
}

/// A number in what the command printed.
pub(super) fn number(value: &Value, pointer: &str) -> Result<f64> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.with_context(|| format!("the answer has no {pointer}"))
}
