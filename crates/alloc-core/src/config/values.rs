//! Option values: as they are read, kept and written.

use super::plain::shortest;
use super::{AllocatorBackend, CrossStream, MemoryLimit, PolicyName, PytorchRelease, ReserveSize};
use crate::types::{GIB, MIB};
use std::path::PathBuf;

/// The most MiB that can be expressed in bytes.
pub(super) const MAX_MB: u64 = u64::MAX / MIB;

/// A value read from a text.
#[derive(Clone, Debug)]
pub(super) enum OptionValue {
    Backend(AllocatorBackend),
    Megabytes(u64),
    Unlimited,
    Count(u64),
    Ratio(f64),
    Switch(bool),
    Divisions([u64; 16]),
    Reserve(Option<ReserveSize>),
    Classes(Vec<(String, ReserveSize)>),
    Policy(PolicyName),
    Release(PytorchRelease),
    CrossStream(CrossStream),
    Limit(Option<MemoryLimit>),
    Path(PathBuf),
}

/// Kind of an option's value, which decides its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Backend,
    Megabytes,
    Count,
    Ratio,
    Switch,
    Divisions,
    Reserve,
    Classes,
    Policy,
    Release,
    CrossStream,
    Limit,
    HostReserve,
    Path,
}

/// A type that options are kept as.
pub(super) trait Stored {
    /// Keeps a value that was read for an option of this type.
    fn store(&mut self, value: OptionValue);

    /// As a text has it.
    fn written(&self, kind: ValueKind) -> String;
}

/// Sizes are read in MiB and kept in bytes.
impl Stored for u64 {
    fn store(&mut self, value: OptionValue) {
        match value {
            OptionValue::Megabytes(mb) => *self = mb.min(MAX_MB) * MIB,
            OptionValue::Unlimited => *self = u64::MAX,
            OptionValue::Count(count) => *self = count,
            other => misplaced(&other),
        }
    }

    fn written(&self, kind: ValueKind) -> String {
        if kind == ValueKind::Megabytes { (self / MIB).to_string() } else { self.to_string() }
    }
}

/// Types that are kept as they are read.
macro_rules! kept {
    ($($type:ty, $value:pat => $kept:expr, $written:expr;)+) => {$(
        impl Stored for $type {
            fn store(&mut self, value: OptionValue) {
                match value {
                    $value => *self = $kept,
                    other => misplaced(&other),
                }
            }

            fn written(&self, _: ValueKind) -> String {
                let write: fn(&Self) -> String = $written;
                write(self)
            }
        }
    )+};
}

kept! {
    AllocatorBackend, OptionValue::Backend(x) => x, |backend| backend.name().into();
    f64, OptionValue::Ratio(x) => x, |share| shortest(*share);
    bool, OptionValue::Switch(x) => x, |on| if *on { "True" } else { "False" }.into();
    [u64; 16], OptionValue::Divisions(x) => x, divisions_text;
    Option<ReserveSize>, OptionValue::Reserve(x) => x, |size| size.map_or("full".into(), reserve_text);
    Vec<(String, ReserveSize)>, OptionValue::Classes(x) => x, |classes| classes_text(classes);
    Option<PolicyName>, OptionValue::Policy(x) => Some(x), |policy| policy.unwrap_or_default().to_string();
    Option<PytorchRelease>, OptionValue::Release(x) => Some(x), |release| release.unwrap_or_default().to_string();
    CrossStream, OptionValue::CrossStream(x) => x, |which| which.name().into();
    PathBuf, OptionValue::Path(x) => x, |path| path.display().to_string();
}

impl Stored for Option<MemoryLimit> {
    fn store(&mut self, value: OptionValue) {
        match value {
            OptionValue::Limit(limit) => *self = limit,
            other => misplaced(&other),
        }
    }

    fn written(&self, kind: ValueKind) -> String {
        match self {
            None if kind == ValueKind::HostReserve => "default".into(),
            None => "unlimited".into(),
            Some(MemoryLimit::Bytes(0)) => "0".into(),
            Some(limit) => limit.to_string(),
        }
    }
}

/// A row of the options' table reads values of one kind and keeps another.
fn misplaced(value: &OptionValue) {
    debug_assert!(false, "no option of this type takes {value:?}");
}

/// The two words of a boolean.
pub(super) fn switch(token: &str) -> Option<bool> {
    match token {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// A reserve size: a fraction, or GiB with the suffix `G`; positive, finite, and nothing after it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn reserve(token: &str) -> Option<ReserveSize> {
    let (number, gib) = match token.strip_suffix(['G', 'g']) {
        Some(number) => (number, true),
        None => (token, false),
    };
    let value: f64 = number.parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0)?;
    // The cast saturates, as PyTorch's conversion does.
    Some(if gib { ReserveSize::Bytes((value * GIB as f64) as u64) } else { ReserveSize::Fraction(value) })
}

/// Puts the divisions of one list entry into the table. `>` stands for everything after the last boundary.
#[derive(Clone, Debug)]
pub(super) struct DivisionTable {
    table: [u64; 16],
    last: usize,
    first: bool,
}

impl DivisionTable {
    pub(super) fn new() -> Self {
        Self { table: [0; 16], last: 0, first: true }
    }

    /// Divisions by class.
    pub(super) fn value(self) -> OptionValue {
        OptionValue::Divisions(self.table)
    }

    /// Everything past the last boundary.
    pub(super) fn rest(&mut self, divisions: u64) {
        self.table[self.last + 1..].fill(divisions);
    }

    /// The class that starts at `boundary_mb`, a power of two. The first boundary also fills all below it.
    pub(super) fn class(&mut self, boundary_mb: u64, divisions: u64) {
        let index = (boundary_mb.trailing_zeros() as usize).min(15);
        let from = if self.first { 0 } else { index };
        self.table[from..=index].fill(divisions);
        self.first = false;
        self.last = index;
    }
}

#[allow(clippy::cast_precision_loss)]
fn reserve_text(size: ReserveSize) -> String {
    match size {
        ReserveSize::Fraction(share) => shortest(share),
        ReserveSize::Bytes(bytes) => format!("{}G", shortest(bytes as f64 / GIB as f64)),
    }
}

fn classes_text(classes: &[(String, ReserveSize)]) -> String {
    let entries: Vec<_> =
        classes.iter().map(|(name, size)| format!("{name}:{}", reserve_text(*size))).collect();
    format!("[{}]", entries.join(","))
}

/// The first entry of a list fills all classes up to its own, later ones only their own, and `>` all that
/// follow the one before it.
fn divisions_text(table: &[u64; 16]) -> String {
    let [first, .., last] = *table;
    if table.iter().all(|n| *n == first) {
        return first.to_string();
    }
    let head = table.iter().take_while(|n| **n == first).count() - 1;
    let tail = 16 - table.iter().rev().take_while(|n| **n == last).count();
    let mut entries = vec![format!("{}:{first}", 1u64 << head)];
    let mut written = head;
    for (index, n) in table.iter().enumerate().skip(head + 1) {
        if *n == 0 {
            continue;
        }
        if index >= tail && written + 1 == index && index < 15 {
            entries.push(format!(">:{n}"));
            break;
        }
        entries.push(format!("{}:{n}", 1u64 << index));
        written = index;
    }
    format!("[{}]", entries.join(","))
}
