//! Running other programs.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

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
        bail!("{line} ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs cargo.
/// Builds the command, and says where it is. As its tests do, with the features that they have, so that nothing is built twice.
pub(crate) fn granule() -> Result<PathBuf> {
    cargo(&["test", "--workspace", "--no-run", "--test", "command"])?;
    Ok(target().join("debug/granule"))
}

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

/// Whether cargo-nextest is installed.
pub(crate) fn has_nextest() -> bool {
    let probe = Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success())
}
