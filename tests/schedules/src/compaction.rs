//! Memory between live blocks is given back while others ask for it.

use crate::explore::explore_granules;
use crate::rig::DEVICE;
use alloc_core::types::MIB;

/// Granules of which a compaction left parts are free now. Who flushes has them in its hands for a while, and what they are
/// made of serves another stream.
#[test]
fn no_false_refusal_while_parts_of_granules_go_back() {
    explore_granules(200, |rig| {
        let (home, other) = (rig.home(), rig.stream());
        // So that granules are large.
        rig.churn(128 * MIB, home);
        let blocks: Vec<_> = (0..32).map(|_| rig.take(3 * MIB, home)).collect();
        let (live, free): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(n, _)| n % 4 == 1);
        free.into_iter().for_each(|(_, block)| rig.give(block));
        // SAFETY: no other thread runs yet.
        let report = unsafe { rig.allocator.compact(DEVICE) }.unwrap();
        assert!(report.gained > 0, "granules are backed in parts");
        live.into_iter().for_each(|(_, block)| rig.give(block));
        let needs = || rig.churn(190 * MIB, other);
        let flushes = || rig.allocator.empty_cache().unwrap();
        rig.together(&[&needs, &flushes, &flushes]);
    });
}
