//! The `granule` command.

mod allocator_args;
mod backends;
mod child;
mod commands;
mod compare;
mod console;
mod failure;
mod logging;
mod python_hook;
mod recording;
mod refusal;
mod result_file;
mod size;
mod workload;

use clap::Parser;
use commands::{Cli, Outcome};
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(cli.log_level());
    let mut out = std::io::stdout().lock();
    let outcome = commands::run(&cli, &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match outcome {
        Ok(outcome) => outcome.exit_code(),
        // Whoever reads the output has seen enough, as in `granule ... | head`.
        Err(failure) if failure.is_closed_pipe() => Outcome::Done.exit_code(),
        Err(failure) => {
            report(&failure);
            ExitCode::from(1)
        }
    }
}

fn report(failure: &Failure) {
    console::error(failure);
    if let Some(hint) = failure.hint() {
        console::hint(hint);
    }
}
