//! The `granule` command.

mod allocator_args;
mod backends;
mod commands;
mod compare;
mod console;
mod failure;
mod size;
mod snapshot_file;
mod workload;

use clap::Parser;
use commands::{Cli, Outcome};
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// The variable that says what is logged, in `tracing`'s filter language.
const LOG_VARIABLE: &str = "GRANULE_LOG";

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging();
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

fn start_logging() {
    let filter = match std::env::var(LOG_VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text).unwrap_or_else(|error| {
            console::warning(format_args!("{LOG_VARIABLE} is ignored: {error}; write for example debug"));
            EnvFilter::new("warn")
        }),
        Err(_) => EnvFilter::new("warn"),
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
