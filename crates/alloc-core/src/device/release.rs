//! Giving memory back to the device: whole fixed segments, and whole granules of growable ones.
//!
//! Blocks are taken out first, then the stream's epochs are closed (the device must be done with what leaves), then
//! the driver is called without a lock, then the outcome is committed. What the driver refuses to take
//! stays cached.

use super::DeviceAllocator;
use super::elsewhere::Reach;
use crate::arena::ArenaState;
use crate::arena::directory::{Arena, PoolSlot};
use crate::backend::VirtualMemory;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::lifetimes::last_work::wait_for_stream;
use crate::memory::block::{BlockId, Tier};
use crate::memory::region::{self, RegionId};
use crate::memory::segment::Origin;
use crate::policy::{self, Cached, Request};
use crate::process::attention::Reason;
use crate::process::foreign::{Calls, Kind};
use crate::process::stream_identity::shown;
use crate::sync::{Arc, Guard, assert_unlocked};
use crate::types::DevicePtr;
use crate::watch::history::RecordContext;
use crate::watch::observers::{SegmentChange, SegmentEvent};
use crate::watch::snapshot::Action;

/// What is to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// The default pool's cached memory, and that of pools that nobody uses any more.
    Everything,
    /// That of pools that nobody uses any more.
    Unused,
    /// That of one pool, if nobody uses it any more.
    Pool(PoolSlot),
    /// That of one pool, also while it is in use, unless graphs know its addresses.
    InUse(PoolSlot),
}

impl Flush {
    /// The one pool that is meant, if it is one.
    fn only(self) -> Option<PoolSlot> {
        match self {
            Self::Pool(slot) | Self::InUse(slot) => Some(slot),
            Self::Everything | Self::Unused => None,
        }
    }
}

impl DeviceAllocator {
    /// Gives back all that is cached, waiting for whatever it has to wait for.
    pub(crate) fn release_everything(&self) -> Result<()> {
        self.release(Flush::Everything, &Call::PLAIN)
    }

    /// See [`CachingAllocator::empty_cache`](crate::allocator::CachingAllocator::empty_cache).
    pub(crate) fn empty_cache(&self, what: Flush) -> Result<()> {
        let mut call = self.begin_call(None, RecordContext::All)?;
        if matches!(what, Flush::Everything) {
            self.note_empty_cache();
        }
        // The thread's own capture would break if it waited.
        call.capturing = self.thread_captures();
        let outcome = self.release(what, &call);
        drop(call);
        self.tell_trackers();
        outcome
    }

    /// Waits for pending frees, then gives cached memory back (PyTorch: `release_cached_blocks`). During a capture of the
    /// caller's nothing is waited for, and only what the device is known to be done with goes.
    /// A failure keeps what it concerns and stops nothing else; the first is returned.
    pub(super) fn release(&self, what: Flush, call: &Call<'_>) -> Result<()> {
        self.retry_leftovers();
        self.exchange.imports().retry();
        let mut outcome =
            if call.capturing { self.empty_quarantine(call) } else { self.synchronise_pending(call) };
        if !call.capturing {
            self.wait_for_launches(what.only());
        }
        // The default pool first, from the large end; private pools from the small end: PyTorch's order, which shows in
        // histories and to a pool's own source.
        let steps = [(true, Tier::Large), (true, Tier::Small), (false, Tier::Small), (false, Tier::Large)];
        for (default, tier) in steps {
            let of_step = |(_, slot): &(_, PoolSlot)| (*slot == PoolSlot::DEFAULT) == default;
            for (arena, slot) in self.releasable(what).into_iter().filter(of_step) {
                let released =
                    self.release_fixed(arena, slot, tier, call, |state| unsplit_fixed(state, tier));
                outcome = outcome.and(released);
            }
            for (arena, slot) in self.releasable(what).into_iter().filter(of_step) {
                outcome = outcome.and(self.vacate_tier(arena, slot, tier, call));
            }
        }
        self.retry_leftovers();
        self.forget_empty_pools(what.only());
        outcome
    }

    /// Arenas whose cached memory may go, with their pool: those of the default pool and of pools that nobody uses any
    /// more. Such a pool stays so; its arenas may be another pool's by the time they are locked.
    pub(super) fn releasable(&self, what: Flush) -> Vec<(&Arc<Arena>, PoolSlot)> {
        let arenas = what.only().map_or_else(|| self.arenas.all(), |slot| self.arenas.of_pool(slot));
        let slots: Vec<_> = arenas.into_iter().map(|arena| (arena, arena.lock().pool.slot)).collect();
        let pools = self.pools.lock();
        let may_go = |slot: PoolSlot| match what {
            Flush::Everything => pools.is_freeable(slot),
            Flush::Unused => slot != PoolSlot::DEFAULT && pools.is_freeable(slot),
            Flush::Pool(only) => slot == only && pools.is_freeable(slot),
            Flush::InUse(only) => slot == only && !pools.is_known_to_graphs(slot),
        };
        slots.into_iter().filter(|(_, slot)| may_go(*slot)).collect()
    }

    /// Gives back oversize segments until `request` would fit. `false` where the rung is off or there is not enough.
    pub(super) fn release_enough(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<bool> {
        let slot = arena.lock().pool.slot;
        if self.pools.lock().is_captured(slot) {
            // Graphs know its addresses.
            return Ok(false);
        }
        let mut enough = false;
        self.release_fixed(arena, slot, request.tier, call, |state| {
            let Some(target) = state.policy.release_target(request) else { return Vec::new() };
            let cached = unsplit_fixed(state, request.tier);
            let bytes: Vec<u64> = cached.iter().map(|id| state.blocks[*id].size).collect();
            let (picked, does) = policy::enough(&bytes, target, state.policy.oversize());
            enough = does;
            picked.into_iter().map(|place| cached[place]).collect()
        })?;
        Ok(enough)
    }

    /// Gives back cached large segments by age until held memory is under the policy's threshold. `false` where nothing was
    /// given back.
    pub(super) fn collect_garbage(&self, call: &Call<'_>) -> Result<bool> {
        let (held, allowed) = {
            let state = self.state.lock();
            (state.accounts.held(), state.accounts.allowed())
        };
        let threshold = self.arenas.with_template(|template| template.policy.garbage_threshold(allowed));
        let Some(target) = threshold.and_then(|t| held.checked_sub(t)).filter(|target| *target > 0) else {
            return Ok(false);
        };
        let now = self.arenas.searches(Tier::Large);
        let mut candidates = Vec::new();
        let default_pool = self.releasable(Flush::Pool(PoolSlot::DEFAULT));
        for (arena, _) in &default_pool {
            let state = arena.lock();
            for id in unsplit_fixed(&state, Tier::Large) {
                let block = &state.blocks[id];
                let age = now.saturating_sub(block.born);
                candidates.push(Cached { id: (state.id.number, id), bytes: block.size, age });
            }
        }
        let chosen = policy::oldest(candidates, target);
        for (arena, slot) in default_pool {
            self.release_fixed(arena, slot, Tier::Large, call, |state| {
                let number = state.id.number;
                // Another thread may have taken or cut a block since it was chosen.
                let mine = unsplit_fixed(state, Tier::Large);
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
        let calls = self.foreign.calls();
        let mut state = arena.lock();
        // What a source gave stays while it is asked for something itself.
        let may_go =
            state.pool.slot == slot && (state.pool.source.is_none() || !calls.is_inside(Kind::Source));
        let picked = if may_go { pick(&state) } else { Vec::new() };
        if picked.is_empty() {
            return Ok(());
        }
        let _blocks = self.in_transit();
        self.take_out(&mut state, &picked);
        let segments: Vec<_> = picked
            .iter()
            .map(|id| (state.blocks[*id].segment, *id, state.blocks[*id].addr, state.blocks[*id].size))
            .collect();
        let (pool, stream) = (state.pool.clone(), state.id.stream);
        drop(state);
        let mut outcome = self.quiesce(arena, &picked, call);
        let note = |action, segment, addr, bytes| {
            let mut state = self.attend(arena, call);
            let context = state.segments[segment].context.clone();
            state.history.record_about(action, addr, bytes, context.as_ref());
        };
        for (segment, id, addr, bytes) in segments {
            if let Ok(true) = outcome {
                // From the driver's call on the address may be another segment's, which would be recorded before.
                note(Action::SegmentFree, segment, addr, bytes);
                let event = self.segment_event(
                    SegmentChange::Detaching,
                    pool.id,
                    stream,
                    DevicePtr(addr),
                    bytes,
                    false,
                );
                self.observers.tell(event, &calls);
                assert_unlocked();
                let freed = match &pool.source {
                    // SAFETY: rule 3: the base of a whole segment, taken out of the index above by this thread
                    // only; its stream's epoch was closed, so no queued work uses it.
                    None => unsafe { self.backend.free(self.device, DevicePtr(addr)) },
                    Some(source) => {
                        // SAFETY: given by this source for this segment; the rest as above.
                        let free = || unsafe { source.free(DevicePtr(addr), bytes, shown(stream)) };
                        calls.call(Kind::Source, free);
                        Ok(())
                    }
                };
                if let Err(error) = freed {
                    note(Action::SegmentAlloc, segment, addr, bytes);
                    self.observers.tell(SegmentEvent { change: SegmentChange::Attached, ..event }, &calls);
                    outcome = Err(error.into());
                }
            }
            let mut state = self.attend(arena, call);
            if !matches!(outcome, Ok(true)) {
                state.insert_free(id);
                continue;
            }
            let oversize = bytes >= state.policy.oversize();
            let segment = state.remove_segment(segment, id);
            {
                let mut device = self.state.lock();
                device.accounts.give_back(pool.id, tier, bytes);
                let counters = &mut device.counters;
                counters.segment.decrease(tier, 1);
                counters.device_free += 1;
                if oversize {
                    counters.oversize_segments.decrease(1);
                }
            }
            drop(state);
            calls.end(segment);
        }
        outcome.map(|_| ())
    }

    fn take_out(&self, state: &mut Guard<'_, ArenaState>, blocks: &[BlockId]) {
        for id in blocks {
            state.take_from_index(*id);
            state.blocks[*id].state = crate::memory::block::State::Busy;
        }
    }

    /// Makes sure that the device is done with what was freed into these busy blocks. Blocks unless it is
    /// known to be; `Ok(false)` where it is not known, and a capture forbids to wait.
    pub(super) fn quiesce(&self, arena: &Arena, blocks: &[BlockId], call: &Call<'_>) -> Result<bool> {
        let newest = {
            let state = arena.lock();
            blocks.iter().map(|id| state.blocks[*id].epoch).max().unwrap_or(0)
        };
        self.quiesce_up_to(arena, newest, call)
    }

    /// [`quiesce`](Self::quiesce), for what was freed up to the epoch `newest`.
    pub(super) fn quiesce_up_to(&self, arena: &Arena, newest: u64, call: &Call<'_>) -> Result<bool> {
        let (named, sealed) = {
            let mut state = arena.lock();
            if state.epochs.is_closed(newest) {
                return Ok(true);
            }
            if call.capturing {
                return Ok(false);
            }
            let named = match &state.retired {
                Some(last) => Err(Arc::clone(last)),
                None => Ok((state.id.stream, self.naming.begin(state.id.stream))),
            };
            (named, state.epochs.seal())
        };
        assert_unlocked();
        match named {
            Ok((stream, _)) if self.attention.has(Reason::CAPTURE) && self.may_be_capturing(stream) => {
                return Ok(false);
            }
            Ok((stream, _named)) => wait_for_stream(&*self.backend, stream)?,
            Err(last) => last.wait()?,
        }
        arena.lock().epochs.close(sealed);
        Ok(true)
    }

    /// Unmaps every whole free granule of a tier's growable segments, and gives address space back that
    /// has nothing mapped any more; where the arena is still that of the pool in `slot`.
    fn vacate_tier(&self, arena: &Arena, slot: PoolSlot, tier: Tier, call: &Call<'_>) -> Result<()> {
        let Ok(vm) = self.backend.virtual_memory() else { return Ok(()) };
        let calls = self.foreign.calls();
        let (_, dropped) = self.drop_dormant(arena, slot, vm);
        let dropped = match tier {
            Tier::Large => dropped.and(self.supply.before_leaving(&Reach(self), arena, false, call)),
            Tier::Small => dropped,
        };
        let mut state = arena.lock();
        if state.pool.slot != slot {
            return dropped;
        }
        let growable: Vec<_> = state
            .placement
            .placed()
            .at_least(tier, 0)
            .filter(|id| state.segments[state.blocks[*id].segment].is_growable())
            .collect();
        let parts: Vec<_> = growable.into_iter().flat_map(|id| state.begin_vacate(id)).collect();
        // Address space that has nothing mapped, because giving it back failed before.
        let empty = state.take_empty_regions(tier);
        if parts.is_empty() && empty.is_empty() {
            return dropped;
        }
        let _blocks = self.in_transit();
        drop(state);
        let mut outcome = dropped;
        for (segment, block, region) in empty {
            outcome = outcome.and(self.remove_region(arena, segment, block, region, vm));
        }
        let mut quiet = self.quiesce(arena, &parts, call);
        for part in parts {
            if let Ok(true) = quiet {
                quiet = self.vacate(arena, part, tier, vm, call, &calls).map(|()| true);
            } else {
                arena.lock().return_free(part);
            }
        }
        outcome.and(quiet.map(|_| ()))
    }

    /// Vacates one busy block of whole granules and commits the outcome.
    fn vacate(
        &self,
        arena: &Arena,
        part: BlockId,
        tier: Tier,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        calls: &Calls<'_>,
    ) -> Result<()> {
        let (segment, addr, bytes, region, granule, handles, pool, stream) = {
            let state = arena.lock();
            let block = &state.blocks[part];
            let Origin::Growable { region, granule } = state.segments[block.segment].origin else {
                return Ok(());
            };
            let mut device = self.state.lock();
            let handles = device.regions.begin(region, block.addr, block.size);
            let (pool, stream) = (state.pool.clone(), state.id.stream);
            (block.segment, block.addr, block.size, region, granule, handles, pool, stream)
        };
        let handles: Vec<_> = handles.into_iter().flatten().collect();
        debug_assert_eq!(handles.len() as u64 * granule, bytes, "free memory is backed throughout");
        let event =
            self.segment_event(SegmentChange::Detaching, pool.id, stream, DevicePtr(addr), bytes, true);
        self.observers.tell(event, calls);
        let at = DevicePtr(addr);
        // SAFETY: the granules are set to `Pending` by this thread only; the block is busy, its epoch is closed.
        let (count, leftovers, outcome) =
            unsafe { region::vacate(vm, at, granule, &handles, &pool.source, calls) };
        let vacated = count as u64 * granule;
        if vacated < bytes {
            let addr = at.add(vacated);
            let (change, bytes) = (SegmentChange::Attached, bytes - vacated);
            self.observers.tell(SegmentEvent { change, addr, bytes, ..event }, calls);
        }
        let mut state = self.attend(arena, call);
        {
            let mut device = self.state.lock();
            device.regions.leftovers.append(leftovers);
            device.regions.commit_vacant(region, addr, vacated);
            device.regions.commit_backed(region, addr + vacated, &handles[count..]);
            if vacated > 0 {
                device.accounts.give_back(pool.id, tier, vacated);
                device.counters.device_free += 1;
            }
        }
        if vacated > 0 {
            let context = state.segments[segment].context.clone();
            state.history.record_about(Action::SegmentUnmap, addr, vacated, context.as_ref());
        }
        let empty = state.commit_vacate(part, vacated);
        drop(state);
        outcome?;
        match empty {
            Some((segment, block)) => self.remove_region(arena, segment, block, region, vm),
            None => Ok(()),
        }
    }

    pub(super) fn remove_region(
        &self,
        arena: &Arena,
        segment: crate::memory::block::SegmentId,
        block: BlockId,
        region: RegionId,
        vm: &dyn VirtualMemory,
    ) -> Result<()> {
        let (base, bytes) = {
            let mut state = arena.lock();
            let (base, bytes) = (state.segments[segment].base, state.segments[segment].bytes);
            if self.state.lock().regions.leftovers.lie_in(base, bytes) {
                // Kept until those are gone, which every flush tries.
                state.insert_unmapped(block);
                return Ok(());
            }
            (base, bytes)
        };
        assert_unlocked();
        // SAFETY: rule 3: one whole reservation; its one block is busy and unmapped, and nothing is left over in it.
        let released = unsafe { vm.release_address(DevicePtr(base), bytes) };
        let mut state = arena.lock();
        if let Err(error) = released {
            state.insert_unmapped(block);
            return Err(error.into());
        }
        let segment = state.remove_segment(segment, block);
        self.state.lock().regions.remove(region);
        drop(state);
        self.foreign.end(segment);
        Ok(())
    }

    /// Tries again to undo what the driver, or a pool's source, refused to.
    pub(super) fn retry_leftovers(&self) {
        let Ok(vm) = self.backend.virtual_memory() else { return };
        let calls = self.foreign.calls();
        let (_memory, foreign) = {
            // One thread at a time: whoever grows next to a retry waits for it, or it would find the places taken.
            let _alone = self.retrying.lock();
            let leftovers = std::mem::take(&mut self.state.lock().regions.leftovers);
            if leftovers.is_empty() {
                return;
            }
            let memory = self.in_transit();
            let (left, foreign) = leftovers.retry(vm, &calls);
            self.state.lock().regions.leftovers.append(left);
            (memory, foreign)
        };
        // Foreign code is called with no lock held.
        let left = foreign.release(vm, &calls);
        self.state.lock().regions.leftovers.append(left);
    }
}

/// Free blocks of fixed segments that are whole segments, in index order.
fn unsplit_fixed(state: &ArenaState, tier: Tier) -> Vec<BlockId> {
    state
        .placement
        .placed()
        .at_least(tier, 0)
        .filter(|id| {
            let block = &state.blocks[*id];
            !block.is_split() && !state.segments[block.segment].is_growable()
        })
        .collect()
}
