//! What was live at a moment, by what the allocations have in common.

use super::Context;
use super::place::Caller;
use crate::Run;
use crate::run::{Allocation, Moment};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::hash::Hash;

/// What was handed out at a moment. Bytes are as requested; groups come by bytes, the largest first, and are complete: those of
/// one list sum up to `bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Live {
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
    /// By exact size.
    pub by_size: Vec<Group<Size>>,
    /// By powers of two.
    pub by_class: Vec<Group<Class>>,
    /// By stream.
    pub by_stream: Vec<Group<OfStream>>,
    /// By pool.
    pub by_pool: Vec<Group<OfPool>>,
    /// By caller; empty where the file has no stacks. A caller without a name stands for allocations without a stack.
    pub by_caller: Vec<Group<Caller>>,
    /// By the text that the program gave them; empty where it gave none.
    pub by_label: Vec<Group<OfLabel>>,
}

/// Some allocations that have something in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group<K> {
    /// What that is.
    #[serde(flatten)]
    pub key: K,
    /// Requested bytes.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
}

/// Allocations of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Size {
    /// Bytes of each.
    pub size: u64,
}

/// Allocations of more than half of `up_to` bytes, and not more than it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Class {
    /// A power of two; 512 has all smaller ones, and 2^63 all larger ones.
    pub up_to: u64,
}

/// Allocations of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct OfStream {
    /// Its handle, or its number in a trace; 0 is the default stream.
    pub stream: u64,
}

/// Allocations of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct OfPool {
    /// The two numbers that name it; `[0, 0]` is the default pool.
    pub pool: [u64; 2],
}

/// Allocations with one text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct OfLabel {
    /// The text.
    pub label: String,
}

impl Live {
    pub(super) fn at(context: &Context<'_>, at: Moment) -> Self {
        let run = context.run;
        let live = || live_at(run, at);
        Self {
            bytes: live().fold(0, |sum: u64, life| sum.saturating_add(life.size)),
            count: live().count() as u64,
            by_size: by(live(), |life| life.size, |size| Size { size }),
            by_class: by(live(), |life| class(life.size), |up_to| Class { up_to }),
            by_stream: by(live(), |life| life.stream, |stream| OfStream { stream: context.stream(stream) }),
            by_pool: by(live(), |life| life.pool, |pool| OfPool { pool: context.pool(pool) }),
            by_caller: by_caller(context, at),
            by_label: if run.labels.len() <= 1 {
                Vec::new()
            } else {
                by(live(), |life| life.label, |label| OfLabel { label: context.label(label) })
            },
        }
    }
}

pub(super) fn live_at(run: &Run, at: Moment) -> impl Iterator<Item = &Allocation> {
    run.allocations.iter().take_while(move |life| life.begin <= at).filter(move |life| life.is_live(at))
}

/// What each caller had live; empty where the file has no stacks.
pub(super) fn by_caller(context: &Context<'_>, at: Moment) -> Vec<Group<Caller>> {
    if context.callers.is_empty() {
        return Vec::new();
    }
    let number = |life: &Allocation| context.callers.number(life.site);
    by(live_at(context.run, at), number, |number| context.callers.get(number).clone())
}

/// The power of two that a size fits.
fn class(size: u64) -> u64 {
    size.max(512).checked_next_power_of_two().unwrap_or(1 << 63)
}

/// Groups by a key, the largest first; of equal ones the one with the smaller key.
pub(super) fn by<'a, K: Hash + Eq + Ord + Copy, N>(
    live: impl Iterator<Item = &'a Allocation>,
    key: impl Fn(&Allocation) -> K,
    name: impl Fn(K) -> N,
) -> Vec<Group<N>> {
    let mut groups: FxHashMap<K, (u64, u64)> = FxHashMap::default();
    for life in live {
        let (bytes, count) = groups.entry(key(life)).or_default();
        (*bytes, *count) = (bytes.saturating_add(life.size), *count + 1);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(key, (bytes, _))| (std::cmp::Reverse(*bytes), *key));
    groups.into_iter().map(|(key, (bytes, count))| Group { key: name(key), bytes, count }).collect()
}

#[cfg(test)]
mod tests {
    use super::class;

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([0, 1, 512, 513, 1024, 1025].map(class), [512, 512, 512, 1024, 1024, 2048]);
        assert_eq!([1 << 63, u64::MAX].map(class), [1 << 63, 1 << 63]);
    }
}
