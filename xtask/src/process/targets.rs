//! Rust's libraries for machines other than this one.

use super::{command, output, run};
use anyhow::{Context, Result, ensure};
use std::path::Path;

pub(crate) const AARCH64: &str = "aarch64-unknown-linux-gnu";
pub(crate) const MUSL: &str = "x86_64-unknown-linux-musl";

/// Sees to it that a target can be built for. An error says why it cannot.
pub(crate) fn add(target: &str) -> Result<()> {
    if has(target) {
        return Ok(());
    }
    println!("installing Rust's library for {target}");
    let added = run(command("rustup").args(["target", "add", target]));
    added.with_context(|| format!("Rust's library for {target} cannot be had"))?;
    ensure!(has(target), "rustup added {target} to another toolchain than the one in use");
    Ok(())
}

/// The variable in which cargo is told something of a target: its linker, its runner.
pub(crate) fn variable(target: &str, what: &str) -> String {
    format!("CARGO_TARGET_{}_{what}", target.to_uppercase().replace('-', "_"))
}

fn has(target: &str) -> bool {
    let folder = output(command("rustc").args(["--print", "target-libdir", "--target", target]));
    folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}
