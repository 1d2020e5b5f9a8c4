//! An inspection for people.

pub(super) mod diff;
mod growth;
mod live;
mod memory;

use super::Inspected;
use crate::console::{self, counted};
use crate::table::{GLUE, Table};
use granule::round::size_text;
use granule_analysis::Inspection;
use granule_analysis::inspect::{Caller, HeldBlock, Place, View};
use std::fmt::Write as _;
use std::io::IsTerminal;

/// Rows of the tables that come unasked: they fit a window with the verdict.
const BRIEF: usize = 4;

/// The report; tables have `top` rows. Without `all` it is what decides. The verdict is where the eye is: last on a terminal, first in
/// a file.
pub(super) fn report(inspected: &Inspected, top: usize, all: bool) -> String {
    let verdict = console::strong(&console::wrapped(&inspected.summary.text));
    let tables = tables(inspected, top, all);
    if std::io::stdout().is_terminal() {
        format!("{tables}\n{verdict}\n")
    } else {
        format!("{verdict}\n\n{tables}")
    }
}

fn tables(inspected: &Inspected, top: usize, all: bool) -> String {
    let (mut text, top) = (String::new(), if all { top } else { top.min(BRIEF) });
    let Inspection { moments, refused, run, .. } = &inspected.inspection;
    head(inspected, all, &mut text);
    if let Some(refused) = refused {
        memory::write_refused(refused, run.refused, if all { top } else { 0 }, &mut text);
    }
    if (all || refused.is_none()) && moments.iter().any(|view| view.memory.is_some()) {
        let _ = writeln!(text, "\n{}", overview(moments, all || moments.len() == 1));
    }
    if moments.iter().any(|view| view.live.count > 0)
        && moments.iter().all(|view| view.live.by_caller.is_empty())
    {
        let why = "Who asked is not known: the file has no call stacks, as no trace has. granule record writes a snapshot with them.";
        let _ = writeln!(text, "\n{}", console::wrapped(why));
    }
    if all {
        for view in moments {
            live::write(view, top, &mut text);
            memory::write(view, top, &mut text);
        }
        growth::write(inspected, top, &mut text);
    } else if let Some(view) = moments.iter().find(|view| view.what == "oom").or(moments.first()) {
        live::write_most(view, top, &mut text);
        let _ = writeln!(text, "More: --all");
    }
    for note in &inspected.notes {
        let _ = writeln!(text, "{}", console::wrapped(&format!("Not exact: {note}.")));
    }
    text
}

/// What it is.
fn head(inspected: &Inspected, all: bool, text: &mut String) {
    let run = &inspected.inspection.run;
    let least = if inspected.lower_bounds { " at least" } else { "" };
    let mut line = format!(
        "{}: {}, {}",
        inspected.name,
        counted(run.entries, "entry"),
        counted(run.allocations, "allocation")
    );
    if run.older > 0 {
        let _ = write!(line, " ({} of them older than the history)", run.older);
    }
    if run.iterations > 0 {
        let _ = write!(line, ", {}", counted(run.iterations, "iteration"));
    }
    if let Some(conf) = inspected.conf.as_deref() {
        let _ = write!(line, ", settings '{conf}'");
    }
    let _ = writeln!(text, "{}", console::wrapped(&line));
    if all && run.entries > 0 {
        peaks(inspected, least, text);
    }
    if run.waited > 0 {
        let _ = writeln!(
            text,
            "{} waited for other streams when given back; at most {} at once, at entry {}",
            counted(run.waited, "block"),
            size_text(run.peak_waiting),
            run.peak_waiting_at
        );
    }
}

fn peaks(inspected: &Inspected, least: &str, text: &mut String) {
    let run = &inspected.inspection.run;
    let peaks = format!(
        "most live{least}: {} at entry {}; most reserved{least}: {} at entry {}{}",
        size_text(run.peak_live),
        run.peak_live_at,
        size_text(run.peak_reserved),
        run.peak_reserved_at,
        inspected.capacity.map(|bytes| format!(", of {}", size_text(bytes))).unwrap_or_default()
    );
    let _ = writeln!(text, "{}", console::wrapped(&peaks));
}

/// A table with a column for each moment, whose bytes sum up.
fn overview(views: &[View], all: bool) -> Table {
    let mut header = vec!["memory".to_owned()];
    header.extend(views.iter().map(title));
    let mut table = Table::new(header);
    let mut row = |name: &str, value: &dyn Fn(&View) -> String| {
        let mut row = vec![name.to_owned()];
        row.extend(views.iter().map(value));
        // Nothing of it is no news.
        if row[1..].iter().any(|value| value != "0 bytes") {
            table.row(row);
        }
    };
    let bytes = |of: fn(&granule_analysis::inspect::Memory) -> u64| {
        move |view: &View| view.memory.as_ref().map_or_else(String::new, |memory| size_text(of(memory)))
    };
    let count = |of: fn(&granule_analysis::inspect::Memory) -> u64| {
        move |view: &View| view.memory.as_ref().map_or_else(String::new, |memory| of(memory).to_string())
    };
    row("live, as requested", &bytes(|memory| memory.requested));
    row("+ rounded up by", &bytes(|memory| memory.rounding));
    row("+ tails too small to cut off", &bytes(|memory| memory.tails));
    row("+ waiting for other streams", &bytes(|memory| memory.waiting));
    row("+ free", &bytes(|memory| memory.free));
    row("= reserved", &bytes(|memory| memory.reserved));
    row("largest free piece", &bytes(|memory| memory.largest_free));
    if all {
        row("free pieces", &count(|memory| memory.free_pieces));
        row("segments", &count(|memory| memory.segments));
        row("of which idle", &|view| {
            let idle = |memory: &granule_analysis::inspect::Memory| {
                format!("{} ({})", memory.idle_segments, size_text(memory.idle))
            };
            view.memory.as_ref().map_or_else(String::new, idle)
        });
    }
    table.align_right(1..=views.len());
    table
}

/// A moment's name and place.
fn title(view: &View) -> String {
    let iteration = view.iteration.map(|number| format!(", iteration {number}")).unwrap_or_default();
    let name = match view.what {
        "peak" => "at the peak",
        "end" => "at the end",
        "oom" => "at the refusal",
        _ => "at the moment",
    };
    format!("{name} (entry {}{iteration})", view.at)
}

/// A table whose first columns are figures.
fn figures<const N: usize>(header: [&str; N], rows: Vec<[String; N]>, right: &[usize]) -> Table {
    let mut table = Table::new(header);
    for row in rows {
        table.row(row);
    }
    table.align_right(right.iter().copied());
    table
}

/// A part of a whole.
#[allow(clippy::cast_precision_loss)]
fn share(part: u64, of: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / of.max(1) as f64)
}

/// Who asked for it.
fn caller_text(caller: &Caller) -> String {
    if caller.place == Place::default() {
        return "(no stack was recorded)".into();
    }
    let mut text = caller.place.short();
    if let Some(through) = &caller.through {
        let _ = write!(text, "\n  through {}", through.short());
    }
    if let Some(by) = caller.called_by.first() {
        let _ = write!(text, "\n  called by {}", by.short());
    }
    text
}

/// A block in short: how large, since when, whose.
fn held_text(block: &HeldBlock) -> String {
    let mut text =
        format!("{} at {:#x}", size_text(block.size), block.address).replace(' ', &GLUE.to_string());
    match block.since {
        0 => text.push_str(", older than the history"),
        since => {
            let _ = write!(text, ", since entry {since}");
        }
    }
    if let Some(age) = block.age_us {
        let _ = write!(text, " ({})", age_text(age));
    }
    if block.waits {
        text.push_str(", waits for other streams");
    }
    if !block.label.is_empty() {
        let _ = write!(text, ", '{}'", block.label);
    }
    if let Some(caller) = &block.caller {
        let _ = write!(text, ", {}", caller.place.short());
    }
    text
}

#[allow(clippy::cast_precision_loss)]
fn age_text(us: u64) -> String {
    console::format_time(us as f64 * 1e3).replace(' ', &GLUE.to_string())
}

/// What pool and stream are called.
fn pool_text(pool: [u64; 2]) -> String {
    if pool == [0, 0] { "default".into() } else { format!("({}, {})", pool[0], pool[1]) }
}

fn stream_text(stream: u64) -> String {
    match stream {
        0 => "default".into(),
        1..=0xffff => stream.to_string(),
        handle => format!("{handle:#x}"),
    }
}
