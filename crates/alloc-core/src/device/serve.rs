//! Serving requests and taking blocks back.
//!
//! Each has a short way, which is all that most programs ever take, and one that looks closer: at contexts, captures
//! and pool scopes. One test of a word decides.

use super::DeviceAllocator;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaPool, ArenaState, FreeStep};
use crate::base::round::EXABYTE;
use crate::error::{AllocError, Result};
use crate::lifetimes::call::{Call, Relaxed};
use crate::lifetimes::pending::{Ask, Waiting};
use crate::lifetimes::uses::Use;
use crate::memory::address_map::Location;
use crate::memory::block::NO_USES;
use crate::policy::Drain;
use crate::process::attention::Reason;
use crate::process::foreign::{Calls, Gathered};
use crate::sync::{Guard, InTransit};
use crate::types::{DevicePtr, Stream};
use crate::watch::history::{Context, RecordContext};
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};

/// A stream is named to the driver.
pub(super) type Named<'a> = InTransit<'a, Stream>;

/// An arena, locked for an operation whose context its records carry. Unlocking it settles the peaks where they are
/// due.
pub(super) struct Attended<'a> {
    device: &'a DeviceAllocator,
    /// There until this is dropped.
    state: Option<Guard<'a, ArenaState>>,
}

impl Deref for Attended<'_> {
    type Target = ArenaState;
    fn deref(&self) -> &ArenaState {
        match &self.state {
            Some(state) => state,
            None => unreachable!("the lock is held until this is dropped"),
        }
    }
}

impl DerefMut for Attended<'_> {
    fn deref_mut(&mut self) -> &mut ArenaState {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("the lock is held until this is dropped"),
        }
    }
}

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        let given_up = state.history.end_call();
        self.device.leave(state);
        self.device.foreign.end(given_up);
    }
}

impl DeviceAllocator {
    /// See [`CachingAllocator::malloc`](crate::allocator::CachingAllocator::malloc).
    #[inline(always)]
    pub(crate) fn malloc(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        if bytes >= EXABYTE {
            return Err(AllocError::MoreThanAnExabyte { label: self.backend.label() });
        }
        if self.attention.concerns_requests()
            && let Some(outcome) = self.look_closer(bytes, stream)
        {
            return outcome;
        }
        // The short way: from the default pool, with nothing to look at besides.
        let (arena, mut state) = match self.enter(PoolSlot::DEFAULT, stream) {
            Some(entered) => entered,
            None => self.enter_slowly(&ArenaPool::DEFAULT, stream)?,
        };
        match state.malloc(&self.map, bytes) {
            Some(ptr) => {
                self.leave(state);
                Ok(ptr)
            }
            None => self.miss(arena, state, bytes),
        }
    }

    #[cold]
    fn miss(&self, arena: &Arena, state: Guard<'_, ArenaState>, bytes: u64) -> Result<DevicePtr> {
        let request = state.policy.request(bytes);
        drop(state);
        self.climb(arena, &request, &Call::PLAIN)
    }

    /// `None` where pending frees were all there was to look at, and the short way will do.
    #[cold]
    fn look_closer(&self, bytes: u64, stream: Stream) -> Option<Result<DevicePtr>> {
        if self.attention.only_pending() {
            return self.noticing(self.drain_if_due(&Call::PLAIN)).err().map(Err);
        }
        Some(self.malloc_attentively(bytes, stream))
    }

    fn malloc_attentively(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        if let Some(edge) = self.edge() {
            return Err(edge.refusal());
        }
        if self.attention.has(Reason::UNCACHED) {
            return self.noticing(self.uncached.malloc(bytes));
        }
        self.make_room();
        let calls = self.foreign.calls();
        let call = self.noticing(self.begin_call(Some(stream), RecordContext::State))?;
        let outcome = self.malloc_in(bytes, stream, &call);
        if let Ok(ptr) = outcome
            && self.attention.has(Reason::HARDENED)
        {
            self.arm(ptr, bytes, stream, &call);
        }
        drop(call);
        self.outbox.deliver(&calls);
        self.arrived(outcome, &calls)
    }

    /// What a request came to. Where foreign code panicked on the way nobody waits for the block any more.
    pub(super) fn arrived(&self, outcome: Result<DevicePtr>, calls: &Calls<'_>) -> Result<DevicePtr> {
        if calls.panicked()
            && let Ok(ptr) = outcome
            && let Some(at) = self.map.get(ptr)
        {
            self.forget_canary(ptr);
            self.free_in(ptr, at, &Call::PLAIN);
        }
        outcome
    }

    fn malloc_in(&self, bytes: u64, stream: Stream, call: &Call<'_>) -> Result<DevicePtr> {
        if call.capturing {
            self.reuse_joined(stream);
        } else {
            self.noticing(self.drain_if_due(call))?;
        }
        let visit = self.noticing(self.route(stream, call.capturing))?;
        self.malloc_from(&visit.pool, bytes, stream, call)
    }

    fn drain_if_due(&self, call: &Call<'_>) -> Result<()> {
        let due = match self.arenas.traits().drain {
            Drain::EveryRequest => self.pending.any(),
            Drain::OnMissAndEvery(n) => self.pending.any_at_every(n),
        };
        if due || self.attention.has(Reason::DEFERRED) { self.drain(call) } else { Ok(()) }
    }

    /// What has to be known before any lock is taken: the context, where contexts are gathered at this level, and
    /// whether the stream of a request is being captured.
    ///
    /// A driver's refusal to tell fails the call: what it would do next could break the capture.
    pub(super) fn begin_call(&self, stream: Option<Stream>, level: RecordContext) -> Result<Call<'_>> {
        let context = self.context(level, &self.foreign.calls());
        let mut call = Call { context, ..Call::PLAIN };
        if self.attention.has(Reason::CAPTURE)
            && let Ok(capture) = self.backend.capture()
        {
            call.relaxed = Some(Relaxed::enter(capture)?);
            call.capturing = match stream {
                Some(stream) => self.capture_id(stream)?.is_some(),
                None => false,
            };
        }
        Ok(call)
    }

    /// [`begin_call`](Self::begin_call) for calls that never fail.
    fn begin_free<'a>(&'a self, level: RecordContext, calls: &Calls<'a>) -> Call<'a> {
        let capture = self.backend.capture().ok().filter(|_| self.attention.has(Reason::CAPTURE));
        let relaxed = capture.and_then(|capture| Relaxed::enter(capture).ok());
        Call { context: self.context(level, calls), relaxed, ..Call::PLAIN }
    }

    fn context<'a>(&self, level: RecordContext, calls: &Calls<'a>) -> Option<Gathered<'a, Context>> {
        if self.attention.has(Reason::CONTEXTS) { self.gather(level, calls) } else { None }
    }

    /// Locks an arena for an operation.
    pub(super) fn attend<'a>(&'a self, arena: &'a Arena, call: &Call<'_>) -> Attended<'a> {
        self.attended(arena.lock(), call)
    }

    pub(super) fn attended<'a>(&'a self, mut state: Guard<'a, ArenaState>, call: &Call<'_>) -> Attended<'a> {
        state.history.begin_call(call.context());
        Attended { device: self, state: Some(state) }
    }

    /// Whether a free has to go the longer way, [`free_attentively`](Self::free_attentively).
    #[inline(always)]
    pub(crate) fn looks_at_frees(&self) -> bool {
        self.attention.concerns_frees()
    }

    /// Takes back the block at `ptr`, which the address map says is at `location`. `false` where that is
    /// not, or no longer, a block in the program's hands.
    #[inline]
    pub(crate) fn free(&self, ptr: DevicePtr, location: Location) -> bool {
        let Some(arena) = self.arenas.get(location.arena) else { return false };
        let mut state = arena.lock_shortly();
        let Some(found) = state.blocks.get(location.block).filter(|block| block.is_handed_out_at(ptr.0))
        else {
            return false;
        };
        let block = location.block;
        if found.uses == NO_USES {
            state.free_unused(&self.map, block);
            self.leave(state);
        } else {
            let uses = state.free_and_wait(&self.map, block);
            let _named = self.name(&uses);
            self.leave(state);
            self.wait_for_all(uses, Waiting { arena: location.arena, block });
        }
        true
    }

    pub(super) fn wait_for_all(&self, uses: SmallVec<[Use; 4]>, waiting: Waiting) {
        for Use { user, .. } in uses {
            self.pending.wait_for(&self.backend, user, waiting);
        }
    }

    /// The streams among these users are named until what is returned is dropped. The caller holds the lock under which
    /// it read them.
    pub(super) fn name<'a>(&self, uses: impl IntoIterator<Item = &'a Use>) -> SmallVec<[Named<'_>; 4]> {
        let live = uses.into_iter().filter_map(|found| found.user.live());
        live.map(|stream| self.naming.begin(stream)).collect()
    }

    /// [`free`](Self::free) for programs that record contexts or capture, and for hardened mode.
    pub(crate) fn free_attentively(&self, ptr: DevicePtr, location: Location, calls: &Calls<'_>) -> bool {
        self.make_room();
        let call = self.begin_free(RecordContext::All, calls);
        let freed = if self.attention.has(Reason::HARDENED) {
            self.free_hardened(ptr, location, &call)
        } else {
            self.free_in(ptr, location, &call)
        };
        drop(call);
        self.outbox.deliver(calls);
        freed
    }

    pub(super) fn free_in(&self, ptr: DevicePtr, location: Location, call: &Call<'_>) -> bool {
        let Some(arena) = self.arenas.get(location.arena) else { return false };
        let mut state = self.attend(arena, call);
        let Some(block) = state.handed_out(ptr, location.block) else { return false };
        if let FreeStep::Wait(uses) = state.free(&self.map, block) {
            let _named = self.name(&uses);
            let own = state.retired.is_none().then_some(state.id.stream);
            let _own = own.map(|own| self.naming.begin(own));
            let slot = state.pool.slot;
            drop(state);
            let waiting = Waiting { arena: location.arena, block };
            if self.attention.has(Reason::CAPTURE) {
                self.wait_or_defer(uses, waiting, own, slot);
            } else {
                self.wait_for_all(uses, waiting);
            }
        }
        true
    }

    /// Notes that `stream` uses the block at `ptr`. `Ok(false)` where that is no block.
    pub(crate) fn record_stream(&self, ptr: DevicePtr, location: Location, stream: Stream) -> Result<bool> {
        self.make_room();
        let captured = if self.attention.has(Reason::CAPTURE) { self.capture_of(stream) } else { None };
        let Some(arena) = self.arenas.get(location.arena) else { return Ok(false) };
        let mut state = arena.lock();
        let Some(block) = state.awake(ptr, location.block) else { return Ok(false) };
        if state.belongs_to(stream) && stream.device == self.device {
            return Ok(true);
        }
        let Some(is_new) = state.record_use(block, stream, captured) else {
            return Err(AllocError::Limit("a block can be used by at most 65533 streams besides its own"));
        };
        state.history.used(ptr.0, stream);
        if is_new {
            self.pending.begin_use(stream);
        }
        drop(state);
        if is_new {
            self.pending.prepare(&self.backend, stream.device);
        }
        Ok(true)
    }

    /// Notes `text` about the block at `ptr` in the history. `false` where that is no block.
    pub(crate) fn annotate(&self, ptr: DevicePtr, location: Location, text: &str) -> bool {
        let calls = self.foreign.calls();
        let call = self.begin_free(RecordContext::Alloc, &calls);
        let Some(arena) = self.arenas.get(location.arena) else { return false };
        let mut state = self.attend(arena, &call);
        let Some(block) = state.live(ptr, location.block) else { return false };
        let (addr, requested) = (state.blocks[block].addr, state.blocks[block].requested);
        state.history.annotate(addr, requested, text);
        drop(state);
        drop(call);
        self.outbox.deliver(&calls);
        true
    }

    /// Where the live block at `ptr` was allocated, if that was recorded.
    pub(crate) fn context_of(&self, ptr: DevicePtr, location: Location) -> Option<Context> {
        let state = self.arenas.get(location.arena)?.lock();
        let block = state.live(ptr, location.block)?;
        state.history.of_block(block).cloned()
    }

    /// Unlocks an arena; settles the peaks before the call returns if it crossed a ceiling.
    #[inline]
    pub(super) fn leave(&self, state: Guard<'_, ArenaState>) {
        let crossed = state.counters.crossed().then(|| state.id.number);
        drop(state);
        if let Some(number) = crossed {
            self.settle_peaks(number);
        }
        #[cfg(feature = "paranoid")]
        self.check_invariants();
    }

    /// Returns blocks whose events are complete. Does not block.
    #[cold]
    pub(super) fn drain(&self, call: &Call<'_>) -> Result<()> {
        self.settle_deferred();
        self.take_back_shared(Ask::Seldom, call);
        Ok(self.pending.drain(&self.transit, |waiting| self.event_done(waiting, call))?)
    }

    /// Waits for all pending frees, those in quarantine included. Blocks.
    pub(super) fn synchronise_pending(&self, call: &Call<'_>) -> Result<()> {
        let emptied = self.empty_quarantine(call);
        self.settle_deferred();
        self.state.lock().counters.sync_all_streams += 1;
        self.take_back_shared(Ask::Now, call);
        let done = |waiting| self.event_done(waiting, call);
        self.pending.synchronise(&*self.backend, &self.naming, &self.transit, done)?;
        emptied
    }

    /// One of the moments that a block waits for is past, as `call` noticed.
    pub(super) fn event_done(&self, waiting: Waiting, call: &Call<'_>) {
        if let Some(arena) = self.arenas.get(waiting.arena) {
            self.attend(arena, call).event_done(waiting.block);
        }
    }
}
