//! The log: C has no subscriber of its own.

use std::io::IsTerminal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// The variable that says what is logged: `off`, `error`, `warn` (the default), `info`, `debug`, or a level for each target, as in
/// `warn,alloc_core=debug`.
const VARIABLE: &str = "GRANULE_LOG";

/// Writes what the engine logs to the standard error stream, unless the program has a subscriber already.
pub(crate) fn start() {
    let asked = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // Nobody may read what is said: then it is not said, and nothing else happens.
        .log_internal_errors(false);
    // A Rust program that links the library may have one; the first call has installed ours.
    let _there_already = tracing_subscriber::registry().with(filter).with(lines).try_init();
}
