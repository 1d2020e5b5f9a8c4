//! How fast snapshots are written and read.
//!
//! `cargo run --release -p snapshot --example pickle_speed [ENTRIES] [FILE]` makes a history of that many
//! entries (1 000 000 unless told), writes and reads it a few times in memory, and prints the best time of
//! each. With FILE it leaves the pickle there, so that another reader can be timed on it; a FILE that
//! exists is read instead of made.

use alloc_core::snapshot::{Action, Snapshot, TraceEntry};
use alloc_core::types::PoolId;
use snapshot::pickle::{self, Protocol};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs of each measurement.
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let entries = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let path = arguments.next();
    let snapshot = match &path {
        Some(path) if std::fs::exists(path)? => pickle::read_file(path)?,
        _ => history(entries),
    };
    let entries = snapshot.device_traces.iter().map(Vec::len).sum::<usize>();

    let mut bytes = Vec::new();
    let write = best(|| {
        bytes.clear();
        pickle::write(&snapshot, &mut bytes, Protocol::V4)
    })?;
    report("write", entries, bytes.len(), write);
    let input = match &path {
        Some(path) if std::fs::exists(path)? => std::fs::read(path)?,
        Some(path) => {
            std::fs::write(path, &bytes)?;
            bytes
        }
        None => bytes,
    };
    let read = best(|| pickle::read(&input[..]).map(drop))?;
    report("read ", entries, input.len(), read);
    assert_eq!(pickle::read(&input[..])?, snapshot, "what was written is what is read");
    Ok(())
}

fn best<E>(mut run: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

fn report(what: &str, entries: usize, bytes: usize, time: Duration) {
    let seconds = time.as_secs_f64();
    println!(
        "{what} {entries} entries, {:.1} MB: {:.1} ms, {:.1} million entries/s, {:.0} MB/s",
        bytes as f64 / 1e6,
        seconds * 1e3,
        entries as f64 / seconds / 1e6,
        bytes as f64 / seconds / 1e6,
    );
}

/// Requests and frees of changing sizes at addresses as CUDA gives them, without call stacks.
fn history(entries: usize) -> Snapshot {
    let (context, metadata): (Arc<str>, Arc<str>) = ("N/A".into(), "".into());
    let entry = |number: usize| {
        let pair = number as u64 / 3;
        TraceEntry {
            action: [Action::Alloc, Action::FreeRequested, Action::FreeCompleted][number % 3],
            addr: 0x7f5c_0000_0000 + pair.wrapping_mul(0x9e37_79b9) % (1 << 22) * 512,
            size: 512 + pair.wrapping_mul(2_654_435_761) % (1 << 24),
            stream: 0,
            time_us: 1_795_221_743_096_958 + number as i64 * 3,
            compile_context: Some(Arc::clone(&context)),
            user_metadata: Some(Arc::clone(&metadata)),
            pool_id: Some(PoolId::DEFAULT),
            frames: None,
            extra: Vec::new(),
        }
    };
    Snapshot { device_traces: vec![(0..entries).map(entry).collect()], ..Snapshot::default() }
}
