//! How fast snapshots are written and read, beside Python's pickle.
//!
//! `cargo run --profile dist -p granule-snapshot --example pickle_speed [ENTRIES [RUNS]]` makes a history of that many entries
//! (1 000 000 unless told) and has it written and read in memory by Python and by this crate in turn, five
//! times unless told. It prints the medians and how many times faster this crate is. Times include giving the memory of
//! what was read back; *gzip'd* is the same file packed by Python with its usual level, unpacked and read. Then it has each
//! read the file once in a process of its own, and prints by how much that raised the most memory the process ever held.
//! There are two files:
//!
//! - *PyTorch's*: every entry has a pool and a context of its own, as in what PyTorch hands to Python. Python
//!   dumps it, both read it, and this crate writes what it read;
//! - *ours*: this crate writes it, both read it, and Python dumps what it read, with pools and texts shared.
//!
//! Without `python3` only this crate's times are printed, for the second file.
//!
//! `pickle_speed --recorded FILE...` has recorded snapshots read in turn; `pickle_speed --memory FILE` reads one and prints
//! by how many bytes that raised the most memory held.

use alloc_core::snapshot::{Action, Labels, Snapshot, TraceEntry};
use alloc_core::types::PoolId;
use granule_snapshot::pickle::{self, Protocol};
use std::error::Error;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// How often a recorded file is read.
const RECORDED_RUNS: usize = 15;

/// Loads a pickle, gives every entry its own parts if told, leaves the file so, and a packed one beside it; then times
/// one dump, one load, and one load of the packed file for each line it gets.
const PYTHON: &str = r#"
import gzip, pickle, sys, time
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
packed = gzip.compress(data)
open(path + ".gz", "wb").write(packed)
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
    with gzip.open(path + ".gz") as file:
        loaded = pickle.load(file)
    del loaded
    last = time.perf_counter()
    snapshot = pickle.loads(data)
    # Last: the other process measures next, and should be alone.
    print(middle - start, end - begin, last - end, flush=True)
"#;

/// Reads each file of a line, plain or packed, and prints the seconds.
const PYTHON_READS: &str = r#"
import gzip, pickle, sys, time
print("ready", flush=True)
for line in sys.stdin:
    path = line.strip()
    start = time.perf_counter()
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        loaded = pickle.load(file)
    del loaded
    print(time.perf_counter() - start, flush=True)
"#;

/// Reads a file and prints by how many bytes that raised the most memory held.
const PYTHON_MEMORY: &str = r#"
import pickle, sys
def most_held():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
before = most_held()
loaded = pickle.load(open(sys.argv[1], "rb"))
print(most_held() - before)
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--memory", file] => return memory(file),
        ["--recorded", ref files @ ..] => return recorded(files),
        _ => {}
    }
    let entries = arguments.first().map_or(Ok(1_000_000), |text| text.parse())?;
    let runs: usize = arguments.get(1).map_or(Ok(5), |text| text.parse())?;
    for (name, parts) in [("PyTorch's", "own"), ("ours", "shared")] {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("snapshot.pickle");
        pickle::write(&history(entries), std::fs::File::create(&file)?, Protocol::V4)?;
        match Python::start(PYTHON, &[file.as_os_str(), parts.as_ref()]) {
            Ok(mut python) => {
                measure(name, &file, runs, || python.times())?;
                drop(python);
                compare_memory(name, &file, entries)?;
            }
            Err(error) if parts == "shared" => {
                println!("python3 does not start here: {error}");
                measure(name, &file, runs, || Ok([f64::NAN; 3]))?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn print(what: &str, python: f64, ours: f64) {
    println!(
        "{what}: Python {:.1} ms, Granule {:.2} ms, {:.1} times",
        python * 1e3,
        ours * 1e3,
        python / ours
    );
}

/// Times in seconds, Python's and this crate's in turn.
fn measure(
    name: &str,
    file: &Path,
    runs: usize,
    mut python: impl FnMut() -> Result<[f64; 3], Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let input = std::fs::read(file)?;
    let packed = file.with_extension("pickle.gz");
    let snapshot = pickle::read(&input[..])?;
    let mut output = Vec::new();
    let mut times: [Vec<f64>; 6] = Default::default();
    for _ in 0..runs.max(1) {
        let [dump, load, unpack] = python()?;
        output.clear();
        let start = Instant::now();
        pickle::write(&snapshot, &mut output, Protocol::V4)?;
        let write = start.elapsed().as_secs_f64();
        let start = Instant::now();
        drop(pickle::read(&input[..])?);
        let read = start.elapsed().as_secs_f64();
        let start = Instant::now();
        if packed.exists() {
            drop(granule_snapshot::load(&packed)?);
        }
        let read_packed = start.elapsed().as_secs_f64();
        for (times, time) in times.iter_mut().zip([dump, write, load, read, unpack, read_packed]) {
            times.push(time);
        }
    }
    if pickle::read(&output[..])? != snapshot {
        return Err("what was written is not what is read".into());
    }
    let [dump, write, load, read, unpack, read_packed] = times.map(median);
    print(&format!("{name}, written"), dump, write);
    print(&format!("{name}, read"), load, read);
    if packed.exists() {
        print(&format!("{name}, gzip'd, read"), unpack, read_packed);
    }
    Ok(())
}

/// Recorded files, read by both in turn until that took a while.
fn recorded(files: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut python = Python::start(PYTHON_READS, &[])?;
    for file in files {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..RECORDED_RUNS {
            theirs.push(python.ask(file)?.trim().parse()?);
            let start = Instant::now();
            drop(granule_snapshot::load(file)?);
            ours.push(start.elapsed().as_secs_f64());
        }
        let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
        print(&name, median(theirs), median(ours));
    }
    Ok(())
}

/// The most memory that this process ever held, in bytes.
fn most_held() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the system does not tell")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

fn memory(file: &str) -> Result<(), Box<dyn Error>> {
    let before = most_held()?;
    let loaded = granule_snapshot::load(file)?;
    println!("{}", most_held()? - before);
    drop(loaded);
    Ok(())
}

/// Each in a process of its own.
fn compare_memory(name: &str, file: &Path, entries: usize) -> Result<(), Box<dyn Error>> {
    let bytes = |command: &mut Command| -> Result<f64, Box<dyn Error>> {
        Ok(String::from_utf8(command.output()?.stdout)?.trim().parse::<f64>()?)
    };
    let python = bytes(Command::new("python3").args(["-c", PYTHON_MEMORY]).arg(file))?;
    let ours = bytes(Command::new(std::env::current_exe()?).arg("--memory").arg(file))?;
    #[allow(clippy::cast_precision_loss)]
    let entries = entries as f64;
    println!(
        "{name}, memory: Python {:.0} bytes an entry, Granule {:.1}, {:.1} times less",
        python / entries,
        ours / entries,
        python / ours
    );
    Ok(())
}

/// A Python process that waits to be asked for times.
struct Python {
    requests: std::process::ChildStdin,
    answers: BufReader<std::process::ChildStdout>,
}

impl Python {
    fn start(program: &str, arguments: &[&OsStr]) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new("python3")
            .args(["-c", program])
            .args(arguments)
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

    fn ask(&mut self, question: &str) -> Result<String, Box<dyn Error>> {
        writeln!(self.requests, "{question}")?;
        self.line()
    }

    /// Seconds of one dump, one load, and one load of the packed file.
    fn times(&mut self) -> Result<[f64; 3], Box<dyn Error>> {
        let line = self.ask("")?;
        let times: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        times.try_into().map_err(|_| "python3 ended early".into())
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
