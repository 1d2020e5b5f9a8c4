//! The crates, as `cargo publish` would take them.

use crate::process;
use anyhow::{Result, bail};
use serde_json::Value;
use std::process::Command;

/// What crates.io or its readers want to know of a crate.
const WANTED: [&str; 5] = ["description", "license", "repository", "keywords", "categories"];

/// Packs all crates that are to be published. To `verify` is to build each from nothing but its package.
pub(super) fn dry_run(verify: bool) -> Result<()> {
    let mut pack = command("package")?;
    pack.arg("--allow-dirty");
    if !verify {
        pack.arg("--no-verify");
    }
    process::run(&mut pack)
}

/// A command of cargo for all crates that are to be published. Cargo orders them, and takes each for what the next depends on.
pub(super) fn command(task: &str) -> Result<Command> {
    let packages = process::packages()?;
    let published: Vec<&Value> = packages
        .iter()
        .filter(|package| package["publish"].as_array().is_none_or(|to| !to.is_empty()))
        .collect();
    let mut missing = Vec::new();
    let mut pack = process::command("cargo");
    pack.arg(task);
    for package in &published {
        let name = package["name"].as_str().unwrap_or_default();
        let empty = |what: &&&str| match &package[**what] {
            Value::Array(several) => several.is_empty(),
            one => one.is_null(),
        };
        missing.extend(WANTED.iter().filter(empty).map(|what| format!("{name} has no {what}")));
        pack.args(["-p", name]);
    }
    if !missing.is_empty() {
        bail!("crates that are to be published lack metadata: {}", missing.join("; "));
    }
    println!("{} crates", published.len());
    Ok(pack)
}
