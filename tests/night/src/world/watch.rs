//! What can be seen of an allocator, and whether that is so.

use super::World;
use crate::features::Feature;
use alloc_core::history::{Context, HistoryOptions, RecordContext};
use alloc_core::snapshot::BlockState;
use std::collections::BTreeMap;

/// History on or off.
pub fn record(world: &World, at: u8, entries: u16, contexts: bool) {
    let (_, of) = world.site(at);
    let options = HistoryOptions::newest(usize::from(entries)).deterministic();
    let options = if contexts {
        world.met.note(Feature::Contexts);
        options.with_contexts(RecordContext::All, || None::<Context>)
    } else {
        options
    };
    of.allocator.history().record(&options);
    if entries > 0 {
        world.met.note(Feature::History);
    }
}

/// A snapshot shows what the program has.
pub fn snapshot(world: &World, at: u8, traces: bool) {
    let (site, of) = world.site(at);
    let snapshot = of.allocator.snapshot(traces);
    world.met.note(Feature::Snapshots);
    let mut shown = BTreeMap::new();
    for block in snapshot.segments.iter().flat_map(|segment| &segment.blocks) {
        if block.state == BlockState::ActiveAllocated
            && shown.insert(block.address, block.requested_size).is_some()
        {
            world.verdict.find("snapshot", format!("{:#x} is shown twice", block.address));
        }
    }
    let state = world.state();
    let graphs = world.graphs.borrow();
    let own = state.blocks.iter().filter(|block| block.site == site && !block.asleep && !block.uncached);
    for (ptr, bytes) in own.map(|block| (block.ptr, block.bytes)).chain(graphs.live(site)) {
        let found = shown.get(&ptr.0);
        let asleep = found.is_none() && of.allocator.sleep_mode().is_asleep(ptr) == Some(true);
        world.verdict.expect(asleep || found == Some(&bytes), "snapshot", || {
            format!("the block of {bytes} at {ptr} is shown as one of {found:?}")
        });
    }
}

/// Peaks or sums begin anew.
pub fn reset(world: &World, at: u8, device: u8, peaks: bool) {
    let ((_, of), device) = (world.site(at), world.device(device));
    let statistics = of.allocator.statistics();
    let done = if peaks { statistics.reset_peaks(device) } else { statistics.reset_accumulated(device) };
    world.verdict.expect(done.is_ok(), "reset", || format!("{done:?}"));
}
