//! Giving up what views show and no block uses, granule by granule.

use crate::arena::directory::Arena;
use crate::arena::granule::{Granule, SlotState};
use crate::arena::{ArenaOf, ArenaState, Heap};
use crate::device::Device;
use crate::device::provider::views::Part;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{Block, BlockId, BlockPhase, SegmentId};
use std::ops::Range;

/// Views show at most this many times what the device holds.
const MOST_SHOWN: u64 = 4;

/// Mappings of a view, side by side, in which no block lives.
#[derive(Debug)]
struct Leaving {
    segment: SegmentId,
    slots: Range<usize>,
    part: Part,
}

/// Keeps what an arena's views show within a multiple of what the device holds: where they show more, the parts leave that
/// served nobody for the longest. A program whose sizes never repeat would map for ever, and search all of it.
pub(super) fn bound(device: &Device, arena: &Arena, call: &Call<'_>) {
    let most = device.held().saturating_mul(MOST_SHOWN);
    let beyond = || arena.lock().granule().heap().known().shown_bytes().saturating_sub(most);
    if beyond() == 0 {
        return;
    }
    // Enough that it is not done for every view. To wait is for where the device never was seen to be done with any of it.
    let enough = |beyond: u64| beyond + most / MOST_SHOWN;
    let mut outcome = give_up(device, arena, enough(beyond()), true, call);
    if beyond() > 0 && device.may_wait(arena, call) {
        outcome = outcome.and_then(|()| give_up(device, arena, enough(beyond()), false, call));
    }
    if let Err(error) = outcome {
        // The request does not depend on it.
        device.site.backend().clear_error();
        tracing::warn!(%error, "views show more than they should; it is tried again with the next one");
    }
}

/// Gives up what an arena's views show and no block uses, so that it may leave, until that comes to `enough` bytes: what the
/// device is known to be done with, and waits for nothing, or all of it, and blocks until the device is done with it; during
/// a capture everything stays of which that is not known.
pub(in crate::device::provider) fn give_up(
    device: &Device,
    arena: &Arena,
    enough: u64,
    only_past: bool,
    call: &Call<'_>,
) -> Result<()> {
    let _memory = device.slow_path.begin();
    let leaving = begin(arena.lock().granule_mut(), enough, only_past);
    leave(device, arena, &leaving, call)
}

fn leave(device: &Device, arena: &Arena, leaving: &[Leaving], call: &Call<'_>) -> Result<()> {
    if leaving.is_empty() {
        return Ok(());
    }
    let parts: Vec<Part> = leaving.iter().map(|leaving| leaving.part).collect();
    let commit = |state: &mut ArenaState, number: usize, unmapped| {
        let Leaving { segment, ref slots, part } = leaving[number];
        state.granule_mut().heap_mut().known_mut().end_leaving(segment, slots.clone(), part.addr, unmapped)
    };
    device.unmap(arena, &parts, call, commit, |state| {
        let heap = state.granule_mut().heap_mut();
        let empty = take_empty(heap);
        empty.into_iter().filter_map(|(segment, block)| heap.remove_segment(segment, block)).collect()
    })
}

/// Takes out of views what they show and no block uses, until that comes to `enough` bytes: first of those that served
/// nobody for the longest. Nothing is served from there any more. With `only_past`, only what the device is known to be
/// done with.
fn begin(arena: &mut ArenaOf<Granule>, enough: u64, only_past: bool) -> Vec<Leaving> {
    let heap = arena.heap();
    let mut all: Vec<Leaving> = Vec::new();
    let mut order: Vec<_> = (0..heap.known().views().len()).collect();
    order.sort_unstable_by_key(|view| heap.known().views()[*view].used);
    let mut left = enough;
    for view in order {
        let heap = arena.heap();
        if left == 0 {
            break;
        }
        let segment = heap.known().views()[view].segment;
        let may_leave =
            |block: &Block| block.state == BlockPhase::Blank && (!only_past || arena.is_past(block.epoch));
        let blank = heap.layout().of_segment(segment).filter(|(_, block)| may_leave(block));
        let blank: Vec<_> = blank.map(|(_, block)| (block.addr, block.end(), block.epoch)).collect();
        let base = heap.layout().segments()[segment].base;
        let first = all.len();
        for (number, (low, slot)) in heap.known().views()[view].places(base).enumerate() {
            let high = low + slot.shown.bytes;
            let around = blank.iter().find(|(from, to, _)| *from <= low && high <= *to);
            let Some((.., epoch)) = around.filter(|_| slot.state == SlotState::Mapped) else { continue };
            left = left.saturating_sub(high - low);
            match all[first..].last_mut() {
                Some(Leaving { slots, part, .. }) if slots.end == number => {
                    slots.end += 1;
                    part.bytes += high - low;
                    part.epoch = part.epoch.max(*epoch);
                }
                _ => {
                    let slots = number..number + 1;
                    let part = Part { addr: low, bytes: high - low, epoch: *epoch };
                    all.push(Leaving { segment, slots, part });
                }
            }
        }
        for leaving in &all[first..] {
            arena.heap_mut().known_mut().begin_leaving(view, leaving.slots.clone());
        }
    }
    all
}

/// Takes the views out that are nothing but addresses, with the one block of each.
fn take_empty(heap: &mut Heap<Granule>) -> Vec<(SegmentId, BlockId)> {
    let first = |segment: SegmentId| heap.layout().segments()[segment].first;
    let is_blank = |id: BlockId| {
        let block = &heap.layout().blocks()[id];
        block.state == BlockPhase::Blank && !block.is_split()
    };
    let gone = heap.known().views().iter().filter(|view| {
        is_blank(first(view.segment)) && view.slots.iter().all(|slot| slot.state == SlotState::Gone)
    });
    let empty: Vec<_> = gone.map(|view| (view.segment, first(view.segment))).collect();
    heap.known_mut().forget_views(&empty);
    empty
}
