//! The log: C has no subscriber of its own.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// The variable that says what is logged: `off`, `error`, `warn` (the default), `info`, `debug`, or the filters of the `tracing`
/// crates.
const VARIABLE: &str = "GRANULE_LOG";

/// Writes what the engine logs to the standard error stream, unless the program has a subscriber already.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new("warn"));
    // A Rust program that links the library may have one; the first call has installed ours.
    let _there_already = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // Nobody may read what is said: then it is not said, and nothing else happens.
        .log_internal_errors(false)
        .try_init();
}
