//! Larger segments in place of idle ones, which the `granule` policy takes where there is no virtual memory.

use super::Device;
use super::pools::Flush;
use crate::arena::directory::{Arena, PoolSlot};
use crate::device::pools;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::layout::Layout;
use crate::policy::{self, Request, Situation, choose};
use crate::process::attention::Reason;
use crate::sync::Arc;
use crate::types::DevicePtr;

/// An idle segment: its arena by number, its tier and its one block.
type Idle = (u16, Tier, BlockId);

/// The block of a fixed segment that is free as a whole.
fn idle_block(layout: &Layout, segment: SegmentId) -> Option<BlockId> {
    let record = &layout.segments()[segment];
    let block = &layout.blocks()[record.first];
    let idle = record.is_fixed() && block.state == BlockPhase::Free && !block.is_split();
    idle.then_some(record.first)
}

/// Takes a segment of the policy's choice for `request`, and gives idle ones back for it. `Ok(None)` where the choice
/// is just the request's need, or is refused: then there is room for as much as was given back.
pub(super) fn replace(
    device: &Device,
    arena: &Arena,
    request: &Request,
    call: &Call<'_>,
) -> Result<Option<DevicePtr>> {
    let Some(growth) = plan_segment(device, arena, request) else { return Ok(None) };
    let policy::SegmentPlan { take, replaces, at_most } = growth;
    let freed = if replaces > 0 { give_idle_back(device, arena, replaces, call) } else { 0 };
    let take = take.max(freed.min(at_most));
    if take <= request.segment_bytes {
        return Ok(None);
    }
    device.take_memory(arena, &Request { segment_bytes: take, ..*request }, false, call)
}

/// Segment that the policy wants to take; `None` where segments grow or are handed out whole, or it has no wish.
fn plan_segment(device: &Device, arena: &Arena, request: &Request) -> Option<policy::SegmentPlan> {
    let policy = {
        let state = arena.lock();
        if state.binding().policy().grows() || state.binding().pool().no_split {
            return None;
        }
        Arc::clone(state.binding().policy())
    };
    policy.growth(request, || situation(device, arena, request))
}

fn situation(device: &Device, arena: &Arena, request: &Request) -> Situation {
    let (pool, own) = {
        let state = arena.lock();
        (state.binding().pool().id, state.layout().segments().iter().map(|(_, segment)| segment.bytes).sum())
    };
    let in_use = device.arenas.in_use();
    let noted = device.granule.as_ref().map_or(in_use, |granule| granule.note_need(in_use));
    let most_needed = noted.max(in_use.saturating_add(request.size));
    let accounting = device.accounting.lock();
    let held = accounting.accounts().whole().held();
    let limits = accounting.accounts().limits(Some(pool));
    let room = limits.iter().map(|limit| limit.bytes.saturating_sub(limit.held));
    let others = [
        Some(device.driver.total_memory()),
        accounting.accounts().device_limits().soft,
        accounting.rejects_above(device.driver.total_memory()),
    ];
    let counted = accounting.accounts().whole().counted();
    let others = others.into_iter().flatten().map(|bytes| bytes.saturating_sub(counted));
    let room = room.chain(others).min().unwrap_or(0);
    Situation { held, own, most_needed, room }
}

/// Gives idle segments of about `target` bytes back, and returns the bytes. Only segments of the default pool, whose
/// addresses no graph knows, and for a request to it; and none during a capture, because that waits for the device.
fn give_idle_back(device: &Device, arena: &Arena, target: u64, call: &Call<'_>) -> u64 {
    let wants = arena.lock().binding().slot() == PoolSlot::DEFAULT;
    if !wants || call.capturing || device.driver.attention().has(Reason::CAPTURE) {
        return 0;
    }
    let arenas = pools::releasable(device, Flush::Pool(PoolSlot::DEFAULT));
    let mut idle: Vec<(u64, Idle)> = Vec::new();
    for (arena, _) in &arenas {
        let state = arena.lock();
        let number = state.binding().number();
        let found = state.layout().segments().iter().filter_map(|(id, _)| idle_block(state.layout(), id));
        idle.extend(
            found
                .map(|id| (state.layout().blocks()[id].size, (number, state.layout().blocks()[id].tier, id))),
        );
    }
    idle.sort_unstable_by_key(|(bytes, (number, _, id))| (*bytes, *number, id.index()));
    let chosen = choose(idle, target);
    let before = device.accounting.lock().accounts().whole().held();
    for (arena, slot) in arenas {
        for tier in [Tier::Large, Tier::Small] {
            let released = device.release_fixed(arena, slot, tier, call, |state| {
                let mine =
                    |(_, (number, of, _)): &&(u64, Idle)| *number == state.binding().number() && *of == tier;
                // Another thread may have taken or cut a block since it was chosen, or have given it back with its segment.
                let still = |id: &BlockId| {
                    let block = state.layout().blocks().get(*id);
                    let free = block.filter(|block| block.state == BlockPhase::Free);
                    free.is_some_and(|block| idle_block(state.layout(), block.segment) == Some(*id))
                };
                chosen.iter().filter(mine).map(|(_, (.., id))| *id).filter(still).collect()
            });
            if let Err(error) = released {
                // It stays cached, and the request is no worse off.
                tracing::warn!(%error, "an idle segment could not be given back");
            }
        }
    }
    let most: u64 = chosen.iter().map(|(bytes, _)| bytes).sum();
    // Others may give back and take at the same time: this only sizes a segment.
    before.saturating_sub(device.accounting.lock().accounts().whole().held()).min(most)
}
