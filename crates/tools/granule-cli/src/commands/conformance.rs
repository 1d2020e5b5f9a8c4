//! `granule conformance`: a backend against every rule of the device contract.

use super::Outcome;
use crate::backends::{self, Named};
use crate::failure::Failure;
use clap::builder::PossibleValuesParser;
use granule_conformance::child::{self, ChildCommand};
use granule_conformance::{Options, Subject, checks};
use std::io::{ErrorKind, Write};

/// The arguments of `granule conformance`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule conformance --backend openreg
  granule conformance --backend cuda --area memory --area ipc
  granule conformance --backend hip --json | tail -1 | jq .failed

A check fails after 20 s. After three such checks the rest of their area is skipped:
a backend that stands still takes some two minutes of each area at most.")]
pub(crate) struct Args {
    /// The backend: openreg (the simulated accelerator), cuda, hip or hip-as-cuda
    #[arg(long, value_name = "NAME", value_parser = backends::parse)]
    backend: Named,

    /// Only checks of this area; can be given several times
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(checks::areas()))]
    area: Vec<String>,

    /// Only checks whose names begin with this or contain it after the area; can be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,

    /// Run each check this often: for what goes wrong now and then
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Run an area although one that it needs is broken
    #[arg(long)]
    keep_going: bool,

    /// Print a backtrace where a check panics
    #[arg(long)]
    backtrace: bool,

    /// Print JSON Lines: each check and each area as it ends, then the totals
    #[arg(long)]
    json: bool,

    /// Name the checks and their rules, and run nothing
    #[arg(long)]
    list: bool,
}

/// Runs the kit and prints the scorecard as it comes. Some checks need a second process, which `lead` leads to the command.
pub(crate) fn run(args: &Args, lead: &[String], out: &mut dyn Write) -> Result<Outcome, Failure> {
    let name = args.backend.0;
    let subject = Subject::new(name.as_str(), move || name.open());
    if child::is_child() {
        return Ok(Outcome::Child(child::serve(&subject)));
    }
    let words = ["conformance", "--backend", name.as_str()].into_iter();
    let words = words.chain(args.backtrace.then_some(child::BACKTRACE)).map(ToOwned::to_owned);
    let child = match lead {
        [] => ChildCommand::with_arguments(words),
        [program, lead @ ..] => ChildCommand::with_arguments(lead.iter().cloned().chain(words)).by(program),
    };
    let options = Options {
        only: args.only.clone(),
        areas: args.area.clone(),
        repeat: args.repeat,
        keep_going: args.keep_going,
        child: Some(child),
        ..Options::default()
    };
    if checks::selected(&options).next().is_none() {
        // Otherwise a slip in a script would read as a backend that breaks no rule.
        let within = if args.area.is_empty() { "any area".into() } else { args.area.join(", ") };
        return Err(Failure::NoCheck(format!("{} in {within}", args.only.join(", "))));
    }
    if args.list {
        for check in checks::selected(&options) {
            writeln!(out, "{:<48} {}", check.name, check.rule)?;
        }
        return Ok(Outcome::Done);
    }
    let mut failed = false;
    let told = granule_conformance::run(&subject, &options, |line| {
        failed |= line.is_failure();
        line.write(args.json, out)
    });
    match told.map_err(|error| Failure::backend(name, error))? {
        // Whoever reads may have seen enough before the end.
        Err(error) if !failed || error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(if failed { Outcome::BrokenContract } else { Outcome::Done }),
    }
}
