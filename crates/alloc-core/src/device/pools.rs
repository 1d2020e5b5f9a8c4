//! Private pools: which requests they serve, who counts on them, and when their memory may go.

use super::DeviceAllocator;
use crate::arena::directory::PoolSlot;
use crate::arena::pool::{Filter, Holder, Pool, PoolStats};
use crate::arena::{ArenaPool, ArenaState};
use crate::base::steps::Counted;
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::lifetimes::last_work::LastWork;
use crate::memory::block::{State, Tier};
use crate::memory::source::SegmentSource;
use crate::process::attention::Reason;
use crate::process::foreign::Kind;
use crate::process::stream_identity::{named, shown};
use crate::sync::{Arc, Guard, this_thread};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::counters::Count;
use crate::watch::history::RecordContext;
use std::collections::BTreeSet;

/// A request's stay in a pool: its arenas stay the pool's until this is dropped.
pub(super) struct Visit<'a> {
    device: &'a DeviceAllocator,
    id: PoolId,
    pub(super) pool: ArenaPool,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if self.id == PoolId::DEFAULT {
            return;
        }
        // Never the last one's end: a visited pool has its source itself.
        drop(self.pool.source.take());
        let was_last = self.device.pools.lock().get(self.id).is_ok_and(|pool| {
            pool.visitors -= 1;
            pool.use_count == 0 && pool.visitors == 0
        });
        if was_last {
            self.device.forget_empty_pools(Some(self.pool.slot));
        }
    }
}

impl DeviceAllocator {
    /// The pool that serves a request for `stream`: that of the newest scope whose filter accepts it.
    pub(super) fn route(&self, stream: Stream, capturing: bool) -> Result<Visit<'_>> {
        if !self.attention.has(Reason::SCOPES) {
            return self.visit(PoolId::DEFAULT, capturing);
        }
        loop {
            let scopes = Arc::clone(&self.pools.lock().scopes);
            let mut newest = None;
            for scope in scopes.iter().rev().counted() {
                if self.accepts(&scope.filter, stream)? {
                    newest = Some(scope);
                    break;
                }
            }
            let visit = self.visit(newest.map_or(PoolId::DEFAULT, |scope| scope.pool), capturing);
            // A pool that died after its scope ended is no concern of this request: it has another one now.
            if visit.is_ok() || Arc::ptr_eq(&scopes, &self.pools.lock().scopes) {
                return visit;
            }
        }
    }

    /// A driver that cannot tell fails the request: outside of its pool the memory would be given to others.
    fn accepts(&self, filter: &Filter, stream: Stream) -> Result<bool> {
        Ok(match filter {
            Filter::Always => true,
            Filter::Thread(id) => *id == this_thread(),
            Filter::Stream(only) => *only == stream,
            Filter::CaptureOf(origin) => {
                // Another thread's default stream cannot be asked about here.
                let asked = |stream| if named(stream).is_ok() { self.capture_id(stream) } else { Ok(None) };
                let capture = asked(stream)?;
                capture.is_some() && (stream == *origin || capture == asked(*origin)?)
            }
            Filter::Custom(accepts) => {
                self.foreign.calls().call(Kind::Filter, || accepts(shown(stream))) == Some(true)
            }
        })
    }

    /// Keeps a pool's arenas its own for as long as the answer lives.
    pub(super) fn visit(&self, id: PoolId, capturing: bool) -> Result<Visit<'_>> {
        if id == PoolId::DEFAULT {
            return Ok(Visit { device: self, id, pool: ArenaPool::DEFAULT });
        }
        let mut pools = self.pools.lock();
        let Pool { slot, use_count, source, fixed, no_split, captured, visitors, tag, .. } = pools.get(id)?;
        if *use_count == 0 {
            return Err(AllocError::DeadPool { pool: id });
        }
        *visitors += 1;
        *captured |= capturing;
        let (slot, source, sleeps) = (*slot, source.clone(), tag.is_some());
        let pool = ArenaPool { slot, id, source, fixed: *fixed, no_split: *no_split, sleeps };
        Ok(Visit { device: self, id, pool })
    }

    /// See [`Pools::create`](crate::allocator::Pools::create).
    pub(crate) fn create_pool(
        &self,
        id: PoolId,
        source: Option<Arc<dyn SegmentSource>>,
        holder: Holder,
    ) -> Result<()> {
        let calls = self.foreign.calls();
        let fixed = match &source {
            Some(source) => calls.call(Kind::Source, || source.physical().is_none()),
            None => Some(false),
        };
        let problem = "a source of memory makes a pool that has a source, too; make it outside of the source";
        let fixed = fixed.ok_or(AllocError::Pool { pool: id, problem })?;
        self.pools.lock().create_or_reference(id, source.as_ref(), fixed, holder)
    }

    /// See [`Pools::begin`](crate::allocator::Pools::begin).
    pub(crate) fn begin_pool(&self, id: PoolId, filter: Filter, holder: Holder) -> Result<()> {
        let mut pools = self.pools.lock();
        pools.begin(id, &filter, holder)?;
        self.attention.set(Reason::SCOPES, true);
        Ok(())
    }

    /// See [`Pools::end`](crate::allocator::Pools::end).
    pub(crate) fn end_pool(&self, id: PoolId, holder: Holder) -> Result<()> {
        let (pool, scope) = {
            let mut pools = self.pools.lock();
            let scope = pools.end(id, holder)?;
            self.attention.set(Reason::SCOPES, !pools.scopes.is_empty());
            (pools.get(id).ok().map(|pool| (pool.slot, pool.use_count)), scope)
        };
        self.foreign.end([scope]);
        if let Some((slot, use_count)) = pool {
            self.end_reuse(slot);
            self.tell_trackers();
            if use_count == 0 {
                self.forget_empty_pools(Some(slot));
            }
        }
        Ok(())
    }

    /// See [`Pools::release`](crate::allocator::Pools::release).
    pub(crate) fn release_pool(&self, id: PoolId, holder: Holder) -> Result<()> {
        let (last, slot) = {
            let mut pools = self.pools.lock();
            (pools.release(id, holder)?, pools.get(id)?.slot)
        };
        if last {
            self.refresh_no_split(slot, false);
            let mut peaks = self.peaks.lock();
            for arena in self.arenas.of_pool(slot) {
                // Nothing is requested of it any more.
                peaks.reclaim(&mut arena.lock().counters);
            }
            drop(peaks);
            // One that holds nothing leaves nothing behind: its id can be used again.
            self.forget_empty_pools(Some(slot));
        }
        Ok(())
    }

    /// References to a pool.
    pub(crate) fn pool_use_count(&self, id: PoolId) -> Result<u32> {
        Ok(self.pools.lock().get(id)?.use_count)
    }

    pub(crate) fn set_use_on_oom(&self, id: PoolId, on: bool) -> Result<()> {
        let mut pools = self.pools.lock();
        let pool = pools.get(id)?;
        if on && pool.use_count == 0 {
            return Err(AllocError::DeadPool { pool: id });
        }
        pool.use_on_oom = on;
        Ok(())
    }

    pub(crate) fn set_no_split(&self, id: PoolId) -> Result<()> {
        let slot = {
            let mut pools = self.pools.lock();
            let pool = pools.get(id)?;
            if pool.use_count == 0 {
                return Err(AllocError::DeadPool { pool: id });
            }
            pool.no_split = true;
            pool.slot
        };
        self.refresh_no_split(slot, true);
        Ok(())
    }

    fn refresh_no_split(&self, slot: PoolSlot, no_split: bool) {
        for arena in self.arenas.of_pool(slot) {
            let mut state = arena.lock();
            if state.pool.slot == slot {
                state.pool.no_split = no_split;
            }
        }
    }

    /// Notes what a pool's own source answered: an out-of-memory error says so.
    pub(super) fn note_source(&self, id: PoolId, refused: bool) {
        if let Ok(pool) = self.pools.lock().get(id) {
            pool.source_refused = refused;
        }
    }

    /// Pools that serve the default pool in need, by id: not those whose free memory graphs write to.
    pub(super) fn opted_in_pools(&self) -> Vec<PoolId> {
        let pools = self.pools.lock();
        let serves = |pool: &Pool| pool.use_on_oom && !pool.captured;
        pools.records.iter().counted().filter(|(_, pool)| serves(pool)).map(|(id, _)| *id).collect()
    }

    /// A graph knows addresses of the pool, though nothing was requested in the capture.
    pub(crate) fn note_captured(&self, id: PoolId) -> Result<()> {
        self.pools.lock().get(id)?.captured = true;
        Ok(())
    }

    /// Graphs that know addresses of the pool were launched, and are gone: its memory stays until `launches` are done.
    pub(crate) fn keep_pool_for(&self, id: PoolId, launches: &[Arc<LastWork>]) -> Result<()> {
        let known = self.pools.lock().keep_for(id, launches)?;
        // A capture forbids to ask; then they are asked the next time.
        if !self.attention.has(Reason::CAPTURE) {
            self.forget_launches(&known, |launch| launch.is_done());
        }
        Ok(())
    }

    /// Waits for what graphs that are gone still do in pools that nobody uses: in one, or in all. Blocks.
    pub(super) fn wait_for_launches(&self, only: Option<PoolSlot>) {
        let launches = self.pools.lock().launches_to_wait_for(only);
        self.forget_launches(&launches, |launch| launch.wait().map(|()| true));
    }

    fn forget_launches(
        &self,
        launches: &[Arc<LastWork>],
        is_done: impl Fn(&LastWork) -> crate::backend::Result<bool>,
    ) {
        let is_done = |launch: &Arc<LastWork>| {
            is_done(launch).unwrap_or_else(|error| {
                self.backend.clear_error();
                tracing::warn!(%error, "it is not known whether a graph's launch is done; its pool keeps its memory");
                false
            })
        };
        let done: Vec<_> = launches.iter().filter(|launch| is_done(launch)).cloned().collect();
        let _dropped_without_a_lock = self.pools.lock().forget_launches(&done);
    }

    /// The pool's place among arenas.
    pub(crate) fn slot_of(&self, id: PoolId) -> Result<PoolSlot> {
        if id == PoolId::DEFAULT {
            return Ok(PoolSlot::DEFAULT);
        }
        Ok(self.pools.lock().get(id)?.slot)
    }

    /// Forgets pools that nobody uses and that hold nothing any more: the one in a slot, or all.
    pub(super) fn forget_empty_pools(&self, only: Option<PoolSlot>) {
        let mut forgotten = Vec::new();
        {
            // No stream gets an arena meanwhile.
            let _alone = self.tenures.lock();
            let abandoned = self.pools.lock().abandoned(only);
            for (id, slot) in abandoned {
                if let Some(left) = self.arenas.recycle(slot) {
                    // In one step: the id can be used again, and what is said about it then stays.
                    let mut state = self.state.lock();
                    forgotten.push((self.pools.lock().forget(id), left));
                    state.accounts.forget_pool(id);
                }
            }
        }
        // Destructors of sources are foreign code, which is refused memory rather than made to wait for this thread.
        let _foreign = (!forgotten.is_empty()).then(|| self.in_transit());
        self.foreign.end(forgotten);
    }

    /// Whether the live blocks of a pool are exactly `expected`. PyTorch: `checkPoolLiveAllocations`.
    pub(crate) fn pool_has_live(&self, id: PoolId, expected: &BTreeSet<DevicePtr>) -> Result<bool> {
        let slot = self.slot_of(id)?;
        Ok(self.with_arenas_of(slot, |arenas| {
            let live = arenas.iter().flat_map(|arena| arena.blocks.iter().filter(|(_, b)| b.state.is_live()));
            let mut count = 0;
            let known = live.inspect(|_| count += 1).all(|(_, b)| expected.contains(&DevicePtr(b.addr)));
            known && count == expected.len()
        }))
    }

    /// Runs `work` with all arenas of a pool locked.
    fn with_arenas_of<R>(&self, slot: PoolSlot, work: impl FnOnce(&[Guard<'_, ArenaState>]) -> R) -> R {
        let arenas: Vec<_> = self.arenas.of_pool(slot).into_iter().map(|arena| arena.lock()).collect();
        let mine: Vec<_> = arenas.into_iter().filter(|arena| arena.pool.slot == slot).collect();
        work(&mine)
    }

    /// What a pool holds, and who uses it.
    pub(crate) fn pool_stats(&self, id: PoolId) -> Result<PoolStats> {
        let slot = self.slot_of(id)?;
        let use_count = if id == PoolId::DEFAULT { 1 } else { self.pool_use_count(id)? };
        Ok(self.with_arenas_of(slot, |arenas| {
            let mut stats = PoolStats { use_count, ..PoolStats::default() };
            for arena in arenas {
                for tier in Tier::ALL {
                    let count = |count| arena.counters.get(tier, count).unsigned_abs();
                    stats.allocation += count(Count::Allocation);
                    stats.allocated_bytes += count(Count::AllocatedBytes);
                    stats.active_bytes += count(Count::ActiveBytes);
                    stats.requested_bytes += count(Count::RequestedBytes);
                }
                let free = arena.blocks.iter().filter(|(_, block)| block.state == State::Free);
                stats.free_bytes += free.map(|(_, block)| block.size).sum::<u64>();
                let has_memory = |state: State| {
                    !state.is_asleep() && !matches!(state, State::Unmapped | State::Dormant | State::Blank)
                };
                let backed = |id| arena.segment_blocks(id).any(|(_, block)| has_memory(block.state));
                stats.segments += arena.segments.iter().filter(|(id, _)| backed(*id)).count() as u64;
            }
            stats.reserved_bytes = self.state.lock().accounts.of_pool(id);
            stats
        }))
    }

    /// Takes memory for `sizes` into a pool, so that as many requests of these sizes for `stream`, made while all
    /// are live, need nothing from the device.
    pub(crate) fn prime_pool(&self, id: PoolId, stream: Stream, sizes: &[u64]) -> Result<()> {
        let calls = self.foreign.calls();
        let visit = self.visit(id, false)?;
        let call = self.begin_call(Some(stream), RecordContext::State)?;
        let mut taken = Vec::with_capacity(sizes.len());
        let mut outcome = Ok(());
        for bytes in sizes.iter().filter(|bytes| **bytes > 0) {
            match calls.catch(|| self.malloc_from(&visit.pool, *bytes, stream, &call)) {
                Some(Ok(ptr)) => taken.push(ptr),
                Some(Err(error)) => {
                    outcome = Err(error);
                    break;
                }
                None => break,
            }
        }
        for ptr in taken {
            if let Some(at) = self.map.get(ptr) {
                self.free_in(ptr, at, &call);
            }
        }
        drop(call);
        self.outbox.deliver(&calls);
        outcome
    }

    /// A block from a pool's arena.
    pub(super) fn malloc_from(
        &self,
        pool: &ArenaPool,
        bytes: u64,
        stream: Stream,
        call: &Call<'_>,
    ) -> Result<DevicePtr> {
        if bytes >= crate::base::round::EXABYTE {
            return Err(AllocError::MoreThanAnExabyte { label: self.backend.label() });
        }
        let (arena, state) = match self.enter(pool.slot, stream) {
            Some(entered) => entered,
            None => self.enter_slowly(pool, stream)?,
        };
        let mut state = self.attended(state, call);
        state.settle();
        let (request, found) = if self.attention.has(Reason::HARDENED) {
            let request = self.hardened_request(&state, bytes);
            // What is free is protected then, and could be reached in a view.
            (request, state.find(&request))
        } else {
            let request = state.policy.request(bytes);
            (request, state.find_remembered(&request))
        };
        match found {
            Some(block) => Ok(state.hand_out(&self.map, block, &request)),
            None => {
                drop(state);
                self.climb(arena, &request, call)
            }
        }
    }
}
