//! Two runs beside each other, for people.

use super::super::Inspected;
use super::{figures, pool_text, stream_text};
use crate::table::Table;
use granule::round::size_text;
use granule_analysis::inspect::{Comparison, Figure, Function, GroupChange, Place};
use std::fmt::Write as _;

/// What changed from the first to the second; tables have `top` rows.
pub(crate) fn report(files: [&Inspected; 2], comparison: &Comparison, top: usize) -> String {
    let [first, second] = files;
    let mut text = format!("from {} to {}\n\n", first.name, second.name);
    let _ = writeln!(text, "{}", table("the whole run", &comparison.run));
    for change in &comparison.moments {
        let when = match change.what {
            "peak" => "at the peak",
            "end" => "at the end",
            "oom" => "at the first refusal",
            _ => "at the moment",
        };
        if !change.memory.is_empty() {
            let _ = writeln!(text, "\n{}", table(when, &change.memory));
        }
        let mut some = false;
        some |= groups("who asked", &change.by_function, top, &mut text, function_text);
        some |= groups("label", &change.by_label, top, &mut text, |key| key.label.clone());
        some |= groups("size of each", &change.by_size, top, &mut text, |key| size_text(key.size));
        if change.by_stream.len() > 1 {
            groups("stream", &change.by_stream, top, &mut text, |key| stream_text(key.stream));
        }
        if change.by_pool.len() > 1 {
            groups("pool", &change.by_pool, top, &mut text, |key| pool_text(key.pool));
        }
        if !some {
            let _ = writeln!(text, "What is live {when} is the same.");
        }
    }
    for file in files {
        for note in &file.notes {
            let _ = writeln!(text, "Not exact: {}: {note}.", file.name);
        }
    }
    text
}

fn table(what: &str, rows: &[Figure]) -> Table {
    let rows = rows.iter().map(|figure| {
        let text = |value: u64| if figure.bytes { size_text(value) } else { value.to_string() };
        let change = difference([figure.before, figure.after], figure.bytes);
        [figure.name.to_owned(), text(figure.before), text(figure.after), change]
    });
    figures([what, "before", "after", "change"], rows.collect(), &[1, 2, 3])
}

/// Whether there was anything to say.
fn groups<K>(
    what: &str,
    changes: &[GroupChange<K>],
    top: usize,
    text: &mut String,
    name: impl Fn(&K) -> String,
) -> bool {
    if changes.is_empty() {
        return false;
    }
    let row = |bytes: [u64; 2], count: [u64; 2], name: String| {
        let blocks = format!("{} to {}", count[0], count[1]);
        [difference(bytes, true), size_text(bytes[0]), size_text(bytes[1]), blocks, name]
    };
    let named = if changes.len() == top + 1 { changes.len() } else { changes.len().min(top) };
    let mut rows: Vec<_> =
        changes[..named].iter().map(|change| row(change.bytes, change.count, name(&change.key))).collect();
    if named < changes.len() {
        let others = &changes[named..];
        let sum = |of: &dyn Fn(&GroupChange<K>) -> u64| others.iter().map(of).fold(0u64, u64::saturating_add);
        let bytes = [sum(&|change| change.bytes[0]), sum(&|change| change.bytes[1])];
        let count = [sum(&|change| change.count[0]), sum(&|change| change.count[1])];
        rows.push(row(bytes, count, format!("({} others)", others.len())));
    }
    let _ = writeln!(text, "{}", figures(["change", "before", "after", "blocks", what], rows, &[0, 1, 2, 3]));
    true
}

fn difference([before, after]: [u64; 2], bytes: bool) -> String {
    let by = after.abs_diff(before);
    let text = if bytes { size_text(by) } else { by.to_string() };
    match after.cmp(&before) {
        std::cmp::Ordering::Less => format!("-{text}"),
        std::cmp::Ordering::Equal => "same".into(),
        std::cmp::Ordering::Greater => format!("+{text}"),
    }
}

fn function_text(function: &Function) -> String {
    let Function { file, function } = function.clone();
    if file.is_empty() && function.is_empty() {
        return "(no stack was recorded)".into();
    }
    Place { file, line: 0, function }.short()
}
