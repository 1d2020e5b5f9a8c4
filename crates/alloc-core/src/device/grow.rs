//! Taking memory from the device: fixed segments, and mapping into growable ones.

use super::accounts::Asked;
use super::elsewhere::Reach;
use super::{DeviceAllocator, DeviceState};
use crate::arena::ArenaPool;
use crate::arena::directory::Arena;
use crate::backend::{BackendError, ErrorKind, Granularity, VirtualMemory};
use crate::base::round::MIN_BLOCK;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::address_map::AddressMap;
use crate::memory::block::State;
use crate::memory::region::{self, Failed};
use crate::memory::segment::{Origin, Segment};
use crate::policy::Request;
use crate::process::foreign::{Calls, Kind};
use crate::process::stream_identity::shown;
use crate::sync::{Arc, assert_unlocked};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::counters::Count;
use crate::watch::observers::{SegmentChange, SegmentEvent};
use crate::watch::snapshot::Action;

/// What memory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The request is served from it.
    Serve,
    /// It becomes free memory, in granules of this size; the request says how much.
    Stock { granule: u64 },
}

/// Bytes that are to be taken for a pool: counted as held until they are settled, or this is dropped.
pub(super) struct Intent<'a> {
    device: &'a DeviceAllocator,
    pool: PoolId,
    bytes: u64,
    /// The most that may be mapped for them.
    at_most: u64,
}

impl<'a> Intent<'a> {
    /// For bytes that were admitted.
    pub(super) fn admitted(device: &'a DeviceAllocator, pool: PoolId, bytes: u64) -> Self {
        Self { device, pool, bytes, at_most: bytes }
    }

    /// Whether they do for `bytes`, which is what will be taken: more is admitted as far as limits allow.
    fn covers(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && !self.device.state.lock().accounts.intend_more(self.pool, more) {
            return false;
        }
        self.bytes += more;
        true
    }

    /// They are counted as reserved from here on.
    pub(super) fn settle(self, state: &mut DeviceState) {
        state.accounts.settle(self.pool, self.bytes);
        std::mem::forget(self);
    }
}

impl Drop for Intent<'_> {
    fn drop(&mut self) {
        self.device.state.lock().accounts.settle(self.pool, self.bytes);
    }
}

impl DeviceAllocator {
    /// The unit of virtual memory. Calls the driver the first time.
    pub(super) fn ask_granule(&self, vm: &dyn VirtualMemory) -> Result<u64> {
        if let Some(minimum) = self.minimum_granule.get() {
            return Ok(*minimum);
        }
        assert_unlocked();
        let minimum = vm.granularity(self.device, Granularity::Minimum)?;
        Ok(*self.minimum_granule.get_or_init(|| minimum))
    }

    fn granule_for(&self, arena: &Arena, request: &Request, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Serve => self.supply.granule(&Reach(self), arena, request.tier, request.size),
            Purpose::Stock { granule } => granule,
        }
    }

    /// Bytes handed out or pending. Locks all arenas, one after the other.
    pub(super) fn in_use(&self) -> u64 {
        let of = |arena: &Arc<Arena>| arena.lock().counters.both(Count::ActiveBytes).unsigned_abs();
        self.arenas.all().into_iter().map(of).sum()
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
        let _memory = self.in_transit();
        let granule = self.granule_for(arena, request, purpose);
        let (growable, pool, missing) = {
            let state = arena.lock();
            let exact = is_retry || self.supply.counts_what_is_missing();
            let missing = match purpose {
                Purpose::Serve => state.missing_memory(request.tier, request.size, granule).filter(|_| exact),
                Purpose::Stock { .. } => Some(request.size),
            };
            (state.grows(), state.pool.clone(), missing)
        };
        // PyTorch counts the whole request, also where free memory is to become part of the block. Before the request is
        // refused it is counted as it is.
        let missing = missing.filter(|_| growable).unwrap_or(u64::MAX);
        let bytes = missing.min(request.segment_bytes);
        let asked = match purpose {
            Purpose::Serve => self.asked(arena, request, granule, bytes),
            Purpose::Stock { .. } => Asked { bytes, exact: bytes },
        };
        if !self.admit(pool.id, request, asked)? {
            return Ok(None);
        }
        // Counted as held until it is, or is not; also where foreign code panics.
        let intent = Intent { device: self, pool: pool.id, bytes: asked.exact, at_most: missing };
        self.retry_leftovers();
        match self.backend.virtual_memory() {
            Ok(vm) if growable => self.grow_region(arena, request, purpose, vm, &pool, intent, call),
            _ => self.grow_fixed(arena, request, &pool, intent, call),
        }
    }

    /// Whether the address map can hold every block of a new range.
    pub(super) fn can_serve(base: DevicePtr, bytes: u64) -> bool {
        let last = base.0.checked_add(bytes).map(|end| DevicePtr(end - MIN_BLOCK));
        !base.is_null() && AddressMap::can_hold(base) && last.is_some_and(AddressMap::can_hold)
    }

    fn grow_fixed(
        &self,
        arena: &Arena,
        request: &Request,
        pool: &ArenaPool,
        intent: Intent<'_>,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let calls = self.foreign.calls();
        let bytes = request.segment_bytes;
        let stream = arena.lock().id.stream;
        let base = match self.take_segment(pool, bytes, stream, &calls) {
            Ok(base) => base,
            Err(error) => {
                drop(intent);
                return self.refused(error, bytes);
            }
        };
        let event = self.segment_event(SegmentChange::Attached, pool.id, stream, base, bytes, false);
        self.observers.tell(event, &calls);
        let mut state = self.attend(arena, call);
        let oversize = bytes >= state.policy.oversize();
        let registration = {
            let mut device = self.state.lock();
            intent.settle(&mut device);
            device.accounts.take(pool.id, request.tier, bytes);
            let counters = &mut device.counters;
            counters.segment.increase(request.tier, 1);
            counters.device_alloc += 1;
            if oversize {
                counters.oversize_segments.increase(1);
            }
            device.register()
        };
        state.history.record(Action::SegmentAlloc, base.0, bytes);
        let mut segment = Segment::new(base, bytes, registration, request.tier, Origin::Fixed);
        segment.context = state.history.call();
        let (_, block) = state.add_segment(segment, State::Busy);
        if calls.panicked() {
            state.insert_free(block);
            return Ok(None);
        }
        Ok(Some(state.hand_out(&self.map, block, request)))
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
            None => self.backend.malloc(self.device, bytes)?,
            Some(source) => {
                let given = calls.call(Kind::Source, || source.alloc(bytes, shown(stream))).flatten();
                self.note_source(pool.id, given.is_none());
                let detail = "the pool's own source has no memory left";
                let refusal =
                    || BackendError::new(ErrorKind::OutOfMemory, 0, "segment source", self.device, detail);
                given.ok_or_else(refusal)?
            }
        };
        if Self::can_serve(base, bytes) {
            return Ok(base);
        }
        match &pool.source {
            // SAFETY: rule 3: handed out just now and not used.
            None => drop(unsafe { self.backend.free(self.device, base) }),
            Some(source) => {
                // SAFETY: given by this source just now and not used.
                calls.call(Kind::Source, || unsafe { source.free(base, bytes, shown(stream)) });
            }
        }
        let detail =
            format!("{base} was returned, which is null, not aligned to 512 bytes, or beyond 57 bits");
        Err(BackendError::new(ErrorKind::Other, 0, "malloc", self.device, detail))
    }

    pub(super) fn segment_event(
        &self,
        change: SegmentChange,
        pool: PoolId,
        stream: Stream,
        addr: DevicePtr,
        bytes: u64,
        growable: bool,
    ) -> SegmentEvent {
        SegmentEvent { change, device: self.device, pool, stream: shown(stream), addr, bytes, growable }
    }

    /// A refusal for lack of memory is an answer; any other error is raised.
    fn refused(&self, error: BackendError, bytes: u64) -> Result<Option<DevicePtr>> {
        self.backend.clear_error();
        if !error.is_out_of_memory() {
            return Err(error.into());
        }
        if tracing::enabled!(tracing::Level::INFO) {
            let memory = self.backend.memory_info(self.device).ok();
            tracing::info!(device = %self.device, bytes, ?memory, "memory allocation failed with OOM");
        }
        Ok(None)
    }

    #[allow(clippy::too_many_arguments)] // one call at the end of `grow`
    fn grow_region(
        &self,
        arena: &Arena,
        request: &Request,
        purpose: Purpose,
        vm: &dyn VirtualMemory,
        pool: &ArenaPool,
        intent: Intent<'_>,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let calls = self.foreign.calls();
        let at_most = intent.at_most;
        let mut intent = Some(intent);
        let of = self.granule_for(arena, request, purpose);
        loop {
            let mut state = arena.lock();
            let stream = state.id.stream;
            let planned = match purpose {
                Purpose::Serve => state.plan_growth(request.tier, request.size, of),
                Purpose::Stock { .. } => state.plan_stock(request.tier, request.size, of),
            };
            let Some(growth) = planned else {
                drop(state);
                if self.add_region(arena, request, of, vm)? {
                    continue;
                }
                return Ok(None);
            };
            let maps = growth.maps(&state);
            let sum: u64 = maps.iter().map(|(_, bytes)| bytes).sum();
            let covered = intent.as_mut().is_none_or(|intent| intent.covers(sum));
            if sum > at_most || !covered {
                // What was free is not any more, or whole granules are more than limits allow.
                state.commit_growth(growth, 0);
                return Ok(None);
            }
            let granule = {
                let mut device = self.state.lock();
                for (addr, bytes) in &maps {
                    device.regions.begin(growth.region, *addr, *bytes);
                }
                device.regions.get(growth.region).map_or(1, |region| region.granule)
            };
            drop(state);
            let backing = self.backing(granule, &pool.source);
            let mut backed = Vec::with_capacity(maps.len());
            let mut failure = None;
            for (addr, bytes) in &maps {
                let count = (bytes / granule) as usize;
                match region::back(&*self.backend, vm, &backing, DevicePtr(*addr), count, &calls) {
                    Ok(handles) => backed.push(handles),
                    Err(failed) => {
                        failure = Some(failed);
                        break;
                    }
                }
            }
            if pool.source.is_some() {
                self.note_source(
                    pool.id,
                    failure.as_ref().is_some_and(|failed| failed.error.is_out_of_memory()),
                );
            }
            let done = backed.len();
            for (addr, bytes) in &maps[..done] {
                let at = DevicePtr(*addr);
                let event = self.segment_event(SegmentChange::Attached, pool.id, stream, at, *bytes, true);
                self.observers.tell(event, &calls);
            }
            let mut state = self.attend(arena, call);
            {
                let mut device = self.state.lock();
                // From here on it is counted as reserved.
                if let Some(intent) = intent.take() {
                    intent.settle(&mut device);
                }
                for (n, (addr, bytes)) in maps.iter().enumerate() {
                    if let Some(handles) = backed.get(n) {
                        device.regions.commit_backed(growth.region, *addr, handles);
                        device.accounts.take(pool.id, request.tier, *bytes);
                        device.counters.device_alloc += 1;
                    } else {
                        device.regions.commit_vacant(growth.region, *addr, *bytes);
                    }
                }
                if let Some(Failed { leftovers, .. }) = &mut failure {
                    device.regions.leftovers.append(*std::mem::take(leftovers));
                }
            }
            for (addr, bytes) in &maps[..done] {
                state.history.record(Action::SegmentMap, *addr, *bytes);
            }
            state.note_segment_context(growth.region);
            let block = state.commit_growth(growth, done);
            let Some(Failed { error, .. }) = failure else {
                let Some(block) = block else { continue };
                if purpose == Purpose::Serve && !calls.panicked() {
                    return Ok(Some(state.hand_out(&self.map, block, request)));
                }
                let addr = maps.first().map_or(0, |(addr, _)| *addr);
                state.insert_free(block);
                return Ok(Some(DevicePtr(addr)));
            };
            drop(state);
            return self.refused(error, granule);
        }
    }

    /// Reserves address space for a new growable segment; `false` where it would be too small for the
    /// request.
    pub(super) fn add_region(
        &self,
        arena: &Arena,
        request: &Request,
        of: u64,
        vm: &dyn VirtualMemory,
    ) -> Result<bool> {
        assert_unlocked();
        let minimum = self.ask_granule(vm)?;
        let (granule, bytes, alignment) = {
            let usual = match of {
                0 => arena.lock().next_granule(request.tier, minimum, request.size),
                granule => granule,
            };
            let state = arena.lock();
            // Who asks for granules of one size gets these, whatever the settings have become since.
            let hardened = self.hardened_granule(&state.policy).filter(|_| of == 0);
            let granule = hardened.unwrap_or(usual);
            let class = self.state.lock().class_reserve(state.id.stream, self.total_memory);
            let reserve = class.unwrap_or_else(|| state.policy.reserve(self.total_memory, granule));
            let (reserve, alignment) = self.supply.reservation(reserve, request.size);
            (granule, reserve.next_multiple_of(granule), alignment)
        };
        if bytes < request.size {
            return Ok(false);
        }
        let base = match vm.reserve_address(self.device, bytes, alignment, DevicePtr::NULL) {
            Ok(base) => base,
            // The ladder gives whole regions back, so a lack of addresses is no end.
            Err(error) if matches!(error.kind, ErrorKind::OutOfMemory | ErrorKind::ResourceLimit) => {
                self.backend.clear_error();
                tracing::warn!(%error, bytes, "no address space for another growable segment");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        if !Self::can_serve(base, bytes) {
            // SAFETY: rule 3: reserved just now, nothing mapped.
            let _ = unsafe { vm.release_address(base, bytes) };
            let detail = format!("the driver reserved {bytes} bytes at {base}, beyond 57 bits of address");
            return Err(BackendError::new(ErrorKind::Other, 0, "reserve address", self.device, detail).into());
        }
        let mut state = arena.lock();
        let (region, registration) = {
            let mut device = self.state.lock();
            (device.regions.add(base, bytes, granule), device.register())
        };
        let origin = Origin::Growable { region, granule };
        let segment = Segment::new(base, bytes, registration, request.tier, origin);
        let (_, block) = state.add_segment(segment, State::Busy);
        state.insert_unmapped(block);
        Ok(true)
    }
}
