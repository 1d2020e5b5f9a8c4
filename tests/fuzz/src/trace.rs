//! Allocation traces: reading, writing, and what a replay makes of them.

use crate::in_words;
use crate::snapshot::{inspect, rewrites};
use alloc_core::config::{PolicyName, Settings};
use alloc_core::types::MIB;
use granule_analysis::Run;
use granule_analysis::replay::{Replay, ReplayOptions, replay};
use granule_snapshot::convert;
use granule_snapshot::trace::Trace;

/// Reads a trace and replays it under both policies.
///
/// # Panics
/// Where a promise is broken.
pub fn run(input: &[u8]) {
    let trace = match Trace::from_reader(input) {
        Ok(trace) => trace,
        Err(error) => return in_words(&error, 2000),
    };
    rewrites(&trace);
    let mut summarised = trace.clone();
    summarised.summarise();
    rewrites(&summarised);
    inspect(&Run::of_trace(&trace));
    for policy in PolicyName::ALL {
        replays(&trace, *policy);
    }
}

fn replays(trace: &Trace, policy: PolicyName) {
    let settings = Settings { policy: Some(policy), ..Settings::default() };
    let options =
        ReplayOptions { settings, capacity: Some(64 * MIB), history: 4096, ..ReplayOptions::default() };
    let (asked, refused) = trace.served();
    let Replay { result, stats, allocator, .. } = match replay(&asked, &options, |_| {}) {
        Ok(replay) => replay,
        Err(error) => return in_words(&error, 2000),
    };
    allocator.check_invariants();
    let snapshot = allocator.snapshot(true);
    let held: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
    assert_eq!(i64::try_from(held), Ok(stats.reserved_bytes.all.current), "what is held is all segments");
    let run = Run::of_replay(&asked, &refused, &snapshot);
    let all = result.refused + refused.len() as u64;
    assert_eq!(run.refusals.len() as u64, all, "every refusal is told of");
    inspect(&run);
    if let Ok(conversions) = convert::to_traces(&snapshot) {
        conversions.iter().for_each(|conversion| rewrites(&conversion.trace));
    }
}

/// Programs of a few lines.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "# {}\n",
        // Numbers at the ends of what they may be.
        "# {\"new\": 0.30000000000000004}\ni 18446744073709551615\na 18446744073709551615 9223372036854775807 4294967295\nf 18446744073709551615\n",
        "# {\"workload\": \"x\", \"events\": 3}\na 0 512 0\nf 0\ne\n",
        "# {\"workload\": \"x\", \"iterations\": 2}\ni 0\na 0 1048576 0\na 1 3000000 1\nr 0 1\nf 0\ni 1\na 2 512 2\nf 1\nf 2\ne\n",
        "# {}\na 0 70000000 0\na 1 20000000 0\na 2 20000000 0\na 3 20000000 0\na 4 20000000 0\nf 1\nf 3\na 5 30000000 0\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
