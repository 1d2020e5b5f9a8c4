//! Captures: frees that wait for their end, while others go on.
//!
//! All captures here are relaxed, because the machine takes these threads for one.

use crate::explore::explore;
use crate::rig::DEVICE;
use alloc_core::backend::CaptureMode;
use alloc_core::graph::GraphCapture;
use alloc_core::types::MIB;

/// Captures are said to begin and to end in two threads, while both free blocks that other streams use.
#[test]
fn frees_wait_for_the_last_of_several_captures() {
    explore(256, |rig| {
        let (home, other) = (rig.home(), rig.stream());
        let blocks = [rig.take(3 * MIB, home), rig.take(5 * MIB, home)];
        blocks.iter().for_each(|block| rig.use_on(*block, other));
        let with = |block| {
            move || {
                rig.allocator.pools().mark_capture_begin(DEVICE).unwrap();
                rig.give(block);
                rig.churn(3 * MIB, home);
                rig.allocator.pools().mark_capture_end(DEVICE).unwrap();
            }
        };
        let asks = || {
            rig.churn(5 * MIB, home);
            rig.allocator.poll(DEVICE).unwrap();
        };
        rig.together(&[&with(blocks[0]), &with(blocks[1]), &asks]);
    });
}

/// A stream is captured into a pool of its own. What is freed meanwhile and was used in the graph waits for the end; nobody
/// else gets the graph's memory while the graph lives.
#[test]
fn a_capture_among_other_traffic() {
    explore(256, |rig| {
        let (home, captured, other) = (rig.home(), rig.stream(), rig.stream());
        let used = rig.take(3 * MIB, home);
        let captures = || {
            let capture = GraphCapture::begin(&rig.allocator, captured, CaptureMode::Relaxed, None).unwrap();
            let inside = rig.take(3 * MIB, captured);
            rig.allocator.record_stream(used.ptr, captured).unwrap();
            rig.give(used);
            let graph = capture.end().unwrap();
            // Freed, and still the graph's: replays will write there.
            rig.allocator.free(inside.ptr).unwrap();
            rig.churn(3 * MIB, home);
            rig.let_go(inside);
            drop(graph);
        };
        let asks = || {
            rig.churn(3 * MIB, home);
            rig.churn(3 * MIB, other);
        };
        let flushes = || rig.allocator.empty_cache().unwrap();
        rig.together(&[&captures, &asks, &flushes]);
    });
}
