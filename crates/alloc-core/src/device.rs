//! The engine: one caching allocator for one device.
//!
//! It is composed of parts that own their state; each knows the parts below it, and none above. A request takes the lock of its
//! stream's arena, finds a free block, cuts it and returns: that is here. Only a miss goes further: up the policy's ladder of
//! remedies (`device/ladder.rs`), which takes memory from the device (`device/provider.rs`) or gives some back
//! (`device/release.rs`), without a lock over any driver call. What a stream leaves behind when it ends goes to another
//! (`device/lifetimes.rs`).
//!
//! Each request and each free has a short way, which is all that most programs ever take, and one that looks closer: at
//! contexts, captures and pool scopes. One test of a word decides.

mod arenas;
mod crossings;
mod features;
mod hand_over;
mod history;
mod holdings;
mod ladder;
mod leaving;
mod lifetimes;
mod pools;
mod provider;
mod release;
mod site;
mod space;

pub use crate::watch::observers::{
    FreeMemoryCallback, OutOfMemoryObserver, ProcessMemorySource, RejectionObserver, SegmentChange,
    SegmentEvent, SegmentObserver,
};
pub use features::checkpoint::{CheckpointDelta, PoolCheckpoint};
pub use features::statistics::GrowableSize;
pub(crate) use features::{FallingAsleep, Pieces, ScopeId, carry};
pub(crate) use history::observation::Observation;
pub(crate) use pools::{Flush, Sleeper};

use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaPool, ArenaState};
use crate::backend::{Backend, MemoryInfo};
use crate::base::round::EXABYTE;
use crate::config::{PolicyName, Settings};
use crate::error::{AllocError, Result};
use crate::features::share::exchange::Exchange;
use crate::features::uncached::Uncached;
use crate::lifetimes::{call::Call, pending::Waiting};
use crate::memory::address_map::{AddressMap, Location};
use crate::memory::block::NO_USES;
use crate::policy::Policy;
use crate::process::attention::{Edge, Reason};
use crate::process::edges;
use crate::process::foreign::{Calls, Foreign};
use crate::sync::{Arc, Guard};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::history::{HistoryOptions, RecordContext};
use crate::watch::{observers::Observers, pointer::Problem};
use arenas::Arenas;
use crossings::Crossings;
use features::{
    budgets::Budgets, checkpoint::Checkpoints, exact::ExactPlaces, limits::Limits, peers::Peers,
    sharing::Sharing, sleep::Sleep, statistics::Statistics, unified, wake::Wake,
};
use history::History;
use holdings::Holdings;
use ladder::{Ladder, reclaim::Reclaim};
use lifetimes::Lifetimes;
use pools::PrivatePools;
use provider::{Provider, granule};
use release::Release;
use site::Site;
use space::Space;

/// What the higher parts are built on. Each has its own copy: a handful of pointers.
#[derive(Clone)]
struct Base {
    site: Site,
    holdings: Arc<Holdings>,
    arenas: Arc<Arenas>,
    history: Arc<History>,
    pools: Arc<PrivatePools>,
    lifetimes: Arc<Lifetimes>,
    crossings: Arc<Crossings>,
    observers: Arc<Observers>,
    uncached: Arc<Uncached>,
    exchange: Arc<Exchange>,
    /// What the `granule` policy knows of the device.
    granule: Option<Arc<granule::Device>>,
}

impl Base {
    fn new(site: &Site, settings: &Settings, policy: Arc<Policy>) -> Result<Self> {
        let (backend, device, attention) = (site.backend(), site.device(), site.attention());
        let observers = Arc::new(Observers::new(device, Arc::clone(site.foreign())));
        let uncached = Arc::new(Uncached::new(Arc::clone(backend), device, attention));
        let granule = (policy.name() == PolicyName::Granule).then(Arc::default);
        let holdings = Arc::new(Holdings::new(site, settings, &observers));
        let arenas = Arc::new(Arenas::new(site, &holdings, policy));
        let history = Arc::new(History::new(site, &holdings, &arenas));
        let pools = Arc::new(PrivatePools::new(site, &holdings, &arenas));
        let lifetimes = Arc::new(Lifetimes::new(site, &holdings, &arenas, &history, &pools, &uncached));
        Ok(Self {
            site: site.clone(),
            crossings: Arc::new(Crossings::new(site, &holdings)),
            exchange: Arc::new(Exchange::new(Arc::clone(backend), device, attention)),
            holdings,
            arenas,
            history,
            pools,
            lifetimes,
            observers,
            uncached,
            granule,
        })
    }

    /// Tells observers that so many bytes of a growable segment come or go; nothing of none.
    fn tell_growable(
        &self,
        change: SegmentChange,
        (pool, stream): (PoolId, Stream),
        at: DevicePtr,
        bytes: u64,
        calls: &Calls<'_>,
    ) {
        if bytes > 0 {
            self.observers.tell(self.site.segment_event(change, pool, stream, at, bytes, true), calls);
        }
    }
}

/// What only those programs use that ask for it.
struct Features {
    statistics: Statistics,
    budgets: Budgets,
    limits: Limits,
    sleep: Arc<Sleep>,
    wake: Wake,
    sharing: Arc<Sharing>,
    peers: Peers,
    checkpoints: Checkpoints,
    exact: ExactPlaces,
    unified: Option<unified::Membership>,
}

/// A caching allocator for one device. Reach it through [`CachingAllocator`](crate::allocator::CachingAllocator).
pub struct DeviceAllocator {
    base: Base,
    release: Arc<Release>,
    ladder: Ladder,
    features: Features,
}

impl std::fmt::Debug for DeviceAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceAllocator")
            .field("backend", &self.base.site.backend().name())
            .field("device", &self.base.site.device())
            .field("policy", &self.base.arenas.directory().policy().name())
            .finish_non_exhaustive()
    }
}

impl Drop for DeviceAllocator {
    /// Gives everything back to the device that is not in the program's hands.
    fn drop(&mut self) {
        self.features.unified.iter().for_each(|unified| unified.end(true));
        let scopes = self.base.pools.abandon_scopes();
        self.base.site.foreign().end(Arc::unwrap_or_clone(scopes));
        self.base.history.record(&HistoryOptions::default());
        if let Err(error) = self.noticing(self.release.release_everything()) {
            tracing::warn!(%error, device = %self.base.site.device(), "cached memory could not be given back");
        }
        self.base.exchange.imports().orphan();
        edges::take_back(self.base.site.attention());
    }
}

impl DeviceAllocator {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        device: DeviceIndex,
        map: Arc<AddressMap>,
        foreign: Arc<Foreign>,
        settings: &Settings,
    ) -> Result<Self> {
        let total_memory = backend.properties(device)?.total_memory;
        let absent = backend.virtual_memory().err();
        if let Some(reason) = absent.as_ref().filter(|_| settings.expandable_segments) {
            tracing::warn!(%reason, "expandable_segments is on and has no effect on this device");
        }
        let virtual_memory = absent.is_none();
        let policy = Arc::new(Policy::new(settings, virtual_memory));
        let site = Site::new(backend, device, map, foreign, settings, total_memory, virtual_memory)?;
        let allocator = Self::on(Base::new(&site, settings, policy)?);
        let allowed = allocator.base.holdings.lock().accounts().ceilings().allowed();
        allocator.base.arenas.refresh_ages(allowed);
        allocator.base.uncached.turn(!settings.caching);
        Ok(allocator)
    }

    fn on(base: Base) -> Self {
        let space = Arc::new(Space::new(&base));
        let provider = Arc::new(Provider::new(&base, &space));
        let release = Arc::new(Release::new(&base, &space, &provider));
        let reclaim = Arc::new(Reclaim::new(&base, &provider, &release));
        let sharing = Arc::new(Sharing::new(&base, &space));
        let sleep = Arc::new(Sleep::new(&base, &provider, &release, &sharing));
        Self {
            ladder: Ladder::new(&base, &provider, &release, &reclaim),
            features: Features {
                statistics: Statistics::new(&base, &provider),
                budgets: Budgets::new(&base, &release),
                limits: Limits::new(&base),
                wake: Wake::new(&base, &space, &reclaim, &sleep),
                sleep,
                sharing,
                peers: Peers::new(&base),
                checkpoints: Checkpoints::new(&base),
                exact: ExactPlaces::new(&base),
                unified: unified::join(&base, &release),
            },
            release,
            base,
        }
    }

    /// What it holds and may hold.
    pub(crate) fn holdings(&self) -> &Holdings {
        &self.base.holdings
    }

    /// Its arenas.
    pub(crate) fn arenas(&self) -> &Arenas {
        &self.base.arenas
    }

    /// Its history.
    pub(crate) fn history(&self) -> &History {
        &self.base.history
    }

    /// Its private pools.
    pub(crate) fn pools(&self) -> &PrivatePools {
        &self.base.pools
    }

    /// What is neither the program's nor free.
    pub(crate) fn lifetimes(&self) -> &Lifetimes {
        &self.base.lifetimes
    }

    /// What gives memory back.
    pub(crate) fn release(&self) -> &Release {
        &self.release
    }

    /// What came straight from the driver.
    pub(crate) fn uncached(&self) -> &Uncached {
        &self.base.uncached
    }

    /// What it has to do with other processes.
    pub(crate) fn exchange(&self) -> &Exchange {
        &self.base.exchange
    }

    /// Whom it tells and asks.
    pub(crate) fn observers(&self) -> &Observers {
        &self.base.observers
    }

    /// Who is told of budgets.
    pub(crate) fn crossings(&self) -> &Crossings {
        &self.base.crossings
    }

    /// Its figures.
    pub(crate) fn statistics(&self) -> &Statistics {
        &self.features.statistics
    }

    /// Budgets of pools and tenants.
    pub(crate) fn budgets(&self) -> &Budgets {
        &self.features.budgets
    }

    /// Settings and limits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.features.limits
    }

    /// Pools that sleep.
    pub(crate) fn sleep(&self) -> &Sleep {
        &self.features.sleep
    }

    /// Pools that wake.
    pub(crate) fn wake(&self) -> &Wake {
        &self.features.wake
    }

    /// Blocks that other processes open, and theirs.
    pub(crate) fn sharing(&self) -> &Sharing {
        &self.features.sharing
    }

    /// Other devices that reach its memory.
    pub(crate) fn peers(&self) -> &Peers {
        &self.features.peers
    }

    /// Checkpoints of pools.
    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.features.checkpoints
    }

    /// Memory at given addresses.
    pub(crate) fn exact(&self) -> &ExactPlaces {
        &self.features.exact
    }

    /// Why the driver may not be called any more, if that is so.
    pub(crate) fn edge(&self) -> Option<Edge> {
        self.base.site.edge()
    }

    /// The driver is never called again.
    pub(crate) fn abandon(&self) {
        self.base.site.abandon();
    }

    /// What can be had of it, and how much there is. Calls the driver.
    pub(crate) fn memory_info(&self) -> Result<MemoryInfo> {
        self.noticing(self.base.site.memory_info().map_err(AllocError::Backend))
    }

    /// Looks at what an operation that called the driver came to: was it that the driver is unloading?
    pub(crate) fn noticing<T>(&self, outcome: Result<T>) -> Result<T> {
        self.base.site.noticing(outcome)
    }

    /// What is wrong with `ptr`; `None` where it lies in no memory of this device.
    pub(crate) fn diagnose(&self, ptr: DevicePtr) -> Option<Problem> {
        let around = self.base.uncached.diagnose(ptr);
        around.or_else(|| self.base.arenas.diagnose(ptr))
    }

    /// Ends without a word to the driver: what is held is lost to it, and no destructor runs.
    pub(crate) fn leak(self) {
        if self.base.site.edge() != Some(Edge::Forked) {
            self.features.unified.iter().for_each(|unified| unified.end(false));
            self.base.exchange.imports().abandon();
            edges::take_back(self.base.site.attention());
        }
        std::mem::forget(self);
    }

    /// Takes memory for `sizes` into a pool, so that as many requests of these sizes for `stream`, made while all
    /// are live, need nothing from the device.
    pub(crate) fn prime_pool(&self, id: PoolId, stream: Stream, sizes: &[u64]) -> Result<()> {
        let calls = self.base.site.calls();
        self.base.pools.expect_captures(id)?;
        let visit = self.base.pools.visit(id, false)?;
        let call = self.base.history.begin_call(Some(stream), RecordContext::State)?;
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
            if let Some(at) = self.base.site.map().get(ptr) {
                self.base.lifetimes.free_in(ptr, at, &call);
            }
        }
        drop(call);
        self.base.history.deliver(&calls);
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
            return Err(AllocError::MoreThanAnExabyte { label: self.base.site.backend().label() });
        }
        let (arena, state) = match self.base.arenas.enter(pool.slot, stream) {
            Some(entered) => entered,
            None => self.enter_slowly(pool, stream)?,
        };
        let mut state = self.base.arenas.attended(state, call);
        state.change_tenure(|tenure| tenure.note_pool(pool));
        if let Some(ptr) = state.malloc(bytes) {
            return Ok(ptr);
        }
        let request = state.tenure().policy().request(bytes);
        drop(state);
        self.ladder.climb(arena, &request, call)
    }

    /// The arena that serves `stream`, locked; on first use it gets one.
    #[cold]
    fn enter_slowly(&self, pool: &ArenaPool, stream: Stream) -> Result<(&Arena, Guard<'_, ArenaState>)> {
        let mut made_room = false;
        loop {
            // The table of likely arenas may have had no place for it. That is no reason to wait for others.
            let arena = match self.base.arenas.directory().of_stream(pool.slot, stream) {
                Some(arena) => arena,
                None => match self.base.arenas.arena_for(pool, stream) {
                    Err(AllocError::Limit(_)) if !made_room => {
                        made_room = true;
                        self.forget_unused_pools();
                        continue;
                    }
                    found => found?,
                },
            };
            let state = arena.lock();
            if state.tenure().serves(pool.slot, stream) {
                return Ok((arena, state));
            }
        }
    }

    /// Pools that nobody uses any more give their memory and their arenas up.
    fn forget_unused_pools(&self) {
        if let Err(error) = self.release.release_unused() {
            tracing::warn!(%error, "not all memory of unused pools could be given back");
        }
    }

    /// See [`CachingAllocator::malloc`](crate::allocator::CachingAllocator::malloc).
    #[inline(always)]
    pub(crate) fn malloc(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        if bytes >= EXABYTE {
            return Err(AllocError::MoreThanAnExabyte { label: self.base.site.backend().label() });
        }
        if self.base.site.attention().concerns_requests()
            && let Some(outcome) = self.look_closer(bytes, stream)
        {
            return outcome;
        }
        // The short way: from the default pool, with nothing to look at besides.
        let (arena, mut state) = match self.base.arenas.enter(PoolSlot::DEFAULT, stream) {
            Some(entered) => entered,
            None => self.enter_slowly(&ArenaPool::DEFAULT, stream)?,
        };
        match state.malloc(bytes) {
            Some(ptr) => {
                self.base.arenas.leave(state);
                Ok(ptr)
            }
            None => self.miss(arena, state, bytes),
        }
    }

    #[cold]
    fn miss(&self, arena: &Arena, state: Guard<'_, ArenaState>, bytes: u64) -> Result<DevicePtr> {
        let request = state.tenure().policy().request(bytes);
        drop(state);
        self.ladder.climb_plainly(arena, &request)
    }

    /// `None` where pending frees were all there was to look at, and the short way will do.
    #[cold]
    fn look_closer(&self, bytes: u64, stream: Stream) -> Option<Result<DevicePtr>> {
        if self.base.site.attention().only_pending() {
            let drain = |call| self.base.lifetimes.drain_if_due(PoolSlot::DEFAULT, stream, bytes, &call);
            return self.base.site.noticing(self.base.site.plain_call().and_then(drain)).err().map(Err);
        }
        Some(self.malloc_attentively(bytes, stream))
    }

    fn malloc_attentively(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        if let Some(edge) = self.base.site.edge() {
            return Err(edge.refusal());
        }
        if self.base.site.attention().has(Reason::UNCACHED) {
            return self.base.site.noticing(self.base.uncached.malloc(bytes));
        }
        self.base.history.make_room();
        let calls = self.base.site.calls();
        let call =
            self.base.site.noticing(self.base.history.begin_call(Some(stream), RecordContext::State))?;
        let outcome = self.malloc_in(bytes, stream, &call);
        drop(call);
        self.base.history.deliver(&calls);
        self.base.lifetimes.arrived(outcome, &calls)
    }

    fn malloc_in(&self, bytes: u64, stream: Stream, call: &Call<'_>) -> Result<DevicePtr> {
        let visit = self.base.site.noticing(self.base.pools.route(stream, call.capturing))?;
        if call.capturing {
            self.base.lifetimes.reuse_joined(stream);
        } else {
            let drained = self.base.lifetimes.drain_if_due(visit.pool.slot, stream, bytes, call);
            self.base.site.noticing(drained)?;
        }
        self.malloc_from(&visit.pool, bytes, stream, call)
    }

    /// Whether a free has to go the longer way, [`free_attentively`](Self::free_attentively).
    #[inline(always)]
    pub(crate) fn looks_at_frees(&self) -> bool {
        self.base.site.attention().concerns_frees()
    }

    /// Takes back the block at `ptr`, which the address map says is at `location`. `false` where that is
    /// not, or no longer, a block in the program's hands.
    #[inline]
    pub(crate) fn free(&self, ptr: DevicePtr, location: Location) -> bool {
        let Some(arena) = self.base.arenas.directory().get(location.arena) else { return false };
        let mut state = arena.lock_shortly();
        let block = location.block;
        let Some(found) = state.layout().handed_out(ptr, block) else { return false };
        if found.uses == NO_USES {
            state.free_unused(block);
            self.base.arenas.leave(state);
        } else {
            let uses = state.free_and_wait(block);
            let (slot, waiting) = (state.tenure().slot(), Waiting { arena: location.arena, block });
            let _named = self.base.lifetimes.name(&uses);
            self.base.arenas.leave(state);
            self.base.lifetimes.wait_for_all(uses, waiting, None, slot, &Call::PLAIN);
        }
        true
    }

    /// [`free`](Self::free) for programs that record contexts or capture.
    #[inline]
    pub(crate) fn free_attentively(&self, ptr: DevicePtr, location: Location, calls: &Calls<'_>) -> bool {
        self.base.history.make_room();
        let call = self.base.history.begin_free(RecordContext::All, calls);
        let freed = self.base.lifetimes.free_in(ptr, location, &call);
        drop(call);
        self.base.history.deliver(calls);
        freed
    }
}
