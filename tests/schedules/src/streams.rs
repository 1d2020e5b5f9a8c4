//! Taking, giving, use on other streams, and the end of streams.

use crate::explore::explore;
use crate::rig::DEVICE;
use alloc_core::backend::Backend;
use alloc_core::types::MIB;

#[test]
fn threads_on_one_stream() {
    explore(256, |rig| {
        let stream = rig.home();
        let churn = || {
            let (small, large) = (rig.take(700, stream), rig.take(3 * MIB, stream));
            rig.give(small);
            rig.churn(5 * MIB, stream);
            rig.give(large);
        };
        rig.together(&[&churn, &churn, &churn]);
    });
}

#[test]
fn a_stream_for_each_thread_and_one_for_all() {
    explore(256, |rig| {
        let (shared, own) = (rig.home(), [rig.stream(), rig.stream()]);
        let with = |own| {
            move || {
                let mine = rig.take(2 * MIB, own);
                rig.churn(2 * MIB, shared);
                rig.give(mine);
                rig.churn(4 * MIB, own);
            }
        };
        rig.together(&[&with(own[0]), &with(own[1])]);
    });
}

/// Blocks of one stream are used by others, freed by whoever comes, and asked for again meanwhile.
#[test]
fn blocks_that_other_streams_use() {
    explore(256, |rig| {
        let (home, others) = (rig.home(), [rig.stream(), rig.stream()]);
        let blocks = [rig.take(4 * MIB, home), rig.take(700, home)];
        rig.use_on(blocks[0], others[0]);
        let first = || {
            rig.use_on(blocks[1], others[1]);
            rig.give(blocks[1]);
            rig.churn(4 * MIB, home);
        };
        let second = || {
            rig.give(blocks[0]);
            rig.churn(700, home);
        };
        let drains = || {
            rig.device.advance(3);
            rig.allocator.poll(DEVICE).unwrap();
            rig.allocator.synchronise(DEVICE).unwrap();
        };
        rig.together(&[&first, &second, &drains]);
    });
}

/// A stream ends while blocks it uses are freed, and while new streams ask for what it leaves.
#[test]
fn a_stream_ends_while_others_begin() {
    explore(256, |rig| {
        let (home, ends, begins) = (rig.home(), rig.stream(), [rig.stream(), rig.stream()]);
        let (used, kept) = (rig.take(3 * MIB, home), rig.take(3 * MIB, ends));
        rig.use_on(used, ends);
        rig.churn(24 * MIB, ends);
        let retires = || {
            // SAFETY: the stream is given no more work.
            unsafe { rig.allocator.retire_stream(ends) }.unwrap();
            // SAFETY: rule 1: made above, and nothing names it from here on.
            unsafe { rig.device.destroy_stream(ends) }.unwrap();
        };
        let adopts = |stream, freed| {
            move || {
                rig.churn(24 * MIB, stream);
                rig.give(freed);
                rig.churn(3 * MIB, stream);
            }
        };
        rig.together(&[&retires, &adopts(begins[0], used), &adopts(begins[1], kept)]);
    });
}
