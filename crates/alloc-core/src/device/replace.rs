//! Fixed segments that fit what the program does: sized when they are taken, and in place of idle ones once more is held
//! than it needs. The decisions are the policy's ([`Policy::growth`](crate::policy::Policy::growth)).

use super::DeviceAllocator;
use super::release::Flush;
use crate::arena::ArenaState;
use crate::arena::directory::{Arena, PoolSlot};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, SegmentId, State, Tier};
use crate::policy::{Chosen, Growth, Request, Situation, choose};
use crate::process::attention::Reason;
use crate::types::DevicePtr;
use crate::watch::counters::Count;

/// An idle segment: its arena by number, its tier and its one block.
type Idle = (u16, Tier, BlockId);

impl DeviceAllocator {
    /// Takes a segment of the policy's choice for `request`, giving idle ones back for it. `Ok(None)` where that is nothing
    /// else than what the request needs, or is refused: what was given back is room then.
    pub(super) fn replace(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let Some(growth) = self.plan_segment(arena, request) else { return Ok(None) };
        let Growth { take, replaces, at_most } = growth;
        let freed = if replaces > 0 { self.give_idle_back(arena, replaces, call) } else { 0 };
        let take = take.max(freed.min(at_most));
        if take <= request.segment_bytes {
            return Ok(None);
        }
        self.take_memory(arena, &Request { segment_bytes: take, ..*request }, false, call)
    }

    /// What the policy wants to take; `None` where segments grow, or are handed out whole, or it wants nothing of its own.
    fn plan_segment(&self, arena: &Arena, request: &Request) -> Option<Growth> {
        let policy = {
            let state = arena.lock();
            if state.policy.grows() || state.pool.no_split {
                return None;
            }
            Chosen::clone(&state.policy)
        };
        policy.growth(request, &|| self.situation(arena, request))
    }

    fn situation(&self, arena: &Arena, request: &Request) -> Situation {
        let (pool, own) = {
            let state = arena.lock();
            (state.pool.id, state.segments.iter().map(|(_, segment)| segment.bytes).sum())
        };
        let most_needed = self.with_all(|peaks, arenas| {
            let in_use: i64 = arenas.iter().map(|arena| arena.counters.both(Count::ActiveBytes)).sum();
            peaks.most_in_use().unsigned_abs().max(in_use.unsigned_abs() + request.size)
        });
        let device = self.state.lock();
        let held = device.accounts.held();
        let limits = device.accounts.limits(pool);
        let room = limits.iter().map(|limit| limit.bytes.saturating_sub(limit.held));
        let others = [Some(self.total_memory), device.accounts.soft, device.rejects_above(self.total_memory)];
        let others = others.into_iter().flatten().map(|bytes| bytes.saturating_sub(held));
        let room = room.chain(others).min().unwrap_or(0);
        Situation { held, own, most_needed, room }
    }

    /// Gives idle segments of about `target` bytes back, and returns how much that was. Only those of the default pool, whose
    /// addresses no graph knows, and for a request to it; and none while something is being captured, because that waits
    /// for the device.
    fn give_idle_back(&self, arena: &Arena, target: u64, call: &Call<'_>) -> u64 {
        let wants = arena.lock().pool.slot == PoolSlot::DEFAULT;
        if !wants || call.capturing || self.attention.has(Reason::CAPTURE) {
            return 0;
        }
        let arenas = self.releasable(Flush::Pool(PoolSlot::DEFAULT));
        let mut idle: Vec<(u64, Idle)> = Vec::new();
        for (arena, _) in &arenas {
            let state = arena.lock();
            let number = state.id.number;
            let found = state.segments.iter().filter_map(|(id, _)| idle_block(&state, id));
            idle.extend(found.map(|id| (state.blocks[id].size, (number, state.blocks[id].tier, id))));
        }
        idle.sort_unstable_by_key(|(bytes, (number, _, id))| (*bytes, *number, id.index()));
        let chosen = choose(idle, target);
        let before = self.state.lock().accounts.held();
        for (arena, slot) in arenas {
            for tier in [Tier::Large, Tier::Small] {
                let released = self.release_fixed(arena, slot, tier, call, |state| {
                    let mine =
                        |(_, (number, of, _)): &&(u64, Idle)| *number == state.id.number && *of == tier;
                    // Another thread may have taken or cut a block since it was chosen.
                    let still = |id: &BlockId| {
                        let segment = state.blocks.get(*id).map(|block| block.segment);
                        segment.is_some_and(|segment| idle_block(state, segment) == Some(*id))
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
        before.saturating_sub(self.state.lock().accounts.held()).min(most)
    }
}

/// The block of a fixed segment that is free as a whole.
fn idle_block(state: &ArenaState, segment: SegmentId) -> Option<BlockId> {
    let record = &state.segments[segment];
    let block = &state.blocks[record.first];
    let idle = record.is_fixed() && block.state == State::Free && !block.is_split();
    idle.then_some(record.first)
}
