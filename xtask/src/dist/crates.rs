//! The crates, as `cargo publish` would take them.

use crate::process::{self, command};
use anyhow::{Result, bail};
use serde_json::Value;

/// What crates.io or its readers want to know of a crate.
const WANTED: [&str; 5] = ["description", "license", "repository", "keywords", "categories"];

/// Packs all crates that are to be published. To `verify` is to build each from nothing but its package.
pub(super) fn dry_run(verify: bool) -> Result<()> {
    let mut pack = command("cargo");
    pack.args(["package", "--allow-dirty"]).args(due()?);
    if !verify {
        pack.arg("--no-verify");
    }
    process::run(&mut pack)
}

/// What names the crates to cargo that are to be published. Cargo orders them, and takes each for what the next depends on.
fn due() -> Result<Vec<String>> {
    let packages = process::packages()?;
    let mut missing = Vec::new();
    let mut due = Vec::new();
    for package in packages.iter().filter(|one| one["publish"].as_array().is_none_or(|to| !to.is_empty())) {
        let name = package["name"].as_str().unwrap_or_default();
        let empty = |what: &&&str| match &package[**what] {
            Value::Array(several) => several.is_empty(),
            one => one.is_null(),
        };
        missing.extend(WANTED.iter().filter(empty).map(|what| format!("{name} has no {what}")));
        due.push(format!("-p{name}"));
    }
    if !missing.is_empty() {
        bail!("crates that are to be published lack metadata: {}", missing.join("; "));
    }
    println!("{} crates", due.len());
    Ok(due)
}
