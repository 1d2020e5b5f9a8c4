//! `granule inspect`: what took the memory of a recorded run.

mod text;

use super::{Outcome, write_json};
use crate::allocator_args::AllocatorArgs;
use crate::failure::Failure;
use crate::recording::Recording;
use crate::size::Size;
use crate::workload::WorkloadArgs;
use granule_analysis::Inspection;
use granule_analysis::inspect::{Comparison, Summary, When};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// The arguments of `granule inspect`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule inspect snapshot.pickle
  granule inspect snapshot.pickle --at oom --top 20
  granule inspect train.trace.gz --conf expandable_segments:True
  granule inspect before.pickle after.pickle
  granule inspect snapshot.pickle --json | jq '.moments[0].live.by_caller[:3]'

A snapshot is shown as it was recorded; a trace is replayed for it.
docs/inspect.md describes what --json prints.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// A second file: say what changed from the first to it
    #[arg(value_name = "SECOND")]
    second: Option<PathBuf>,

    /// The moment to look at: peak (most requested bytes live), end, oom (the first refused request), or a number of history
    /// entries [default: peak and end, and oom where there was one]
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    at: Option<When>,

    /// Print every table: how memory lay, what grew, what rounding cost, at each moment
    #[arg(long)]
    all: bool,

    /// Rows of each table; the others are summed up
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    top: u16,

    #[command(flatten)]
    allocator: AllocatorArgs,

    /// The memory of the device that a trace is replayed on: 80GiB, 512MiB, 80G, or bytes [default: that of the recording]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,

    /// Print all of it as one JSON object
    #[arg(long)]
    json: bool,
}

/// A file and what is said about it.
#[derive(Debug, Serialize)]
struct Inspected {
    /// The file's name, or the trace's.
    name: String,
    /// The settings it was recorded with, or replayed under; null if there were none.
    conf: Option<String>,
    /// The device's memory in bytes, as far as it is known.
    capacity: Option<u64>,
    /// Whether earlier history is missing: peaks are lower bounds then.
    lower_bounds: bool,
    /// What is not exact.
    notes: Vec<String>,
    /// The verdict.
    summary: Summary,
    #[serde(flatten)]
    inspection: Inspection,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    /// This command's.
    version: &'static str,
    #[serde(flatten)]
    inspected: &'a Inspected,
}

/// What it prints for two files.
#[derive(Serialize)]
struct ComparisonAnswer<'a> {
    /// This command's.
    version: &'static str,
    before: &'a Inspected,
    after: &'a Inspected,
    comparison: Comparison,
}

/// Inspects and prints.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let first = Inspected::read(&args.workload, args)?;
    let top = usize::from(args.top);
    let version = env!("CARGO_PKG_VERSION");
    if let Some(second) = &args.second {
        let second = Inspected::read(&args.workload.of_file(second), args)?;
        let comparison = Comparison::new(&first.inspection, &second.inspection);
        if args.json {
            let [before, after] = [&first, &second];
            write_json(&ComparisonAnswer { version, before, after, comparison }, out)?;
        } else {
            write!(out, "{}", text::diff::report([&first, &second], &comparison, top))?;
        }
    } else if args.json {
        write_json(&Answer { version, inspected: &first }, out)?;
    } else {
        write!(out, "{}", text::report(&first, top, args.all))?;
    }
    Ok(Outcome::Done)
}

impl Inspected {
    fn read(workload: &WorkloadArgs, args: &Args) -> Result<Self, Failure> {
        let recording = Recording::read(workload, &args.allocator, args.capacity.map(|size| size.0))?;
        let moments = match args.at {
            Some(When::At(at)) if at > recording.run.length => {
                let Recording { name, run, .. } = recording;
                return Err(Failure::BeyondTheEnd { name, at, entries: run.length });
            }
            Some(when) if when.moment(&recording.run).is_none() => {
                return Err(Failure::NothingRefused(recording.name));
            }
            Some(when) => vec![when],
            // Of one moment alone there is no peak.
            None if recording.run.length == 0 => vec![When::End],
            None => vec![When::Peak, When::Oom, When::End],
        };
        let inspection = Inspection::new(&recording.run, &recording.rules(), &moments);
        let doubt = recording.doubt().map(|doubt| doubt.text);
        let Recording { name, notes, window, conf, capacity, .. } = recording;
        let summary = Summary::new(&inspection, capacity, window, doubt.as_deref());
        Ok(Self { name, conf, capacity, lower_bounds: window, notes, summary, inspection })
    }
}

fn parse_when(text: &str) -> Result<When, String> {
    match text {
        "peak" => Ok(When::Peak),
        "end" => Ok(When::End),
        "oom" => Ok(When::Oom),
        number => number
            .parse()
            .map(When::At)
            .map_err(|_| "write peak, end, oom, or a number of history entries".to_owned()),
    }
}
