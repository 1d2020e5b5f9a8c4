//! The ladder: what is done, in order, for a request that found no block.

use super::DeviceAllocator;
use crate::directory::Arena;
use crate::error::{AllocError, Result};
use crate::policy::{Policy, Request, Rung};
use crate::snapshot::Action;
use crate::types::DevicePtr;

/// What a rung achieved.
enum Outcome {
    /// It served the request.
    Served(DevicePtr),
    /// It changed something: the free blocks are worth another search.
    Changed,
    /// It changed nothing.
    Unchanged,
}

impl<P: Policy> DeviceAllocator<P> {
    /// Tries every remedy in the policy's order, searching again after each that changed something; fails
    /// only when no fit exists after the last.
    #[cold]
    pub(super) fn climb(&self, arena: &Arena<P>, request: &Request) -> Result<DevicePtr> {
        for rung in P::LADDER {
            let outcome = self.step(*rung, arena, request)?;
            tracing::trace!(rung = rung.name(), served = matches!(outcome, Outcome::Served(_)), "ladder");
            if let Outcome::Served(ptr) = outcome {
                return Ok(ptr);
            }
            if matches!(outcome, Outcome::Changed)
                && let Some(ptr) = self.search(arena, request, *rung == Rung::Callbacks)
            {
                return Ok(ptr);
            }
        }
        match self.last_resort(arena, request)? {
            Some(ptr) => Ok(ptr),
            None => Err(self.out_of_memory(arena, request)),
        }
    }

    /// What this thread did not find, others may have had in their hands: blocks on the way to or from the
    /// driver are in no index. Waits, one thread at a time, for all that are on their way now, and tries again
    /// after each; the last try comes when none is left.
    fn last_resort(&self, arena: &Arena<P>, request: &Request) -> Result<Option<DevicePtr>> {
        let _alone = self.last_resort.lock();
        let bound = self.transit.next();
        loop {
            let waited = self.transit.wait_for_one_before(bound);
            if let Some(ptr) = self.search(arena, request, false) {
                return Ok(Some(ptr));
            }
            if let Some(ptr) = self.grow(arena, request, false)? {
                return Ok(Some(ptr));
            }
            if !waited {
                return Ok(None);
            }
        }
    }

    /// Searches the free blocks again. PyTorch ages them only after callbacks.
    fn search(&self, arena: &Arena<P>, request: &Request, ages: bool) -> Option<DevicePtr> {
        let mut state = arena.lock();
        let found = if ages { state.find(request) } else { state.find_again(request) }?;
        let ptr = state.hand_out(&self.map, found, request);
        self.leave(state);
        Some(ptr)
    }

    fn step(&self, rung: Rung, arena: &Arena<P>, request: &Request) -> Result<Outcome> {
        let served = |ptr: Option<DevicePtr>| ptr.map_or(Outcome::Unchanged, Outcome::Served);
        let changed = |changed| if changed { Outcome::Changed } else { Outcome::Unchanged };
        Ok(match rung {
            Rung::Drain => {
                self.drain()?;
                Outcome::Changed
            }
            Rung::Callbacks => {
                let callbacks = self.callbacks.lock().clone();
                // All of them run, whatever the first ones say.
                changed(callbacks.iter().fold(false, |any, callback| callback() | any))
            }
            Rung::CollectGarbage => changed(self.collect_garbage()?),
            Rung::Grow => served(self.grow(arena, request, false)?),
            Rung::ReleaseEnough => {
                if self.release_enough(arena, request)? {
                    served(self.grow(arena, request, false)?)
                } else {
                    Outcome::Unchanged
                }
            }
            Rung::WaitForPending => {
                self.synchronise_pending()?;
                Outcome::Changed
            }
            Rung::ReleaseAll => {
                // What one stream or region refuses to give back is no reason to refuse what others gave.
                let released = self.release_all();
                // Pending blocks that came back may fit as they are.
                if let Some(ptr) = self.search(arena, request, false) {
                    return Ok(Outcome::Served(ptr));
                }
                let grown = self.grow(arena, request, true)?;
                if grown.is_none() {
                    released?;
                }
                served(grown)
            }
        })
    }

    fn out_of_memory(&self, arena: &Arena<P>, request: &Request) -> AllocError {
        let stream = arena.lock().id.stream;
        let report = self.explain(stream, request);
        arena.lock().history.record(Action::Oom, report.device_free, request.size);
        self.state.lock().counters.ooms += 1;
        let observers = self.observers.lock().clone();
        for observer in &observers {
            observer(&report);
        }
        AllocError::OutOfMemory(Box::new(report))
    }
}
