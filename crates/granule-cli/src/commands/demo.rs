//! What happens without a command: a first impression, and where to go from there.

use super::Outcome;
use super::replay::{self, RunArgs};
use crate::allocator_args::AllocatorArgs;
use crate::console;
use crate::failure::Failure;
use crate::workload::Workload;
use std::io::Write;

/// Written into the current directory.
const SNAPSHOT: &str = "granule-snapshot.pickle";

/// Arguments worth trying, and what they give.
const NEXT: [(&str, &str); 5] = [
    ("replay FILE", "your own trace, or a snapshot from PyTorch"),
    (
        "replay FILE --conf expandable_segments:True --capacity 24GiB",
        "with other settings, on another device",
    ),
    ("min-capacity FILE", "the smallest device it fits on"),
    ("devices", "what this build can run on"),
    ("--help", "everything else"),
];

/// Replays the trace that comes with the command.
pub(crate) fn run(out: &mut dyn Write) -> Result<Outcome, Failure> {
    let workload = Workload::bundled()?;
    console::note("no command given: this replays a PyTorch training run of ResNet, recorded before");
    let outcome =
        replay::run_on(&workload, &AllocatorArgs::default(), &RunArgs::writing(SNAPSHOT), false, out)?;
    // Whoever came here through cargo has no `granule` in the search path.
    let command = std::env::args().next().unwrap_or_else(|| "granule".into());
    writeln!(out, "\nTry next:\n  open https://pytorch.org/memory_viz and drop {SNAPSHOT} on it")?;
    for (arguments, what) in NEXT {
        writeln!(out, "  {command} {arguments:<61} # {what}")?;
    }
    Ok(outcome)
}
