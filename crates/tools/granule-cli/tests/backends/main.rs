//! The command on real backends over lookalike drivers.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod choice;
mod conformance;
mod replay;
mod search;

use std::process::Command;

/// The command, with lookalikes instead of drivers.
fn granule(machine: &str) -> Command {
    granule_tests::lookalike::with_lookalikes(env!("CARGO_BIN_EXE_granule"), machine)
}
