//! Taking memory from the device: fixed segments, and mapping into growable ones.

pub(in crate::device) mod granule;
mod views;

use super::Base;
use super::hand_over::HandOver;
use super::holdings::Intent;
use super::holdings::accounts::Asked;
use super::space::{Space, can_serve};
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaPool, ArenaState, Growth, Heap, Map};
use crate::backend::{BackendError, ErrorKind, VirtualMemory};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockPhase, Tier};
use crate::memory::region::{self, Failed, Mapping, RegionId};
use crate::memory::segment::{Origin, Segment};
use crate::policy::{Grain, Holding, Request};
use crate::process::foreign::{Calls, Kind};
use crate::process::stream_identity::shown;
use crate::sync::{Arc, assert_unlocked};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;

/// What memory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The request is served from it.
    Serve,
    /// It becomes free memory, in granules of these sizes; the request says how much.
    Stock(Grain),
}

impl Purpose {
    /// Where an arena has room for the memory, in granules `of` these sizes, or any where that is `None`.
    fn plan(self, heap: &mut Heap, request: &Request, of: Option<Grain>) -> Option<Growth> {
        match self {
            Self::Serve => Growth::plan(heap, request.tier, request.size, of),
            Self::Stock(grain) => Growth::stock(heap, request.tier, grain.sizes(request.size)),
        }
    }
}

/// How often address space is made for one request.
const REGIONS: usize = 8;

/// How much of what was to be mapped has memory.
struct Backed {
    memory: Vec<Vec<Mapping>>,
    /// Why the rest has none.
    failure: Option<Failed>,
}

/// What gets memory for a miss, in the ways of its policy.
pub(super) struct Provider {
    base: Base,
    space: Arc<Space>,
    hand_over: HandOver,
}

impl Provider {
    pub(super) fn new(base: &Base, space: &Arc<Space>) -> Self {
        Self { base: base.clone(), space: Arc::clone(space), hand_over: HandOver::new(base, space) }
    }

    /// Serves a request from free memory that lies in pieces, without a driver call.
    pub(super) fn search_in_pieces(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Option<DevicePtr> {
        self.base.granule.as_ref()?.search(self, arena, request, call)
    }

    /// What views of an arena show is about to leave: with `only_past`, only what the device is known to be done with.
    fn give_views_up(&self, arena: &Arena, only_past: bool, call: &Call<'_>) -> Result<()> {
        match &self.base.granule {
            None => Ok(()),
            Some(_) => granule::give_up(self, arena, u64::MAX, only_past, call),
        }
    }

    /// Memory of an arena is about to leave: what the policy keeps there for itself goes first, and where it served other
    /// streams.
    pub(super) fn before_leaving(&self, arena: &Arena, call: &Call<'_>) -> Result<()> {
        let mut outcome = self.give_views_up(arena, false, call);
        if self.base.holdings.lock().regions().away_bytes() == 0
            || arena.lock().tenure().slot() != PoolSlot::DEFAULT
        {
            return outcome;
        }
        for other in self.hand_over.neighbours(arena) {
            // First what shows such memory there.
            let shown = self.give_views_up(other, call.capturing, call);
            outcome = outcome.and(shown).and(self.hand_over.unmap_all_away(other, call.capturing, call));
        }
        outcome
    }

    /// The most bytes that a request of this tier finds free in one piece, or that the policy can show it in one.
    pub(super) fn most_in_one_piece(&self, state: &mut ArenaState, tier: Tier) -> u64 {
        let in_pieces = self.base.granule.as_ref().map_or(0, |granule| granule.most_in_pieces(state, tier));
        state.layout().largest_free(tier).max(in_pieces)
    }

    /// What has to be taken from the device for a request that nothing free serves.
    pub(super) fn missing_for(&self, state: &mut ArenaState, request: &Request) -> u64 {
        let granule = self.base.granule.as_ref();
        if let Some(missing) = granule.and_then(|granule| granule.missing(self, state, request)) {
            return missing;
        }
        if !state.tenure().grows() {
            return request.segment_bytes;
        }
        let of = |minimum| state.tenure().policy().granule(request.tier, minimum, &Holding::default()).usual;
        let granule = self.base.site.unit().map_or(1, of);
        let missing = state.heap().missing_memory(request.tier, request.size, None);
        let exact = self.base.granule.is_some();
        let anew = if exact { request.size } else { request.segment_bytes };
        missing.unwrap_or_else(|| anew.next_multiple_of(granule))
    }

    /// Takes memory for `request` from the device and hands it out, or keeps it as free memory; returns its address.
    /// `Ok(None)` where the device, or a limit, has not enough.
    pub(super) fn grow(
        &self,
        arena: &Arena,
        request: &Request,
        purpose: Purpose,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let _memory = self.base.arenas.in_transit();
        // Asked once: what is held counts the intent below, and more held may mean other granules.
        let of = match purpose {
            Purpose::Serve => self.new_granule(arena, request),
            Purpose::Stock(grain) => Some(grain),
        };
        let (growable, pool, missing) = {
            let mut state = arena.lock();
            let exact = is_retry || self.base.granule.is_some();
            let missing = match purpose {
                Purpose::Serve => self.missing_in(&mut state, request, of).filter(|_| exact),
                Purpose::Stock(_) => Some(request.size),
            };
            (state.tenure().grows(), state.tenure().pool().clone(), missing)
        };
        // PyTorch counts the whole request, also where free memory is to become part of the block. Before the request is
        // refused it is counted as it is.
        let missing = missing.filter(|_| growable).unwrap_or(u64::MAX);
        let bytes = missing.min(request.segment_bytes);
        let asked = match purpose {
            Purpose::Serve => self.asked(arena, request, of, bytes),
            Purpose::Stock(_) => Asked { bytes, exact: bytes },
        };
        if !self.base.holdings.admit(pool.id, request, asked)? {
            return Ok(None);
        }
        // Counted as held until it is, or is not; also where foreign code panics.
        let mut intent = Intent::up_to(&self.base.holdings, pool.id, asked.exact, missing);
        if !intent.is_spared() {
            return Ok(None);
        }
        self.space.retry_leftovers();
        match self.base.site.backend().virtual_memory() {
            Ok(vm) if growable && self.space.is_beyond_reach(arena, request, of, vm)? => Ok(None),
            Ok(vm) if growable => self.grow_region(arena, request, (purpose, of), vm, &pool, intent, call),
            _ => self.grow_fixed(arena, request, &pool, intent, call),
        }
    }

    fn grow_fixed(
        &self,
        arena: &Arena,
        request: &Request,
        pool: &ArenaPool,
        intent: Intent<'_>,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let calls = self.base.site.calls();
        let bytes = request.segment_bytes;
        let stream = arena.lock().tenure().stream();
        let base = match self.take_segment(pool, bytes, stream, &calls) {
            Ok(base) => base,
            Err(error) => {
                drop(intent);
                return self.refused(error, bytes);
            }
        };
        let event =
            self.base.site.segment_event(SegmentChange::Attached, pool.id, stream, base, bytes, false);
        self.base.observers.tell(event, &calls);
        if pool.source.is_none() {
            // Drivers put such segments side by side.
            self.base.site.map().expect(base.0..base.0 + bytes);
        }
        let mut state = self.base.arenas.attend(arena, call);
        let oversize = bytes >= state.tenure().policy().oversize();
        let registration = {
            let mut device = self.base.holdings.lock();
            intent.fulfil(&mut device);
            device.take(pool.id, request.tier, bytes);
            device.counters_mut().segment.increase(request.tier, 1);
            if oversize {
                device.counters_mut().oversize_segments.increase(1);
            }
            device.register()
        };
        state.ledger_mut().history_mut().record(Action::SegmentAlloc, base.0, bytes);
        let mut segment = Segment::new(base, bytes, registration, request.tier, Origin::Fixed);
        segment.context = state.ledger().history().call();
        let (_, block) = state.heap_mut().add_segment(segment, BlockPhase::Busy);
        if calls.panicked() {
            state.heap_mut().insert_free(block);
            return Ok(None);
        }
        Ok(Some(state.hand_out(block, request)))
    }

    /// Memory for a fixed segment, from the pool's own source or the driver.
    fn take_segment(
        &self,
        pool: &ArenaPool,
        bytes: u64,
        stream: Stream,
        calls: &Calls<'_>,
    ) -> std::result::Result<DevicePtr, BackendError> {
        assert_unlocked();
        let base = match &pool.source {
            None => self.base.site.backend().malloc(self.base.site.device(), bytes)?,
            Some(source) => {
                let given = calls.call(Kind::Source, || source.alloc(bytes, shown(stream))).flatten();
                self.base.pools.note_source(pool.id, given.is_none());
                let detail = "the pool's own source has no memory left";
                let refusal = || {
                    BackendError::new(
                        ErrorKind::OutOfMemory,
                        0,
                        "segment source",
                        self.base.site.device(),
                        detail,
                    )
                };
                given.ok_or_else(refusal)?
            }
        };
        if can_serve(base, bytes) {
            return Ok(base);
        }
        match &pool.source {
            // SAFETY: rule 3: handed out just now and not used.
            None => drop(unsafe { self.base.site.backend().free(self.base.site.device(), base) }),
            Some(source) => {
                // SAFETY: given by this source just now and not used.
                calls.call(Kind::Source, || unsafe { source.free(base, bytes, shown(stream)) });
            }
        }
        let detail =
            format!("{base} was returned, which is null, not aligned to 512 bytes, or beyond 57 bits");
        Err(BackendError::new(ErrorKind::Other, 0, "malloc", self.base.site.device(), detail))
    }

    /// A refusal for lack of memory is an answer; any other error is raised.
    fn refused(&self, error: BackendError, bytes: u64) -> Result<Option<DevicePtr>> {
        self.base.site.backend().clear_error();
        if !error.is_out_of_memory() {
            return Err(error.into());
        }
        if tracing::enabled!(tracing::Level::INFO) {
            let memory = self.base.site.memory_info().ok();
            tracing::info!(device = %self.base.site.device(), bytes, ?memory, "memory allocation failed with OOM");
        }
        Ok(None)
    }

    #[allow(clippy::too_many_arguments)] // one call at the end of `grow`
    fn grow_region(
        &self,
        arena: &Arena,
        request: &Request,
        (purpose, of): (Purpose, Option<Grain>),
        vm: &dyn VirtualMemory,
        pool: &ArenaPool,
        intent: Intent<'_>,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let calls = self.base.site.calls();
        let at_most = intent.at_most();
        let mut intent = Some(intent);
        let mut regions = 0;
        loop {
            let mut state = arena.lock();
            let stream = state.tenure().stream();
            let Some(growth) = purpose.plan(state.heap_mut(), request, of) else {
                drop(state);
                regions += 1;
                // Other threads may take what is added.
                if regions <= REGIONS && self.space.add_region(arena, request, of, vm)? {
                    continue;
                }
                return Ok(None);
            };
            let maps = growth.maps(state.layout());
            let sum: u64 = maps.iter().map(Map::bytes).sum();
            let covered = intent.as_mut().is_none_or(|intent| intent.covers(sum));
            if sum > at_most || !covered {
                // What was free is not any more, or whole granules are more than limits allow.
                growth.commit(state.heap_mut(), 0);
                return Ok(None);
            }
            self.begin(growth.region, &maps);
            drop(state);
            let mut backed = self.back(pool, stream, &maps, vm, &calls);
            let done = backed.memory.len();
            let mut state = self.base.arenas.attend(arena, call);
            self.commit((growth.region, &maps), &mut backed, (pool.id, request.tier), intent.take());
            for map in &maps[..done] {
                state.ledger_mut().history_mut().record(Action::SegmentMap, map.addr, map.bytes());
            }
            state.note_context(growth.region);
            let block = growth.commit(state.heap_mut(), done);
            let Some(Failed { error, .. }) = backed.failure else {
                let Some(block) = block else { continue };
                if purpose == Purpose::Serve && !calls.panicked() {
                    return Ok(Some(state.hand_out(block, request)));
                }
                let addr = maps.first().map_or(0, |map| map.addr);
                state.heap_mut().insert_free(block);
                return Ok(Some(DevicePtr(addr)));
            };
            drop(state);
            return self.refused(error, sum);
        }
    }

    /// Publishes that this thread maps memory in a region.
    fn begin(&self, region: RegionId, maps: &[Map]) {
        let mut device = self.base.holdings.lock();
        for map in maps {
            device.regions_mut().begin_backing(region, map.addr, &map.sizes);
        }
    }

    /// Takes memory from the device, or the pool's own source, and maps it; as much as there is.
    fn back(
        &self,
        pool: &ArenaPool,
        stream: Stream,
        maps: &[Map],
        vm: &dyn VirtualMemory,
        calls: &Calls<'_>,
    ) -> Backed {
        let (backend, backing) = (&**self.base.site.backend(), self.space.backing(&pool.source));
        let mut backed = Backed { memory: Vec::with_capacity(maps.len()), failure: None };
        for map in maps {
            match region::back(backend, vm, &backing, DevicePtr(map.addr), &map.sizes, calls) {
                Ok(memory) => backed.memory.push(memory),
                Err(failed) => {
                    backed.failure = Some(failed);
                    break;
                }
            }
        }
        if pool.source.is_some() {
            let refused = backed.failure.as_ref().is_some_and(|failed| failed.error.is_out_of_memory());
            self.base.pools.note_source(pool.id, refused);
        }
        for map in &maps[..backed.memory.len()] {
            let (owner, at) = ((pool.id, stream), DevicePtr(map.addr));
            self.base.tell_growable(SegmentChange::Attached, owner, at, map.bytes(), calls);
        }
        backed
    }

    /// What was mapped is held from here on, and what was not is vacant again.
    fn commit(
        &self,
        (region, maps): (RegionId, &[Map]),
        backed: &mut Backed,
        (pool, tier): (PoolId, Tier),
        intent: Option<Intent<'_>>,
    ) {
        let mut device = self.base.holdings.lock();
        // From here on it is counted as reserved.
        if let Some(intent) = intent {
            intent.fulfil(&mut device);
        }
        for (n, map) in maps.iter().enumerate() {
            if let Some(memory) = backed.memory.get(n) {
                device.regions_mut().commit_backed(region, memory);
                device.take(pool, tier, map.bytes());
            } else {
                device.regions_mut().commit_vacant(region, map.range());
            }
        }
        if let Some(Failed { leftovers, .. }) = &mut backed.failure {
            device.regions_mut().keep(*std::mem::take(leftovers));
        }
    }

    /// Gets memory for a request that misses, as the policy does, and serves it.
    pub(super) fn take_memory(
        &self,
        arena: &Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        // PyTorch does not ask again in a capture, where it gives nothing back.
        if is_retry && !call.capturing {
            self.base.holdings.lock().counters_mut().alloc_retries += 1;
        }
        match &self.base.granule {
            None => self.grow(arena, request, Purpose::Serve, is_retry, call),
            Some(granule) => granule.serve(self, arena, request, is_retry, call),
        }
    }

    /// Searches the free blocks again. PyTorch ages them only after callbacks.
    pub(super) fn search(
        &self,
        arena: &Arena,
        request: &Request,
        ages: bool,
        call: &Call<'_>,
    ) -> Option<DevicePtr> {
        let mut state = self.base.arenas.attend(arena, call);
        match if ages { state.find(request) } else { state.heap_mut().find(request) } {
            Some(found) => Some(state.hand_out(found, request)),
            None => {
                drop(state);
                self.search_in_pieces(arena, request, call)
            }
        }
    }

    /// What a request takes from the device. `bytes` is PyTorch's count of it.
    fn asked(&self, arena: &Arena, request: &Request, of: Option<Grain>, bytes: u64) -> Asked {
        let exact = if self.base.holdings.has_budgets() { self.need_in(arena, request, of) } else { bytes };
        Asked { bytes, exact }
    }

    /// The granules that new memory of an arena is made of for a request; `None` where any will do.
    fn new_granule(&self, arena: &Arena, request: &Request) -> Option<Grain> {
        self.base.granule.as_ref()?.granule(self, arena, request.tier, request.size)
    }

    pub(super) fn exact_need(&self, arena: &Arena, request: &Request) -> u64 {
        self.need_in(arena, request, self.new_granule(arena, request))
    }

    /// What has to be taken for a request in granules `of` these sizes, or any where that is `None`.
    fn need_in(&self, arena: &Arena, request: &Request, of: Option<Grain>) -> u64 {
        let mut state = arena.lock();
        let missing = if state.tenure().grows() { self.missing_in(&mut state, request, of) } else { None };
        missing.unwrap_or(request.segment_bytes)
    }

    /// What would be mapped for a request in a growable segment, a new one where none has room. `None` where PyTorch counts the
    /// whole request.
    fn missing_in(&self, state: &mut ArenaState, request: &Request, of: Option<Grain>) -> Option<u64> {
        if let Some(missing) = state.heap().missing_memory(request.tier, request.size, of) {
            return Some(missing);
        }
        let unit = self.base.site.unit().filter(|_| self.base.granule.is_some())?;
        let grain = self.space.new_granule(state, request, of, unit);
        Some(grain.round(request.size, state.tenure().policy().unit(grain.usual, unit)))
    }
}
