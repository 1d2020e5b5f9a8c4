//! The `granule` command as a library: [`main`] is what a terminal runs, and a [`Session`] runs the same commands on a recording
//! that is in memory already.

// What only the commands serve that a quick build leaves out is compiled all the same: it is little.
#![cfg_attr(not(feature = "full"), allow(dead_code))]

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
mod result_file;
#[cfg(feature = "full")]
mod session;
mod signals;
mod size;
mod table;
mod workload;

pub use console::{Listener, Message, Progress};
#[cfg(feature = "full")]
pub use session::{History, Kind, Refused, Session};

use commands::{Cli, Outcome};
use console::Visible;
use failure::{Failure, Told, Wrong};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs a command line, the program's name first, with results on standard output and everything else on standard error.
///
/// `lead` is what starts this command once more, before its words: nothing where the executable alone does; for an interpreter,
/// what it was called, `-m` and a module.
#[must_use]
pub fn main(words: &[OsString], lead: &[String]) -> ExitCode {
    let wants_json = wants_json(words);
    let out = std::io::stdout().lock();
    let paints = console::is_coloured(&out);
    // What is JSON has them escaped already, where it must.
    let mut out: Box<dyn Write> =
        if wants_json { Box::new(out) } else { Box::new(Visible::new(out, paints)) };
    let cli = match Cli::read(words) {
        Ok(cli) => cli.behind(lead),
        Err(error) => return usage(&error, wants_json, &mut *out),
    };
    logging::start(cli.log_level());
    let outcome = commands::run(&cli, &mut *out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match outcome {
        Ok(outcome) => outcome.exit_code(),
        // Whoever reads the output has seen enough, as in `granule ... | head`.
        Err(failure) if failure.is_closed_pipe() => Outcome::Done.exit_code(),
        Err(failure) => {
            report(&failure, wants_json, &mut *out);
            ExitCode::from(Failure::EXIT_CODE)
        }
    }
}

/// Help that was asked for, or what is wrong with the command line.
fn usage(error: &clap::Error, wants_json: bool, out: &mut dyn Write) -> ExitCode {
    if error.use_stderr() && wants_json {
        tell(&Told::usage(error), out);
    }
    // There is nobody left to tell.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn report(failure: &Failure, wants_json: bool, out: &mut dyn Write) {
    console::error(failure);
    if let Some(hint) = failure.hint() {
        console::hint(hint);
    }
    if wants_json {
        tell(&Told { error: Wrong::new(failure, Failure::EXIT_CODE) }, out);
    }
}

fn tell(told: &Told, out: &mut dyn Write) {
    // There is nobody left to tell.
    let _ = commands::write_json(told, out).and_then(|()| Ok(out.flush()?));
}

/// Whether the command line asks for JSON, also where it is wrong otherwise.
fn wants_json(words: &[OsString]) -> bool {
    words.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}
