//! `granule report`: a run as one web page.

mod compare;
mod hide;
mod open;
pub(super) mod what_if;

use super::{Outcome, write_json};
use crate::allocator_args::AllocatorArgs;
use crate::console::{self, Listener, counted};
use crate::failure::Failure;
use crate::recording::Recording;
use crate::result_file::{self, ResultFile};
use crate::size::Size;
use crate::workload::{Input, WorkloadArgs};
use granule::round::size_text;
use granule_analysis::inspect::{Summary, When};
use granule_analysis::replay::whatif::Answer;
use granule_analysis::rules::Rules;
use granule_analysis::{Anonymous, Inspection};
use granule_report::{Contents, Report, WhatIf};
use granule_snapshot::convert;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
  granule report snapshot.pickle --anonymous -o to-send.html

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

    /// Where the page goes [default: report.html, or with a number where there is one]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file that is there
    #[arg(long, requires = "output")]
    force: bool,

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

    /// Placeholders in the place of paths, names and texts: of files, functions, labels, notes, and of the recording
    #[arg(long)]
    anonymous: bool,

    /// Open the page in the browser: $BROWSER, or else the desktop's
    #[arg(long)]
    open: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Devices of one file that its page has.
const DEVICES: usize = 64;

/// Refused requests of which the page says why.
const REASONS: usize = 50;

#[derive(Serialize)]
struct Answered<'a> {
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

/// A run, and what a page says of it.
pub(super) struct Page {
    pub(super) recording: Recording,
    /// The device's memory, as far as it is known.
    pub(super) capacity: Option<u64>,
    /// What other settings would do, where they were tried.
    pub(super) answer: Option<Answer>,
    what_if: WhatIf,
    rules: Rules,
    pub(super) inspection: Inspection,
    pub(super) summary: Summary,
}

impl Page {
    /// That of a run, looked at at these moments.
    pub(super) fn new(
        recording: Recording,
        capacity: Option<u64>,
        answer: Option<Answer>,
        moments: &[When],
    ) -> Self {
        let capacity = capacity.or(recording.capacity);
        let what_if = answer.as_ref().map(what_if::of_answer).unwrap_or_default();
        let rules = recording.rules();
        let inspection = Inspection::new(&recording.run, &rules, moments);
        let summary = Summary::new(&inspection, capacity, recording.window, what_if.of(capacity));
        Self { recording, capacity, answer, what_if, rules, inspection, summary }
    }

    /// What other settings do on the device, where they were tried.
    pub(super) fn tried(&self) -> Option<&str> {
        self.what_if.of(self.capacity)
    }

    /// What the page tells, under this title.
    fn report<'a>(&'a self, title: &'a str) -> Report<'a> {
        let run = &self.recording.run;
        let refusals = Inspection::refusals(run, &self.rules, REASONS);
        Report {
            run,
            rules: self.rules.clone(),
            verdict: self.summary.text.clone(),
            reasons: refusals.iter().map(|refused| refused.why()).collect(),
            title,
            capacity: self.capacity,
            facts: facts(&self.recording),
            remarks: remarks(&self.recording, !self.what_if.devices.is_empty()),
            what_if: self.what_if.clone(),
        }
    }
}

/// Writes the pages of a file's devices as one, under this title or their names, and counts its bytes.
pub(super) fn write_pages(
    pages: &[Page],
    title: Option<&str>,
    path: &Path,
    file: ResultFile,
) -> Result<u64, Failure> {
    let title_of = |page: &Page| match title {
        Some(title) if pages.len() > 1 => format!("{title}, device {}", page.recording.device),
        _ => title.unwrap_or(&page.recording.name).to_owned(),
    };
    let titles: Vec<String> = pages.iter().map(title_of).collect();
    let reports: Vec<Report<'_>> =
        pages.iter().zip(&titles).map(|(page, title)| page.report(title)).collect();
    write(path, file, |file| granule_report::write(&reports, file))
}

/// A file's devices, each as a workload of its own; the first is the one that is shown first.
pub(super) fn devices(
    workload: &WorkloadArgs,
    hidden: Option<&mut Anonymous>,
) -> Result<Vec<WorkloadArgs>, Failure> {
    let input = hide::load(workload, hidden)?;
    let mut first = workload.clone();
    first.take(input.clone());
    let mut all = vec![first];
    if let (Input::Snapshot(snapshot), None) = (&input, workload.device()) {
        let known = convert::devices(snapshot).into_iter().skip(1);
        let others = known.filter(|one| one.history || one.reserved_peak > 0).take(DEVICES - 1);
        let others: Vec<_> = others.map(|one| all[0].of_device(one.device)).collect();
        all.extend(others);
    }
    Ok(all)
}

/// The pages of the devices besides the first. What there is to say of them is on the page.
pub(super) fn others(
    workloads: Vec<WorkloadArgs>,
    mut page: impl FnMut(WorkloadArgs) -> Result<Page, Failure>,
) -> Result<Vec<Page>, Failure> {
    let listener = Arc::new(Listener::default());
    listener.during(|| workloads.into_iter().map(&mut page).collect())
}

/// Writes the page, and says where it is.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let path = args.output.clone().unwrap_or_else(|| result_file::fresh("report", ".html"));
    let file = ResultFile::create_new(&path, args.force)?;
    if !args.others.is_empty() {
        return compare::run(args, &path, file, out);
    }
    let capacity = args.capacity.map(|size| size.0);
    let wanted = (args.whatif || args.no_whatif).then_some(args.whatif);
    let mut hidden = args.anonymous.then(Anonymous::default);
    let mut workloads = devices(&args.workload, hidden.as_mut())?;
    let several = workloads.len() > 1;
    let mut page = |workload: WorkloadArgs| {
        let mut recording = read(&workload, &args.allocator, capacity)?;
        if let Some(hidden) = &mut hidden {
            hide::recording(&mut recording, several, hidden);
        }
        let answer = what_if::answer(&recording, capacity, wanted)?;
        Ok(Page::new(recording, capacity, answer, &[]))
    };
    let mut pages = vec![page(workloads.remove(0))?];
    pages.extend(others(workloads, page)?);
    let bytes = write_pages(&pages, args.title.as_deref(), &path, file)?;
    say(args, &path, &pages, bytes, out)?;
    if args.open {
        open::open(&path);
    }
    Ok(Outcome::Done)
}

/// Writes the page, and counts its bytes.
fn write(
    path: &Path,
    page: ResultFile,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<u64, Failure> {
    let spinner = console::spinner(format!("writing {}", path.display()));
    let mut bytes = 0;
    page.write(|file| content(&mut Counted { file, bytes: &mut bytes }))?;
    spinner.finish_and_clear();
    Ok(bytes)
}

fn say(args: &Args, path: &Path, pages: &[Page], bytes: u64, out: &mut dyn Write) -> Result<(), Failure> {
    let page = &pages[0];
    let (run, file) = (&page.recording.run, path.to_string_lossy());
    if args.json {
        return write_json(
            &Answered { file, bytes, run: AnswerRun::new(&page.recording, &page.summary) },
            out,
        );
    }
    let size = size_text(bytes);
    let mut parts = vec![counted(run.length, "entry"), counted(run.allocations.len(), "allocation")];
    parts.extend((pages.len() > 1).then(|| counted(pages.len(), "device")));
    writeln!(out, "{file}: {size}, {}", parts.join(", "))?;
    writeln!(out, "open it in a browser: {}", address(path))?;
    let held = |one: Contents| format!("{} {}", one.count, one.what[usize::from(one.count > 1)]);
    let held: Vec<_> =
        Contents::of(run, &page.recording.name, &facts(&page.recording)).into_iter().map(held).collect();
    if !args.anonymous && held.len() > 1 {
        writeln!(out, "it holds {}, which --anonymous hides", held.join(", "))?;
    }
    Ok(())
}

/// The run. What is not needed of the file is given back at once: a long history is large.
pub(super) fn read(
    workload: &WorkloadArgs,
    allocator: &AllocatorArgs,
    capacity: Option<u64>,
) -> Result<Recording, Failure> {
    let loaded = workload.load()?;
    let capacity = match loaded {
        Input::Trace(_) => capacity,
        // It is drawn, and changes nothing.
        Input::Snapshot(_) => None,
    };
    let mut recording = Recording::of(loaded, workload, allocator, capacity)?;
    match &mut recording.snapshot {
        Some(snapshot) => *snapshot = Arc::default(),
        // That of a replay, which says nothing of the program.
        None => recording.run.clock.clear(),
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
pub(super) fn address(path: &Path) -> String {
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
