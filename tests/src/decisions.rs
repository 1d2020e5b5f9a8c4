//! What an allocator decides, as rows of a file: whoever changes the engine sees which program another decision is for.
//!
//! A row is a program under settings on a device. Its program is a recorded one, or a random one by its seed. `decisions` is
//! a hash of the driver's calls that take, give, map, unmap or wait, and of the history, whose entries have address, size and
//! stream. `statistics` is one of PyTorch's statistics, and of the segments at the end. The rest are figures.

mod random;
mod tape;

use alloc_core::CachingAllocator;
use alloc_core::config::Settings;
use granule_analysis::replay::{ReplayOptions, peak_live, replay_through};
use granule_snapshot::trace::Trace;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tape::Tape;

/// Settings by name.
const SETTINGS: [(&str, &str); 3] =
    [("pytorch", ""), ("expandable", "expandable_segments:True"), ("granule", "policy:granule")];
/// The first four say what a row is of.
const COLUMNS: &str = "program settings lag device decisions statistics \
     requested allocated active reserved takes gives retries ooms refused";
const KEYS: usize = 4;
/// Events that a device's work is behind.
const LAGS: [u64; 2] = [0, 1000];
/// A device on which nothing is refused.
const AMPLE: u64 = 1 << 40;
/// Random programs, and how many are one piece of work.
const SEEDS: u64 = 200;
const TOGETHER: u64 = 20;
/// What CI has time for, beside all random programs: recorded ones in files of so few bytes.
const SHORT: u64 = 126_000;

/// Which rows are made.
#[derive(Debug)]
pub struct Scope {
    /// Names of settings.
    settings: BTreeSet<String>,
    /// Not all recorded programs.
    short: bool,
}

impl Scope {
    /// All programs, under the settings of a policy.
    #[must_use]
    pub fn of_policy(policy: &str) -> Self {
        let of_policy = |name: &&str| (*name == "granule") == (policy == "granule");
        let names = SETTINGS.iter().map(|(name, _)| *name).filter(of_policy);
        Self { settings: names.map(str::to_owned).collect(), short: false }
    }

    /// The names of the columns, and all rows.
    #[must_use]
    pub fn text(&self) -> String {
        std::iter::once(COLUMNS.to_owned()).chain(self.rows()).map(|row| row + "\n").collect()
    }

    fn work(&self) -> Vec<Work> {
        let recorded = recorded().into_iter().filter(|(_, path)| !self.short || bytes(path) <= SHORT);
        let random = (0..SEEDS).step_by(TOGETHER as usize).map(Work::Random);
        recorded.map(|(name, path)| Work::Recorded(name, path)).chain(random).collect()
    }

    fn rows(&self) -> Vec<String> {
        let (work, next) = (self.work(), AtomicUsize::new(0));
        let one = || {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let rows = |case: Case| format!("{} {}", case.key, case.run(&Arc::default()));
            Some((n, work.get(n)?.cases(&self.settings).into_iter().map(rows).collect()))
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut done: Vec<(usize, Vec<String>)> = thread::scope(|scope| {
            let begin = |_| scope.spawn(|| std::iter::from_fn(one).collect::<Vec<_>>());
            let begun: Vec<_> = (0..workers).map(begin).collect();
            begun.into_iter().flat_map(|worker| worker.join().expect("no program panics")).collect()
        });
        done.sort_by_key(|(n, _)| *n);
        done.into_iter().flat_map(|(_, rows)| rows).collect()
    }

    /// What was decided for one row, step by step, so that two versions can be compared. `None` where there is no such row.
    #[must_use]
    pub fn steps(&self, row: &str) -> Option<String> {
        let mut cases = self.work().into_iter().flat_map(|work| work.cases(&self.settings));
        let (case, tape) = (cases.find(|case| case.key == row)?, Arc::new(Tape::written()));
        case.run(&tape);
        Some(tape.text())
    }
}

/// Compares what is decided now with a file's rows, under the settings that it has rows of: a line for each difference.
///
/// # Panics
/// Where the file has other columns.
#[must_use]
pub fn differences(text: &str, short: bool) -> Vec<String> {
    let (columns, rows) = text.split_once('\n').unwrap_or_default();
    assert_eq!(columns, COLUMNS, "these are the columns of a file of decisions");
    let known: BTreeMap<Vec<&str>, Vec<&str>> = rows.lines().map(split).collect();
    let settings = known.keys().map(|key| key[1].to_owned()).collect();
    let now = Scope { settings, short }.rows();
    let now: BTreeMap<_, _> = now.iter().map(|row| split(row)).collect();
    let at_hand: BTreeSet<&str> = now.keys().map(|key| key[0]).collect();
    let absent: BTreeSet<&str> =
        known.keys().map(|key| key[0]).filter(|name| !at_hand.contains(name)).collect();
    if !short {
        absent.iter().for_each(|name| println!("skipped: the trace {name} is not at hand"));
    }
    let difference = |(key, values): (&Vec<&str>, &Vec<&str>)| {
        let names = COLUMNS.split_whitespace().skip(KEYS);
        let Some(before) = known.get(key) else {
            return Some(format!("{}: the file has no such row", key.join(" ")));
        };
        let changed: Vec<String> = names
            .zip(before.iter().zip(values))
            .filter(|(_, (before, now))| before != now)
            .map(|(name, (before, now))| format!("{name} {before} -> {now}"))
            .collect();
        (!changed.is_empty()).then(|| format!("{}: {}", key.join(" "), changed.join(", ")))
    };
    now.iter().filter_map(difference).collect()
}

fn split(row: &str) -> (Vec<&str>, Vec<&str>) {
    let mut key: Vec<&str> = row.split_whitespace().collect();
    let values = key.split_off(KEYS.min(key.len()));
    (key, values)
}

/// The recorded programs at hand, by name: those of the repository, of the corpus where they are made on demand, and of the
/// folder with recordings.
fn recorded() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let files = |folder: PathBuf| folder.read_dir().into_iter().flatten().flatten().map(|file| file.path());
    let mut folders: Vec<PathBuf> = files(root.join("tests/data/cases")).collect();
    folders.extend(["tests/corpus/traces", "crates/tools/granule-cli/data"].map(|folder| root.join(folder)));
    folders.push(target.join("corpus"));
    folders.extend(crate::shared().map(|shared| shared.join("traces")));
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".trace.gz")?.to_owned();
        Some((name, path))
    };
    folders.into_iter().flat_map(files).filter_map(named).collect()
}

fn bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |data| data.len())
}

/// What one thread does at a time.
enum Work {
    Recorded(String, PathBuf),
    /// Seeds from this one on.
    Random(u64),
}

impl Work {
    fn cases(&self, settings: &BTreeSet<String>) -> Vec<Case> {
        let (mut cases, settings) =
            (Vec::new(), SETTINGS.iter().filter(|(name, _)| settings.contains(*name)));
        match self {
            Self::Recorded(name, path) => {
                let trace = Trace::load(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let tight = u64::try_from(u128::from(peak_live(&trace)) * 102 / 100).unwrap_or(AMPLE);
                let trace = Arc::new(trace);
                for (setting, conf) in settings {
                    for lag in LAGS {
                        for (device, capacity) in [("ample", AMPLE), ("1.02", tight)] {
                            let program = Program::Recorded { trace: Arc::clone(&trace), lag, capacity };
                            cases.push(Case {
                                key: format!("{name} {setting} {lag} {device}"),
                                conf,
                                program,
                            });
                        }
                    }
                }
            }
            Self::Random(first) => {
                for seed in *first..first + TOGETHER {
                    for (setting, conf) in settings.clone() {
                        let program = Program::Random(seed);
                        cases.push(Case { key: format!("random-{seed} {setting} - -"), conf, program });
                    }
                }
            }
        }
        cases
    }
}

/// What a row is made of.
struct Case {
    key: String,
    conf: &'static str,
    program: Program,
}

enum Program {
    Recorded { trace: Arc<Trace>, lag: u64, capacity: u64 },
    Random(u64),
}

impl Case {
    /// Runs the program, and says what the row has after its keys.
    fn run(&self, tape: &Arc<Tape>) -> String {
        match &self.program {
            Program::Random(seed) => {
                let (allocator, refused) = random::run(*seed, self.conf, tape);
                figures(tape, &allocator, refused)
            }
            Program::Recorded { trace, lag, capacity } => {
                let options = ReplayOptions {
                    settings: Settings::parse(self.conf).expect("the settings are valid"),
                    capacity: Some(*capacity),
                    lag: *lag,
                    unwatched: true,
                    history: usize::MAX >> 32,
                    ..ReplayOptions::default()
                };
                let done = replay_through(trace, &options, |device| tape.before(device));
                let done = done.unwrap_or_else(|error| panic!("{}: {error}", self.key));
                figures(tape, &done.allocator, done.result.refused)
            }
        }
    }
}

fn figures(tape: &Tape, allocator: &CachingAllocator, refused: u64) -> String {
    let snapshot = allocator.snapshot(true);
    for entry in snapshot.device_traces.iter().flatten() {
        tape.note(entry.action.name(), &[entry.addr, entry.size, entry.stream]);
    }
    let decisions = tape.hash();
    let stats = tape.note_statistics(allocator);
    for segment in &snapshot.segments {
        let kind = if segment.is_expandable { "growable" } else { "fixed" };
        tape.note(kind, &[segment.address, segment.total_size, segment.requested_size, segment.stream]);
        for block in &segment.blocks {
            tape.note(block.state.name(), &[block.address, block.size, block.requested_size]);
        }
    }
    let peaks = [&stats.requested_bytes, &stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes];
    let counts = [stats.num_device_alloc, stats.num_device_free, stats.num_alloc_retries, stats.num_ooms];
    let figures = peaks.iter().map(|bytes| bytes.all.peak).chain(counts);
    let figures: Vec<String> = figures.map(|figure| figure.to_string()).collect();
    format!("{decisions:016x} {:016x} {} {refused}", tape.hash(), figures.join(" "))
}
