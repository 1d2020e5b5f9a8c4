//! Free granules of one stream for another. They stay mapped where they were, so that they go to and fro without a driver call.
//!
//! The host waits for nothing: what the device is known to be done with moves, or, where settings say so, what the other stream
//! is told to wait for.

use crate::arena::directory::Arena;
use crate::arena::granule::free_range;
use crate::base::steps::Counted;
use crate::device::Device;
use crate::device::{frees, hand_over};
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, SegmentId, Tier};
use std::cmp::Reverse;

/// A free granule that may go to another stream.
struct Whole {
    /// It served that stream before.
    known: bool,
    /// Bytes of the free block that holds it.
    block: u64,
    segment: SegmentId,
    addr: u64,
    bytes: u64,
}

/// Hands free granules, of at least `finest` bytes, of the default pool's other arenas to this one until `wanted` bytes have
/// come. Returns how many came; `None` where the driver maps no memory in two places. Calls the driver, and waits for nothing.
pub(super) fn hand_over(
    device: &Device,
    to: &Arena,
    (wanted, finest): (u64, u64),
    call: &Call<'_>,
) -> Option<u64> {
    let mut came = 0;
    if call.capturing {
        return Some(came);
    }
    // Arenas with nothing to give are skipped: to ask is a driver call.
    let mut givers = hand_over::givers(device, to, finest);
    while came < wanted
        && let Some(from) = givers.next()
    {
        if let Some(newest) = frees::newest_spare(device, from) {
            let _memory = device.slow_path.begin();
            let parts = take(device, from, to, (wanted - came, finest), newest);
            came += hand_over::hand_over(device, from, to, &parts, call)?;
        }
    }
    device.bound_granules(to, call);
    Some(came)
}

/// Takes free granules out, each as a busy block, until `wanted` bytes have come: those of the largest free blocks, and of equal
/// ones those first that served the other arena before.
fn take(
    device: &Device,
    from: &Arena,
    to: &Arena,
    (wanted, finest): (u64, u64),
    newest: u64,
) -> Vec<BlockId> {
    let to = to.lock().binding().number();
    let mut state = from.lock();
    let mut spare = Vec::new();
    // Granules of other regions may be smaller than a usual one.
    for id in state.granule().heap().free(Tier::Large, finest) {
        let layout = state.granule().heap().layout();
        let block = &layout.blocks()[id];
        let segment = &layout.segments()[block.segment];
        if !segment.is_growable() {
            continue;
        }
        if block.epoch > newest {
            // Freed since then.
            continue;
        }
        let granules = &segment.granules;
        for granule in granules.each(granules.within(block.addr..block.end())).counted() {
            let place = state.place(block.segment, granule.start);
            let known = device.accounting.lock().regions().alias_in(to, place).is_some();
            spare.push(Whole {
                known,
                block: block.size,
                segment: block.segment,
                addr: granule.start,
                bytes: granule.end - granule.start,
            });
        }
    }
    spare.sort_unstable_by_key(|whole| Reverse((whole.block, whole.known, whole.addr)));
    let mut bytes = 0;
    let enough = |whole: &Whole| {
        let more = bytes < wanted;
        bytes += whole.bytes;
        more
    };
    let chosen: Vec<_> = spare.into_iter().take_while(enough).collect();
    let heap = state.granule_mut().heap_mut();
    let take_out = |whole: Whole| {
        let (low, high) = (whole.addr, whole.addr + whole.bytes);
        let holder = free_range(heap, whole.segment, low, high)?;
        Some(heap.take_range(holder, low, high))
    };
    chosen.into_iter().filter_map(take_out).collect()
}
