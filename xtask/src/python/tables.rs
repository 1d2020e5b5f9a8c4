//! The queries of docs/tables.md, run as they stand there by DuckDB on runs that `granule export` wrote.

use crate::process::{self, command, root, target};
use crate::python::venv::Venv;
use anyhow::Result;

/// The query engine.
const REQUIREMENTS: &str = "duckdb==2.0.0\n";

pub(crate) fn run() -> Result<()> {
    let venv = Venv::prepare("tables/venv", REQUIREMENTS, None)?;
    let granule = process::granule()?;
    process::run(
        command(venv.python())
            .arg(root().join("tests/tables/queries.py"))
            .arg(granule)
            .arg(target().join("tables/files")),
    )
}
