//! Running other programs.

pub(crate) mod debian;
pub(crate) mod disk;
pub(crate) mod targets;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The workspace's folder. Cargo says it when it runs this program; what it was at compile time may be another
/// checkout with the same build folder.
pub(crate) fn root() -> PathBuf {
    let compiled = || env!("CARGO_MANIFEST_DIR").into();
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(compiled, PathBuf::from);
    manifest.parent().unwrap_or(&manifest).to_owned()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command run at the workspace's root.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs a command to its end; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let status = command.status().with_context(|| format!("could not start {line}"))?;
    if !status.success() {
        bail!("{line} ended with {status}");
    }
    Ok(())
}

/// Runs a command to its end and gives what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let output = command.output().with_context(|| format!("could not start {line}"))?;
    if !output.status.success() {
        bail!("{line} ended with {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command with all that it can do: what a quick first build leaves out is tested, too.
pub(crate) const ALL_COMMANDS: &[&str] = &["--features", "granule-cli/full"];

/// All packages. The driver of `granule estimate` is built for that one's build script; once more it would get the same file.
pub(crate) const WORKSPACE: &[&str] = &["--workspace", "--exclude", "granule-estimate-driver"];

/// Builds the libraries that other programs load, with the features that tests have: so nothing is built twice.
pub(crate) fn libraries() -> Result<()> {
    cargo(&[&["build"], WORKSPACE, ALL_COMMANDS, &["--lib", "--test", "command"]].concat())
}

/// Builds the command, and says where it is. As its tests do, with the features that they have, so that nothing is built twice.
pub(crate) fn granule() -> Result<PathBuf> {
    cargo(&[&["test"], WORKSPACE, ALL_COMMANDS, &["--no-run", "--test", "command"]].concat())?;
    Ok(target().join("debug/granule"))
}

/// The workspace's packages, as cargo describes them.
pub(crate) fn packages() -> Result<Vec<Value>> {
    let said = output(command("cargo").args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let mut said: Value = serde_json::from_str(&said)?;
    serde_json::from_value(said["packages"].take()).context("cargo metadata names no packages")
}

/// Runs cargo.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    run(command("cargo").args(arguments))
}

/// Installs a cargo command from the registry unless it is there.
pub(crate) fn install_if_missing(name: &str) -> Result<()> {
    let probe = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    println!("installing {name}");
    cargo(&["install", "--locked", "--quiet", name])
}

/// What processors did for the programs that were run here and have ended.
pub(crate) fn processor_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    ended_children(&stat, rustix::param::clock_ticks_per_second()).context("/proc/self/stat has another form")
}

/// The user's and the system's time of children that were waited for: the 16th and 17th field, of which the second is a
/// name in parentheses that may have spaces.
fn ended_children(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
    Some(Duration::from_millis(ticks * 1000 / ticks_per_second))
}

/// Whether cargo-nextest is installed.
pub(crate) fn has_nextest() -> bool {
    let probe = Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::ended_children;
    use std::time::Duration;

    #[test]
    fn the_time_of_children_is_read_past_a_name_with_spaces() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4 90 80 0 0 11 12 250 50 20 0 1 0 99";
        assert_eq!(ended_children(stat, 100), Some(Duration::from_secs(3)));
        assert_eq!(ended_children("7 (cut", 100), None);
    }
}
