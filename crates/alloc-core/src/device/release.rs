//! Giving memory back to the device: whole fixed segments, and whole granules of growable ones.
//!
//! Blocks are taken out first, then the stream's epochs are closed (the device must be done with what leaves), then
//! the driver is called without a lock, then the outcome is committed. What the driver refuses to take
//! stays cached.

use super::DeviceAllocator;
use super::grow::signed;
use crate::arena::ArenaState;
use crate::backend::VirtualMemory;
use crate::block::{BlockId, Tier};
use crate::directory::Arena;
use crate::error::Result;
use crate::index::PlacementIndex;
use crate::pending::wait_for_stream;
use crate::policy::{Policy, Request};
use crate::region::{self, RegionId};
use crate::segment::Origin;
use crate::snapshot::Action;
use crate::sync::{Arc, Guard, assert_unlocked};
use crate::types::DevicePtr;

impl<P: Policy> DeviceAllocator<P> {
    /// Waits for pending frees, then gives back all that is cached (PyTorch: `release_cached_blocks`).
    /// A failure keeps what it concerns and stops nothing else; the first is returned.
    pub(super) fn release_all(&self) -> Result<()> {
        self.retry_leftovers();
        let mut outcome = self.synchronise_pending();
        for tier in [Tier::Large, Tier::Small] {
            for arena in self.arena_states() {
                let released = self.release_fixed(arena, tier, |state| unsplit_fixed(state, tier));
                outcome = outcome.and(released);
            }
            for arena in self.arena_states() {
                outcome = outcome.and(self.vacate_tier(arena, tier));
            }
        }
        self.retry_leftovers();
        outcome
    }

    /// Gives back oversize segments until `request` would fit (reference §3.5,
    /// `release_available_cached_blocks`). `false` where the rung is off or there is not enough.
    pub(super) fn release_enough(&self, arena: &Arena<P>, request: &Request) -> Result<bool> {
        let mut enough = false;
        self.release_fixed(arena, request.tier, |state| {
            let Some(target) = state.policy.release_target(request) else { return Vec::new() };
            let cached = unsplit_fixed(state, request.tier);
            if let Some(one) = cached.iter().find(|id| state.blocks[**id].size >= target) {
                enough = true;
                return vec![*one];
            }
            let mut sum = 0;
            let mut picked = Vec::new();
            for id in cached.into_iter().rev() {
                let size = state.blocks[id].size;
                if sum >= target || !state.policy.is_oversize(size) {
                    break;
                }
                sum += size;
                picked.push(id);
            }
            enough = sum >= target;
            picked
        })?;
        Ok(enough)
    }

    /// Gives back cached large segments by age until held memory is under the policy's threshold
    /// (reference §3.5, `garbage_collect_cached_blocks`). `false` where nothing was given back.
    pub(super) fn collect_garbage(&self) -> Result<bool> {
        let (held, allowed) = {
            let state = self.state.lock();
            (state.held(), state.allowed)
        };
        let threshold = self.arenas.with_template(|template| template.policy.garbage_threshold(allowed));
        let Some(target) = threshold.and_then(|t| held.checked_sub(t)).filter(|target| *target > 0) else {
            return Ok(false);
        };
        let now = self.arenas.searches(Tier::Large);
        let mut candidates = Vec::new();
        for arena in self.arena_states() {
            let state = arena.lock();
            for id in unsplit_fixed(&state, Tier::Large) {
                let block = &state.blocks[id];
                candidates.push((state.id.number, id, block.size, now.saturating_sub(block.born)));
            }
        }
        let mut chosen = Vec::new();
        let mut reclaimed = 0;
        while reclaimed < target && !candidates.is_empty() {
            let total: u64 = candidates.iter().map(|(.., age)| age).sum();
            #[allow(clippy::cast_precision_loss)]
            let average = total as f64 / candidates.len() as f64;
            #[allow(clippy::cast_precision_loss)]
            let (old, young): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|(.., age)| *age as f64 >= average);
            if old.is_empty() {
                break;
            }
            reclaimed += old.iter().map(|(_, _, size, _)| size).sum::<u64>();
            chosen.extend(old);
            candidates = young;
        }
        for arena in self.arena_states() {
            self.release_fixed(arena, Tier::Large, |state| {
                let number = state.id.number;
                // Another thread may have taken or cut a block since it was chosen.
                let mine = unsplit_fixed(state, Tier::Large);
                mine.into_iter().filter(|id| chosen.iter().any(|c| c.0 == number && c.1 == *id)).collect()
            })?;
        }
        Ok(reclaimed > 0)
    }

    /// Gives the fixed segments of the blocks that `pick` chooses back: free, unsplit blocks of `tier`.
    fn release_fixed(
        &self,
        arena: &Arena<P>,
        tier: Tier,
        pick: impl FnOnce(&ArenaState<P>) -> Vec<BlockId>,
    ) -> Result<()> {
        let _blocks = self.transit.begin();
        let mut state = arena.lock();
        let picked = pick(&state);
        self.take_out(&mut state, &picked);
        let segments: Vec<_> = picked
            .iter()
            .map(|id| (state.blocks[*id].segment, *id, state.blocks[*id].addr, state.blocks[*id].size))
            .collect();
        drop(state);
        let mut outcome = self.quiesce(arena, &picked);
        for (segment, id, addr, bytes) in segments {
            if outcome.is_ok() {
                assert_unlocked();
                // SAFETY: rule 3: the base of a whole segment, taken out of the index above by this thread
                // only; its stream's epoch was closed, so no queued work uses it.
                outcome = unsafe { self.backend.free(self.device, DevicePtr(addr)) }.map_err(Into::into);
            }
            let mut state = arena.lock();
            if outcome.is_err() {
                state.insert_free(id);
                continue;
            }
            let oversize = state.policy.is_oversize(bytes);
            state.history.record(Action::SegmentFree, addr, bytes);
            state.remove_segment(segment, id);
            let mut device = self.state.lock();
            let counters = &mut device.counters;
            counters.segment.decrease(tier, 1);
            counters.reserved_bytes.decrease(tier, signed(bytes));
            counters.device_free += 1;
            if oversize {
                counters.oversize_segments.decrease(1);
            }
        }
        outcome
    }

    fn take_out(&self, state: &mut Guard<'_, ArenaState<P>>, blocks: &[BlockId]) {
        for id in blocks {
            state.take_from_index(*id);
            state.blocks[*id].state = crate::block::State::Busy;
        }
    }

    /// Makes sure that the device is done with what was freed into these busy blocks. Blocks unless it is
    /// known to be.
    fn quiesce(&self, arena: &Arena<P>, blocks: &[BlockId]) -> Result<()> {
        let (named, sealed) = {
            let mut state = arena.lock();
            let newest = blocks.iter().map(|id| state.blocks[*id].epoch).max().unwrap_or(0);
            if state.epochs.is_closed(newest) {
                return Ok(());
            }
            let named = match &state.retired {
                Some(last) => Err(Arc::clone(last)),
                None => Ok((state.id.stream, self.naming.begin())),
            };
            (named, state.epochs.seal())
        };
        assert_unlocked();
        match named {
            Ok((stream, _named)) => wait_for_stream(&*self.backend, stream)?,
            Err(last) => last.wait()?,
        }
        arena.lock().epochs.close(sealed);
        Ok(())
    }

    /// Unmaps every whole free granule of a tier's growable segments, and gives address space back that
    /// has nothing mapped any more.
    fn vacate_tier(&self, arena: &Arena<P>, tier: Tier) -> Result<()> {
        let Ok(vm) = self.backend.virtual_memory() else { return Ok(()) };
        let _blocks = self.transit.begin();
        let mut state = arena.lock();
        let growable: Vec<_> = state.tiers[tier as usize]
            .index
            .blocks()
            .filter(|id| state.segments[state.blocks[*id].segment].is_growable())
            .collect();
        let parts: Vec<_> = growable.into_iter().filter_map(|id| state.begin_vacate(id)).collect();
        // Address space that has nothing mapped, because giving it back failed before.
        let empty = state.take_empty_regions(tier);
        drop(state);
        let mut outcome = Ok(());
        for (segment, block, region) in empty {
            outcome = outcome.and(self.remove_region(arena, segment, block, region, vm));
        }
        outcome = outcome.and(self.quiesce(arena, &parts));
        for part in parts {
            let done = match outcome {
                Ok(()) => self.vacate(arena, part, tier, vm),
                Err(_) => {
                    arena.lock().return_free(part);
                    continue;
                }
            };
            outcome = done;
        }
        outcome
    }

    /// Vacates one busy block of whole granules and commits the outcome.
    fn vacate(&self, arena: &Arena<P>, part: BlockId, tier: Tier, vm: &dyn VirtualMemory) -> Result<()> {
        let (addr, bytes, region, granule, handles) = {
            let state = arena.lock();
            let block = &state.blocks[part];
            let Origin::Growable { region, granule } = state.segments[block.segment].origin else {
                return Ok(());
            };
            let mut device = self.state.lock();
            let handles = device.regions.begin(region, block.addr, block.size);
            (block.addr, block.size, region, granule, handles)
        };
        let handles: Vec<_> = handles.into_iter().flatten().collect();
        debug_assert_eq!(handles.len() as u64 * granule, bytes, "free memory is backed throughout");
        // SAFETY: the granules are set to `Pending` by this thread only; the block is busy, its epoch is closed.
        let (count, leftovers, outcome) = unsafe { region::vacate(vm, DevicePtr(addr), granule, &handles) };
        let vacated = count as u64 * granule;
        let mut state = arena.lock();
        {
            let mut device = self.state.lock();
            device.regions.leftovers.append(leftovers);
            device.regions.commit_vacant(region, addr, vacated);
            device.regions.commit_backed(region, addr + vacated, &handles[count..]);
            if vacated > 0 {
                device.counters.reserved_bytes.decrease(tier, signed(vacated));
                device.counters.device_free += 1;
            }
        }
        if vacated > 0 {
            state.history.record(Action::SegmentUnmap, addr, vacated);
        }
        let empty = state.commit_vacate(part, vacated);
        drop(state);
        outcome?;
        match empty {
            Some((segment, block)) => self.remove_region(arena, segment, block, region, vm),
            None => Ok(()),
        }
    }

    fn remove_region(
        &self,
        arena: &Arena<P>,
        segment: crate::block::SegmentId,
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
        state.remove_segment(segment, block);
        self.state.lock().regions.remove(region);
        Ok(())
    }

    /// Tries again to undo what the driver refused to.
    /// One thread at a time: whoever grows next to a retry waits for it, or it would find the places taken.
    pub(super) fn retry_leftovers(&self) {
        let _alone = self.retrying.lock();
        let leftovers = std::mem::take(&mut self.state.lock().regions.leftovers);
        if let Ok(vm) = self.backend.virtual_memory()
            && !leftovers.is_empty()
        {
            let left = leftovers.retry(vm);
            self.state.lock().regions.leftovers.append(left);
        }
    }
}

/// Free blocks of fixed segments that are whole segments, in index order.
fn unsplit_fixed<P: Policy>(state: &ArenaState<P>, tier: Tier) -> Vec<BlockId> {
    state.tiers[tier as usize]
        .index
        .blocks()
        .filter(|id| {
            let block = &state.blocks[*id];
            !block.is_split() && !state.segments[block.segment].is_growable()
        })
        .collect()
}
