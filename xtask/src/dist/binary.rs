//! The command as one file that needs no library, for copying onto a cluster's node.

use super::machine::Machine;
use super::{say, tools};
use crate::process::{self, command, target, targets};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

const TARGET: &str = targets::MUSL;

pub(super) fn build(out: &Path) -> Result<PathBuf> {
    targets::add(TARGET)?;
    let tools = tools::prepare()?;
    // What is built for this machine: the simulated driver of `granule estimate`, which is in the command as it is in the wheel.
    let linker = tools::compiler(&tools, &Machine::X86.of_zig())?;
    process::run(
        command("cargo")
            .args(["rustc", "--locked", "--profile", "dist", "--target", TARGET, "-p", "granule-cli"])
            .args(process::ALL_COMMANDS)
            .args(["--bin", "granule", "--", "-C", "strip=symbols"])
            .env("CC_x86_64_unknown_linux_musl", tools::compiler(&tools, "x86_64-linux-musl")?)
            .env(targets::variable(Machine::X86.target(), "LINKER"), linker),
    )?;
    let binary = out.join(format!("granule-{TARGET}"));
    fs::copy(target().join(TARGET).join("dist/granule"), &binary)?;
    say(&binary)?;
    Ok(binary)
}
