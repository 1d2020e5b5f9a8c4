//! Helpers for tests that span crates.

use snapshot::trace::Trace;
use std::path::PathBuf;

/// The folder with recorded traces, if it is there: `GRANULE_SHARED`, or `shared` beside the checkout.
#[must_use]
pub fn shared() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("GRANULE_SHARED").map_or_else(beside, PathBuf::from);
    folder.join("traces").is_dir().then_some(folder)
}

/// A recorded trace by name: from the folder of recordings, else the one bundled with the command; `None`, with
/// a printed reason, where it is in neither.
///
/// # Panics
/// Where the file is there and cannot be read.
#[must_use]
pub fn recorded(name: &str) -> Option<Trace> {
    let bundled = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/granule-cli/data");
    let folder = shared().map(|folder| folder.join("traces")).unwrap_or(bundled);
    let path = folder.join(format!("{name}.trace.gz"));
    if !path.exists() {
        println!("skipped: the recorded traces are not at hand (set GRANULE_SHARED to their folder)");
        return None;
    }
    Some(Trace::load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}
