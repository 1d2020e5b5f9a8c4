//! Those who look: what they see is of one moment, and nothing is kept from them.

use crate::explore::explore;
use crate::rig::DEVICE;
use alloc_core::history::HistoryOptions;
use alloc_core::snapshot::Action;
use alloc_core::types::{MIB, PoolId};
use std::sync::{Arc, Mutex};

#[test]
fn figures_and_snapshots_of_one_moment() {
    explore(256, |rig| {
        let streams = [rig.home(), rig.stream()];
        rig.allocator.history().record(&HistoryOptions::newest(100).deterministic());
        let works = || {
            let block = rig.take(3 * MIB, streams[0]);
            rig.use_on(block, streams[1]);
            rig.give(block);
            rig.churn(700, streams[0]);
            rig.allocator.empty_cache().unwrap();
        };
        let looks = || {
            for _ in 0..2 {
                rig.allocator.check_invariants();
                let stats = rig.allocator.stats(DEVICE).unwrap();
                for figure in [&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes] {
                    let all = &figure.all;
                    assert_eq!(all.current, figure.small_pool.current + figure.large_pool.current);
                    assert_eq!(all.current, all.allocated - all.freed);
                    assert!(all.peak >= all.current);
                }
                let snapshot = rig.allocator.snapshot(true);
                for segment in &snapshot.segments {
                    let blocks: u64 = segment.blocks.iter().map(|block| block.size).sum();
                    assert_eq!(blocks, segment.total_size, "its blocks are the segment");
                }
                let pool = rig.allocator.pools().snapshot(PoolId::DEFAULT, false);
                assert!(pool.segments.iter().all(|segment| segment.total_size > 0));
            }
        };
        rig.together(&[&works, &works, &looks]);
    });
}

/// A tracker sees each entry once, in the order of its address, whichever thread hands it over.
#[test]
fn trackers_miss_nothing() {
    explore(256, |rig| {
        let seen: Arc<Mutex<Vec<(Action, u64)>>> = Arc::default();
        let notes = Arc::clone(&seen);
        rig.allocator.hooks().on_trace(move |entry, _| {
            notes.lock().unwrap().push((entry.action, entry.addr));
        });
        let streams = [rig.home(), rig.stream()];
        let works = |stream| {
            move || {
                rig.churn(700, stream);
                rig.churn(3 * MIB, stream);
            }
        };
        rig.together(&[&works(streams[0]), &works(streams[1]), &works(streams[0])]);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        for action in [Action::Alloc, Action::FreeRequested, Action::FreeCompleted] {
            assert_eq!(
                seen.iter().filter(|(other, _)| *other == action).count(),
                6,
                "{action:?} in {seen:?}"
            );
        }
        let order = [Action::Alloc, Action::FreeRequested, Action::FreeCompleted];
        for (_, addr) in &seen {
            let of_one = seen.iter().filter(|(action, other)| other == addr && order.contains(action));
            for (n, (action, _)) in of_one.enumerate() {
                assert_eq!(*action, order[n % 3], "{addr:x} in {seen:x?}");
            }
        }
    });
}
