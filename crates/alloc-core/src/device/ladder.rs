//! The ladder: what is done, in order, for a request that found no block.

mod explain;
pub(super) mod reclaim;

use super::Device;
use super::pools::Flush;
use crate::arena::directory::{Arena, PoolSlot};
use crate::backend::ErrorKind;
use crate::config::PytorchRelease;
use crate::device::{arenas, crossings, history, lifetimes, pools};
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::layout::Layout;
use crate::policy::{self, Request, Rung, Situation, choose};
use crate::process::attention::Reason;
use crate::sync::{Arc, Mark, this_thread};
use crate::types::DevicePtr;
use crate::watch::snapshot::Action;

/// How often a thread climbs again while others move memory.
const LAST_CLIMBS: usize = 32;
/// How often it begins anew, where pinned memory may have come to be cached since it was asked for.
const ROUNDS: usize = 8;

/// What a rung achieved.
enum Outcome {
    /// It served the request.
    Served(DevicePtr),
    /// It changed something: the free blocks are worth another search.
    Changed,
    /// It changed nothing.
    Unchanged,
}

/// An idle segment: its arena by number, its tier and its one block.
type Idle = (u16, Tier, BlockId);

/// The block of a fixed segment that is free as a whole.
fn idle_block(layout: &Layout, segment: SegmentId) -> Option<BlockId> {
    let record = &layout.segments()[segment];
    let block = &layout.blocks()[record.first];
    let idle = record.is_fixed() && block.state == BlockPhase::Free && !block.is_split();
    idle.then_some(record.first)
}

impl Device {
    /// Tries every remedy in the policy's order, searching again after each that changed something; fails
    /// only when no fit exists after the last.
    #[cold]
    pub(super) fn climb(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<DevicePtr> {
        let served = self.site.noticing(try_remedies(self, arena, request, call));
        let calls = self.site.calls();
        crossings::tell_in(self, &calls);
        lifetimes::arrived(self, served, &calls)
    }

    /// [`climb`](Self::climb) for a call of which nothing is recorded.
    #[cold]
    pub(super) fn climb_plainly(&self, arena: &Arena, request: &Request) -> Result<DevicePtr> {
        let call = self.site.noticing(self.site.plain_call())?;
        self.climb(arena, request, &call)
    }
}

fn try_remedies(device: &Device, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<DevicePtr> {
    let (transit, me) = (device.arenas.transit(), this_thread());
    if let Some(granule) = &device.granule {
        granule.prepare(device, arena, request.tier, call);
    }
    for round in 0..ROUNDS {
        let mark = transit.now();
        let all = device.arenas.directory().policy().ladder().iter();
        let rungs = all.filter(|rung| round == 0 || !rung.runs_foreign_code());
        if let Some(ptr) = climb_once(device, rungs, false, arena, request, call)? {
            return Ok(ptr);
        }
        if let Some(ptr) = last_resort(device, arena, request, call, mark)? {
            return Ok(ptr);
        }
        // The last resort asks nobody for pinned memory.
        let knows = device.site.unified().is_none() || transit.only_since(mark, me);
        if knows || transit.concerns(me) {
            break;
        }
    }
    Err(out_of_memory(device, arena, request, call))
}

fn climb_once<'r>(
    device: &Device,
    rungs: impl Iterator<Item = &'r Rung>,
    last_resort: bool,
    arena: &Arena,
    request: &Request,
    call: &Call<'_>,
) -> Result<Option<DevicePtr>> {
    // PyTorch 2.11 gives nothing back for any request while a pool's scope is open, be it another thread's.
    let keeps_all =
        device.site.pytorch_release() == PytorchRelease::V2_11 && device.site.attention().has(Reason::SCOPES);
    for rung in rungs {
        if call.capturing && !rung.is_capture_safe() || keeps_all && *rung == Rung::ReleaseAll {
            continue;
        }
        let outcome = match step(device, *rung, last_resort, arena, request, call) {
            // What is captured cannot be waited for. That is no remedy then, and no reason to refuse.
            Err(AllocError::Backend(error)) if error.kind == ErrorKind::CaptureViolation && rung.waits() => {
                tracing::debug!(%error, rung = rung.name(), "a capture forbids some of it");
                Outcome::Changed
            }
            outcome => outcome?,
        };
        tracing::trace!(rung = rung.name(), served = matches!(outcome, Outcome::Served(_)), "ladder");
        if let Outcome::Served(ptr) = outcome {
            return Ok(Some(ptr));
        }
        if matches!(outcome, Outcome::Changed)
            && let Some(ptr) = device.search(arena, request, *rung == Rung::Callbacks, call)
        {
            return Ok(Some(ptr));
        }
    }
    Ok(None)
}

/// What this thread did not find, others may have had in their hands, and what it gave back, others may have taken
/// first. Pinned memory on its way counts, where the device shares the host's memory. Once a climb failed during which (from `mark` on) no other thread moved memory, there was a moment without
/// a fit, and the driver is not asked again. Else waits, one thread at a time, for all memory that is in transit, and
/// tries again after each; then climbs again. The number of climbs is bounded, because others may never rest.
fn last_resort(
    device: &Device,
    arena: &Arena,
    request: &Request,
    call: &Call<'_>,
    mut mark: Mark,
) -> Result<Option<DevicePtr>> {
    let me = this_thread();
    if device.arenas.transit().concerns(me) {
        // Foreign code that the engine called asks for memory, and others may wait for what this thread holds.
        return Ok(None);
    }
    let try_again = || match device.search(arena, request, false, call) {
        Some(ptr) => Ok(Some(ptr)),
        None => device.take_memory(arena, request, false, call),
    };
    let _ends = device.site.foreign().hold_back();
    let _alone = device.last_resort.lock();
    for _ in 0..LAST_CLIMBS {
        if device.arenas.transit().only_since(mark, me) {
            break;
        }
        if let Some(outcome) =
            device.arenas.transit().wait_for(|thread| thread != me, || try_again().transpose())
        {
            return outcome.map(Some);
        }
        if let Some(ptr) = try_again()? {
            return Ok(Some(ptr));
        }
        mark = device.arenas.transit().now();
        // The program's own code may ask for memory itself, and has run.
        let rungs =
            device.arenas.directory().policy().ladder().iter().filter(|rung| !rung.runs_foreign_code());
        if let Some(ptr) = climb_once(device, rungs, true, arena, request, call)? {
            return Ok(Some(ptr));
        }
    }
    Ok(None)
}

/// Takes memory from the device, one thread at a time for each stream and pool: what another has just taken may do
/// for this request, too, as it would if they had come one after the other.
fn grow_in_turn(
    device: &Device,
    arena: &Arena,
    request: &Request,
    call: &Call<'_>,
) -> Result<Option<DevicePtr>> {
    let (number, has_source) = {
        let state = arena.lock();
        (state.tenure().number(), state.tenure().pool().source.is_some())
    };
    // A pool's own source may itself wait for other threads.
    let turn = if has_source { None } else { device.growing.take(number) };
    // Nobody else grew it: nothing new can be found, and PyTorch does not search again.
    if turn.as_ref().is_some_and(|turn| turn.after_another)
        && let Some(ptr) = device.search(arena, request, false, call)
    {
        return Ok(Some(ptr));
    }
    if let Some(ptr) = replace(device, arena, request, call)? {
        return Ok(Some(ptr));
    }
    device.take_memory(arena, request, false, call)
}

/// Searches the pools that serve the default pool in need (`use_on_oom`): what they have cached, never new memory.
fn search_opted_in(
    device: &Device,
    arena: &Arena,
    request: &Request,
    call: &Call<'_>,
) -> Result<Option<DevicePtr>> {
    let stream = {
        let state = arena.lock();
        if state.tenure().slot() != PoolSlot::DEFAULT {
            return Ok(None);
        }
        state.tenure().stream()
    };
    for pool in pools::opted_in_pools(device) {
        // Released meanwhile: then it is emptied like any other.
        let Ok(visit) = pools::visit(device, pool, call.capturing) else { continue };
        let Some(arena) = device.arenas.directory().of_stream(visit.pool.slot, stream) else {
            continue;
        };
        arena.lock().change_tenure(|tenure| tenure.note_pool(&visit.pool));
        if let Some(ptr) = device.search(arena, request, false, call) {
            return Ok(Some(ptr));
        }
    }
    Ok(None)
}

fn step(
    device: &Device,
    rung: Rung,
    last_resort: bool,
    arena: &Arena,
    request: &Request,
    call: &Call<'_>,
) -> Result<Outcome> {
    let served = |ptr: Option<DevicePtr>| ptr.map_or(Outcome::Unchanged, Outcome::Served);
    let changed = |changed| if changed { Outcome::Changed } else { Outcome::Unchanged };
    Ok(match rung {
        Rung::Drain => {
            lifetimes::drain(device, call)?;
            Outcome::Changed
        }
        Rung::Views => served(device.search_in_pieces(arena, request, call)),
        Rung::Callbacks => changed(device.observers.ask_for_memory()),
        Rung::CollectGarbage => changed(device.collect_garbage(call)?),
        Rung::Grow => served(grow_within_soft_limit(device, arena, request, call)?),
        Rung::OptedInPools => served(search_opted_in(device, arena, request, call)?),
        Rung::ReleaseEnough => {
            if device.release_enough(arena, request, call)? {
                served(device.take_memory(arena, request, false, call)?)
            } else {
                Outcome::Unchanged
            }
        }
        Rung::WaitForPending => {
            lifetimes::synchronise(device, None, call)?;
            Outcome::Changed
        }
        Rung::ReleaseAll => served(device.reclaim(arena, request, last_resort, call)?),
        Rung::Spill => served(device.spill(arena, request, call)?),
    })
}

/// Takes memory from the device; above a soft limit, what is cached goes back first.
fn grow_within_soft_limit(
    device: &Device,
    arena: &Arena,
    request: &Request,
    call: &Call<'_>,
) -> Result<Option<DevicePtr>> {
    if !call.capturing && device.holdings.is_over_soft_limit(request) {
        // What is given back makes room under the soft limit; beyond it memory is taken all the same.
        if let Err(error) = device.release(Flush::Everything, call) {
            tracing::warn!(%error, "not all cached memory could be given back");
        }
        if let Some(ptr) = device.search(arena, request, false, call) {
            return Ok(Some(ptr));
        }
    }
    if device.trim_to_soft(arena, request, call)
        && let Some(ptr) = device.search(arena, request, false, call)
    {
        return Ok(Some(ptr));
    }
    grow_in_turn(device, arena, request, call)
}

fn out_of_memory(device: &Device, arena: &Arena, request: &Request, call: &Call<'_>) -> AllocError {
    let (slot, pool, stream) = {
        let state = arena.lock();
        (state.tenure().slot(), state.tenure().pool().id, state.tenure().stream())
    };
    let calls = device.site.calls();
    let report = device.explain(slot, stream, request, call, &calls);
    {
        let mut state = arenas::attend(device, arena, call);
        state.ledger().history().refused(request.requested);
        state.ledger_mut().history_mut().record(Action::Oom, report.device_free, request.size);
    }
    device.holdings.lock().counters_mut().ooms += 1;
    device.holdings.note_refusal(pool);
    history::deliver(device, &calls);
    device.observers.tell_out_of_memory(&report, &calls);
    AllocError::OutOfMemory(Box::new(report))
}

/// Takes a segment of the policy's choice for `request`, giving idle ones back for it. `Ok(None)` where that is nothing
/// else than what the request needs, or is refused: what was given back is room then.
fn replace(device: &Device, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<Option<DevicePtr>> {
    let Some(growth) = plan_segment(device, arena, request) else { return Ok(None) };
    let policy::Growth { take, replaces, at_most } = growth;
    let freed = if replaces > 0 { give_idle_back(device, arena, replaces, call) } else { 0 };
    let take = take.max(freed.min(at_most));
    if take <= request.segment_bytes {
        return Ok(None);
    }
    device.take_memory(arena, &Request { segment_bytes: take, ..*request }, false, call)
}

/// What the policy wants to take; `None` where segments grow, or are handed out whole, or it wants nothing of its own.
fn plan_segment(device: &Device, arena: &Arena, request: &Request) -> Option<policy::Growth> {
    let policy = {
        let state = arena.lock();
        if state.tenure().policy().grows() || state.tenure().pool().no_split {
            return None;
        }
        Arc::clone(state.tenure().policy())
    };
    policy.growth(request, || situation(device, arena, request))
}

fn situation(device: &Device, arena: &Arena, request: &Request) -> Situation {
    let (pool, own) = {
        let state = arena.lock();
        (state.tenure().pool().id, state.layout().segments().iter().map(|(_, segment)| segment.bytes).sum())
    };
    let in_use = device.arenas.in_use();
    let noted = device.granule.as_ref().map_or(in_use, |granule| granule.note_need(in_use));
    let most_needed = noted.max(in_use.saturating_add(request.size));
    let holdings = device.holdings.lock();
    let held = holdings.accounts().whole().held();
    let limits = holdings.accounts().limits(Some(pool));
    let room = limits.iter().map(|limit| limit.bytes.saturating_sub(limit.held));
    let others = [
        Some(device.site.total_memory()),
        holdings.accounts().ceilings().soft,
        holdings.rejects_above(device.site.total_memory()),
    ];
    let counted = holdings.accounts().whole().counted();
    let others = others.into_iter().flatten().map(|bytes| bytes.saturating_sub(counted));
    let room = room.chain(others).min().unwrap_or(0);
    Situation { held, own, most_needed, room }
}

/// Gives idle segments of about `target` bytes back, and returns how much that was. Only those of the default pool, whose
/// addresses no graph knows, and for a request to it; and none while something is being captured, because that waits
/// for the device.
fn give_idle_back(device: &Device, arena: &Arena, target: u64, call: &Call<'_>) -> u64 {
    let wants = arena.lock().tenure().slot() == PoolSlot::DEFAULT;
    if !wants || call.capturing || device.site.attention().has(Reason::CAPTURE) {
        return 0;
    }
    let arenas = pools::releasable(device, Flush::Pool(PoolSlot::DEFAULT));
    let mut idle: Vec<(u64, Idle)> = Vec::new();
    for (arena, _) in &arenas {
        let state = arena.lock();
        let number = state.tenure().number();
        let found = state.layout().segments().iter().filter_map(|(id, _)| idle_block(state.layout(), id));
        idle.extend(
            found
                .map(|id| (state.layout().blocks()[id].size, (number, state.layout().blocks()[id].tier, id))),
        );
    }
    idle.sort_unstable_by_key(|(bytes, (number, _, id))| (*bytes, *number, id.index()));
    let chosen = choose(idle, target);
    let before = device.holdings.lock().accounts().whole().held();
    for (arena, slot) in arenas {
        for tier in [Tier::Large, Tier::Small] {
            let released = device.release_fixed(arena, slot, tier, call, |state| {
                let mine =
                    |(_, (number, of, _)): &&(u64, Idle)| *number == state.tenure().number() && *of == tier;
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
    before.saturating_sub(device.holdings.lock().accounts().whole().held()).min(most)
}
