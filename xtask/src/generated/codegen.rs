//! Code that follows from the `Backend` trait and from the tables of figures: what would drift if people wrote it by hand.
//!
//! [`model`] reads the contract from its sources; each emitter turns it into one file. [`figures`] does so for the
//! statistics. [`run`] writes the files or, with `--check`, compares them. crates/tools/granule-python/stubs.py does so for Python's answers.

mod ctable;
mod figures;
mod grown;
mod interpose;
mod masquerade;
mod model;
mod text;

use crate::process::{self, command, files};
use anyhow::{Context, Result};
use model::Contract;

/// Who makes what a file of the workspace is to be.
type Emit = fn(&Contract) -> Result<String>;

const PRODUCTS: [(&str, Emit); 6] = [
    ("crates/backend-c/include/granule_backend.h", ctable::emit_header),
    ("crates/backend-c/src/forward.rs", ctable::emit_forward),
    ("crates/backend-c/src/table.rs", ctable::emit_table),
    ("crates/tools/granule-conformance/src/interpose/generated.rs", interpose::emit),
    ("crates/granule-masquerade/src/calls.rs", masquerade::emit_calls),
    ("crates/granule-masquerade/src/forward.rs", masquerade::emit_forward),
];

pub(crate) fn run(check: bool) -> Result<()> {
    rust_and_c(check)?;
    // The classes of Python's answers, by a program in Python.
    let check = check.then_some("--check");
    process::run(command("python3").arg("crates/tools/granule-python/stubs.py").args(check))
}

fn rust_and_c(check: bool) -> Result<()> {
    let contract = Contract::read()?;
    let mut files = figures::emit()?;
    for (path, emit) in PRODUCTS {
        files.push((path, emit(&contract).with_context(|| format!("could not make {path}"))?));
    }
    files.iter().try_for_each(|(path, fresh)| files::settle(path, fresh, check, "codegen"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_files_follow_from_the_trait() {
        super::rust_and_c(true).unwrap();
    }
}
