//! The model of a run against a toy allocator that knows the truth, whole and with lost history.

use crate::machine::{Machine, steps};
use granule_analysis::Run;
use granule_analysis::run::{Moment, NEVER};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn live_at(run: &Run, at: Moment) -> BTreeMap<u64, u64> {
    run.allocations.iter().filter(|life| life.is_live(at)).map(|life| (life.address, life.size)).collect()
}

fn waiting_at(run: &Run, at: Moment) -> BTreeMap<u64, u64> {
    let waits = run.allocations.iter().filter(|life| life.is_waiting(at));
    waits.map(|life| (life.address, life.size)).collect()
}

fn held_at(run: &Run, at: Moment) -> Vec<(u64, u64)> {
    let held = run.spans.iter().filter(|span| span.begin <= at && at < span.end);
    let mut held: Vec<_> = held.map(|span| (span.address, span.size)).collect();
    held.sort_unstable();
    held
}

/// The figure that a list of changes says for a moment.
fn figure_at(figures: &[(Moment, u64)], at: Moment) -> u64 {
    figures.iter().take_while(|(moment, _)| *moment <= at).last().map_or(0, |(_, bytes)| *bytes)
}

proptest! {
    #[test]
    fn every_moment_is_as_it_was(steps in steps(), lost in 0.0..1.0f64) {
        let machine = Machine::after(&steps);
        let lost = (machine.entries() as f64 * lost) as usize;
        for lost in [0, lost] {
            let run = Run::of_snapshot(&machine.snapshot(lost), 0);
            let truths = machine.truths(lost);
            prop_assert_eq!(run.length as usize + 1, truths.len());
            let (reserved, mut most) = (run.reserved(), (0, 0));
            let mut live = run.live_before();
            let mut changes = run.changes().peekable();
            let mut most_live = (0, live);
            for (at, truth) in (0..).zip(truths) {
                prop_assert_eq!(&live_at(&run, at), &truth.live, "live at {}", at);
                prop_assert_eq!(&waiting_at(&run, at), &truth.waiting, "waiting at {}", at);
                let held = held_at(&run, at);
                prop_assert_eq!(held.iter().map(|(_, size)| size).sum::<u64>(), truth.reserved, "at {}", at);
                prop_assert!(held.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "overlap: {:?}", held);
                prop_assert_eq!(figure_at(&reserved, at), truth.reserved, "reserved at {}", at);
                while let Some(change) = changes.next_if(|change| change.at <= at) {
                    let size = run.allocations[change.allocation].size;
                    live = if change.begins { live + size } else { live - size };
                }
                prop_assert_eq!(live, truth.live.values().sum::<u64>(), "live bytes at {}", at);
                if live > most_live.1 {
                    most_live = (at, live);
                }
                if truth.reserved > most.1 {
                    most = (at, truth.reserved);
                }
            }
            prop_assert!(changes.next().is_none(), "all has happened by the end");
            prop_assert_eq!(run.peak(), most_live);
            prop_assert_eq!(run.reserved_peak(), most);
            prop_assert!(run.allocations.windows(2).all(|pair| pair[0].begin <= pair[1].begin), "by begin");
            prop_assert!(run.allocations.iter().all(|life| life.begin <= life.end && life.end <= life.reusable));
            prop_assert!(run.spans.iter().all(|span| span.begin < span.end && span.size > 0));
        }
    }

    /// What an entry says besides its size and its place is kept.
    #[test]
    fn streams_pools_labels_and_sites_are_those_of_the_entries(steps in steps()) {
        let machine = Machine::after(&steps);
        let snapshot = machine.snapshot(0);
        let run = Run::of_snapshot(&snapshot, 0);
        for life in &run.allocations {
            let entry = &snapshot.device_traces[0][life.begin as usize - 1];
            prop_assert_eq!((entry.addr, entry.size), (life.address, life.size));
            prop_assert_eq!(run.streams[life.stream as usize], entry.stream);
            prop_assert_eq!(Some(run.pools[life.pool as usize]), entry.labels.pool_id);
            prop_assert_eq!(Some(&run.labels[life.label as usize]), entry.labels.user_metadata.as_ref());
            prop_assert_eq!(run.sites.get(life.site), entry.frames.as_deref().unwrap_or_default());
            if life.end != NEVER {
                prop_assert_eq!(snapshot.device_traces[0][life.end as usize - 1].addr, life.address);
            }
        }
        let refusals = snapshot.device_traces[0].iter().filter(|entry| entry.action.name() == "oom");
        prop_assert_eq!(run.refusals.len(), refusals.count());
    }
}

#[test]
fn without_a_history_there_is_what_is_held_at_the_end() {
    let machine = Machine::after(&[
        crate::machine::Step::Take { units: 2, stream: 7, pool: 1 },
        crate::machine::Step::Alloc { place: 0, bytes: 1000, label: 0, site: 0 },
        crate::machine::Step::Alloc { place: 0, bytes: 3000, label: 0, site: 0 },
        crate::machine::Step::Free { which: 0, completes: false },
    ]);
    let run = Run::of_snapshot(&machine.snapshot(machine.entries()), 0);
    assert_eq!(run.length, 0);
    assert_eq!(live_at(&run, 0).into_values().collect::<Vec<_>>(), [3000]);
    assert_eq!(waiting_at(&run, 0).into_values().collect::<Vec<_>>(), [1000], "it waits, and is not live");
    assert_eq!((run.peak(), run.reserved_peak()), ((0, 3000), (0, 2 * crate::machine::UNIT)));
    assert_eq!(run.streams[run.spans[0].stream as usize], 7);
    assert!(run.changes().next().is_none());
}
