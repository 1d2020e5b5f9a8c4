//! Taking memory from the device: fixed segments, and mapping into growable ones.

use super::{DeviceAllocator, DeviceState, SegmentChange, SegmentEvent};
use crate::address_map::AddressMap;
use crate::arena::ArenaPool;
use crate::backend::{BackendError, ErrorKind, Granularity, VirtualMemory};
use crate::block::State;
use crate::call::Call;
use crate::directory::Arena;
use crate::error::Result;
use crate::policy::{Policy, Request};
use crate::region::{self, Failed};
use crate::round::MIN_BLOCK;
use crate::segment::{Origin, Segment};
use crate::snapshot::Action;
use crate::stream_identity::shown;
use crate::sync::assert_unlocked;
use crate::types::{DevicePtr, PoolId, Stream};

/// Bytes that are to be taken for a pool: counted as held until they are settled, or this is dropped.
pub(super) struct Intent<'a, P: Policy> {
    device: &'a DeviceAllocator<P>,
    pool: PoolId,
    bytes: u64,
    /// The most that may be mapped for them.
    at_most: u64,
}

impl<'a, P: Policy> Intent<'a, P> {
    /// For bytes that were admitted.
    pub(super) fn admitted(device: &'a DeviceAllocator<P>, pool: PoolId, bytes: u64) -> Self {
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

impl<P: Policy> Drop for Intent<'_, P> {
    fn drop(&mut self) {
        self.device.state.lock().accounts.settle(self.pool, self.bytes);
    }
}

impl<P: Policy> DeviceAllocator<P> {
    /// Takes memory for `request` from the device and hands it out. `Ok(None)` where the device, or a
    /// limit, has not enough.
    pub(super) fn grow(
        &self,
        arena: &Arena<P>,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let _memory = self.in_transit();
        let (growable, pool, missing) = {
            let state = arena.lock();
            let missing = state.missing_memory(request.tier, request.size).filter(|_| is_retry);
            (state.grows(), state.pool.clone(), missing)
        };
        // PyTorch counts the whole request, also where free memory is to become part of the block. Before the request is
        // refused it is counted as it is.
        let missing = missing.filter(|_| growable).unwrap_or(u64::MAX);
        let bytes = missing.min(request.segment_bytes);
        let asked = self.asked(arena, request, bytes);
        if !self.admit(pool.id, request, asked, is_retry)? {
            return Ok(None);
        }
        // Counted as held until it is, or is not; also where foreign code panics.
        let intent = Intent { device: self, pool: pool.id, bytes: asked.exact, at_most: missing };
        self.retry_leftovers();
        match self.backend.virtual_memory() {
            Ok(vm) if growable => self.grow_region(arena, request, vm, &pool, intent, call),
            _ => self.grow_fixed(arena, request, &pool, intent, call),
        }
    }

    /// Whether the address map can hold every block of a new range.
    fn can_serve(base: DevicePtr, bytes: u64) -> bool {
        let last = base.0.checked_add(bytes).map(|end| DevicePtr(end - MIN_BLOCK));
        !base.is_null() && AddressMap::can_hold(base) && last.is_some_and(AddressMap::can_hold)
    }

    fn grow_fixed(
        &self,
        arena: &Arena<P>,
        request: &Request,
        pool: &ArenaPool,
        intent: Intent<'_, P>,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let bytes = request.segment_bytes;
        let stream = arena.lock().id.stream;
        let base = match self.take_segment(pool, bytes, stream) {
            Ok(base) => base,
            Err(error) => {
                drop(intent);
                return self.refused(error, bytes);
            }
        };
        self.tell(self.segment_event(SegmentChange::Attached, pool.id, stream, base, bytes, false));
        let mut state = self.attend(arena, call);
        let oversize = state.policy.is_oversize(bytes);
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
        Ok(Some(state.hand_out(&self.map, block, request)))
    }

    /// Memory for a fixed segment, from the pool's own source or the driver.
    fn take_segment(
        &self,
        pool: &ArenaPool,
        bytes: u64,
        stream: Stream,
    ) -> std::result::Result<DevicePtr, BackendError> {
        assert_unlocked();
        let base = match &pool.source {
            None => self.backend.malloc(self.device, bytes)?,
            Some(source) => {
                let given = source.alloc(bytes, shown(stream));
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
            // SAFETY: given by this source just now and not used.
            Some(source) => unsafe { source.free(base, bytes, shown(stream)) },
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

    fn grow_region(
        &self,
        arena: &Arena<P>,
        request: &Request,
        vm: &dyn VirtualMemory,
        pool: &ArenaPool,
        intent: Intent<'_, P>,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let at_most = intent.at_most;
        let mut intent = Some(intent);
        loop {
            let mut state = arena.lock();
            let stream = state.id.stream;
            let Some(growth) = state.plan_growth(request.tier, request.size) else {
                drop(state);
                if self.add_region(arena, request, vm)? {
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
                match region::back(&*self.backend, vm, &backing, DevicePtr(*addr), count) {
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
                self.tell(self.segment_event(SegmentChange::Attached, pool.id, stream, at, *bytes, true));
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
                    device.regions.leftovers.append(std::mem::take(leftovers));
                }
            }
            for (addr, bytes) in &maps[..done] {
                state.history.record(Action::SegmentMap, *addr, *bytes);
            }
            state.note_segment_context(growth.region);
            let block = state.commit_growth(growth, done);
            let Some(Failed { error, .. }) = failure else {
                let Some(block) = block else { continue };
                return Ok(Some(state.hand_out(&self.map, block, request)));
            };
            drop(state);
            return self.refused(error, granule);
        }
    }

    /// Reserves address space for a new growable segment; `false` where it would be too small for the
    /// request.
    fn add_region(&self, arena: &Arena<P>, request: &Request, vm: &dyn VirtualMemory) -> Result<bool> {
        assert_unlocked();
        let minimum = vm.granularity(self.device, Granularity::Minimum)?;
        let (granule, bytes) = {
            let state = arena.lock();
            let usual = state.policy.granule(request.tier, minimum);
            let granule = self.hardened_granule(&state.policy).unwrap_or(usual);
            let class = self.state.lock().class_reserve(state.id.stream, self.total_memory);
            let reserve = class.unwrap_or_else(|| state.policy.reserve(self.total_memory));
            (granule, reserve.next_multiple_of(granule))
        };
        if bytes < request.size {
            return Ok(false);
        }
        let base = match vm.reserve_address(self.device, bytes, 0, DevicePtr::NULL) {
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
