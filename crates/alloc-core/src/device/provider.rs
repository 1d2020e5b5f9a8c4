//! Taking memory from the device: fixed segments, and mapping into growable ones.

mod aliasing;
pub(in crate::device) mod in_one_piece;

use super::Device;
use super::accounting::Intent;
use super::accounting::accounts::Asked;
use super::space::can_serve;
use crate::arena::directory::Arena;
use crate::arena::{ArenaPool, ArenaState, Growth, Heap, Map};
use crate::backend::{BackendError, ErrorKind, VirtualMemory};
use crate::device::{arenas, pools, space};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockPhase, Tier};
use crate::memory::region::{self, Failed, Mapping, RegionId};
use crate::memory::segment::{Origin, Segment};
use crate::policy::{GranuleSizes, Holding, Request};
use crate::process::callbacks::{CallbackScope, Kind};
use crate::process::stream_identity::shown;
use crate::sync::assert_unlocked;
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;

/// Purpose for which memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The request is served from it.
    Serve,
    /// It becomes free memory, in granules of these sizes; the request says how much.
    Stock(GranuleSizes),
}

impl Purpose {
    /// Plans a growth in an arena, in granules `of` these sizes, or of any where that is `None`.
    fn plan(self, heap: &mut Heap, request: &Request, of: Option<GranuleSizes>) -> Option<Growth> {
        match self {
            Self::Serve => Growth::plan(heap, request.tier, request.size, of),
            Self::Stock(sizes) => Growth::stock(heap, request.tier, sizes.sizes(request.size)),
        }
    }
}

/// Regions reserved for one request, at most.
const REGIONS: usize = 8;

/// Memory behind the planned maps, as far as it was taken.
struct Backed {
    memory: Vec<Vec<Mapping>>,
    /// Reason why the rest has none.
    failure: Option<Failed>,
}

impl Device {
    /// Serves a request from free memory that lies in pieces, without a driver call.
    pub(super) fn search_in_pieces(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Option<DevicePtr> {
        self.granule.as_ref()?.search(self, arena, request, call)
    }

    /// The most bytes that a request of this tier finds free in one piece, or that the policy can show it in one.
    pub(super) fn most_in_one_piece(&self, state: &mut ArenaState, tier: Tier) -> u64 {
        let in_pieces = self.granule.as_ref().map_or(0, |granule| granule.most_in_pieces(state, tier));
        state.layout().largest_free(tier).max(in_pieces)
    }

    /// Bytes to take from the device for a request that nothing free serves.
    pub(super) fn missing_for(&self, state: &mut ArenaState, request: &Request) -> u64 {
        let granule = self.granule.as_ref();
        if let Some(missing) = granule.and_then(|granule| granule.missing(self, state, request)) {
            return missing;
        }
        if !state.binding().grows() {
            return request.segment_bytes;
        }
        let of = |minimum| state.binding().policy().granule(request.tier, minimum, &Holding::default()).usual;
        let granule = self.driver.unit().map_or(1, of);
        let missing = state.heap().missing_memory(request.tier, request.size, None);
        let exact = self.granule.is_some();
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
        let _memory = self.slow_path.begin();
        // Asked once: the holdings count the intent below, and more held may mean other granules.
        let of = match purpose {
            Purpose::Serve => new_granule(self, arena, request),
            Purpose::Stock(sizes) => Some(sizes),
        };
        let exactly = self.granule.is_some();
        let (growable, pool, missing, in_place) = {
            let mut state = arena.lock();
            let missing = match purpose {
                Purpose::Serve => missing_in(self, &mut state, request, of),
                Purpose::Stock(_) => Some(request.size),
            };
            let in_place =
                if is_retry { state.heap().missing_memory(request.tier, request.size, of) } else { None };
            let growable = state.binding().grows();
            let of_growable = |bytes: Option<u64>| bytes.filter(|_| growable);
            (growable, state.binding().pool().clone(), of_growable(missing), of_growable(in_place))
        };
        let taken = missing.unwrap_or(request.segment_bytes);
        // PyTorch counts the whole request, also where free memory is to become part of the block. Before the request is
        // refused it is counted as it is. Other limits count again once it is known what is mapped.
        let in_place_at_most =
            in_place.map_or(request.segment_bytes, |bytes| bytes.min(request.segment_bytes));
        let (bytes, at_most) = if exactly { (taken, missing) } else { (in_place_at_most, in_place) };
        let exact = if self.accounting.has_budgets() { taken } else { bytes };
        if !self.accounting.admit(pool.id, request, Asked { bytes: Some(bytes), exact })? {
            return Ok(None);
        }
        // Counted as held until it is, or is not; also where foreign code panics.
        let at_most = at_most.unwrap_or(u64::MAX);
        let mut intent = Intent::up_to(&self.accounting, pool.id, exact, at_most);
        if !intent.is_spared(self.driver.host_reserve()) {
            return Ok(None);
        }
        space::retry_leftovers(self);
        match self.driver.backend().virtual_memory() {
            Ok(vm) if growable && space::is_beyond_reach(self, arena, request, of, vm)? => Ok(None),
            Ok(vm) if growable => grow_region(self, arena, request, (purpose, of), vm, &pool, intent, call),
            _ => grow_fixed(self, arena, request, &pool, intent, call),
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
            self.accounting.lock().counters_mut().alloc_retries += 1;
        }
        match &self.granule {
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
        let mut state = arenas::attend(self, arena, call);
        match if ages { state.find(request) } else { state.heap_mut().find(request) } {
            Some(found) => Some(state.hand_out(found, request)),
            None => {
                drop(state);
                self.search_in_pieces(arena, request, call)
            }
        }
    }

    pub(super) fn exact_need(&self, arena: &Arena, request: &Request) -> u64 {
        need_in(self, arena, request, new_granule(self, arena, request))
    }
}

fn grow_fixed(
    device: &Device,
    arena: &Arena,
    request: &Request,
    pool: &ArenaPool,
    intent: Intent<'_>,
    call: &Call<'_>,
) -> Result<Option<DevicePtr>> {
    let calls = device.driver.calls();
    let bytes = request.segment_bytes;
    let stream = arena.lock().binding().stream();
    let base = match take_segment(device, pool, bytes, stream, &calls) {
        Ok(base) => base,
        Err(error) => {
            drop(intent);
            return refused(device, error, bytes);
        }
    };
    let event = device.driver.segment_event(SegmentChange::Attached, pool.id, stream, base, bytes, false);
    device.observers.tell(event, &calls);
    if pool.source.is_none() {
        // Drivers put such segments side by side.
        device.driver.map().expect(base.0..base.0 + bytes);
    }
    let mut state = arenas::attend(device, arena, call);
    let oversize = bytes >= state.binding().policy().oversize();
    let registration = {
        let mut accounting = device.accounting.lock();
        intent.fulfil(&mut accounting);
        accounting.take(pool.id, request.tier, bytes);
        accounting.counters_mut().segment.increase(request.tier, 1);
        if oversize {
            accounting.counters_mut().oversize_segments.increase(1);
        }
        accounting.register()
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
    device: &Device,
    pool: &ArenaPool,
    bytes: u64,
    stream: Stream,
    calls: &CallbackScope<'_>,
) -> std::result::Result<DevicePtr, BackendError> {
    assert_unlocked();
    let base = match &pool.source {
        None => device.driver.backend().malloc(device.driver.device(), bytes)?,
        Some(source) => {
            let given = calls.call(Kind::Source, || source.alloc(bytes, shown(stream))).flatten();
            pools::note_source(device, pool.id, given.is_none());
            let detail = "the pool's own source has no memory left";
            let refusal = || {
                BackendError::new(ErrorKind::OutOfMemory, 0, "segment source", device.driver.device(), detail)
            };
            given.ok_or_else(refusal)?
        }
    };
    if can_serve(base, bytes) {
        return Ok(base);
    }
    match &pool.source {
        // SAFETY: rule 3: handed out just now and not used.
        None => drop(unsafe { device.driver.backend().free(device.driver.device(), base) }),
        Some(source) => {
            // SAFETY: given by this source just now and not used.
            calls.call(Kind::Source, || unsafe { source.free(base, bytes, shown(stream)) });
        }
    }
    let detail = format!("{base} was returned, which is null, not aligned to 512 bytes, or beyond 57 bits");
    Err(BackendError::new(ErrorKind::Other, 0, "malloc", device.driver.device(), detail))
}

/// A refusal for lack of memory is an answer; any other error is raised.
fn refused(device: &Device, error: BackendError, bytes: u64) -> Result<Option<DevicePtr>> {
    device.driver.backend().clear_error();
    if !error.is_out_of_memory() {
        return Err(error.into());
    }
    if tracing::enabled!(tracing::Level::INFO) {
        let memory = device.driver.memory_info().ok();
        tracing::info!(device = %device.driver.device(), bytes, ?memory, "memory allocation failed with OOM");
    }
    Ok(None)
}

#[allow(clippy::too_many_arguments)] // one call at the end of `grow`
fn grow_region(
    device: &Device,
    arena: &Arena,
    request: &Request,
    (purpose, of): (Purpose, Option<GranuleSizes>),
    vm: &dyn VirtualMemory,
    pool: &ArenaPool,
    intent: Intent<'_>,
    call: &Call<'_>,
) -> Result<Option<DevicePtr>> {
    let calls = device.driver.calls();
    let at_most = intent.at_most();
    let mut intent = Some(intent);
    let mut regions = 0;
    loop {
        let mut state = arena.lock();
        let stream = state.binding().stream();
        let Some(growth) = purpose.plan(state.heap_mut(), request, of) else {
            drop(state);
            regions += 1;
            // Other threads may take the new region.
            if regions <= REGIONS && space::add_region(device, arena, request, of, vm)? {
                continue;
            }
            return Ok(None);
        };
        let maps = growth.maps(state.layout());
        let sum: u64 = maps.iter().map(Map::bytes).sum();
        let covered =
            intent.as_mut().map_or(Ok(true), |intent| intent.covers(request, sum, device.granule.is_some()));
        let covers = sum <= at_most && matches!(covered, Ok(true));
        if !covers || intent.as_mut().is_some_and(|intent| !intent.was_spared()) {
            // Free memory went meanwhile, or whole granules are more than limits allow.
            growth.commit(state.heap_mut(), 0);
            drop(state);
            let reserve = device.driver.host_reserve();
            if covers && intent.as_mut().is_some_and(|intent| intent.is_spared(reserve)) {
                continue;
            }
            return covered.map(|_| None);
        }
        begin(device, growth.region, &maps);
        drop(state);
        let mut backed = back(device, pool, stream, &maps, vm, &calls);
        let done = backed.memory.len();
        let mut state = arenas::attend(device, arena, call);
        commit(device, (growth.region, &maps), &mut backed, (pool.id, request.tier), intent.take());
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
        return refused(device, error, sum);
    }
}

/// Publishes that this thread maps memory in a region.
fn begin(device: &Device, region: RegionId, maps: &[Map]) {
    let mut accounting = device.accounting.lock();
    for map in maps {
        accounting.regions_mut().begin_backing(region, map.addr, &map.sizes);
    }
}

/// Takes memory from the device, or the pool's own source, and maps it; as much as there is.
fn back(
    device: &Device,
    pool: &ArenaPool,
    stream: Stream,
    maps: &[Map],
    vm: &dyn VirtualMemory,
    calls: &CallbackScope<'_>,
) -> Backed {
    let (backend, backing) = (&**device.driver.backend(), space::backing(device, &pool.source));
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
        pools::note_source(device, pool.id, refused);
    }
    for map in &maps[..backed.memory.len()] {
        let (owner, at) = ((pool.id, stream), DevicePtr(map.addr));
        device.tell_growable(SegmentChange::Attached, owner, at, map.bytes(), calls);
    }
    backed
}

/// Commits a growth: mapped granules are held from here on, the others are vacant again.
fn commit(
    device: &Device,
    (region, maps): (RegionId, &[Map]),
    backed: &mut Backed,
    (pool, tier): (PoolId, Tier),
    intent: Option<Intent<'_>>,
) {
    let mut accounting = device.accounting.lock();
    // Counted as reserved from here on.
    if let Some(intent) = intent {
        intent.fulfil(&mut accounting);
    }
    for (n, map) in maps.iter().enumerate() {
        if let Some(memory) = backed.memory.get(n) {
            accounting.regions_mut().commit_backed(region, memory);
            accounting.take(pool, tier, map.bytes());
        } else {
            accounting.regions_mut().commit_vacant(region, map.range());
        }
    }
    if let Some(Failed { leftovers, .. }) = &mut backed.failure {
        accounting.regions_mut().keep(*std::mem::take(leftovers));
    }
}

/// The granules that new memory of an arena is made of for a request; `None` where any will do.
fn new_granule(device: &Device, arena: &Arena, request: &Request) -> Option<GranuleSizes> {
    device.granule.as_ref()?.granule(device, arena, request.tier, request.size)
}

/// Bytes to take for a request in granules `of` these sizes, or of any where that is `None`.
fn need_in(device: &Device, arena: &Arena, request: &Request, of: Option<GranuleSizes>) -> u64 {
    let mut state = arena.lock();
    let missing = if state.binding().grows() { missing_in(device, &mut state, request, of) } else { None };
    missing.unwrap_or(request.segment_bytes)
}

/// Bytes to map for a request in a growable segment, a new one where none has room. `None` where the driver's unit is
/// not known yet.
fn missing_in(
    device: &Device,
    state: &mut ArenaState,
    request: &Request,
    of: Option<GranuleSizes>,
) -> Option<u64> {
    if let Some(missing) = state.heap().missing_memory(request.tier, request.size, of) {
        return Some(missing);
    }
    let unit = device.driver.unit()?;
    let sizes = space::sizes_for(state, request, of, unit);
    Some(sizes.round(request.size, state.binding().policy().unit(sizes.usual, unit)))
}
