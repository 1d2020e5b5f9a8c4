//! What the history costs, to be counted: allocate and free from a warm cache with history off, on, or on with
//! sequence numbers for the time or with call contexts, and while the program is recorded; and how long a snapshot without traces takes.
//!
//! `history-cost off|on|numbered|contexts|recorded PAIRS` is run under callgrind by `cargo xtask bench history`;
//! `history-cost timed PAIRS DIRECTORY` prints nanoseconds a pair without and with a recording, and what that wrote;
//! `history-cost snapshot BLOCKS ENTRIES` prints the median of microseconds.

use alloc_core::config::Settings;
use alloc_core::history::{CallContext, Context, HistoryOptions, RecordContext};
use alloc_core::snapshot::Stack;
use alloc_core::types::{DeviceIndex, DevicePtr, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_snapshot::record::{RecordOptions, Recorder};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// A context that costs nothing to gather.
#[derive(Debug)]
struct Nowhere;

impl CallContext for Nowhere {
    fn frames(&self) -> Stack {
        Stack::default()
    }
}

/// Records kept while instructions are counted: few enough for the ring to be full soon.
const ENTRIES: usize = 3000;
/// Snapshots of which the median is taken.
const ROUNDS: usize = 101;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().ok();
    let outcome = match words.as_slice() {
        ["off", pairs] => number(pairs).map(|pairs| churn(None, pairs)),
        ["on", pairs] => number(pairs).map(|pairs| churn(Some(HistoryOptions::newest(ENTRIES)), pairs)),
        ["numbered", pairs] => {
            number(pairs).map(|pairs| churn(Some(HistoryOptions::newest(ENTRIES).deterministic()), pairs))
        }
        ["contexts", pairs] => number(pairs).map(|pairs| {
            let gather = || Some(Arc::new(Nowhere) as Context);
            churn(Some(HistoryOptions::newest(ENTRIES).with_contexts(RecordContext::All, gather)), pairs)
        }),
        ["recorded", pairs] => number(pairs).map(|pairs| {
            let (_, recorder) = recorded(pairs, &std::env::temp_dir())?;
            recorder.files().iter().for_each(|path| drop(std::fs::remove_file(path)));
            Ok(())
        }),
        ["timed", pairs, directory] => number(pairs).map(|pairs| timed(pairs, Path::new(directory))),
        ["snapshot", blocks, entries] => {
            number(blocks).zip(number(entries)).map(|(blocks, entries)| snapshots(blocks, entries))
        }
        _ => None,
    };
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!(
                "usage: history-cost off|on|numbered|contexts|recorded PAIRS | timed PAIRS DIRECTORY | snapshot BLOCKS ENTRIES"
            );
            ExitCode::from(2)
        }
    }
}

fn allocator() -> Result<(CachingAllocator, Stream), AllocError> {
    let machine = OpenReg::new(OpenRegConfig::default().devices(1).capacity(64 << 30))?;
    let allocator = CachingAllocator::new(machine, Settings::default())?;
    let stream = allocator.backend().default_stream(DeviceIndex(0));
    Ok((allocator, stream))
}

/// Sizes from 512 bytes to 4 MiB.
fn size(n: usize) -> u64 {
    512 << (n * 7 % 14)
}

/// Sixteen blocks are live at a time.
fn churn(history: Option<HistoryOptions>, pairs: usize) -> Result<(), AllocError> {
    let (allocator, stream) = allocator()?;
    let mut live = Vec::with_capacity(16);
    for n in 0..16 {
        live.push(allocator.malloc(size(n), stream)?);
    }
    if let Some(history) = history {
        allocator.history().record(&history);
    }
    free_and_allocate(&allocator, stream, &mut live, pairs)
}

/// [`churn`] while it is recorded; the nanoseconds that the program took, and the recorder.
fn recorded(pairs: usize, directory: &Path) -> Result<(u128, Recorder), AllocError> {
    let (allocator, stream) = allocator()?;
    let allocator = Arc::new(allocator);
    let mut live = Vec::with_capacity(16);
    for n in 0..16 {
        live.push(allocator.malloc(size(n), stream)?);
    }
    let recorder = Recorder::start(&allocator, RecordOptions::new(directory))
        .map_err(|error| AllocError::Settings(error.to_string()))?;
    let start = Instant::now();
    free_and_allocate(&allocator, stream, &mut live, pairs)?;
    let took = start.elapsed().as_nanos();
    recorder.stop().map_err(|error| AllocError::Settings(error.to_string()))?;
    Ok((took, recorder))
}

#[allow(clippy::cast_precision_loss)]
fn timed(pairs: usize, directory: &Path) -> Result<(), AllocError> {
    let start = Instant::now();
    churn(None, pairs)?;
    let off = start.elapsed().as_nanos();
    let (on, recorder) = recorded(pairs, directory)?;
    let bytes: u64 = recorder.files().iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum();
    let a_pair = |ns: u128| ns as f64 / pairs as f64;
    let (waits, waited) = recorder.waits();
    println!(
        "{:.1} ns a pair, {:.1} recorded; {:.2} bytes an event; {waits} calls waited {waited:?}",
        a_pair(off),
        a_pair(on),
        bytes as f64 / recorder.events() as f64
    );
    recorder.files().iter().for_each(|path| drop(std::fs::remove_file(path)));
    Ok(())
}

/// What is counted: making the history's clock takes a while, and not the same each time.
#[inline(never)]
fn free_and_allocate(
    allocator: &CachingAllocator,
    stream: Stream,
    live: &mut [DevicePtr],
    pairs: usize,
) -> Result<(), AllocError> {
    for n in 0..pairs {
        allocator.free(live[n % 16])?;
        live[n % 16] = allocator.malloc(size(n + 3), stream)?;
    }
    Ok(())
}

/// With `blocks` live blocks among free ones, and a history of at least `entries`.
fn snapshots(blocks: usize, entries: usize) -> Result<(), AllocError> {
    let (allocator, stream) = allocator()?;
    if entries > 0 {
        allocator.history().record(&HistoryOptions::newest(entries));
    }
    let mut live = Vec::with_capacity(2 * blocks);
    for n in 0..2 * blocks {
        live.push(allocator.malloc(size(n), stream)?);
    }
    for ptr in live.iter().skip(1).step_by(2) {
        allocator.free(*ptr)?;
    }
    for _ in 0..entries / 3 + 1 {
        let ptr = allocator.malloc(1 << 10, stream)?;
        allocator.free(ptr)?;
    }
    let mut times: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let snapshot = allocator.snapshot(false);
            let time = start.elapsed();
            drop(snapshot);
            time.as_nanos()
        })
        .collect();
    times.sort_unstable();
    let snapshot = allocator.snapshot(false);
    let shown: usize = snapshot.segments.iter().map(|segment| segment.blocks.len()).sum();
    let recorded = allocator.snapshot(true).device_traces.first().map_or(0, Vec::len);
    let micros = times[ROUNDS / 2] / 1000;
    println!("{micros} µs for {shown} blocks in {} segments, history {recorded}", snapshot.segments.len());
    Ok(())
}
