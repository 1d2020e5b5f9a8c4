//! `granule conformance`: a backend against every rule of the device contract.

use super::{Outcome, write_json};
use crate::backends::{self, Named};
use crate::console;
use crate::failure::Failure;
use granule_conformance::child::{self, ChildCommand};
use granule_conformance::{Options, Progress, Subject};
use std::io::Write;

/// The arguments of `granule conformance`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule conformance --backend openreg
  granule conformance --backend cuda --only virtual_memory
  granule conformance --backend hip --json | jq .failed")]
pub(crate) struct Args {
    /// The backend: openreg (the simulated accelerator), cuda, hip or hip-as-cuda
    #[arg(long, value_name = "NAME", value_parser = backends::parse)]
    backend: Named,

    /// Only checks whose names begin with this (`memory.` is an area) or contain it after the area; can be
    /// given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,

    /// Run each check this often: for what goes wrong now and then
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Print one JSON object: passed, failed, skipped, and the checks
    #[arg(long)]
    json: bool,

    /// Name the checks and their rules, and run nothing
    #[arg(long)]
    list: bool,
}

/// Runs the kit and prints the scorecard. Some checks need a second process, which `lead` leads to the command.
pub(crate) fn run(args: &Args, lead: &[String], out: &mut dyn Write) -> Result<Outcome, Failure> {
    let name = args.backend.0;
    let subject = Subject::new(name.as_str(), move || name.open());
    if child::is_child() {
        return Ok(Outcome::Child(child::serve(&subject)));
    }
    let checks: Vec<_> = granule_conformance::checks::selected(&args.only).collect();
    if checks.is_empty() {
        // Otherwise a slip in a script would read as a backend that breaks no rule.
        return Err(Failure::NoCheck(args.only.join(", ")));
    }
    if args.list {
        for check in &checks {
            writeln!(out, "{:<48} {}", check.name, check.rule)?;
        }
        return Ok(Outcome::Done);
    }
    let words = ["conformance", "--backend", name.as_str()].map(ToOwned::to_owned);
    let child = match lead {
        [] => ChildCommand::with_arguments(words),
        [program, lead @ ..] => ChildCommand::with_arguments(lead.iter().cloned().chain(words)).by(program),
    };
    let options =
        Options { only: args.only.clone(), repeat: args.repeat, child: Some(child), ..Options::default() };
    let bar = console::progress_bar(checks.len(), "checking", "checks");
    let card = granule_conformance::run(&subject, &options, |progress| match progress {
        Progress::Begins(check) => bar.set_message(check.name),
        Progress::Ended(_) => bar.inc(1),
    });
    console::leave(&bar);
    let card = card.map_err(|error| Failure::backend(name, error))?;
    if args.json {
        write_json(&card, out)?;
    } else {
        writeln!(out, "{card}")?;
    }
    Ok(if card.failed == 0 { Outcome::Done } else { Outcome::BrokenContract })
}
