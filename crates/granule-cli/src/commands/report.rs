//! `granule report`: a run as one web page.

mod compare;
mod what_if;

use super::{Outcome, write_json};
use crate::allocator_args::AllocatorArgs;
use crate::console::{self, counted};
use crate::failure::Failure;
use crate::recording::Recording;
use crate::result_file::ResultFile;
use crate::size::Size;
use crate::workload::{Input, WorkloadArgs};
use granule::round::size_text;
use granule_analysis::Inspection;
use granule_analysis::inspect::Summary;
use granule_report::Report;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The arguments of `granule report`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule report snapshot.pickle
  granule report snapshot.pickle --capacity 80GiB -o step1000.html
  granule report train.trace.gz --conf expandable_segments:True \\
      -o expandable.html
  granule report before.pickle after.pickle -o change.html
  granule report rank*.pickle -o ranks.html

The page needs nothing else: no server, no network. Open it in any browser of
2023 or later. That of one run has help: press ? in it.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// More recordings of one device each: the page shows all under each other, and what differs
    #[arg(value_name = "OTHERS")]
    others: Vec<PathBuf>,

    #[command(flatten)]
    allocator: AllocatorArgs,

    /// Where the page goes
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,

    /// Heading of the page [default: the name of the workload]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// The device's memory: 24GiB, 80G, or bytes. A trace is replayed on such a device; a snapshot is shown as it was
    /// recorded, with a line where this is
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,

    /// Try other settings, however long the history is
    #[arg(long, conflicts_with = "others")]
    whatif: bool,

    /// Do not try other settings
    #[arg(long, conflicts_with = "whatif")]
    no_whatif: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Refused requests of which the page says why.
const REASONS: usize = 50;

#[derive(Serialize)]
struct Answer<'a> {
    file: Cow<'a, str>,
    bytes: u64,
    #[serde(flatten)]
    run: AnswerRun<'a>,
}

/// What there is to say of a run.
#[derive(Serialize)]
struct AnswerRun<'a> {
    entries: u32,
    allocations: usize,
    peak_live: u64,
    peak_reserved: u64,
    refused: usize,
    /// What the page begins with.
    summary: &'a Summary,
    /// What is not exact about it.
    notes: &'a [String],
}

impl<'a> AnswerRun<'a> {
    fn new(recording: &'a Recording, summary: &'a Summary) -> Self {
        let run = &recording.run;
        Self {
            entries: run.length,
            allocations: run.allocations.len(),
            peak_live: run.peak().1,
            peak_reserved: run.reserved_peak().1,
            refused: run.refusals.len(),
            summary,
            notes: &recording.notes,
        }
    }
}

/// Writes the page, and says where it is.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let page = ResultFile::create(&args.output)?;
    if !args.others.is_empty() {
        return compare::run(args, page, out);
    }
    let recording = read(&args.workload, args)?;
    let wanted = (args.whatif || args.no_whatif).then_some(args.whatif);
    let what_if = what_if::table(&recording, args.capacity.map(|size| size.0), wanted)?;
    let run = &recording.run;
    let rules = recording.rules();
    let capacity = args.capacity.map(|size| size.0).or(recording.capacity);
    let summary =
        Summary::new(&Inspection::new(run, &rules, &[]), capacity, recording.window, what_if.of(capacity));
    let refusals = Inspection::refusals(run, &rules, REASONS);
    let report = Report {
        run,
        rules,
        verdict: summary.text.clone(),
        reasons: refusals.iter().map(|refused| refused.verdict.text().to_owned()).collect(),
        title: args.title.as_deref().unwrap_or(&recording.name),
        capacity,
        facts: facts(&recording),
        remarks: remarks(&recording, !what_if.devices.is_empty()),
        what_if,
    };
    let bytes = write(args, page, |file| report.write(file))?;
    say(args, &recording, &summary, bytes, out)?;
    Ok(Outcome::Done)
}

/// Writes the page, and counts its bytes.
fn write(
    args: &Args,
    page: ResultFile,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<u64, Failure> {
    let spinner = console::spinner(format!("writing {}", args.output.display()));
    let mut bytes = 0;
    page.write(|file| content(&mut Counted { file, bytes: &mut bytes }))?;
    spinner.finish_and_clear();
    Ok(bytes)
}

fn say(
    args: &Args,
    recording: &Recording,
    summary: &Summary,
    bytes: u64,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (run, file) = (&recording.run, args.output.to_string_lossy());
    if args.json {
        return write_json(&Answer { file, bytes, run: AnswerRun::new(recording, summary) }, out);
    }
    let size = size_text(bytes);
    writeln!(
        out,
        "{file}: {size}, {}, {}",
        counted(run.length, "entry"),
        counted(run.allocations.len(), "allocation")
    )?;
    writeln!(out, "open it in a browser: {}", address(&args.output))?;
    Ok(())
}

/// The run. What is not needed of the file is given back at once: a long history is large.
fn read(workload: &WorkloadArgs, args: &Args) -> Result<Recording, Failure> {
    let loaded = workload.load()?;
    let capacity = match loaded {
        Input::Trace(_) => args.capacity.map(|size| size.0),
        // It is drawn, and changes nothing.
        Input::Snapshot(_) => None,
    };
    let mut recording = Recording::of(loaded, workload, &args.allocator, capacity)?;
    if recording.snapshot.take().is_none() {
        // That of a replay, which says nothing of the program.
        recording.run.clock.clear();
    }
    Ok(recording)
}

/// What is not exact about the run, and about the replays where other settings were tried.
fn remarks(recording: &Recording, replayed: bool) -> Vec<String> {
    let of_replays = recording.replay_notes.iter().filter(|_| replayed);
    recording.notes.iter().chain(of_replays).cloned().collect()
}

fn facts(recording: &Recording) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    if let Some(conf) = &recording.conf {
        facts.push(("Settings".to_owned(), conf.clone()));
    }
    facts.push(("Device".to_owned(), recording.device.to_string()));
    facts
}

/// What a browser takes.
fn address(path: &Path) -> String {
    match path.canonicalize() {
        // Characters that mean something in an address are written as their codes.
        Ok(path) => {
            let text = path.to_string_lossy().replace('%', "%25").replace(' ', "%20");
            format!("file://{}", text.replace('#', "%23").replace('?', "%3F"))
        }
        Err(_) => path.display().to_string(),
    }
}

/// Counts what is written.
struct Counted<'a> {
    file: &'a mut dyn Write,
    bytes: &'a mut u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        *self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
