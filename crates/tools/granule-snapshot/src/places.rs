//! Where a snapshot has memory, and what of its history cannot be.

use alloc_core::snapshot::{Action, Snapshot, TraceEntry};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Addresses of memory.
pub(crate) struct Places(Vec<(u64, u64)>);

impl Places {
    /// Those of ranges, by first address and size.
    fn new(ranges: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut ranges: Vec<_> = ranges.map(|(first, size)| (first, first.saturating_add(size))).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, one| {
            let joins = next.0 <= one.1;
            one.1 = if joins { one.1.max(next.1) } else { one.1 };
            joins
        });
        Self(ranges)
    }

    /// Those that a snapshot tells of, now or in its history.
    pub(crate) fn known(snapshot: &Snapshot) -> Self {
        let taken = snapshot.device_traces.iter().chain([&snapshot.host_traces]).flatten();
        let taken = taken.filter(|entry| matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap));
        let there = snapshot.segments.iter().chain(&snapshot.host_segments);
        let there = there.map(|segment| (segment.address, segment.total_size));
        Self::new(there.chain(taken.map(|entry| (entry.addr, entry.size))))
    }

    pub(crate) fn have(&self, address: u64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= address);
        after > 0 && address < self.0[after - 1].1
    }
}

/// What cannot be true of a whole history: blocks that lie in others, frees of what is not there, and memory that was never
/// given back and is not there at the end.
pub(crate) fn contradictions(
    snapshot: &Snapshot,
    device: usize,
    history: &[TraceEntry],
    before: &BTreeMap<u64, (u64, u64)>,
) -> u64 {
    let mut live: BTreeMap<u64, u64> = before.iter().map(|(address, (size, _))| (*address, *size)).collect();
    let (mut held, mut wrong) = (FxHashSet::default(), 0);
    for entry in history {
        match entry.action {
            Action::Alloc if entry.size > 0 => {
                // One of the same address is a missing free.
                live.remove(&entry.addr);
                let below = live.range(..entry.addr.saturating_add(entry.size)).next_back();
                let lies_in = |(first, size): (&u64, &u64)| first.saturating_add(*size) > entry.addr;
                wrong += u64::from(below.is_some_and(lies_in));
                live.insert(entry.addr, entry.size);
            }
            Action::FreeRequested => {
                wrong += u64::from(live.remove(&entry.addr).is_none() && entry.size > 0);
            }
            Action::SegmentAlloc => drop(held.insert(entry.addr)),
            Action::SegmentFree => drop(held.remove(&entry.addr)),
            _ => {}
        }
    }
    let here = snapshot.segments.iter().filter(|segment| usize::try_from(segment.device) == Ok(device));
    let there = Places::new(here.map(|segment| (segment.address, segment.total_size)));
    // Without segments, the file does not say what is there.
    if !there.0.is_empty() {
        wrong += live.keys().chain(&held).filter(|address| !there.have(**address)).count() as u64;
    }
    wrong
}
