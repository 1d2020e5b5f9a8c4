//! The whole kit as a program.

use crate::child::{self, ChildCommand};
use crate::{Options, Subject, run};
use alloc_core::backend::{Backend, Result};
use std::process::ExitCode;
use std::sync::Arc;

/// The `main` of a program that checks one backend. Arguments: `--json` prints the scorecard as JSON,
/// anything else selects the checks whose names contain it. The exit code is 0 where no check failed, 1 where
/// one did, and 2 where the backend did not start.
pub fn main(name: &str, open: impl Fn() -> Result<Arc<dyn Backend>> + Send + Sync + 'static) -> ExitCode {
    let subject = Subject::new(name, open);
    if child::is_child() {
        return child::serve(&subject);
    }
    let (flags, only): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    if let Some(unknown) = flags.iter().find(|flag| *flag != "--json") {
        eprintln!("unknown option {unknown}; there is --json, and parts of check names");
        return ExitCode::from(2);
    }
    let options = Options { only, child: Some(ChildCommand::this_program()), ..Options::default() };
    match run(&subject, &options, |_| {}) {
        Ok(card) => {
            if flags.is_empty() {
                println!("{card}");
            } else {
                println!("{}", serde_json::to_string_pretty(&card).unwrap_or_else(|e| e.to_string()));
            }
            if card.is_green() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{name} did not start: {error}");
            ExitCode::from(2)
        }
    }
}
