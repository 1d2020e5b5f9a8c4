//! What happens without a command: a first impression, and where to go from there.

use super::Outcome;
use super::replay::{self, RunArgs};
use crate::allocator_args::AllocatorArgs;
use crate::console;
use crate::failure::Failure;
use crate::result_file::ResultFile;
use crate::workload::Workload;
use std::io::Write;
use std::path::Path;

/// Written into the current directory.
const SNAPSHOT: &str = "granule-snapshot.pickle";

/// What is worth knowing next, and the arguments that answer it.
const NEXT: [(&str, &str); 5] = [
    ("your own trace, or a snapshot from PyTorch", "replay FILE"),
    ("other settings, on another device", "replay FILE --conf expandable_segments:True --capacity 24GiB"),
    ("the smallest device it fits on", "min-capacity FILE"),
    ("what this build can run on", "devices"),
    ("everything else", "--help"),
];

/// Replays the trace that comes with the command. What it says to try next begins with `program`: whoever came here through
/// cargo has no `granule` in the search path.
pub(crate) fn run(program: &str, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let workload = Workload::bundled()?;
    console::note("no command given: this replays a PyTorch training run of ResNet, recorded before");
    // A directory that cannot be written is no reason to show nothing.
    let snapshot = match ResultFile::create(Path::new(SNAPSHOT)) {
        Ok(_) => Some(SNAPSHOT),
        Err(failure) => {
            console::warning(format_args!("no snapshot is written: {failure}"));
            None
        }
    };
    let outcome =
        replay::run_on(&workload, &AllocatorArgs::default(), &RunArgs::writing(snapshot), None, false, out)?;
    writeln!(out, "\nTry next:")?;
    if let Some(snapshot) = snapshot {
        writeln!(
            out,
            "  {:<45} drop {snapshot} on https://pytorch.org/memory_viz",
            "what memory looked like:"
        )?;
    }
    for (what, arguments) in NEXT {
        writeln!(out, "  {:<45} {program} {arguments}", format!("{what}:"))?;
    }
    Ok(outcome)
}
