//! The engine: one caching allocator for one device.
//!
//! Types keep the invariants; functions in `device/`, by topic, order their calls. A request takes the lock of its
//! stream's arena, finds a free block, cuts it and returns: that is here. Only a miss goes further: through the
//! policy's remedies (`device/miss.rs`), which take memory from the device (`device/provider.rs`) or give some back
//! (`device/release.rs`), without a lock over any driver call. The remains of a stream that ends go to another
//! (`device/frees.rs`).
//!
//! Each request and each free has a fast path, which is all that most programs ever take, and one that looks closer: at
//! contexts, captures and pool scopes. One test of a word decides.

mod accounting;
pub(crate) mod arenas;
pub(crate) mod budget_events;
pub(crate) mod budgets;
mod checkpoint;
mod driver_context;
mod exact;
mod falling_asleep;
pub(crate) mod frees;
mod hand_over;
mod idle_segments;
mod leaving;
mod limits;
mod miss;
pub(crate) mod offload;
mod peers;
pub(crate) mod pools;
mod provider;
pub(crate) mod recorder;
mod release;
mod rounds;
mod shared_with_host;
mod sharing;
mod space;
pub(crate) mod statistics;
mod unmap;
mod wake;
mod waking_up;

pub use crate::watch::observers::{
    FreeMemoryCallback, OutOfMemoryObserver, ProcessMemorySource, RejectionObserver, SegmentChange,
    SegmentEvent, SegmentObserver,
};
pub use checkpoint::{CheckpointDelta, PoolCheckpoint};
pub(crate) use falling_asleep::FallingAsleep;
pub(crate) use pools::{Flush, Sleeper};
pub(crate) use recorder::observation::Observation;
pub(crate) use rounds::{Carried, carry};
pub use statistics::GrowableSize;
pub(crate) use statistics::ScopeId;

use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::pool_table::PrivatePools;
use crate::arena::{ArenaPool, ArenaState};
use crate::backend::{Backend, MemoryInfo};
use crate::base::round::EXABYTE;
use crate::config::{PolicyName, Settings};
use crate::error::{AllocError, Result};
use crate::features::share::exchange::Exchange;
use crate::features::uncached::Uncached;
use crate::lifetimes::call::Call;
use crate::lifetimes::pending::{PendingFrees, Waiting};
use crate::memory::address_map::{AddressMap, Location};
use crate::memory::backup::Spares;
use crate::memory::block::NO_USES;
use crate::policy::Policy;
use crate::process::attention::{ProcessState, Reason};
use crate::process::callbacks::{CallbackScope, Callbacks};
use crate::process::state;
use crate::sync::{Arc, Guard, InFlight, Mutex, Rank, SlowPath};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::history::{HistoryOptions, Outbox, RecordContext};
use crate::watch::{observers::Observers, pointer::Problem};
use accounting::Accounting;
use arenas::Arenas;
use budget_events::BudgetEvents;
use driver_context::DriverContext;
use frees::Captures;
use provider::in_one_piece::Learned;
use recorder::Gathering;
use space::Addresses;
use statistics::Scopes;

/// A caching allocator for one device. Reach it through [`CachingAllocator`](crate::allocator::CachingAllocator).
///
/// Types keep the invariants: only their methods change them. Functions that order these stand in files by topic.
pub(crate) struct Device {
    pub(crate) driver: DriverContext,
    pub(crate) accounting: Accounting,
    pub(crate) arenas: Arenas,
    pub(crate) observers: Observers,
    pub(crate) uncached: Uncached,
    budget_events: BudgetEvents,
    private_pools: Mutex<PrivatePools>,
    gathering: Mutex<Gathering>,
    outbox: Arc<Outbox>,
    captures: Mutex<Captures>,
    pending: PendingFrees,
    /// Driver calls under way that name a stream.
    naming: InFlight<Stream>,
    pub(crate) exchange: Exchange,
    addresses: Addresses,
    /// State of the `granule` policy for the device.
    granule: Option<Learned>,
    pub(crate) slow_path: Arc<SlowPath>,
    /// Arenas, by number, for which a thread takes memory.
    growing: InFlight<u16>,
    /// Held while the memory is opened to another device.
    opening: Mutex<()>,
    scopes: Mutex<Scopes>,
    /// Graph whose memory is being measured, or that goes.
    measured: InFlight<()>,
    /// Pools of any device that are being put to sleep or woken. The first device's list serves the whole allocator.
    pub(crate) sleeping: InFlight<(DeviceIndex, PoolId)>,
    /// Host memory kept for the next sleep.
    spares: Mutex<Spares>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("backend", &self.driver.backend().name())
            .field("device", &self.driver.device())
            .field("policy", &self.arenas.directory().policy().name())
            .finish_non_exhaustive()
    }
}

impl Drop for Device {
    /// Gives all cached memory back to the device.
    fn drop(&mut self) {
        let scopes = pools::abandon_scopes(self);
        self.driver.callbacks().end(Arc::unwrap_or_clone(scopes));
        recorder::record(self, &HistoryOptions::default());
        if let Err(error) = self.noticing(self.release_everything()) {
            tracing::warn!(%error, device = %self.driver.device(), "cached memory could not be given back");
        }
        self.exchange.imports().orphan();
        state::take_back(self.driver.attention());
    }
}

impl Device {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        device: DeviceIndex,
        map: Arc<AddressMap>,
        callbacks: Arc<Callbacks>,
        settings: &Settings,
    ) -> Result<Self> {
        let total_memory = backend.properties(device)?.total_memory;
        let absent = backend.virtual_memory().err();
        if let Some(reason) = absent.as_ref().filter(|_| settings.expandable_segments) {
            tracing::warn!(%reason, "expandable_segments is on and has no effect on this device");
        }
        let virtual_memory = absent.is_none();
        let policy = Arc::new(Policy::new(settings, virtual_memory));
        let driver =
            DriverContext::new(backend, device, map, callbacks, settings, total_memory, virtual_memory)?;
        let (backend, attention) = (driver.backend(), driver.attention());
        let observers = Observers::new(device, Arc::clone(driver.callbacks()));
        let uncached = Uncached::new(Arc::clone(backend), device, attention);
        let exchange = Exchange::new(Arc::clone(backend), device, attention);
        let granule = (policy.name() == PolicyName::Granule).then(Learned::default);
        let pending = PendingFrees::new(attention);
        let accounting = Accounting::new(&driver, settings);
        let arenas = Arenas::new(&driver, policy);
        let slow_path = driver.unified().map_or_else(Arc::default, |unified| Arc::clone(unified.slow_path()));
        let allowed = accounting.lock().accounts().device_limits().allowed();
        arenas.refresh_ages(allowed);
        uncached.turn(!settings.caching);
        Ok(Self {
            driver,
            accounting,
            arenas,
            observers,
            uncached,
            budget_events: BudgetEvents::default(),
            private_pools: Mutex::new(Rank::Registry, PrivatePools::default()),
            gathering: Mutex::new(Rank::Registry, Gathering::default()),
            outbox: Arc::default(),
            captures: Mutex::new(Rank::Pending, Captures::default()),
            pending,
            naming: InFlight::default(),
            exchange,
            addresses: Addresses::default(),
            granule,
            slow_path,
            growing: InFlight::default(),
            opening: Mutex::new(Rank::Configuration, ()),
            scopes: Mutex::new(Rank::Registry, Scopes::default()),
            measured: InFlight::default(),
            sleeping: InFlight::default(),
            spares: Mutex::new(Rank::Registry, Spares::default()),
        })
    }

    /// Index of the device.
    pub(crate) fn index(&self) -> DeviceIndex {
        self.driver.device()
    }

    /// Tells observers that a growable segment gains or loses `bytes`; not of 0.
    fn tell_growable(
        &self,
        change: SegmentChange,
        (pool, stream): (PoolId, Stream),
        at: DevicePtr,
        bytes: u64,
        calls: &CallbackScope<'_>,
    ) {
        if bytes > 0 {
            self.observers.tell(self.driver.segment_event(change, pool, stream, at, bytes, true), calls);
        }
    }

    /// Reason why the driver may not be called any more, if any.
    pub(crate) fn process_state(&self) -> Option<ProcessState> {
        self.driver.process_state()
    }

    /// The driver is never called again.
    pub(crate) fn abandon(&self) {
        self.driver.abandon();
    }

    /// Total bytes, and those that requests may have of the free ones. Calls the driver; may read files.
    pub(crate) fn memory_info(&self) -> Result<MemoryInfo> {
        let driver = self.noticing(self.driver.memory_info().map_err(AllocError::Backend))?;
        let kept = self.driver.host_room().filter(|room| room.reserve > 0);
        Ok(MemoryInfo { free: kept.map_or(driver.free, |room| driver.free.min(room.spare())), ..driver })
    }

    /// Notes if the operation failed because the driver is unloading.
    pub(crate) fn noticing<T>(&self, outcome: Result<T>) -> Result<T> {
        self.driver.noticing(outcome)
    }

    /// Problem with `ptr`; `None` where it lies in no memory of this device.
    pub(crate) fn diagnose(&self, ptr: DevicePtr) -> Option<Problem> {
        let around = self.uncached.diagnose(ptr);
        around.or_else(|| arenas::diagnose(self, ptr))
    }

    /// Ends without a word to the driver: held memory is lost to it, and no destructor runs.
    pub(crate) fn leak(self: Arc<Self>) {
        if self.driver.process_state() != Some(ProcessState::Forked) {
            self.exchange.imports().abandon();
            state::take_back(self.driver.attention());
        }
        std::mem::forget(self);
    }

    /// Takes memory for `sizes` into a pool, so that as many requests of these sizes for `stream`, made while all
    /// are live, need nothing from the device.
    pub(crate) fn prime_pool(&self, id: PoolId, stream: Stream, sizes: &[u64]) -> Result<()> {
        let calls = self.driver.calls();
        pools::expect_captures(self, id)?;
        let visit = pools::visit(self, id, false)?;
        let call = recorder::begin_call(self, Some(stream), RecordContext::State)?;
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
            if let Some(at) = self.driver.map().get(ptr) {
                frees::free_in(self, ptr, at, &call);
            }
        }
        drop(call);
        recorder::deliver(self, &calls);
        outcome
    }

    /// A block from a pool's arena.
    fn malloc_from(
        &self,
        pool: &ArenaPool,
        bytes: u64,
        stream: Stream,
        call: &Call<'_>,
    ) -> Result<DevicePtr> {
        if bytes >= EXABYTE {
            return Err(AllocError::MoreThanAnExabyte { label: self.driver.backend().label() });
        }
        let (arena, state) = match self.arenas.enter(pool.slot, stream) {
            Some(entered) => entered,
            None => self.enter_slowly(pool, stream)?,
        };
        let mut state = arenas::attended(self, state, call);
        state.change_binding(|binding| binding.note_pool(pool));
        if let Some(ptr) = state.malloc(bytes) {
            return Ok(ptr);
        }
        let request = state.binding().policy().request(bytes);
        drop(state);
        miss::serve(self, arena, &request, call)
    }

    /// Locks the arena that serves `stream`; on first use it gets one.
    #[cold]
    fn enter_slowly(&self, pool: &ArenaPool, stream: Stream) -> Result<(&Arena, Guard<'_, ArenaState>)> {
        let mut made_room = false;
        loop {
            // The table of likely arenas may have had no place for it; no reason to wait for others.
            let arena = match self.arenas.directory().of_stream(pool.slot, stream) {
                Some(arena) => arena,
                None => match arenas::arena_for(self, pool, stream) {
                    Err(AllocError::Limit(_)) if !made_room => {
                        made_room = true;
                        self.forget_unused_pools();
                        continue;
                    }
                    found => found?,
                },
            };
            let state = arena.lock();
            if state.binding().serves(pool.slot, stream) {
                return Ok((arena, state));
            }
        }
    }

    /// Takes memory and arenas of pools that nobody uses any more.
    fn forget_unused_pools(&self) {
        if let Err(error) = self.release_unused() {
            tracing::warn!(%error, "not all memory of unused pools could be given back");
        }
    }

    /// See [`CachingAllocator::malloc`](crate::allocator::CachingAllocator::malloc).
    #[inline(always)]
    pub(crate) fn malloc(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        if bytes >= EXABYTE {
            return Err(AllocError::MoreThanAnExabyte { label: self.driver.backend().label() });
        }
        if self.driver.attention().concerns_requests()
            && let Some(outcome) = self.look_closer(bytes, stream)
        {
            return outcome;
        }
        // The fast path: from the default pool, with nothing else to look at.
        let (arena, mut state) = match self.arenas.enter(PoolSlot::DEFAULT, stream) {
            Some(entered) => entered,
            None => self.enter_slowly(&ArenaPool::DEFAULT, stream)?,
        };
        match state.malloc(bytes) {
            Some(ptr) => {
                arenas::leave(self, state);
                Ok(ptr)
            }
            None => self.miss(arena, state, bytes),
        }
    }

    #[cold]
    fn miss(&self, arena: &Arena, state: Guard<'_, ArenaState>, bytes: u64) -> Result<DevicePtr> {
        let request = state.binding().policy().request(bytes);
        drop(state);
        miss::serve_plainly(self, arena, &request)
    }

    /// `None` where only pending frees were to be looked at, and the fast path will do.
    #[cold]
    fn look_closer(&self, bytes: u64, stream: Stream) -> Option<Result<DevicePtr>> {
        if self.driver.attention().only_pending() {
            let drain = |call| frees::drain_if_due(self, PoolSlot::DEFAULT, stream, bytes, &call);
            return self.driver.noticing(self.driver.plain_call().and_then(drain)).err().map(Err);
        }
        Some(self.malloc_attentively(bytes, stream))
    }

    fn malloc_attentively(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        if let Some(process_state) = self.driver.process_state() {
            return Err(process_state.refusal());
        }
        if self.driver.attention().has(Reason::UNCACHED) {
            return self.driver.noticing(self.uncached.malloc(bytes, self.driver.host_reserve()));
        }
        recorder::make_room(self);
        let calls = self.driver.calls();
        let call = self.driver.noticing(recorder::begin_call(self, Some(stream), RecordContext::State))?;
        let outcome = self.malloc_in(bytes, stream, &call);
        drop(call);
        recorder::deliver(self, &calls);
        frees::arrived(self, outcome, &calls)
    }

    fn malloc_in(&self, bytes: u64, stream: Stream, call: &Call<'_>) -> Result<DevicePtr> {
        let visit = self.driver.noticing(pools::route(self, stream, call.capturing))?;
        if call.capturing {
            frees::reuse_joined(self, stream);
        } else {
            let drained = frees::drain_if_due(self, visit.pool.slot, stream, bytes, call);
            self.driver.noticing(drained)?;
        }
        self.malloc_from(&visit.pool, bytes, stream, call)
    }

    /// True if a free has to look closer, by [`free_attentively`](Self::free_attentively).
    #[inline(always)]
    pub(crate) fn looks_at_frees(&self) -> bool {
        self.driver.attention().concerns_frees()
    }

    /// Takes back the block at `ptr`, which the address map says is at `location`. `false` where no block in the
    /// program's hands is there, or none any longer.
    #[inline]
    pub(crate) fn free(&self, ptr: DevicePtr, location: Location) -> bool {
        let Some(arena) = self.arenas.directory().get(location.arena) else { return false };
        let mut state = arena.lock_shortly();
        let block = location.block;
        let Some(found) = state.layout().handed_out(ptr, block) else { return false };
        if found.uses == NO_USES {
            state.free_unused(block);
            arenas::leave(self, state);
        } else {
            let uses = state.free_and_wait(block);
            let (slot, waiting) = (state.binding().slot(), Waiting { arena: location.arena, block });
            let _named = frees::name(self, &uses);
            arenas::leave(self, state);
            frees::wait_for_all(self, uses, waiting, None, slot, &Call::PLAIN);
        }
        true
    }

    /// [`free`](Self::free) for programs that record contexts or capture.
    #[inline]
    pub(crate) fn free_attentively(
        &self,
        ptr: DevicePtr,
        location: Location,
        calls: &CallbackScope<'_>,
    ) -> bool {
        recorder::make_room(self);
        let call = recorder::begin_free(self, RecordContext::All, calls);
        let freed = frees::free_in(self, ptr, location, &call);
        drop(call);
        recorder::deliver(self, calls);
        freed
    }
}
