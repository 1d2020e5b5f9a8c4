//! Giving memory back to the device: whole fixed segments, and whole granules of growable ones.
//!
//! Blocks are taken out first, then the stream's epochs are closed (the device must be done with what leaves), then
//! the driver is called without a lock, then the outcome is committed. What the driver refuses to take
//! stays cached.

use super::Device;
use super::leaving::Leaving;
use super::pools::Flush;
use crate::arena::ArenaPool;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::pool_table::Holder;
use crate::arena::{ArenaState, Heap};
use crate::backend::{BackendError, VirtualMemory};
use crate::device::{arenas, frees, pools, recorder, space};
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::lifetimes::pending::Ask;
use crate::memory::block::{BlockId, Tier};
use crate::memory::region::{self, bytes_of};
use crate::policy::{self, Cached, Request};
use crate::process::callbacks::{CallbackScope, Kind};
use crate::process::stream_identity::shown;
use crate::sync::assert_unlocked;
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::history::{ProgramCall, RecordContext};
use crate::watch::observers::{SegmentChange, SegmentEvent};
use crate::watch::snapshot::Action;

/// Free blocks of fixed segments that are whole segments, in index order.
fn unsplit_fixed(tier: Tier, heap: &Heap) -> Vec<BlockId> {
    let layout = heap.layout();
    let whole = |id: &BlockId| !layout.blocks()[*id].is_split() && !layout.segment_of(*id).is_growable();
    heap.free(tier, 0).into_iter().filter(whole).collect()
}

/// True if a pool's source lets a segment go. Calls the program; hold no lock.
fn may_leave(pool: &ArenaPool, at: DevicePtr, bytes: u64, calls: &CallbackScope<'_>) -> bool {
    let Some(source) = &pool.source else { return true };
    calls.call(Kind::Source, || source.may_leave(at, bytes)).unwrap_or(false)
}

impl Device {
    /// Waits for pending frees without giving anything back. Blocks.
    pub(crate) fn synchronise(&self) -> Result<()> {
        let call = recorder::begin_call(self, None, RecordContext::All)?;
        let outcome = frees::synchronise(self, None, &call);
        recorder::tell_trackers(self);
        outcome
    }

    /// Notices completed frees. Does not block.
    pub(crate) fn poll(&self) -> Result<()> {
        let call = recorder::begin_call(self, None, RecordContext::All)?;
        frees::take_back_shared(self, Ask::Now, &call);
        self.exchange.imports().retry();
        let outcome = frees::drain(self, &call);
        recorder::tell_trackers(self);
        outcome
    }

    /// Gives back all that is cached, waiting for whatever it has to wait for.
    pub(crate) fn release_everything(&self) -> Result<()> {
        self.release(Flush::Everything, &self.driver.plain_call()?)
    }

    /// Gives back what is cached in pools that nobody uses any more.
    pub(super) fn release_unused(&self) -> Result<()> {
        let capturing = frees::thread_captures(self);
        self.release(Flush::Unused, &Call { capturing, ..self.driver.plain_call()? })
    }

    /// See [`Pools::end`](crate::allocator::Pools::end).
    pub(crate) fn end_pool(&self, id: PoolId, holder: Holder) -> Result<()> {
        let (pool, scope) = pools::end_scope(self, id, holder)?;
        self.driver.callbacks().end([scope]);
        if let Some((slot, use_count)) = pool {
            frees::end_reuse(self, slot);
            recorder::tell_trackers(self);
            if use_count == 0 {
                pools::forget_empty(self, Some(slot));
            }
        }
        Ok(())
    }

    /// Gives back what is cached, for others that share the device's memory.
    /// Where it may not wait, what the device still uses stays, as in a capture.
    pub(super) fn release_for_others(&self, may_wait: bool) -> Result<()> {
        flush(self, Flush::Everything, may_wait, || {})
    }

    /// See [`CachingAllocator::empty_cache`](crate::allocator::CachingAllocator::empty_cache).
    pub(crate) fn empty_cache(&self, what: Flush) -> Result<()> {
        let outcome = flush(self, what, true, || {
            if matches!(what, Flush::Everything) {
                recorder::note(self, ProgramCall::EmptyCache);
            }
        });
        // Growth from here on follows the need from here on.
        for (arena, _) in pools::releasable(self, what) {
            arena.lock().ledger_mut().forget_need();
        }
        if matches!(what, Flush::Everything) {
            self.granule.iter().for_each(|granule| granule.forget_need());
        }
        outcome
    }

    /// Waits for pending frees of what is meant, then gives its cached memory back (PyTorch: `release_cached_blocks`).
    /// During a capture of the caller's nothing is waited for, and only what the device is known to be done with goes.
    /// A failure keeps what it concerns and stops nothing else; the first is returned.
    pub(super) fn release(&self, what: Flush, call: &Call<'_>) -> Result<()> {
        space::retry_leftovers(self);
        self.exchange.imports().retry();
        let mut outcome = if call.capturing {
            Ok(())
        } else {
            let meant = (what != Flush::Everything).then(|| {
                let meant = pools::releasable(self, what);
                meant.into_iter().map(|(arena, _)| arena.lock().binding().number()).collect()
            });
            frees::synchronise(self, meant.as_ref(), call)
        };
        if !call.capturing {
            pools::wait_for_launches(self, what.only());
        }
        // The default pool first, from the large end; private pools from the small end: PyTorch's order, which shows in
        // histories and to a pool's own source.
        let steps = [(true, Tier::Large), (true, Tier::Small), (false, Tier::Small), (false, Tier::Large)];
        for (default, tier) in steps {
            let of_step = |(_, slot): &(_, PoolSlot)| (*slot == PoolSlot::DEFAULT) == default;
            for (arena, slot) in pools::releasable(self, what).into_iter().filter(of_step) {
                let released =
                    self.release_fixed(arena, slot, tier, call, |state| unsplit_fixed(tier, state.heap()));
                outcome = outcome.and(released);
            }
            for (arena, slot) in pools::releasable(self, what).into_iter().filter(of_step) {
                outcome = outcome.and(evict_tier(self, arena, slot, tier, call));
            }
        }
        // Retries what was not freed at first.
        if !call.capturing {
            self.uncached.free_unshared();
        }
        space::retry_leftovers(self);
        pools::forget_empty(self, what.only());
        outcome
    }

    /// Gives back oversize segments until `request` would fit. `false` where that is off or there is not enough.
    pub(super) fn release_enough(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<bool> {
        let slot = arena.lock().binding().slot();
        if pools::is_captured(self, slot) {
            // Graphs know its addresses.
            return Ok(false);
        }
        let mut enough = false;
        self.release_fixed(arena, slot, request.tier, call, |state| {
            let Some(target) = state.binding().policy().release_target(request) else { return Vec::new() };
            let cached = unsplit_fixed(request.tier, state.heap());
            let bytes: Vec<u64> = cached.iter().map(|id| state.layout().blocks()[*id].size).collect();
            let (picked, does) = policy::enough(&bytes, target, state.binding().policy().oversize());
            enough = does;
            picked.into_iter().map(|place| cached[place]).collect()
        })?;
        Ok(enough)
    }

    /// Gives back cached large segments by age until held memory is under the policy's threshold. `false` where nothing was
    /// given back.
    pub(super) fn collect_garbage(&self, call: &Call<'_>) -> Result<bool> {
        let (held, allowed) = {
            let state = self.accounting.lock();
            (state.accounts().whole().counted(), state.accounts().device_limits().allowed())
        };
        let threshold =
            self.arenas.directory().with_template(|template| template.policy.garbage_threshold(allowed));
        let Some(target) = threshold.and_then(|t| held.checked_sub(t)).filter(|target| *target > 0) else {
            return Ok(false);
        };
        let now = self.arenas.directory().shared().searches(Tier::Large);
        let mut candidates = Vec::new();
        let default_pool = pools::releasable(self, Flush::Pool(PoolSlot::DEFAULT));
        for (arena, _) in &default_pool {
            let state = arena.lock();
            for id in unsplit_fixed(Tier::Large, state.heap()) {
                let block = &state.layout().blocks()[id];
                let age = now.saturating_sub(block.born);
                candidates.push(Cached { id: (state.binding().number(), id), bytes: block.size, age });
            }
        }
        let chosen = policy::oldest(candidates, target);
        for (arena, slot) in default_pool {
            self.release_fixed(arena, slot, Tier::Large, call, |state| {
                let number = state.binding().number();
                // Another thread may have taken or cut a block since it was chosen.
                let mine = unsplit_fixed(Tier::Large, state.heap());
                mine.into_iter().filter(|id| chosen.iter().any(|c| c.id == (number, *id))).collect()
            })?;
        }
        Ok(!chosen.is_empty())
    }

    /// Gives the fixed segments of the blocks that `pick` chooses back: free, unsplit blocks of `tier`, where the arena is
    /// still that of the pool in `slot`.
    pub(super) fn release_fixed(
        &self,
        arena: &Arena,
        slot: PoolSlot,
        tier: Tier,
        call: &Call<'_>,
        pick: impl FnOnce(&ArenaState) -> Vec<BlockId>,
    ) -> Result<()> {
        let calls = self.driver.calls();
        let mut state = arena.lock();
        // Memory of a source stays while that is asked for something.
        let may_go = state.binding().slot() == slot
            && (state.binding().pool().source.is_none() || !calls.is_inside(Kind::Source));
        let picked = if may_go { pick(&state) } else { Vec::new() };
        if picked.is_empty() {
            return Ok(());
        }
        let _blocks = self.slow_path.begin();
        picked.iter().for_each(|id| state.heap_mut().take_free(*id));
        let place = |id: &BlockId| {
            let block = &state.layout().blocks()[*id];
            (block.segment, *id, block.addr, block.size)
        };
        let segments: Vec<_> = picked.iter().map(place).collect();
        let (pool, stream) = (state.binding().pool().clone(), state.binding().stream());
        drop(state);
        let mut outcome = frees::quiesce(self, arena, &picked, call);
        let note = |action, segment, addr, bytes| {
            let mut state = arenas::attend(self, arena, call);
            let context = state.layout().segments()[segment].context.clone();
            state.ledger_mut().history_mut().record_about(action, addr, bytes, context.as_ref());
        };
        for (segment, id, addr, bytes) in segments {
            let leaves = matches!(outcome, Ok(true)) && may_leave(&pool, DevicePtr(addr), bytes, &calls);
            if leaves {
                let (change, at) = (SegmentChange::Detaching, DevicePtr(addr));
                let event = self.driver.segment_event(change, pool.id, stream, at, bytes, false);
                let note = |action| note(action, segment, addr, bytes);
                // SAFETY: rule 3: the base of a whole segment, taken out of the index above by this thread only; its
                // stream's epoch was closed, so no queued work uses it.
                let freed = unsafe { free_segment(self, &pool, stream, event, &calls, note) };
                outcome = freed.map(|()| true).map_err(AllocError::from);
            }
            let mut state = arenas::attend(self, arena, call);
            if !leaves || outcome.is_err() {
                state.heap_mut().insert_free(id);
                continue;
            }
            let oversize = bytes >= state.binding().policy().oversize();
            let segment = state.heap_mut().remove_segment(segment, id);
            self.accounting.give_segment_back(pool.id, tier, bytes, oversize);
            drop(state);
            calls.end(segment);
        }
        outcome.map(|_| ())
    }
}

/// A call that gives back what is cached; `note` writes down that it was made.
fn flush(device: &Device, what: Flush, may_wait: bool, note: impl FnOnce()) -> Result<()> {
    let mut call = recorder::begin_call(device, None, RecordContext::All)?;
    note();
    // The thread's own capture would break if it waited.
    call.capturing = !may_wait || frees::thread_captures(device);
    let outcome = device.release(what, &call);
    drop(call);
    recorder::tell_trackers(device);
    outcome
}

/// Gives a fixed segment to the driver, or to its pool's own source. `note` records what is done.
///
/// # Safety
/// It is a whole segment of the pool that nobody can reach, and the device is done with it.
unsafe fn free_segment(
    device: &Device,
    pool: &ArenaPool,
    stream: Stream,
    event: SegmentEvent,
    calls: &CallbackScope<'_>,
    note: impl Fn(Action),
) -> std::result::Result<(), BackendError> {
    let SegmentEvent { addr, bytes, .. } = event;
    // From the driver's call on the address may be another segment's, which would be recorded before.
    note(Action::SegmentFree);
    device.observers.tell(event, calls);
    assert_unlocked();
    let freed = match &pool.source {
        // SAFETY: rule 3: as the caller promises.
        None => unsafe { device.driver.backend().free(device.driver.device(), addr) },
        Some(source) => {
            // SAFETY: given by this source for this segment; the rest as above.
            calls.call(Kind::Source, || unsafe { source.free(addr, bytes, shown(stream)) });
            Ok(())
        }
    };
    if freed.is_err() {
        note(Action::SegmentAlloc);
        device.observers.tell(SegmentEvent { change: SegmentChange::Attached, ..event }, calls);
    }
    freed
}

/// Unmaps every whole free granule of a tier's growable segments, and gives address space back that
/// has nothing mapped any more; where the arena is still that of the pool in `slot`.
fn evict_tier(device: &Device, arena: &Arena, slot: PoolSlot, tier: Tier, call: &Call<'_>) -> Result<()> {
    let Ok(vm) = device.driver.backend().virtual_memory() else { return Ok(()) };
    let calls = device.driver.calls();
    let (_, dropped) = space::drop_free_asleep(device, arena, slot, vm);
    let is_of_pool = arena.lock().binding().slot() == slot;
    let dropped = match tier {
        Tier::Large if is_of_pool => {
            let unmapped = device.unmap_aliases(arena, call);
            dropped.and(unmapped)
        }
        _ => dropped,
    };
    let mut state = arena.lock();
    if state.binding().slot() != slot {
        return dropped;
    }
    let is_growable = |id: &BlockId| state.layout().segment_of(*id).is_growable();
    let growable: Vec<_> = state.heap().free(tier, 0).into_iter().filter(is_growable).collect();
    let accounting = device.accounting.lock();
    let take_out = |id| state.heap_mut().begin_evict(id, accounting.regions());
    let parts: Vec<_> = growable.into_iter().flat_map(take_out).collect();
    drop(accounting);
    // Address space that has nothing mapped, because mapping or giving it back failed before.
    let gives_back = state.binding().policy().gives_empty_addresses_back();
    let empty = if gives_back { state.heap_mut().take_empty_regions(tier) } else { Vec::new() };
    if parts.is_empty() && empty.is_empty() {
        return dropped;
    }
    let _blocks = device.slow_path.begin();
    drop(state);
    let mut outcome = dropped;
    for (segment, block, region) in empty {
        outcome = outcome.and(space::remove_region(device, arena, segment, block, region, vm));
    }
    let mut quiet = frees::quiesce(device, arena, &parts, call);
    for part in parts {
        if let Ok(true) = quiet {
            quiet = evict(device, arena, part, tier, vm, call, &calls).map(|()| true);
        } else {
            arena.lock().heap_mut().return_free(part);
        }
    }
    outcome.and(quiet.map(|_| ()))
}

/// Vacates one busy block of whole granules and commits the outcome.
fn evict(
    device: &Device,
    arena: &Arena,
    part: BlockId,
    tier: Tier,
    vm: &dyn VirtualMemory,
    call: &Call<'_>,
    calls: &CallbackScope<'_>,
) -> Result<()> {
    let Some(leaving) = Leaving::begin(device, arena, part, calls) else { return Ok(()) };
    let pool = &leaving.pool;
    // SAFETY: the granules are set to `Pending` by this thread only; the block is busy, its epoch is closed.
    let (count, leftovers, outcome) = unsafe { region::evict(vm, &leaving.memory, &pool.source, calls) };
    let empty = leaving.commit(count, call, calls, |accounting| {
        accounting.regions_mut().keep(leftovers);
        if count > 0 {
            accounting.give_back(pool.id, tier, bytes_of(&leaving.memory[..count]));
        }
    });
    outcome?;
    match empty {
        Some((segment, block)) => space::remove_region(device, arena, segment, block, leaving.region, vm),
        None => Ok(()),
    }
}
