//! What changed from one run to another.

use super::live::{Group, OfLabel, OfPool, OfStream, Size};
use super::memory::Memory;
use super::{Inspection, View};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

/// Two runs beside each other. Figures that are the same are there, groups that are the same are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Figures of the whole runs.
    pub run: Vec<Figure>,
    /// The moments that both have.
    pub moments: Vec<MomentChange>,
}

/// A figure of both runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// Whether it is bytes.
    pub bytes: bool,
    /// In the first run.
    pub before: u64,
    /// In the second.
    pub after: u64,
}

/// What is different at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MomentChange {
    /// `peak`, `end`, `oom` or `moment`.
    pub what: &'static str,
    /// How memory lay, where both files say it.
    pub memory: Vec<Figure>,
    /// By who asked, whatever the line.
    pub by_function: Vec<GroupChange<Function>>,
    /// By label.
    pub by_label: Vec<GroupChange<OfLabel>>,
    /// By exact size.
    pub by_size: Vec<GroupChange<Size>>,
    /// By stream.
    pub by_stream: Vec<GroupChange<OfStream>>,
    /// By pool.
    pub by_pool: Vec<GroupChange<OfPool>>,
}

/// A function that asked, whatever its line: an edited program has it elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Function {
    /// The source file, as recorded; empty with an empty name for allocations without a stack.
    pub file: String,
    /// The name.
    pub function: String,
}

/// What some allocations had live in both runs; those with the largest difference come first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupChange<K> {
    /// What they have in common.
    #[serde(flatten)]
    pub key: K,
    /// Requested bytes, before and after.
    pub bytes: [u64; 2],
    /// Allocations, before and after.
    pub count: [u64; 2],
}

impl Comparison {
    /// From the first to the second.
    #[must_use]
    pub fn new(first: &Inspection, second: &Inspection) -> Self {
        let of = |name, bytes, of: fn(&Inspection) -> u64| Figure {
            name,
            bytes,
            before: of(first),
            after: of(second),
        };
        let run = vec![
            of("most live", true, |it| it.run.peak_live),
            of("most reserved", true, |it| it.run.peak_reserved),
            of("live at the end", true, |it| it.run.live_at_end),
            of("reserved at the end", true, |it| it.run.reserved_at_end),
            of("most waiting for other streams", true, |it| it.run.peak_waiting),
            of("allocations", false, |it| it.run.allocations),
            of("refused requests", false, |it| it.run.refused),
            of("iterations", false, |it| it.run.iterations),
            of("suspects of a leak", false, |it| it.growth.suspects.len() as u64),
        ];
        let pairs = first.moments.iter().filter_map(|view| {
            let other = second.moments.iter().find(|other| other.what == view.what)?;
            Some(MomentChange::new(view, other))
        });
        Self { run, moments: pairs.collect() }
    }
}

impl MomentChange {
    fn new(first: &View, second: &View) -> Self {
        let memory = match (&first.memory, &second.memory) {
            (Some(first), Some(second)) => memory(first, second),
            _ => Vec::new(),
        };
        let [before, after] = [&first.live, &second.live];
        Self {
            what: first.what,
            memory,
            by_function: changes([&before.by_caller, &after.by_caller], |caller| {
                let (file, function) = caller.place.without_line();
                Function { file: file.to_owned(), function: function.to_owned() }
            }),
            by_label: changes([&before.by_label, &after.by_label], Clone::clone),
            by_size: changes([&before.by_size, &after.by_size], Clone::clone),
            by_stream: changes([&before.by_stream, &after.by_stream], Clone::clone),
            by_pool: changes([&before.by_pool, &after.by_pool], Clone::clone),
        }
    }
}

fn memory(first: &Memory, second: &Memory) -> Vec<Figure> {
    let of =
        |name, bytes, of: fn(&Memory) -> u64| Figure { name, bytes, before: of(first), after: of(second) };
    vec![
        of("live, as requested", true, |memory| memory.requested),
        of("rounded up by", true, |memory| memory.rounding),
        of("tails too small to cut off", true, |memory| memory.tails),
        of("waiting for other streams", true, |memory| memory.waiting),
        of("free", true, |memory| memory.free),
        of("reserved", true, |memory| memory.reserved),
        of("largest free piece", true, |memory| memory.largest_free),
        of("free pieces", false, |memory| memory.free_pieces),
        of("segments", false, |memory| memory.segments),
        of("free in segments that few bytes hold open", true, |memory| memory.held_open_free),
    ]
}

/// Groups of both runs under the same key, as `key` gives it.
fn changes<K, N: Hash + Eq + Clone>(runs: [&[Group<K>]; 2], key: impl Fn(&K) -> N) -> Vec<GroupChange<N>> {
    let mut places: HashMap<N, usize> = HashMap::new();
    let mut all: Vec<GroupChange<N>> = Vec::new();
    for (which, groups) in runs.into_iter().enumerate() {
        for group in groups {
            let key = key(&group.key);
            let place = *places.entry(key.clone()).or_insert_with(|| {
                all.push(GroupChange { key, bytes: [0; 2], count: [0; 2] });
                all.len() - 1
            });
            let change = &mut all[place];
            change.bytes[which] = change.bytes[which].saturating_add(group.bytes);
            change.count[which] += group.count;
        }
    }
    all.retain(|change| change.bytes[0] != change.bytes[1] || change.count[0] != change.count[1]);
    // Of equal differences those of the first run come first, as they did there.
    all.sort_by_key(|change| Reverse(change.bytes[0].abs_diff(change.bytes[1])));
    all
}
