//! Taking memory from the device: fixed segments, and mapping into growable ones.

use super::DeviceAllocator;
use crate::address_map::AddressMap;
use crate::backend::{BackendError, ErrorKind, Granularity, VirtualMemory};
use crate::block::State;
use crate::directory::Arena;
use crate::error::{AllocError, Result};
use crate::policy::{Policy, Request};
use crate::region::{self, Failed};
use crate::round::MIN_BLOCK;
use crate::segment::{Origin, Segment};
use crate::snapshot::Action;
use crate::sync::assert_unlocked;
use crate::types::DevicePtr;

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl<P: Policy> DeviceAllocator<P> {
    /// Takes memory for `request` from the device and hands it out. `Ok(None)` where the device, or a
    /// limit, has not enough.
    pub(super) fn grow(
        &self,
        arena: &Arena<P>,
        request: &Request,
        is_retry: bool,
    ) -> Result<Option<DevicePtr>> {
        let _memory = self.transit.begin();
        if !self.admit(request, is_retry)? {
            return Ok(None);
        }
        self.retry_leftovers();
        let growable = arena.lock().policy.grows();
        match self.backend.virtual_memory() {
            Ok(vm) if growable => {
                let mut intent = u128::from(request.segment_bytes);
                let grown = self.grow_region(arena, request, vm, &mut intent);
                self.state.lock().intents -= intent;
                grown
            }
            _ => self.grow_fixed(arena, request),
        }
    }

    /// Counts the retry and applies the limits. What is admitted counts as held from then on, as an intent.
    fn admit(&self, request: &Request, is_retry: bool) -> Result<bool> {
        let mut state = self.state.lock();
        state.counters.alloc_retries += i64::from(is_retry);
        let wanted = state.held().saturating_add(request.segment_bytes);
        if state.allowed.is_some_and(|allowed| wanted > allowed) {
            return Ok(false);
        }
        if state.settings.throw_on_oom {
            #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
            let limit = (state.settings.per_process_memory_fraction * self.total_memory as f64) as u64;
            if wanted > limit {
                state.counters.oom_rejections += 1;
                let held = state.held();
                drop(state);
                tracing::warn!(
                    requested = request.requested,
                    held,
                    limit,
                    "request rejected before the driver was asked; set throw_on_cudamalloc_oom:False to disable"
                );
                let label = self.backend.kind().label();
                return Err(AllocError::Rejected { label, requested: request.requested });
            }
        }
        state.intents += u128::from(request.segment_bytes);
        Ok(true)
    }

    /// Whether the address map can hold every block of a new range.
    fn can_serve(base: DevicePtr, bytes: u64) -> bool {
        let last = base.0.checked_add(bytes).map(|end| DevicePtr(end - MIN_BLOCK));
        !base.is_null() && AddressMap::can_hold(base) && last.is_some_and(AddressMap::can_hold)
    }

    fn grow_fixed(&self, arena: &Arena<P>, request: &Request) -> Result<Option<DevicePtr>> {
        let bytes = request.segment_bytes;
        assert_unlocked();
        let outcome = self.backend.malloc(self.device, bytes).and_then(|base| {
            if Self::can_serve(base, bytes) {
                return Ok(base);
            }
            // SAFETY: rule 3: handed out just now and not used.
            let _ = unsafe { self.backend.free(self.device, base) };
            let detail = format!(
                "the driver returned {base}, which is null, not aligned to 512 bytes, or beyond 57 bits"
            );
            Err(BackendError::new(ErrorKind::Other, 0, "malloc", self.device, detail))
        });
        let base = match outcome {
            Ok(base) => base,
            Err(error) => {
                self.state.lock().intents -= u128::from(bytes);
                return self.refused(error, bytes);
            }
        };
        let mut state = arena.lock();
        let oversize = state.policy.is_oversize(bytes);
        let registration = {
            let mut device = self.state.lock();
            device.intents -= u128::from(bytes);
            let counters = &mut device.counters;
            counters.segment.increase(request.tier, 1);
            counters.reserved_bytes.increase(request.tier, signed(bytes));
            counters.device_alloc += 1;
            if oversize {
                counters.oversize_segments.increase(1);
            }
            device.register()
        };
        state.history.record(Action::SegmentAlloc, base.0, bytes);
        let segment = Segment::new(base, bytes, registration, request.tier, Origin::Fixed);
        let (_, block) = state.add_segment(segment, State::Busy);
        let ptr = state.hand_out(&self.map, block, request);
        self.leave(state);
        Ok(Some(ptr))
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
        intent: &mut u128,
    ) -> Result<Option<DevicePtr>> {
        loop {
            let mut state = arena.lock();
            let Some(growth) = state.plan_growth(request.tier, request.size) else {
                drop(state);
                if self.add_region(arena, request, vm)? {
                    continue;
                }
                return Ok(None);
            };
            let maps = growth.maps(&state);
            let granule = {
                let mut device = self.state.lock();
                for (addr, bytes) in &maps {
                    device.regions.begin(growth.region, *addr, *bytes);
                }
                device.regions.get(growth.region).map_or(1, |region| region.granule)
            };
            drop(state);
            let mut backed = Vec::with_capacity(maps.len());
            let mut failure = None;
            for (addr, bytes) in &maps {
                let count = (bytes / granule) as usize;
                match region::back(&*self.backend, vm, self.device, DevicePtr(*addr), granule, count) {
                    Ok(handles) => backed.push(handles),
                    Err(failed) => {
                        failure = Some(failed);
                        break;
                    }
                }
            }
            let mut state = arena.lock();
            let done = backed.len();
            {
                let mut device = self.state.lock();
                // From here on it is counted as reserved.
                device.intents -= std::mem::take(intent);
                for (n, (addr, bytes)) in maps.iter().enumerate() {
                    if let Some(handles) = backed.get(n) {
                        device.regions.commit_backed(growth.region, *addr, handles);
                        device.counters.reserved_bytes.increase(request.tier, signed(*bytes));
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
            let block = state.commit_growth(growth, done);
            let Some(Failed { error, .. }) = failure else {
                let Some(block) = block else { continue };
                let ptr = state.hand_out(&self.map, block, request);
                self.leave(state);
                return Ok(Some(ptr));
            };
            self.leave(state);
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
            let granule = state.policy.granule(request.tier, minimum);
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
