//! The ladder: what is done, in order, for a request that found no block.

use super::DeviceAllocator;
use super::elsewhere::Reach;
use super::release::Flush;
use crate::arena::directory::{Arena, PoolSlot};
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::policy::{Request, Rung};
use crate::sync::{InTransit, Mark, ThreadId, this_thread};
use crate::types::DevicePtr;
use crate::watch::snapshot::Action;

/// How often a thread climbs again while others move memory.
const LAST_CLIMBS: usize = 32;

/// What a rung achieved.
enum Outcome {
    /// It served the request.
    Served(DevicePtr),
    /// It changed something: the free blocks are worth another search.
    Changed,
    /// It changed nothing.
    Unchanged,
}

impl DeviceAllocator {
    /// Tries every remedy in the policy's order, searching again after each that changed something; fails
    /// only when no fit exists after the last.
    #[cold]
    pub(super) fn climb(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<DevicePtr> {
        let served = self.noticing(self.try_remedies(arena, request, call));
        let calls = self.foreign.calls();
        self.tell_crossings_in(&calls);
        self.arrived(served, &calls)
    }

    fn try_remedies(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<DevicePtr> {
        let mark = self.transit.now();
        let served = match self.climb_once(self.arenas.traits().ladder.iter(), arena, request, call)? {
            Some(ptr) => Some(ptr),
            None => self.last_resort(arena, request, call, mark)?,
        };
        served.ok_or_else(|| self.out_of_memory(arena, request, call))
    }

    fn climb_once<'r>(
        &self,
        rungs: impl Iterator<Item = &'r Rung>,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        for rung in rungs.filter(|rung| !call.capturing || rung.is_capture_safe()) {
            let outcome = self.step(*rung, arena, request, call)?;
            tracing::trace!(rung = rung.name(), served = matches!(outcome, Outcome::Served(_)), "ladder");
            if let Outcome::Served(ptr) = outcome {
                return Ok(Some(ptr));
            }
            if matches!(outcome, Outcome::Changed)
                && let Some(ptr) = self.search(arena, request, *rung == Rung::Callbacks, call)
            {
                return Ok(Some(ptr));
            }
        }
        Ok(None)
    }

    /// The calling thread has memory in its hands, in no index, while what is returned lives.
    pub(super) fn in_transit(&self) -> InTransit<'_, ThreadId> {
        self.transit.begin(this_thread())
    }

    /// What this thread did not find, others may have had in their hands, and what it gave back, others may have taken
    /// first. Once a climb failed during which (from `mark` on) no other thread moved memory, there was a moment without
    /// a fit, and the driver is not asked again. Else waits, one thread at a time, for all memory that is in transit, and
    /// tries again after each; then climbs again. The number of climbs is bounded, because others may never rest.
    fn last_resort(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
        mut mark: Mark,
    ) -> Result<Option<DevicePtr>> {
        let me = this_thread();
        if self.transit.concerns(me) {
            // Foreign code that the engine called asks for memory, and others may wait for what this thread holds.
            return Ok(None);
        }
        let try_again = || match self.search(arena, request, false, call) {
            Some(ptr) => Ok(Some(ptr)),
            None => self.take_memory(arena, request, false, call),
        };
        let _alone = self.last_resort.lock();
        for _ in 0..LAST_CLIMBS {
            if self.transit.only_since(mark, me) {
                break;
            }
            if let Some(outcome) = self.transit.wait_for(|thread| thread != me, || try_again().transpose()) {
                return outcome.map(Some);
            }
            if let Some(ptr) = try_again()? {
                return Ok(Some(ptr));
            }
            mark = self.transit.now();
            // The program's own code may ask for memory itself, and has run.
            let rungs = self.arenas.traits().ladder.iter().filter(|rung| !rung.runs_foreign_code());
            if let Some(ptr) = self.climb_once(rungs, arena, request, call)? {
                return Ok(Some(ptr));
            }
        }
        Ok(None)
    }

    /// Takes memory from the device, one thread at a time for each stream and pool: what another has just taken may do
    /// for this request, too, as it would if they had come one after the other.
    fn grow_in_turn(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<Option<DevicePtr>> {
        let (number, has_source) = {
            let state = arena.lock();
            (state.id.number, state.pool.source.is_some())
        };
        // A pool's own source may itself wait for other threads.
        let turn = if has_source { None } else { self.growing.take(number) };
        // Nobody else grew it: nothing new can be found, and PyTorch does not search again.
        if turn.as_ref().is_some_and(|turn| turn.after_another)
            && let Some(ptr) = self.search(arena, request, false, call)
        {
            return Ok(Some(ptr));
        }
        if let Some(ptr) = self.replace(arena, request, call)? {
            return Ok(Some(ptr));
        }
        self.take_memory(arena, request, false, call)
    }

    /// Gets memory for a request that misses, as the policy does, and serves it.
    pub(super) fn take_memory(
        &self,
        arena: &Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        if is_retry {
            self.state.lock().counters.alloc_retries += 1;
        }
        self.supply.serve(&Reach(self), arena, request, is_retry, call)
    }

    /// Searches the free blocks again. PyTorch ages them only after callbacks.
    pub(super) fn search(
        &self,
        arena: &Arena,
        request: &Request,
        ages: bool,
        call: &Call<'_>,
    ) -> Option<DevicePtr> {
        let mut state = self.attend(arena, call);
        match if ages { state.find(request) } else { state.find_again(request) } {
            Some(found) => Some(state.hand_out(&self.map, found, request)),
            None => {
                drop(state);
                self.supply.search(&Reach(self), arena, request, call)
            }
        }
    }

    /// Searches the pools that serve the default pool in need (`use_on_oom`): what they have cached, never new memory.
    fn search_opted_in(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let stream = {
            let state = arena.lock();
            if state.pool.slot != PoolSlot::DEFAULT {
                return Ok(None);
            }
            state.id.stream
        };
        for pool in self.opted_in_pools() {
            // Released meanwhile: then it is emptied like any other.
            let Ok(visit) = self.visit(pool, call.capturing) else { continue };
            let Some(arena) = self.arenas.of_stream(visit.pool.slot, stream) else { continue };
            if let Some(ptr) = self.search(arena, request, false, call) {
                return Ok(Some(ptr));
            }
        }
        Ok(None)
    }

    fn step(&self, rung: Rung, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<Outcome> {
        let served = |ptr: Option<DevicePtr>| ptr.map_or(Outcome::Unchanged, Outcome::Served);
        let changed = |changed| if changed { Outcome::Changed } else { Outcome::Unchanged };
        Ok(match rung {
            Rung::Drain => {
                self.drain(call)?;
                Outcome::Changed
            }
            Rung::Views => served(self.supply.search(&Reach(self), arena, request, call)),
            Rung::Callbacks => changed(self.observers.ask_for_memory()),
            Rung::CollectGarbage => changed(self.collect_garbage(call)?),
            Rung::ReuseEarly => changed(self.reuse_early(arena, request, call)),
            Rung::Grow => {
                if !call.capturing && self.is_over_soft_limit(request) {
                    // What is given back makes room under the soft limit; beyond it memory is taken all the same.
                    if let Err(error) = self.release(Flush::Everything, call) {
                        tracing::warn!(%error, "not all cached memory could be given back");
                    }
                    if let Some(ptr) = self.search(arena, request, false, call) {
                        return Ok(Outcome::Served(ptr));
                    }
                }
                if self.trim_to_soft(arena, request, call)
                    && let Some(ptr) = self.search(arena, request, false, call)
                {
                    return Ok(Outcome::Served(ptr));
                }
                served(self.grow_in_turn(arena, request, call)?)
            }
            Rung::OptedInPools => served(self.search_opted_in(arena, request, call)?),
            Rung::ReleaseEnough => {
                if self.release_enough(arena, request, call)? {
                    served(self.take_memory(arena, request, false, call)?)
                } else {
                    Outcome::Unchanged
                }
            }
            Rung::WaitForPending => {
                self.synchronise_pending(call)?;
                Outcome::Changed
            }
            Rung::ReleaseAll => served(self.reclaim(arena, request, call)?),
            Rung::Spill => served(self.spill(arena, request, call)?),
        })
    }

    fn out_of_memory(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> AllocError {
        let (slot, pool, stream) = {
            let state = arena.lock();
            (state.pool.slot, state.pool.id, state.id.stream)
        };
        let calls = self.foreign.calls();
        let report = self.explain(slot, stream, request, call, &calls);
        {
            let mut state = self.attend(arena, call);
            state.history.refused(request.requested);
            state.history.record(Action::Oom, report.device_free, request.size);
        }
        self.state.lock().counters.ooms += 1;
        self.note_refusal(pool);
        self.outbox.deliver(&calls);
        self.observers.tell_out_of_memory(&report, &calls);
        AllocError::OutOfMemory(Box::new(report))
    }
}
