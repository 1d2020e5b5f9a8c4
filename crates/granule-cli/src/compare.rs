//! Figures of a replay beside those of PyTorch's native allocator from the trace header.

use crate::console::format_time;
use crate::workload::Workload;
use comfy_table::{Cell, CellAlignment, Table, presets};
use granule::config::{Flavour, PolicyName, Settings, pytorch};
use granule::files::trace::{NativeResult, TraceHeader};
use granule::replay::ReplayResult;
use granule::round::format_bytes;
use std::fmt::Write as _;

/// What figures depend on, besides the workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions<'a> {
    pub(crate) settings: &'a Settings,
    /// What it ran on, with its article.
    pub(crate) device: &'a str,
    /// Events that the device was behind; it was 0 in recorded results.
    pub(crate) lag: u64,
    /// All events of the recorded program were replayed.
    pub(crate) whole: bool,
}

/// Whether two figures are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Same,
    /// Ours minus theirs.
    Differs(i128),
}

impl Mark {
    pub(crate) fn new(ours: u64, theirs: u64) -> Self {
        match i128::from(ours) - i128::from(theirs) {
            0 => Self::Same,
            difference => Self::Differs(difference),
        }
    }

    /// For people; `bytes` says that the figures are bytes.
    pub(crate) fn text(self, bytes: bool) -> String {
        match self {
            Self::Same => "same".into(),
            Self::Differs(by) => {
                let sign = if by < 0 { '-' } else { '+' };
                let size = u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX);
                let size = if bytes { format_bytes(size) } else { size.to_string() };
                format!("differs: {sign}{size}")
            }
        }
    }
}

/// The native result under the same settings, with its name; of several, the one on a device of `capacity`.
pub(crate) fn native_like<'h>(
    header: &'h TraceHeader,
    settings: &Settings,
    capacity: Option<u64>,
) -> Option<(&'h str, &'h NativeResult)> {
    let wanted = comparable(settings);
    let same: Vec<_> = header
        .native
        .iter()
        .filter(|(_, native)| {
            let theirs = pytorch::parse(&native.conf, &Settings::default(), Flavour::Cuda);
            theirs.is_ok_and(|theirs| comparable(&theirs.settings) == wanted)
        })
        .collect();
    same.iter().find(|(_, native)| native.capacity == capacity).or(same.first()).copied()
}

/// The settings without what is not PyTorch's.
fn comparable(settings: &Settings) -> Settings {
    Settings {
        policy: PolicyName::default(),
        history_max_entries: 0,
        text: String::new(),
        ..settings.clone()
    }
}

/// The table of a replay, with a line above it that says what was done and lines below that say how far
/// the comparison goes.
pub(crate) fn report(workload: &Workload, result: &ReplayResult, conditions: &Conditions<'_>) -> String {
    let native = native_like(&workload.trace.header, conditions.settings, Some(result.capacity));
    let mut text = format!(
        "{}: {} events on {} of {}, policy {}, settings '{}'\n",
        workload.name,
        result.events,
        conditions.device,
        format_bytes(result.capacity),
        result.policy,
        result.conf
    );
    let _ = write!(text, "{}", table(result, native.map(|(_, native)| native)));
    match native {
        Some((_, native)) => {
            for reason in differences(native, result, conditions) {
                let _ = write!(text, "\nNot the same conditions: {reason}.");
            }
        }
        None => text.push_str(&without_native(&workload.trace.header)),
    }
    text
}

/// What was not alike, although the settings were.
fn differences(native: &NativeResult, result: &ReplayResult, conditions: &Conditions<'_>) -> Vec<String> {
    let mut reasons = Vec::new();
    match native.capacity {
        Some(theirs) if theirs != result.capacity => reasons.push(format!(
            "native had a device of {}, this replay one of {}",
            format_bytes(theirs),
            format_bytes(result.capacity)
        )),
        Some(_) => {}
        None => reasons.push("the file does not say how large native's device was".into()),
    }
    if conditions.lag != 0 {
        reasons.push(format!(
            "native's device completed work at once, this one {} events later",
            conditions.lag
        ));
    }
    if !conditions.whole {
        reasons.push("native's figures are those of the whole run, of which this is a part".into());
    }
    reasons
}

fn without_native(header: &TraceHeader) -> String {
    let recorded: Vec<_> =
        header.native.iter().map(|(name, native)| format!("{name} ('{}')", native.conf)).collect();
    if recorded.is_empty() {
        return "\nThe file has no results of PyTorch's native allocator to compare with.".into();
    }
    format!("\nPyTorch's native results in the file have other settings: {}.", recorded.join(", "))
}

/// A line of the table.
struct Row {
    name: &'static str,
    ours: String,
    theirs: String,
    mark: String,
}

impl Row {
    /// A figure that native has too, if the file says so.
    fn both(name: &'static str, ours: i64, theirs: Option<u64>, bytes: bool) -> Self {
        // Figures of a whole run are never negative.
        let ours = ours.unsigned_abs();
        let show = |figure: u64| if bytes { format_bytes(figure) } else { figure.to_string() };
        let mark = theirs.map(|theirs| Mark::new(ours, theirs).text(bytes)).unwrap_or_default();
        Self { name, ours: show(ours), theirs: theirs.map(show).unwrap_or_default(), mark }
    }

    fn bytes(name: &'static str, ours: i64, theirs: Option<u64>) -> Self {
        Self::both(name, ours, theirs, true)
    }

    fn count(name: &'static str, ours: i64, theirs: Option<u64>) -> Self {
        Self::both(name, ours, theirs, false)
    }

    /// A figure that is not marked.
    fn plain(name: &'static str, ours: String, theirs: Option<String>) -> Self {
        Self { name, ours, theirs: theirs.unwrap_or_default(), mark: String::new() }
    }
}

fn table(result: &ReplayResult, native: Option<&NativeResult>) -> Table {
    let of = |figure: fn(&NativeResult) -> Option<u64>| native.and_then(figure);
    let native_efficiency = native.and_then(native_efficiency).map(|e| format!("{e:.4}"));
    let mut rows = vec![
        Row::bytes("peak requested", result.requested_bytes_peak, of(|n| n.requested_bytes_peak)),
        Row::bytes("peak allocated", result.allocated_bytes_peak, of(|n| n.allocated_bytes_peak)),
        Row::bytes("peak active", result.active_bytes_peak, of(|n| n.active_bytes_peak)),
        Row::bytes("peak reserved", result.reserved_bytes_peak, of(|n| n.reserved_bytes_peak)),
        Row::plain("E (peak requested / reserved)", format!("{:.4}", result.efficiency), native_efficiency),
        Row::count("device allocations", result.num_device_alloc, of(|n| n.num_device_alloc)),
        Row::count("device frees", result.num_device_free, of(|n| n.num_device_free)),
        Row::count("retries", result.num_alloc_retries, of(|n| n.num_alloc_retries)),
        Row::count("OOMs", result.num_ooms, of(|n| n.num_ooms)),
        Row::plain("refused requests", result.refused.to_string(), None),
    ];
    rows.extend(native.and_then(|native| iteration_marks(result, native)));
    rows.push(Row::plain("host time per operation", format_time(result.ns_per_op), None));
    #[allow(clippy::cast_precision_loss)]
    let driver_time = format_time(result.modelled_driver_ns as f64);
    rows.push(Row::plain("modelled driver time", driver_time, None));

    let ours = format!("granule {}", result.policy);
    let mut table = match native {
        Some(native) => new_table(["figure", &ours, &native_title(native, result), ""]),
        None => new_table(["figure", &ours]),
    };
    let columns = table.column_count();
    for Row { name, ours, theirs, mark } in rows {
        let cells = [name.into(), ours, theirs, mark];
        table.add_row(cells.into_iter().take(columns).map(Cell::new));
    }
    align_right(&mut table, [1, 2]);
    table
}

/// Names the device where it was another one.
fn native_title(native: &NativeResult, result: &ReplayResult) -> String {
    match native.capacity {
        Some(theirs) if theirs != result.capacity => format!("PyTorch native on {}", format_bytes(theirs)),
        _ => "PyTorch native".into(),
    }
}

/// Figures at the beginning of each iteration, compared as a whole.
fn iteration_marks(result: &ReplayResult, native: &NativeResult) -> Option<Row> {
    if native.marks.is_empty() {
        return None;
    }
    let same = result.marks.iter().zip(&native.marks).filter(|(ours, theirs)| ours == theirs).count();
    let all = same == native.marks.len() && same == result.marks.len();
    let mark = if all { "same".into() } else { format!("differs: {same} are the same") };
    let (ours, theirs) = (result.marks.len().to_string(), native.marks.len().to_string());
    Some(Row { name: "iteration marks", ours, theirs, mark })
}

#[allow(clippy::cast_precision_loss)]
fn native_efficiency(native: &NativeResult) -> Option<f64> {
    let (requested, reserved) = (native.requested_bytes_peak?, native.reserved_bytes_peak?);
    (reserved > 0).then(|| requested as f64 / reserved as f64)
}

/// An empty table in this command's style.
pub(crate) fn new_table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(header);
    table
}

/// Numbers stand to the right.
pub(crate) fn align_right<const N: usize>(table: &mut Table, columns: [usize; N]) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mark, native_like};
    use granule::config::{PolicyName, Settings};
    use granule::files::trace::{NativeResult, NativeResults, TraceHeader};

    #[test]
    fn marks_say_how_much_is_missing() {
        assert_eq!(Mark::new(5, 5).text(true), "same");
        assert_eq!(Mark::new(3 << 20, 1 << 20).text(true), "differs: +2.00 MiB");
        assert_eq!(Mark::new(0, u64::MAX).text(false), "differs: -18446744073709551615");
    }

    #[test]
    fn native_results_are_found_by_what_their_settings_mean() {
        let native = |conf: &str, capacity| NativeResult {
            conf: conf.into(),
            capacity: Some(capacity),
            ..NativeResult::default()
        };
        let header = TraceHeader {
            native: NativeResults(vec![
                ("unreadable".into(), native("no_such_option:1", 80)),
                ("default".into(), native("", 80)),
                ("small".into(), native("", 24)),
                ("split".into(), native("max_split_size_mb:128", 80)),
            ]),
            ..TraceHeader::default()
        };
        let name =
            |settings: &Settings, capacity| native_like(&header, settings, capacity).map(|(name, _)| name);
        let plain =
            Settings { text: "backend:native".into(), policy: PolicyName::Pytorch, ..Settings::default() };
        assert_eq!(name(&plain, Some(24)), Some("small"));
        assert_eq!(name(&plain, Some(99)), Some("default"), "the first, where none has this capacity");
        let split = Settings { max_split_size: 128 << 20, history_max_entries: 7, ..Settings::default() };
        assert_eq!(name(&split, None), Some("split"));
        let growable = Settings { expandable_segments: true, ..Settings::default() };
        assert_eq!(name(&growable, Some(80)), None);
    }
}
