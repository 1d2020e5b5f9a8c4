//! Figures of a replay beside those of PyTorch's native allocator from the trace header.

mod plan;

use crate::console::{counted, format_time, wrapped};
use crate::table::Table;
use crate::workload::{Origin, Workload};
use granule::config::Settings;
use granule::round::size_text;
use granule_analysis::replay::{CostModel, ReplayResult, native_driver_ns};
use granule_snapshot::trace::{NativeResult, TraceHeader};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What figures depend on, besides the workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions<'a> {
    pub(crate) settings: &'a Settings,
    /// What it ran on, with its article.
    pub(crate) device: &'a str,
    /// What every request was multiplied by.
    pub(crate) scale: Option<f64>,
    /// Events that the device was behind; it was 0 in recorded results.
    pub(crate) lag: u64,
    /// What driver calls cost on it.
    pub(crate) costs: &'a CostModel,
    /// All events of the recorded program were replayed.
    pub(crate) whole: bool,
    /// Reserved bytes at the end.
    pub(crate) reserved_end: u64,
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

    /// For people; `bytes` says that the figures are bytes, and `theirs` is the part of which a difference is told.
    pub(crate) fn text(self, bytes: bool, theirs: u64) -> String {
        match self {
            Self::Same => "same".into(),
            Self::Differs(by) => {
                let sign = if by < 0 { '−' } else { '+' };
                let size = u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX);
                let size = if bytes { size_text(size) } else { size.to_string() };
                let share = (theirs > 0).then(|| (by.unsigned_abs() * 200 / u128::from(theirs)).div_ceil(2));
                format!(
                    "{sign}{size}{}",
                    share.map(|percent| format!(" ({sign}{percent} %)")).unwrap_or_default()
                )
            }
        }
    }
}

/// The table of a replay, with a line above it that says what was done and lines below that say how far
/// the comparison goes.
pub(crate) fn report(workload: &Workload, result: &ReplayResult, conditions: &Conditions<'_>) -> String {
    let native = workload.native_like(conditions.settings, Some(result.capacity));
    let settings = if result.conf.is_empty() {
        "default settings".to_owned()
    } else {
        format!("settings '{}'", result.conf)
    };
    let said = format!(
        "{}: {} on {} of {}, policy {}, {settings}",
        workload.name,
        counted(result.events, "event"),
        conditions.device,
        size_text(result.capacity),
        result.policy
    );
    let mut text = wrapped(&said) + "\n";
    let native = native.map(|(_, native)| Native::new(native, workload, result, conditions));
    let _ = write!(text, "{}", table(result, conditions, native.as_ref()));
    if let Some(figures) = &result.plan {
        let _ = write!(text, "\n{}", plan::report(figures));
    }
    match native {
        Some(native) => {
            for reason in native.differences {
                let _ = write!(text, "\n{}", wrapped(&format!("Not the same conditions: {reason}.")));
            }
        }
        None => {
            let _ = write!(text, "\n{}", wrapped(&without_native(&workload.trace.header)));
        }
    }
    text
}

/// The results that a replay is put beside.
struct Native<'a> {
    result: &'a NativeResult,
    /// Why the figures are not to be compared; empty if they are.
    differences: Vec<String>,
    /// Where a snapshot has them.
    recording: Option<&'a Origin>,
}

impl<'a> Native<'a> {
    fn new(
        native: &'a NativeResult,
        workload: &'a Workload,
        result: &ReplayResult,
        conditions: &Conditions<'_>,
    ) -> Self {
        let recording = workload.recording.as_ref();
        let differences = match recording {
            Some(recording) => recorded_differently(recording),
            None => differences(native, result, conditions),
        };
        Self { result: native, differences, recording }
    }

    fn comparable(&self) -> bool {
        self.differences.is_empty()
    }

    /// Names the device where it was another one, and says if figures are only shown.
    fn title(&self, capacity: u64) -> String {
        let whose = match (self.recording, self.result.capacity) {
            (Some(recording), _) => format!("recorded by {}", recording.by()),
            (None, Some(theirs)) if theirs != capacity => {
                format!("PyTorch native on {}", size_text(theirs))
            }
            _ => "PyTorch native".into(),
        };
        if self.comparable() { whose } else { format!("{whose} (not compared)") }
    }
}

/// What `--json` says about native results.
#[derive(Debug, Serialize)]
pub(crate) struct NativeAnswer<'a> {
    /// The configuration's name in the file.
    name: &'a str,
    recorded_by: &'static str,
    conf: &'a str,
    capacity: Option<u64>,
    comparable: bool,
    /// Why not.
    differences: Vec<String>,
    /// What its driver calls would have cost, at least, by the simulated device's cost model.
    modelled_driver_ns: Option<u64>,
    /// By the names of trace headers.
    figures: BTreeMap<&'static str, FigureAnswer>,
}

#[derive(Debug, Serialize)]
struct FigureAnswer {
    native: u64,
    /// `same` or `differs`; null where the figures are not to be compared.
    verdict: Option<&'static str>,
}

/// The native results under the same settings.
pub(crate) fn native_answer<'a>(
    workload: &'a Workload,
    result: &ReplayResult,
    conditions: &Conditions<'_>,
) -> Option<NativeAnswer<'a>> {
    let (name, native) = workload.native_like(conditions.settings, Some(result.capacity))?;
    let native = Native::new(native, workload, result, conditions);
    let figures = figures(result, conditions, Some(&native)).into_iter().filter_map(|figure| {
        let theirs = figure.theirs?;
        let verdict = match Mark::new(figure.ours, theirs) {
            _ if !native.comparable() => None,
            Mark::Same => Some("same"),
            Mark::Differs(_) => Some("differs"),
        };
        Some((figure.key, FigureAnswer { native: theirs, verdict }))
    });
    Some(NativeAnswer {
        name,
        recorded_by: native.recording.map_or("PyTorch", Origin::by),
        conf: &native.result.conf,
        capacity: native.result.capacity,
        modelled_driver_ns: native_driver_ns(native.result, conditions.costs),
        comparable: native.comparable(),
        figures: figures.collect(),
        differences: native.differences,
    })
}

/// Why a replay does not repeat the run that a snapshot is of.
fn recorded_differently(recording: &Origin) -> Vec<String> {
    let by = recording.by();
    let mut reasons = vec![format!("the snapshot does not say how large {by}'s device was")];
    if recording.figures.window {
        reasons
            .push(format!("{by}'s figures are those of the recorded window, and the replay begins with it"));
    }
    reasons
}

/// What was not alike, although the settings were.
fn differences(native: &NativeResult, result: &ReplayResult, conditions: &Conditions<'_>) -> Vec<String> {
    let mut reasons = Vec::new();
    match native.capacity {
        Some(theirs) if theirs != result.capacity => reasons.push(format!(
            "native had a device of {}, this replay one of {}",
            size_text(theirs),
            size_text(result.capacity)
        )),
        Some(_) => {}
        None => reasons.push("the file does not say how large native's device was".into()),
    }
    if conditions.lag != 0 {
        reasons.push(format!(
            "native's device completed work at once, this one {} later",
            counted(conditions.lag, "event")
        ));
    }
    if let Some(factor) = conditions.scale {
        reasons.push(format!("every request was multiplied by {factor}"));
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
        return "The file has no results of PyTorch's native allocator to compare with.".into();
    }
    format!("PyTorch's native results in the file have other settings: {}.", recorded.join(", "))
}

/// A figure that native may have too.
struct Figure {
    /// Its name in trace headers.
    key: &'static str,
    /// Its name in the table.
    name: &'static str,
    ours: u64,
    theirs: Option<u64>,
    is_bytes: bool,
}

/// All of them, in the table's order.
fn figures(result: &ReplayResult, conditions: &Conditions<'_>, native: Option<&Native<'_>>) -> Vec<Figure> {
    let of = |figure: fn(&NativeResult) -> Option<u64>| native.and_then(|native| figure(native.result));
    // Figures of a whole run are never negative.
    let figure = |key, name, ours: i64, theirs, is_bytes| Figure {
        key,
        name,
        ours: ours.unsigned_abs(),
        theirs,
        is_bytes,
    };
    let bytes = |key, name, ours, theirs| figure(key, name, ours, theirs, true);
    let count = |key, name, ours, theirs| figure(key, name, ours, theirs, false);
    let mut figures = vec![
        bytes(
            "requested_bytes_peak",
            "peak requested",
            result.requested_bytes_peak,
            of(|n| n.requested_bytes_peak),
        ),
        bytes(
            "allocated_bytes_peak",
            "peak allocated",
            result.allocated_bytes_peak,
            of(|n| n.allocated_bytes_peak),
        ),
        bytes("active_bytes_peak", "peak active", result.active_bytes_peak, of(|n| n.active_bytes_peak)),
        bytes(
            "reserved_bytes_peak",
            "peak reserved",
            result.reserved_bytes_peak,
            of(|n| n.reserved_bytes_peak),
        ),
    ];
    if let Some(recording) = native.and_then(|native| native.recording) {
        figures.push(Figure {
            key: "reserved_bytes_end",
            name: "reserved at the end",
            ours: conditions.reserved_end,
            theirs: Some(recording.figures.reserved_end),
            is_bytes: true,
        });
    }
    figures.extend([
        count("num_device_alloc", "device allocations", result.num_device_alloc, of(|n| n.num_device_alloc)),
        count("num_device_free", "device frees", result.num_device_free, of(|n| n.num_device_free)),
        count("num_alloc_retries", "retries", result.num_alloc_retries, of(|n| n.num_alloc_retries)),
        count("num_ooms", "OOMs", result.num_ooms, of(|n| n.num_ooms)),
    ]);
    figures
}

/// A line of the table.
struct Row {
    name: &'static str,
    ours: String,
    theirs: String,
    mark: String,
}

impl Row {
    fn new(figure: &Figure) -> Self {
        let show = |value: u64| if figure.is_bytes { size_text(value) } else { value.to_string() };
        let mark = figure.theirs.map(|theirs| Mark::new(figure.ours, theirs).text(figure.is_bytes, theirs));
        Self {
            name: figure.name,
            ours: show(figure.ours),
            theirs: figure.theirs.map(show).unwrap_or_default(),
            mark: mark.unwrap_or_default(),
        }
    }

    /// A figure that is not marked.
    fn plain(name: &'static str, ours: String, theirs: Option<String>) -> Self {
        Self { name, ours, theirs: theirs.unwrap_or_default(), mark: String::new() }
    }
}

fn table(result: &ReplayResult, conditions: &Conditions<'_>, native: Option<&Native<'_>>) -> Table {
    let figures = figures(result, conditions, native);
    let mut rows = Vec::with_capacity(figures.len() + 5);
    for figure in &figures {
        if figure.key == "num_device_alloc" {
            let ratio = |ratio: f64| format!("{ratio:.4}");
            let theirs = native.and_then(|native| native_efficiency(native.result)).map(ratio);
            let ours = result.efficiency.map_or_else(|| "nothing reserved".into(), ratio);
            rows.push(Row::plain("E (peak requested / reserved)", ours, theirs));
        }
        if figure.ours > 0 || figure.theirs.is_some_and(|theirs| theirs > 0) {
            rows.push(Row::new(figure));
        }
    }
    if result.refused > 0 {
        rows.push(Row::plain("refused requests", result.refused.to_string(), None));
    }
    rows.extend(native.and_then(|native| iteration_marks(result, native.result)));
    rows.push(Row::plain("host time per operation", format_time(result.ns_per_op), None));
    if let Some(simulated) = &result.simulated {
        #[allow(clippy::cast_precision_loss)]
        let time = |ns: u64| format_time(ns as f64);
        let theirs = native.and_then(|native| native_driver_ns(native.result, conditions.costs));
        rows.push(Row::plain("modelled driver time", time(simulated.modelled_driver_ns), theirs.map(time)));
    }

    let ours = format!("granule {}", result.policy);
    let mut table = match native {
        Some(native) if native.comparable() => {
            Table::new(["figure", &ours, &native.title(result.capacity), ""])
        }
        Some(native) => Table::new(["figure", &ours, &native.title(result.capacity)]),
        None => Table::new(["figure", &ours]),
    };
    for Row { name, ours, theirs, mark } in rows {
        table.row([name.into(), ours, theirs, mark]);
    }
    table.align_right([1, 2]);
    table
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

#[cfg(test)]
mod tests {
    use super::Mark;

    #[test]
    fn marks_say_how_much_is_missing() {
        let text = |ours, theirs, bytes| Mark::new(ours, theirs).text(bytes, theirs);
        assert_eq!(text(5, 5, true), "same");
        assert_eq!(text(3 << 20, 1 << 20, true), "+2.00 MiB (+200 %)");
        assert_eq!(text(0, u64::MAX, false), "−18446744073709551615 (−100 %)");
        assert_eq!(text(2, 0, false), "+2", "there is no part of nothing");
    }
}
