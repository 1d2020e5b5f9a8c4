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
mod names;
mod text;

use crate::process::{self, command, root};
use anyhow::{Context, Result, bail};
use model::Contract;
use std::path::Path;

/// What is to be done.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Change nothing; fail where a file is not what would be written
    #[arg(long)]
    check: bool,
}

/// A generated file and who writes it.
struct Product {
    /// From the workspace's root.
    path: &'static str,
    emit: fn(&Contract) -> Result<String>,
}

const PRODUCTS: &[Product] = &[
    Product { path: "crates/backend-c/include/granule_backend.h", emit: ctable::emit_header },
    Product { path: "crates/backend-c/src/forward.rs", emit: ctable::emit_forward },
    Product { path: "crates/backend-c/src/table.rs", emit: ctable::emit_table },
    Product { path: "crates/tools/granule-conformance/src/interpose/generated.rs", emit: interpose::emit },
    Product { path: "crates/granule-masquerade/src/calls.rs", emit: masquerade::emit_calls },
    Product { path: "crates/granule-masquerade/src/forward.rs", emit: masquerade::emit_forward },
];

pub(crate) fn run(options: &Options) -> Result<()> {
    rust_and_c(options)?;
    // The classes of Python's answers, by a program in Python.
    let check = options.check.then_some("--check");
    process::run(command("python3").arg("crates/tools/granule-python/stubs.py").args(check))
}

fn rust_and_c(options: &Options) -> Result<()> {
    let contract = Contract::read(&root().join("crates/backend-api/src"))?;
    let stale = stale(&contract, &root())?;
    if options.check && !stale.is_empty() {
        let paths: Vec<&str> = stale.iter().map(|(path, _)| *path).collect();
        bail!("not what follows from their sources: {}; run cargo xtask codegen", paths.join(", "));
    }
    for (path, fresh) in stale {
        let file = root().join(path);
        std::fs::write(&file, fresh).with_context(|| format!("could not write {}", file.display()))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// The products that are missing under `folder`, or not what they should be, with what they should be.
fn stale(contract: &Contract, folder: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut files = figures::emit(&root())?;
    for Product { path, emit } in PRODUCTS {
        files.push((*path, emit(contract).with_context(|| format!("could not make {path}"))?));
    }
    files.retain(|(path, fresh)| {
        !std::fs::read_to_string(folder.join(path)).is_ok_and(|there| there == *fresh)
    });
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{Contract, Options, PRODUCTS, figures, root, rust_and_c, stale};

    #[test]
    fn generated_files_follow_from_the_trait() {
        rust_and_c(&Options { check: true }).unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_or_not_right_is_stale() {
        let contract = Contract::read(&root().join("crates/backend-api/src")).unwrap();
        let nowhere = root().join("xtask/no-such-folder");
        let stale: Vec<&str> =
            stale(&contract, &nowhere).unwrap().into_iter().map(|(path, _)| path).collect();
        let all: Vec<&str> = figures::paths().chain(PRODUCTS.iter().map(|product| product.path)).collect();
        assert_eq!(stale, all);
    }
}
