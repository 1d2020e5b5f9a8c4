//! The command as one file that needs no library, for copying onto a cluster's node.

use super::say;
use super::tools::Tools;
use crate::process::{self, command, target, targets};
use anyhow::Result;
use std::fs;
use std::path::Path;

const TARGET: &str = targets::MUSL;

/// Builds it where the target can be had; says why it cannot where it cannot.
pub(super) fn build(out: &Path) -> Result<()> {
    if let Err(reason) = targets::add(TARGET) {
        println!("not built: {reason:#}");
        return Ok(());
    }
    let compiler = Tools::prepare()?.compiler("x86_64-linux-musl")?;
    process::run(
        command("cargo")
            .args(["build", "--locked", "--profile", "dist", "--target", TARGET, "-p", "granule-cli"])
            .args(process::ALL_COMMANDS)
            .env("CC_x86_64_unknown_linux_musl", compiler)
            .env("CARGO_PROFILE_DIST_STRIP", "symbols"),
    )?;
    let binary = out.join(format!("granule-{TARGET}"));
    fs::copy(target().join(TARGET).join("dist/granule"), &binary)?;
    say(&binary)?;
    process::run(command(&binary).arg("--version"))
}
