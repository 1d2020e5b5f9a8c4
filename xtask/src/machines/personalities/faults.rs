//! The fault loop on a personality: each driver call of recorded programs fails in turn, and nothing is lost.

use super::Row;
use crate::process;
use anyhow::{Context, Result};

/// Runs the test, and counts the calls that it let fail.
pub(super) fn survives(row: &mut Row) -> Result<()> {
    let name = format!("drivers::{}::", row.backend);
    let mut test = process::command("cargo");
    test.args(["test", "--quiet", "-p", "granule-tests", "--test", "faults", &name, "--", "--nocapture"]);
    let output = test.env("GRANULE_PERSONALITY", &row.personality).output().context("cargo test")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let counts = said.lines().filter(|line| line.contains("entry points failed in turn"));
    let number = |line: &str| line.split_once(": ")?.1.split(' ').next()?.parse::<u64>().ok();
    let calls: u64 = counts.filter_map(number).sum();
    row.notes.push(format!("{calls} driver calls failed in turn"));
    if !output.status.success() || calls == 0 {
        let said = [said, String::from_utf8_lossy(&output.stderr)].join("\n");
        let why =
            said.lines().skip_while(|line| !line.contains("panicked")).take(3).collect::<Vec<_>>().join(" ");
        row.failures.push(format!("the fault loop failed: {why}"));
    }
    Ok(())
}
