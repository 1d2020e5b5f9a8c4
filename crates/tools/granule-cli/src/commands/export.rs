//! `granule export`: a recorded run for the tools of others.

use super::{Outcome, write_json};
use crate::allocator_args::AllocatorArgs;
use crate::console;
use crate::failure::Failure;
use crate::recording::Recording;
use crate::result_file::ResultFile;
use crate::size::Size;
use crate::table;
use crate::workload::{WorkloadArgs, stem};
use granule::config::PolicyName;
use granule::round::size_text;
use granule_export::runs::parquet::Table;
use granule_export::runs::perfetto::{self, Options, Written};
use granule_export::runs::{Kind, Source};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The arguments of `granule export`.
#[derive(clap::Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("target").args(["parquet", "perfetto"]).required(true).multiple(true)))]
#[command(override_usage = "granule export [OPTIONS] --parquet <DIR> <TRACE|SNAPSHOT>
       granule export [OPTIONS] --perfetto <FILE> <TRACE|SNAPSHOT>")]
#[command(after_help = "\
Examples:
  granule export dump_snapshot.pickle --parquet runs/monday
  granule export train.trace.gz --parquet runs/tuned \\
      --conf expandable_segments:True
  granule export dump_snapshot.pickle --perfetto memory.json.gz
  duckdb -c \"SELECT run, peak_reserved / peak_live FROM 'runs/*/runs.parquet'\"

docs/tables.md has the columns, and queries over many runs. Perfetto traces
open in ui.perfetto.dev. A trace is replayed first, so that there are
addresses; a snapshot is taken as it was recorded.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// Write the tables as Parquet files into this directory, which is made if need be
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,

    /// Write a trace for ui.perfetto.dev, gzip'd if the name ends in .gz
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,

    /// Replace the tables of another run in that directory
    #[arg(long, requires = "parquet")]
    overwrite: bool,

    /// What the run is called in every table [default: the file's name without its endings]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,

    /// How many allocations the Perfetto trace shows one by one: the largest
    #[arg(long, value_name = "N", default_value_t = Options::default().slices, requires = "perfetto")]
    slices: usize,

    #[command(flatten)]
    allocator: AllocatorArgs,

    /// Memory of the device a trace is replayed on, for example 24GiB [default: the one it was recorded on]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A file that was written.
#[derive(Serialize)]
struct File {
    path: String,
    /// Rows of a table, slices of a trace.
    entries: u64,
    bytes: u64,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    run: &'a str,
    workload: &'a str,
    /// What is not exact about it.
    notes: &'a [String],
    files: Vec<File>,
}

/// Reads the run and writes what was asked for.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    // Bad paths are noticed before the work.
    let id = args.run.clone().unwrap_or_else(|| stem(&args.workload.file_name()).to_owned());
    if let Some(directory) = args.parquet.as_deref().filter(|_| !args.overwrite) {
        refuse_another_run(directory, &id)?;
    }
    let tables = args.parquet.as_deref().map(create).transpose()?;
    let trace = args.perfetto.as_deref().map(ResultFile::create).transpose()?;
    let recording = Recording::read(&args.workload, &args.allocator, args.capacity.map(|size| size.0))?;
    let settings = settings(&recording);
    let file = args.workload.input().to_string_lossy();
    let source = source(&recording, &id, &file, settings.as_deref());
    let spinner = console::spinner("writing");
    let mut whole = Vec::new();
    for (table, path, result) in tables.into_iter().flatten() {
        let mut entries = 0;
        let file = result.fill(|file| {
            entries = table.write(&source, file)?;
            Ok(())
        })?;
        whole.push((path, file, entries));
    }
    // All at once: tables of two runs side by side would be joined.
    let mut files = Vec::new();
    for (path, file, entries) in whole {
        file.put()?;
        files.push(written(&path, entries));
    }
    if let (Some(path), Some(result)) = (&args.perfetto, trace) {
        let options = Options { slices: args.slices, ..Options::default() };
        let mut about = Written::default();
        result.write(|file| {
            about = perfetto::write(&source, &options, file)?;
            Ok(())
        })?;
        files.push(written(path, about.slices as u64));
        spinner.suspend(|| say_what_is_left_out(&about));
    }
    spinner.finish_and_clear();
    let answer = Answer { run: &id, workload: &recording.name, notes: &recording.notes, files };
    show(args, &answer, out)?;
    Ok(Outcome::Done)
}

/// Tables of one run are not put over those of another, which they would take the place of without a word.
fn refuse_another_run(directory: &Path, id: &str) -> Result<(), Failure> {
    let path = directory.join(format!("{}.parquet", Table::Runs.name()));
    match granule_export::runs::parquet::run_of(&path) {
        Some(there) if there != id => Err(Failure::OtherRun { path: directory.to_owned(), there }),
        _ => Ok(()),
    }
}

/// The files of all tables.
fn create(directory: &Path) -> Result<Vec<(Table, PathBuf, ResultFile)>, Failure> {
    fs::create_dir_all(directory)
        .map_err(|error| Failure::WriteFile { path: directory.to_owned(), error })?;
    let mut files = Vec::new();
    for table in Table::ALL {
        let path = directory.join(format!("{}.parquet", table.name()));
        let file = ResultFile::create(&path)?;
        files.push((table, path, file));
    }
    Ok(files)
}

/// The run as tables have it.
pub(crate) fn source<'a>(
    recording: &'a Recording,
    id: &'a str,
    file: &'a str,
    settings: Option<&'a str>,
) -> Source<'a> {
    Source {
        run: &recording.run,
        id,
        name: &recording.name,
        file,
        kind: if recording.snapshot.is_some() { Kind::Snapshot } else { Kind::Trace },
        settings,
        device: recording.device,
        capacity: recording.capacity,
        window: recording.window,
        notes: &recording.notes,
    }
}

/// The settings as a text that says the policy, too.
pub(crate) fn settings(recording: &Recording) -> Option<String> {
    let policy = recording.settings.policy_name();
    match (&recording.conf, policy) {
        (conf, PolicyName::Pytorch) => conf.clone(),
        (Some(conf), _) if conf.contains("policy:") => Some(conf.clone()),
        (Some(conf), policy) => Some(format!("policy:{policy},{conf}")),
        (None, policy) => Some(format!("policy:{policy}")),
    }
}

fn written(path: &Path, entries: u64) -> File {
    // A pipe has no size.
    let bytes = fs::metadata(path).map_or(0, |file| file.len());
    File { path: path.to_string_lossy().into_owned(), entries, bytes }
}

fn say_what_is_left_out(about: &Written) {
    if about.slices < about.allocations {
        console::note(format_args!(
            "the trace shows the {} largest of {} one by one, those of {} and more; --slices changes that",
            about.slices,
            console::counted(about.allocations, "allocation"),
            size_text(about.least)
        ));
    }
    if about.thinned {
        console::note("the trace's counters are thinned out; every peak is there");
    }
    if about.without_counter > 0 {
        console::note(format_args!(
            "{} pairs of stream and pool have no counter of their own",
            about.without_counter
        ));
    }
}

fn show(args: &Args, answer: &Answer<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    if args.json {
        return write_json(answer, out);
    }
    writeln!(out, "{} is run {} in:", answer.workload, answer.run)?;
    let mut table = table::Table::new(["file", "rows or slices", "size"]);
    for file in &answer.files {
        table.row([&file.path, &file.entries.to_string(), &size_text(file.bytes)]);
    }
    table.align_right([1, 2]);
    writeln!(out, "{table}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn a_run_is_called_after_its_file() {
        let names = ["a.trace.gz", "b.pickle", "c.pickle.gz", "d.e.trace", "snapshot"].map(stem);
        assert_eq!(names, ["a", "b", "c", "d.e", "snapshot"]);
    }
}
