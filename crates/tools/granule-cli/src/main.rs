//! The `granule` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    granule_cli::main(&words, &[])
}
