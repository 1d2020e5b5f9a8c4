//! One page for several runs.

use super::{AnswerRun, Args, address, hide, open, read, write};
use crate::commands::{Outcome, write_json};
use crate::console::counted;
use crate::failure::Failure;
use crate::recording::Recording;
use crate::result_file::ResultFile;
use granule::round::size_text;
use granule_analysis::inspect::Summary;
use granule_analysis::{Anonymous, Inspection};
use granule_report::{Compared, Comparison};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    file: Cow<'a, str>,
    bytes: u64,
    /// In the order of the page.
    runs: Vec<NamedRun<'a>>,
}

#[derive(Serialize)]
struct NamedRun<'a> {
    /// What the page calls it.
    name: &'a str,
    #[serde(flatten)]
    run: AnswerRun<'a>,
}

/// A run, and what there is to say about it.
struct Read {
    name: String,
    recording: Recording,
    capacity: Option<u64>,
    summary: Summary,
}

/// Reads all files, then writes the page.
pub(super) fn run(
    args: &Args,
    path: &Path,
    page: ResultFile,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let inputs = std::iter::once(args.workload.clone())
        .chain(args.others.iter().map(|other| args.workload.of_file(other)));
    let mut runs = Vec::new();
    let mut hidden = args.anonymous.then(Anonymous::default);
    for mut workload in inputs {
        workload.take(hide::load(&workload, hidden.as_mut())?);
        let mut recording = read(&workload, &args.allocator, args.capacity.map(|size| size.0))?;
        if let Some(hidden) = &mut hidden {
            hide::recording(&mut recording, false, hidden);
        }
        let doubt = recording.doubt().map(|doubt| doubt.text);
        // Only replays ask for it, and of many long runs it is large.
        recording.trace = Arc::default();
        let capacity = args.capacity.map(|size| size.0).or(recording.capacity);
        let inspection = Inspection::new(&recording.run, &recording.rules(), &[]);
        let summary = Summary::new(&inspection, capacity, recording.window, doubt.as_deref());
        let (mut path, mut name) = (workload.input().display().to_string(), workload.file_name());
        if args.anonymous {
            path = format!("run {}", runs.len() + 1);
            name.clone_from(&path);
        }
        runs.push((path, Read { name, recording, capacity, summary }));
    }
    let runs = told_apart(runs);
    let title = args.title.clone().unwrap_or_else(|| title_of(&runs));
    let compared = runs.iter().map(|run| Compared {
        name: &run.name,
        run: &run.recording.run,
        capacity: run.capacity,
        verdict: run.summary.text.clone(),
        remarks: run.recording.notes.clone(),
    });
    let comparison = Comparison { title: &title, runs: compared.collect() };
    let bytes = write(path, page, |file| comparison.write(file))?;
    say(args.json, path, &runs, bytes, out)?;
    if args.open {
        open::open(path);
    }
    Ok(Outcome::Done)
}

/// The names of the runs, or how many there are where a heading has no room for all names.
fn title_of(runs: &[Read]) -> String {
    if runs.len() < 4 {
        runs.iter().map(|run| &*run.name).collect::<Vec<_>>().join(", ")
    } else {
        counted(runs.len(), "run")
    }
}

/// Runs by the names of their files, or by their paths where two files have the same name.
fn told_apart(runs: Vec<(String, Read)>) -> Vec<Read> {
    let names: HashSet<&str> = runs.iter().map(|(_, run)| &*run.name).collect();
    let same = names.len() < runs.len();
    let name = |(path, run): (String, Read)| if same { Read { name: path, ..run } } else { run };
    runs.into_iter().map(name).collect()
}

fn say(json: bool, path: &Path, runs: &[Read], bytes: u64, out: &mut dyn Write) -> Result<(), Failure> {
    let file = path.to_string_lossy();
    if json {
        let runs = runs
            .iter()
            .map(|read| NamedRun { name: &read.name, run: AnswerRun::new(&read.recording, &read.summary) });
        return write_json(&Answer { file, bytes, runs: runs.collect() }, out);
    }
    writeln!(out, "{file}: {}, {}", size_text(bytes), counted(runs.len(), "run"))?;
    for Read { name, recording, .. } in runs {
        writeln!(out, "  {name}: {}", counted(recording.run.length, "entry"))?;
    }
    writeln!(out, "open it in a browser: {}", address(path))?;
    Ok(())
}
