//! Frees: what waits for devices, what is cached, what goes back to the driver.

use super::HostBlockId;
use super::block::{Fate, Use};
use super::engine::Engine;
use crate::error::{AllocError, Result};
use crate::lifetimes::pending::Waiting;
use crate::memory::block::BlockId;
use crate::process::attention::Edge;
use crate::sync::{Arc, Ordering};
use crate::types::{DeviceIndex, PoolId};
use crate::watch::history::{Context, RecordContext};

/// How pending frees name a pinned block. There are no arenas.
fn waiting(block: BlockId) -> Waiting {
    Waiting { arena: 0, block }
}

impl Engine {
    /// See [`HostAllocator::free`](super::HostAllocator::free).
    pub(super) fn free(&self, id: HostBlockId) -> Result<()> {
        if let Some(edge) = self.edge() {
            return edge.of_release();
        }
        if id == HostBlockId::NONE {
            return Ok(());
        }
        let calls = self.foreign.calls();
        let context = self.gather(RecordContext::All, &calls);
        let context = context.as_deref();
        let (block, fate, catch_all, _named) = {
            let mut state = self.lock();
            let Some(block) = state.handed_out(id).filter(|block| !state.block(*block).buffered) else {
                return Err(AllocError::UnknownHostBlock { id: id.0 });
            };
            let fate = state.release(block, context);
            let named: Vec<_> = match &fate {
                Fate::Waits(uses) => uses
                    .iter()
                    .filter_map(|found| found.user.live())
                    .map(|stream| self.naming.begin(stream))
                    .collect(),
                _ => Vec::new(),
            };
            (block, fate, state.knobs.free_catch_all, named)
        };
        match fate {
            Fate::Free | Fate::Kept => Ok(()),
            Fate::Waits(uses) => {
                uses.into_iter().for_each(|found| self.wait_for(block, found));
                Ok(())
            }
            Fate::Leaves => {
                let _relaxed = self.relaxed().ok();
                let given = self.noticing(self.give_back(vec![block], context));
                given.or_else(|error| {
                    if catch_all {
                        tracing::warn!(%error, "Suppressed exception in pinned allocator free()");
                        return Ok(());
                    }
                    tracing::warn!(%error, "Exception in pinned allocator free(), rethrowing");
                    Err(error)
                })
            }
        }
    }

    /// Gives a block to a buffer, which alone frees it from then on, or takes it back from there.
    pub(super) fn set_buffered(&self, id: HostBlockId, buffered: bool) -> Result<()> {
        if let Some(edge) = self.edge() {
            return edge.of_release();
        }
        if id == HostBlockId::NONE {
            return Ok(());
        }
        let mut state = self.lock();
        let Some(block) = state.handed_out(id) else { return Err(AllocError::UnknownHostBlock { id: id.0 }) };
        state.block_mut(block).buffered = buffered;
        Ok(())
    }

    /// Lets a block wait for what a stream was given. The caller holds a ticket where it is not retired. Never fails: what
    /// cannot be recorded waits for a synchronisation.
    fn wait_for(&self, block: BlockId, found: Use) {
        let _relaxed = self.relaxed().ok();
        // An event recorded on a captured stream would become part of the graph, and say nothing.
        let captured = found.user.live().is_some_and(|stream| !matches!(self.capture_id(stream), Ok(None)));
        if captured {
            let mut state = self.lock();
            state.deferred.push((block, found));
            self.deferring.store(true, Ordering::Release);
        } else {
            let pending = &self.pending[usize::from(found.device.0)];
            pending.wait_for(&self.backend, found.user, waiting(block));
        }
        self.waker.wake();
    }

    /// Tries those again whose streams were being captured.
    fn settle_deferred(&self) {
        if !self.deferring.load(Ordering::Acquire) {
            return;
        }
        let (deferred, _named) = {
            let mut state = self.lock();
            self.deferring.store(false, Ordering::Release);
            let deferred = std::mem::take(&mut state.deferred);
            let live = deferred.iter().filter_map(|(_, found)| found.user.live());
            let named: Vec<_> = live.map(|stream| self.naming.begin(stream)).collect();
            (deferred, named)
        };
        deferred.into_iter().for_each(|(block, found)| self.wait_for(block, found));
    }

    /// Whether anything waits.
    pub(super) fn any_waiting(&self) -> bool {
        self.attention.any_pending() || self.deferring.load(Ordering::Acquire)
    }

    /// Notices completed uses; what is not to be cached goes back to the driver. Does not wait for a device.
    pub(super) fn poll(&self, context: Option<&Context>) -> Result<()> {
        if !self.any_waiting() {
            return Ok(());
        }
        let _relaxed = self.relaxed()?;
        self.settle_deferred();
        self.notice(context, |pending, done| pending.drain(&self.transit, done))
    }

    /// Waits for all that devices still do with blocks that were given back. **Blocks.**
    pub(super) fn synchronise(&self, context: Option<&Context>) -> Result<()> {
        let _relaxed = self.relaxed()?;
        self.settle_deferred();
        self.notice(context, |pending, done| {
            pending.synchronise(&*self.backend, &self.naming, &self.transit, done)
        })
    }

    /// Asks each device. One that fails stops no other; the first error is returned.
    fn notice(
        &self,
        context: Option<&Context>,
        ask: impl Fn(
            &crate::lifetimes::pending::PendingFrees,
            &mut dyn FnMut(Waiting),
        ) -> crate::backend::Result<()>,
    ) -> Result<()> {
        let mut leaving = Vec::new();
        let mut outcome = Ok(());
        for pending in &self.pending {
            let asked = ask(pending, &mut |waiting: Waiting| {
                if matches!(self.lock().event_done(waiting.block, context), Fate::Leaves) {
                    leaving.push(waiting.block);
                }
            });
            let asked = asked.inspect_err(|_| self.backend.clear_error());
            outcome = outcome.and(asked.map_err(AllocError::Backend));
        }
        outcome.and(self.give_back(leaving, context))
    }

    /// Gives blocks that are leaving back to the driver. What it refuses is cached again; the first error is returned.
    pub(super) fn give_back(&self, leaving: Vec<BlockId>, context: Option<&Context>) -> Result<()> {
        let mut outcome = Ok(());
        for id in leaving {
            let (ptr, size, origin) = {
                let state = self.lock();
                let block = state.block(id);
                (block.ptr, block.size, block.origin)
            };
            // SAFETY: rule 3: the source gave it as this block, nobody finds it any more, and devices are done with it.
            let given = unsafe { self.source.give_back(ptr, size, origin) };
            let mut state = self.lock();
            match given {
                Ok(time) => {
                    if let Some(time) = time {
                        state.totals_mut().host_free_time.add(time);
                    }
                    state.gone(id, context);
                }
                Err(error) => {
                    state.stays(id);
                    drop(state);
                    self.backend.clear_error();
                    outcome = outcome.and(Err(error.into()));
                }
            }
        }
        outcome
    }

    /// See [`HostAllocator::empty_cache`](super::HostAllocator::empty_cache).
    pub(super) fn empty_cache(&self) -> Result<()> {
        if let Some(edge) = self.edge() {
            return edge.of_release();
        }
        let calls = self.foreign.calls();
        let context = self.gather(RecordContext::All, &calls);
        let context = context.as_deref();
        self.noticing(self.poll(context).and(self.release_cached(context)))
    }

    /// Gives back what the default pool has cached, and then what pools have that nobody uses any more.
    pub(super) fn release_cached(&self, context: Option<&Context>) -> Result<()> {
        let _relaxed = self.relaxed()?;
        let cached = self.lock().clear_cache(PoolId::DEFAULT);
        let mut outcome = self.give_back(cached, context);
        for pool in self.unused_pools() {
            let cached = self.lock().clear_cache(pool);
            outcome = outcome.and(self.give_back(cached, context));
        }
        self.forget_empty_pools();
        outcome
    }

    /// Everything that the program does not have goes back, after devices were waited for. **Blocks.**
    pub(super) fn shut_down(&self) -> Result<()> {
        let scopes = self.pools.lock().abandon_all();
        self.foreign.end(Arc::unwrap_or_clone(scopes));
        let waited = self.synchronise(None);
        let kept = self.give_kept_back();
        let cached = self.release_cached(None);
        let _relaxed = self.relaxed().ok();
        let reserve = self.source.give_reserve_back().map_err(AllocError::Backend);
        waited.and(kept).and(cached).and(reserve)
    }

    /// What graphs may use goes back: they are gone with the allocator. Their last launches may not be, so that devices are
    /// waited for.
    fn give_kept_back(&self) -> Result<()> {
        if self.lock().kept_bytes() == 0 {
            return Ok(());
        }
        let _relaxed = self.relaxed()?;
        for device in (0..self.pending.len()).filter_map(|n| u16::try_from(n).ok()).map(DeviceIndex) {
            let wait = || match self.backend.has_primary_context(device)? {
                true => self.backend.synchronize_device(device),
                // It has no work, and waiting would make its context.
                false => Ok(()),
            };
            wait().inspect_err(|_| self.backend.clear_error())?;
        }
        let kept = self.lock().clear_kept();
        self.give_back(kept, None)
    }

    /// Whether nothing may be given back, or even be looked at.
    pub(super) fn is_forked(&self) -> bool {
        self.edge() == Some(Edge::Forked)
    }
}
