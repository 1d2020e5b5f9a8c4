//! `granule FILE`: what there is to say of a recording, on one screen, and the page that says the rest.

use super::Outcome;
use super::report::{self, Page, address, read, what_if};
use super::whatif::text::gives;
use crate::allocator_args::AllocatorArgs;
use crate::console::{self, Listener, cut};
use crate::failure::Failure;
use crate::result_file::{self, ResultFile};
use crate::size::Size;
use crate::workload::{WorkloadArgs, stem};
use granule::round::size_text;
use granule_analysis::inspect::{Group, Help, Place, View, When};
use granule_analysis::replay::whatif::{Answer, Verdict};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The arguments of `granule FILE`.
#[derive(clap::Args, Clone, Debug)]
#[command(
    override_usage = "granule FILE [OPTIONS]",
    after_help = "\
Examples:
  granule snapshot.pickle
  granule granule-recording
  granule ./replay                 # a file that has a command's name

A folder is one of granule record: of its recordings the newest with an
out-of-memory error is shown, else the newest. The page is a new file beside you."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// The device's memory, as the allocator can have it: 24GiB, 80G, or bytes [default: that of the recording]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
}

/// Lines of a screen, one of them for the prompt.
const HEIGHT: usize = 23;

/// Lines of code that are named.
const NAMED: usize = 3;

/// What to read where nothing fits.
const REMEDIES: &str = "docs/remedies.md";

/// Shows the screen of a file.
pub(crate) fn run(args: &Args, program: &str, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let input = args.workload.input();
    let others;
    let (workload, beside) = if input.is_dir() {
        let (chosen, count) = newest(input)?;
        others = args.workload.of_file(&chosen);
        (&others, count - 1)
    } else {
        (&args.workload, 0)
    };
    let capacity = args.capacity.map(|size| size.0);
    let next = format!("Next: {program} inspect {}", workload.input().display());
    show(workload, capacity, beside, &[next], out)
}

/// The screen of the recording that comes with the command. What it says next begins with `program`: whoever came here through
/// cargo has no `granule` in the search path.
pub(crate) fn run_bundled(program: &str, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let next = [
        format!("Next, on a file of yours: {program} FILE"),
        format!("The same as PyTorch, to the byte: {program} replay"),
    ];
    show(&WorkloadArgs::bundled()?, None, 0, &next, out)
}

fn show(
    workload: &WorkloadArgs,
    capacity: Option<u64>,
    beside: usize,
    next: &[String],
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let listener = Arc::new(Listener::beside_a_terminal());
    let mut workloads = Vec::new();
    let page = listener.during(|| {
        workloads = report::devices(workload, None)?;
        let recording = read(&workloads.remove(0), &AllocatorArgs::default(), capacity)?;
        let answer = what_if::answer(&recording, capacity, None)?;
        let at = match &recording.run {
            run if run.length == 0 => When::End,
            run if run.refusals.is_empty() => When::Peak,
            _ => When::Oom,
        };
        Ok::<_, Failure>(Page::new(recording, capacity, answer, &[at]))
    })?;
    let mut parts = vec![verdict(&page)];
    parts.extend(page.inspection.moments.iter().flat_map(|view| [lines(view), how_long(&page, view)]));
    parts.push(advice(&page));
    // Where the page is comes last, and what to ask next.
    let height = HEIGHT - 1 - next.len();
    let mut screen = joined(parts, height);
    let mut notes: Vec<String> = listener.messages().into_iter().map(|said| said.text).collect();
    if beside > 0 {
        notes.insert(0, format!("{}: the folder has {beside} more", workload.file_name()));
    }
    let room = height.saturating_sub(screen.len());
    let notes = notes.iter().filter_map(|note| note.lines().next()).map(|note| format!("note: {note}"));
    let whole: Vec<_> = notes.clone().flat_map(|note| lines_of(&note)).collect();
    let mut shown = if whole.len() > room { notes.map(|note| cut(&note)).collect() } else { whole };
    if shown.len() > room {
        shown.truncate(room.saturating_sub(1));
        shown.extend((room > 0).then(|| "note: there is more to know: granule inspect says it".into()));
    }
    screen.extend(shown);
    screen.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    // The page of a long history takes longer than the screen.
    out.flush()?;
    let path = result_file::fresh(stem(&workload.file_name()), ".html");
    let mut pages = vec![page];
    let written = ResultFile::create_new(&path, false).and_then(|file| {
        pages.extend(report::others(workloads, |workload| {
            let recording = read(&workload, &AllocatorArgs::default(), capacity)?;
            Ok(Page::new(recording, capacity, None, &[]))
        })?);
        report::write_pages(&pages, None, &path, file)
    });
    match written {
        Ok(_) => writeln!(out, "Page: {}", address(&path))?,
        // A folder that cannot be written is no reason to show nothing.
        Err(failure) => writeln!(out, "{}", cut(&format!("Page: none is written: {failure}")))?,
    }
    next.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(Outcome::Done)
}

/// Parts with a blank line between them while that fits.
fn joined(parts: Vec<Vec<String>>, height: usize) -> Vec<String> {
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let lines = parts.iter().map(Vec::len).sum::<usize>();
    let mut blanks = height.saturating_sub(lines).min(parts.len());
    let mut joined = Vec::new();
    for part in parts {
        joined.extend(part);
        // The first blank is worth most.
        if blanks > 0 {
            joined.push(String::new());
            blanks -= 1;
        }
    }
    joined
}

/// The doubt where there is one, else the verdict.
fn verdict(page: &Page) -> Vec<String> {
    let doubt = page.answer.as_ref().and_then(|answer| answer.doubt.as_ref());
    // What helps is said with the line to paste.
    let summary = page.summary.text.strip_suffix(page.tried().unwrap_or_default());
    // A limit is what the summary is about.
    let doubt = doubt.filter(|_| page.summary.help != Help::RaiseLimit);
    let text = doubt.map_or(summary.unwrap_or(&page.summary.text), |doubt| &doubt.text);
    lines_of(text).iter().map(|line| console::strong(line)).collect()
}

/// Its lines on the terminal.
fn lines_of(text: &str) -> Vec<String> {
    console::wrapped(text).lines().map(str::to_owned).collect()
}

/// The lines of code that hold most.
fn lines(view: &View) -> Vec<String> {
    let live = &view.live;
    let when = match view.what {
        "oom" => "when the request was refused",
        "end" => "in the snapshot",
        _ => "at the peak",
    };
    if live.count == 0 {
        return Vec::new();
    }
    if live.by_caller.is_empty() {
        let rows = live.by_size.iter().take(NAMED).filter_map(|group| {
            row(
                group,
                live.bytes,
                &format!("{} of {}", console::counted(group.count, "request"), size_text(group.key.size)),
            )
        });
        let title = format!("Live {when}, by size (there are no stacks: granule record keeps them):");
        return titled(title, rows);
    }
    let rows = live.by_caller.iter().take(NAMED).filter_map(|group| {
        let caller = &group.key;
        let through = caller.through.as_ref().map(|place| format!(", through {}", place.short()));
        let by = || caller.called_by.first().map(|place| format!(", called by {}", place.short()));
        let by = through.or_else(by).unwrap_or_default();
        let line =
            if caller.place == Place::default() { "(without a stack)".into() } else { caller.place.short() };
        row(group, live.bytes, &format!("{line}{by}"))
    });
    titled(format!("The lines that hold most of {} {when}:", size_text(live.bytes)), rows)
}

/// Rows under their title, if there are any.
fn titled(title: String, rows: impl Iterator<Item = String>) -> Vec<String> {
    let mut rows = rows.peekable();
    let title = rows.peek().is_some().then_some(title);
    title.into_iter().chain(rows).map(|line| cut(&line)).collect()
}

/// What is a part of the whole, and not next to nothing.
fn row<K>(group: &Group<K>, of: u64, name: &str) -> Option<String> {
    let percent = (u128::from(group.bytes) * 200 / u128::from(of.max(1))).div_ceil(2);
    (percent > 0).then(|| format!("{:>12} {percent:>4} %  {name}", size_text(group.bytes)))
}

/// What memory splits into by how long it is held.
fn how_long(page: &Page, view: &View) -> Vec<String> {
    let groups = page.inspection.held(&page.recording.run, view.at);
    titled("Held:".into(), groups.iter().filter_map(|group| row(group, view.live.bytes, group.key.text())))
}

/// The line to paste with what it gives, or what there is instead.
fn advice(page: &Page) -> Vec<String> {
    let Some(answer) = &page.answer else { return Vec::new() };
    let refused = page.capacity.filter(|_| page.summary.refused > 0);
    let of_device =
        answer.verdicts.iter().find(|verdict| refused.is_none_or(|capacity| verdict.capacity == capacity));
    let Some(verdict) = of_device.filter(|_| answer.doubt.is_none()) else { return Vec::new() };
    let went_on = answer.did_without.iter().flat_map(|said| lines_of(&format!("{said}.")));
    let mut lines = vec![format!("{}.", verdict.text)];
    match &verdict.least_change {
        Some(choice) => {
            lines[0] = lines[0].replace(": fits", ": it fits");
            // What is to be pasted stays whole.
            return went_on
                .chain(lines_of(&lines[0]))
                .chain(choice.steps.iter().map(|step| format!("    {}", console::to_paste(step))))
                .chain([cut(&format!("  {}", gives(choice)))])
                .chain(
                    answer
                        .ends_refused
                        .then(|| "  What it would ask for after the refused request is not known.".into()),
                )
                .collect();
        }
        None if verdict.known => lines.push(missing(answer, verdict)),
        None => {}
    }
    went_on.chain(lines.iter().flat_map(|line| lines_of(line))).collect()
}

/// How much larger the device would have to be.
fn missing(answer: &Answer, verdict: &Verdict) -> String {
    let smallest =
        answer.smallest.as_ref().into_iter().flat_map(|smallest| [&smallest.pytorch, &smallest.granule]);
    let least = smallest.flatten().map(|device| device.found.min_capacity).min();
    let by = least.and_then(|least| least.checked_sub(verdict.capacity));
    let by = by.map(|by| {
        let by = size_text(by);
        if answer.ends_refused {
            format!(
                "{by} more would serve the refused request; what it would ask for after that is not known. "
            )
        } else {
            format!("For all of the recording {by} are missing; the lines above hold what there is. ")
        }
    });
    format!("{}What to do then: {REMEDIES}.", by.unwrap_or_default())
}

/// The recording of a folder that is worth most, and how many there are.
fn newest(folder: &Path) -> Result<(PathBuf, usize), Failure> {
    let none = || Failure::NoRecording(folder.to_owned());
    let entries = fs::read_dir(folder).map_err(|_| none())?.filter_map(Result::ok);
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let time = entry.metadata().ok().filter(fs::Metadata::is_file)?.modified().ok()?;
        (stem(&name) != name.trim_end_matches(".gz")).then(|| (name.contains("oom"), time, entry.path()))
    });
    let found: Vec<_> = found.collect();
    let count = found.len();
    found.into_iter().max().map(|(_, _, path)| (path, count)).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn blank_lines_go_where_there_is_no_room() {
        let part = |lines: usize| vec!["x".to_owned(); lines];
        assert_eq!(joined(vec![part(5), part(0), part(5)], 21).len(), 12);
        assert_eq!(joined(vec![part(10), part(10)], 21).len(), 21);
        assert_eq!(joined(vec![part(11), part(10)], 21).len(), 21, "no more than there is");
    }
}
