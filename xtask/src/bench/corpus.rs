//! The corpus: programs recorded without a GPU, half to choose the policy's constants on, half only to judge them.
//!
//! A recipe in `tests/corpus` says how a program is recorded and which hash its trace has. The halves share no kind of
//! program, so that a constant is never judged by what it was chosen on.

mod folder;
mod judge;
mod recipe;
mod record;
mod replay;
mod trace;
mod verdict;

use crate::process::root;
use crate::table::Table;
use anyhow::Result;
use clap::{Args, Subcommand};
use folder::Folder;

/// What is done with the corpus.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Show the programs, and which of their traces are here
    List,
    /// Run programs on the GPU-less rig, and keep what they ask of an allocator
    Record(record::Options),
    /// Replay the traces that are here, and print a table a half; exit code 1 where a trace is not its recipe's
    Judge(judge::Options),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = folder();
    match &options.step {
        Step::List => list(&folder),
        Step::Record(options) => record::run(&folder, options),
        Step::Judge(options) => judge::run(&folder, options),
    }
}

/// The corpus of this repository.
fn folder() -> Folder {
    Folder::at(root().join("tests/corpus"))
}

/// What there is.
fn list(folder: &Folder) -> Result<()> {
    let mut table = Table::new(["program", "half", "kind", "trace", "what it is"]);
    for recipe in folder.recipes()? {
        let trace = match folder.trace(&recipe.name) {
            Some(path) => format!("{} kB", std::fs::metadata(path)?.len().div_ceil(1000)),
            None => "not here".to_owned(),
        };
        table.row([recipe.name, recipe.half.name().to_owned(), recipe.kind, trace, recipe.about]);
    }
    print!("{}", table.text());
    Ok(())
}
