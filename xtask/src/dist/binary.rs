//! The command as one file that needs no library, for copying onto a cluster's node.

use super::say;
use super::tools::Tools;
use crate::process::{self, command, target};
use anyhow::Result;
use std::fs;
use std::path::Path;

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Builds it where the target is installed; says what to do where it is not.
pub(super) fn build(out: &Path) -> Result<()> {
    let installed = process::output(command("rustup").args(["target", "list", "--installed"]));
    if !installed.is_ok_and(|list| list.lines().any(|line| line == TARGET)) {
        println!("not built: rustup target add {TARGET}, and run this again");
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
