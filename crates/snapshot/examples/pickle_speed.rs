//! How fast snapshots are written and read, beside Python's pickle.
//!
//! `cargo run --release -p snapshot --example pickle_speed [ENTRIES]` makes a history of that many entries
//! (1 000 000 unless told) and has it written and read in memory by Python and by this crate in turn, five
//! times. It prints the medians and how many times faster this crate is. Times include giving the memory of
//! what was read back. There are two files:
//!
//! - *PyTorch's*: every entry has a pool and a context of its own, as in what PyTorch hands to Python. Python
//!   dumps it, both read it, and this crate writes what it read;
//! - *ours*: this crate writes it, both read it, and Python dumps what it read, with pools and texts shared.
//!
//! Without `python3` only this crate's times are printed, for the second file.

use alloc_core::snapshot::{Action, Labels, Snapshot, TraceEntry};
use alloc_core::types::PoolId;
use snapshot::pickle::{self, Protocol};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// Runs of each measurement.
const RUNS: usize = 5;

/// Loads a pickle, gives every entry its own parts if told, and leaves the file so; then times one dump and
/// one load for each line it gets.
const PYTHON: &str = r#"
import pickle, sys, time
path = sys.argv[1]
snapshot = pickle.load(open(path, "rb"))
if sys.argv[2] == "own":
    for entry in snapshot["device_traces"][0]:
        entry["pool_id"] = tuple(list(entry["pool_id"]))
        entry["compile_context"] = "".join(list(entry["compile_context"]))
data = pickle.dumps(snapshot, 4)
if sys.argv[2] == "own":
    open(path, "wb").write(data)
else:
    data = open(path, "rb").read()
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    dumped = pickle.dumps(snapshot, 4)
    middle = time.perf_counter()
    del dumped
    # A reading process has no other entries; without this the collector walks through them too.
    del snapshot
    begin = time.perf_counter()
    loaded = pickle.loads(data)
    del loaded
    end = time.perf_counter()
    snapshot = pickle.loads(data)
    # Last: the other process measures next, and should be alone.
    print(middle - start, end - begin, flush=True)
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let entries = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    for (name, parts) in [("PyTorch's", "own"), ("ours", "shared")] {
        let file = tempfile::NamedTempFile::new()?;
        pickle::write(&history(entries), &file, Protocol::V4)?;
        match Python::start(file.path(), parts) {
            Ok(mut python) => measure(name, file.path(), || python.times())?,
            Err(error) if parts == "shared" => {
                println!("python3 does not start here: {error}");
                measure(name, file.path(), || Ok((f64::NAN, f64::NAN)))?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Times in seconds, Python's and this crate's in turn.
fn measure(
    name: &str,
    file: &std::path::Path,
    mut python: impl FnMut() -> Result<(f64, f64), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let input = std::fs::read(file)?;
    let snapshot = pickle::read(&input[..])?;
    let mut output = Vec::new();
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..RUNS {
        let (dump, load) = python()?;
        output.clear();
        let start = Instant::now();
        pickle::write(&snapshot, &mut output, Protocol::V4)?;
        let write = start.elapsed().as_secs_f64();
        let start = Instant::now();
        drop(pickle::read(&input[..])?);
        let read = start.elapsed().as_secs_f64();
        for (times, time) in times.iter_mut().zip([dump, write, load, read]) {
            times.push(time);
        }
    }
    if pickle::read(&output[..])? != snapshot {
        return Err("what was written is not what is read".into());
    }
    let [dump, write, load, read] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[RUNS / 2]
    });
    let line = |what, python: f64, ours: f64| {
        println!(
            "{name}, {what}: Python {:.0} ms, Granule {:.1} ms, {:.1} times",
            python * 1e3,
            ours * 1e3,
            python / ours
        );
    };
    line("written", dump, write);
    line("read", load, read);
    Ok(())
}

/// A Python process that waits to be asked for times.
struct Python {
    requests: std::process::ChildStdin,
    answers: BufReader<std::process::ChildStdout>,
}

impl Python {
    fn start(file: &std::path::Path, parts: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new("python3")
            .args(["-c", PYTHON])
            .arg(file)
            .arg(parts)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("python3 has no pipes".into());
        };
        let mut python = Self { requests, answers: BufReader::new(answers) };
        match python.line()?.trim() {
            "ready" => Ok(python),
            other => Err(format!("python3 said {other:?}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }

    /// Seconds of one dump and one load.
    fn times(&mut self) -> Result<(f64, f64), Box<dyn Error>> {
        self.requests.write_all(b"\n")?;
        let line = self.line()?;
        let (dump, load) = line.trim().split_once(' ').ok_or("python3 ended early")?;
        Ok((dump.parse()?, load.parse()?))
    }
}

/// Requests and frees of changing sizes at addresses as CUDA gives them, without call stacks.
fn history(entries: usize) -> Snapshot {
    let labels = Arc::new(Labels {
        compile_context: Some("N/A".into()),
        user_metadata: Some("".into()),
        pool_id: Some(PoolId::DEFAULT),
        extra: Vec::new(),
    });
    let entry = |number: usize| {
        let pair = number as u64 / 3;
        TraceEntry {
            action: [Action::Alloc, Action::FreeRequested, Action::FreeCompleted][number % 3],
            addr: 0x7f5c_0000_0000 + pair.wrapping_mul(0x9e37_79b9) % (1 << 22) * 512,
            size: 512 + pair.wrapping_mul(2_654_435_761) % (1 << 24),
            stream: 0,
            time_us: 1_795_221_743_096_958 + number as i64 * 3,
            labels: Arc::clone(&labels),
            frames: None,
        }
    };
    Snapshot { device_traces: vec![(0..entries).map(entry).collect()], ..Snapshot::default() }
}
