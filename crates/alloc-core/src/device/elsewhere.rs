//! Memory that is mapped in a second place: what the policy may ask of a device.

use super::DeviceAllocator;
use super::grow::Purpose;
use crate::arena::ArenaState;
use crate::arena::directory::{Arena, PoolSlot};
use crate::backend::{Access, BackendError, VirtualMemory};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::BlockId;
use crate::memory::region::Leftovers;
use crate::memory::segment::{Origin, Segment};
use crate::policy::engine::{Engine, Granule, Mapped, Part};
use crate::policy::{GranuleMemory, Request};
use crate::process::attention::Reason;
use crate::sync::assert_unlocked;
use crate::types::{DevicePtr, PhysicalHandle, PoolId};
use crate::watch::observers::{SegmentChange, SegmentEvent};
use std::ops::DerefMut;

/// A device, as far as its policy reaches.
pub(super) struct Reach<'d>(pub(super) &'d DeviceAllocator);

impl Engine<GranuleMemory> for Reach<'_> {
    type Arena = Arena;
    type State = ArenaState;

    fn lock<'a>(&'a self, arena: &'a Arena) -> impl DerefMut<Target = ArenaState> + 'a {
        arena.lock()
    }

    fn attend<'a>(&'a self, arena: &'a Arena, call: &Call<'_>) -> impl DerefMut<Target = ArenaState> + 'a {
        self.0.attend(arena, call)
    }

    fn in_use(&self) -> u64 {
        self.0.in_use()
    }

    fn held(&self) -> u64 {
        self.0.state.lock().accounts.held()
    }

    fn total(&self) -> u64 {
        self.0.total_memory
    }

    fn is_hardened(&self) -> bool {
        self.0.attention.has(Reason::HARDENED)
    }

    fn unit(&self) -> Option<u64> {
        self.0.minimum_granule.get().copied()
    }

    fn ask_unit(&self) -> Result<()> {
        self.0.backend.virtual_memory().map_or(Ok(()), |vm| self.0.ask_granule(vm).map(drop))
    }

    fn may_wait(&self, arena: &Arena, call: &Call<'_>) -> bool {
        let stream = arena.lock().id.stream;
        !call.capturing && !self.0.may_be_capturing(stream)
    }

    fn forget_error(&self) {
        self.0.backend.clear_error();
    }

    fn moving(&self) -> impl Sized + '_ {
        self.0.in_transit()
    }

    fn hand_out(&self, state: &mut ArenaState, id: BlockId, requested: u64) -> DevicePtr {
        state.hand_out_whole(&self.0.map, id, requested)
    }

    fn search(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> Option<DevicePtr> {
        self.0.search(arena, request, false, call)
    }

    fn grow(
        &self,
        arena: &Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        self.0.grow(arena, request, Purpose::Serve, is_retry, call)
    }

    fn stock(
        &self,
        arena: &Arena,
        request: &Request,
        granule: u64,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<bool> {
        let stocked = self.0.grow(arena, request, Purpose::Stock { granule }, is_retry, call)?;
        Ok(stocked.is_some())
    }

    fn neighbours<'a>(&'a self, arena: &'a Arena) -> Vec<&'a Arena> {
        let all = self.0.arenas.of_pool(PoolSlot::DEFAULT).into_iter().map(|other| &**other);
        all.filter(|other| !std::ptr::eq(*other, arena)).collect()
    }

    fn is_idle(&self, arena: &Arena) -> bool {
        self.0.is_idle(arena)
    }

    fn hand_over(&self, from: &Arena, to: &Arena, parts: Vec<BlockId>, call: &Call<'_>) -> Result<u64> {
        self.0.hand_over(from, to, parts, call)
    }

    fn map_again(
        &self,
        arena: &Arena,
        granules: &[Granule],
        request: &Request,
        call: &Call<'_>,
        adopt: impl FnOnce(&mut ArenaState, Segment) -> BlockId,
    ) -> Result<Mapped> {
        let Ok(vm) = self.0.backend.virtual_memory() else { return Ok(Mapped::Refused) };
        let calls = self.0.foreign.calls();
        let (handles, stream) = {
            let state = arena.lock();
            (self.handles(&state, granules), state.id.stream)
        };
        let base = match self.map_side_by_side(granules, &handles, vm) {
            Ok(base) => base,
            Err(refused) => return Ok(refused),
        };
        let bytes = granules.iter().map(|granule| granule.bytes).sum();
        let pool = PoolId::DEFAULT;
        let event = self.0.segment_event(SegmentChange::Attached, pool, stream, base, bytes, true);
        self.0.observers.tell(event, &calls);
        let mut state = self.0.attend(arena, call);
        let registration = {
            let mut device = self.0.state.lock();
            device.regions.show(side_by_side(base.0, granules));
            device.counters.device_alloc += 1;
            device.counters.granules_moved += i64::try_from(granules.len()).unwrap_or(i64::MAX);
            device.register()
        };
        let mut segment = Segment::new(base, bytes, registration, request.tier, Origin::View);
        segment.context = state.history.call();
        let block = adopt(&mut state, segment);
        let ptr = state.hand_out_whole(&self.0.map, block, request.requested);
        drop(state);
        self.0.arrived(Ok(ptr), &calls).map(Mapped::Served)
    }

    fn unmap(
        &self,
        arena: &Arena,
        parts: &[Part],
        call: &Call<'_>,
        mut commit: impl FnMut(&mut ArenaState, usize, bool) -> Vec<u64>,
        rest: impl FnOnce(&mut ArenaState) -> Vec<Segment>,
    ) -> Result<()> {
        let calls = self.0.foreign.calls();
        let stream = arena.lock().id.stream;
        let newest = parts.iter().map(|part| part.epoch).max().unwrap_or(0);
        let quiet = self.0.quiesce_up_to(arena, newest, call);
        let vm = self.0.backend.virtual_memory();
        for (number, part) in parts.iter().enumerate() {
            let (at, bytes) = (DevicePtr(part.addr), part.bytes);
            let unmapped = match (&quiet, &vm) {
                (Ok(true), Ok(vm)) => {
                    let event = self.0.segment_event(
                        SegmentChange::Detaching,
                        PoolId::DEFAULT,
                        stream,
                        at,
                        bytes,
                        true,
                    );
                    self.0.observers.tell(event, &calls);
                    // SAFETY: rule 3: adjacent mappings in which no block lives, and whose last use is past.
                    let outcome = unsafe { vm.unmap(at, bytes) };
                    if let Err(error) = &outcome {
                        self.0.backend.clear_error();
                        tracing::error!(%error, %at, bytes, "part of a view could not be unmapped; it stays");
                        self.0
                            .observers
                            .tell(SegmentEvent { change: SegmentChange::Attached, ..event }, &calls);
                    }
                    outcome.is_ok()
                }
                _ => false,
            };
            let mut state = arena.lock();
            let places = commit(&mut state, number, unmapped);
            if unmapped {
                let mut device = self.0.state.lock();
                device.regions.hide(&places);
                device.counters.device_free += 1;
            }
        }
        let rest = rest(&mut arena.lock());
        self.release_addresses(rest);
        quiet.map(|_| ())
    }
}

/// Where granules lie that are mapped side by side from `base` on, and their bytes.
fn side_by_side(base: u64, granules: &[Granule]) -> impl Iterator<Item = (u64, u64)> {
    granules.iter().scan(base, |at, granule| {
        let here = *at;
        *at += granule.bytes;
        Some((here, granule.bytes))
    })
}

impl Reach<'_> {
    /// The physical memory of granules.
    fn handles(&self, state: &ArenaState, granules: &[Granule]) -> Vec<PhysicalHandle> {
        let device = self.0.state.lock();
        let handle = |granule: &Granule| match state.segments[granule.segment].origin {
            Origin::Growable { region, .. } => device.regions.handle(region, granule.addr),
            _ => None,
        };
        let handles: Vec<_> = granules.iter().filter_map(handle).collect();
        debug_assert_eq!(handles.len(), granules.len(), "what is free has memory");
        handles
    }

    /// Maps granules side by side; returns the address. Calls the driver.
    fn map_side_by_side(
        &self,
        granules: &[Granule],
        handles: &[PhysicalHandle],
        vm: &dyn VirtualMemory,
    ) -> std::result::Result<DevicePtr, Mapped> {
        assert_unlocked();
        let bytes = granules.iter().map(|granule| granule.bytes).sum();
        let base = match vm.reserve_address(self.0.device, bytes, 0, DevicePtr::NULL) {
            Ok(base) => base,
            Err(error) => {
                self.0.backend.clear_error();
                tracing::warn!(%error, bytes, "no address space for a view of free memory");
                return Err(Mapped::Refused);
            }
        };
        let mut mapped = 0;
        let attempt = (|| {
            if !DeviceAllocator::can_serve(base, bytes) {
                return Ok(false);
            }
            for ((at, bytes), handle) in side_by_side(base.0, granules).zip(handles) {
                // SAFETY: rule 1: the handle is that of a granule of this size, part of which this thread has taken out, so
                // that it stays. The range lies in the reservation made above, where nothing is mapped yet.
                unsafe { vm.map(DevicePtr(at), bytes, *handle) }?;
                mapped += bytes;
            }
            // SAFETY: the whole range was mapped just above.
            unsafe { vm.set_access(base, bytes, &self.0.users(), Access::ReadWrite) }?;
            Ok::<_, BackendError>(true)
        })();
        let mut refused = Mapped::Refused;
        match attempt {
            Ok(true) => return Ok(base),
            Ok(false) => {}
            Err(error) => {
                self.0.backend.clear_error();
                if error.is_out_of_memory() {
                    tracing::info!(%error, "free memory could not be shown in one piece");
                } else {
                    tracing::warn!(%error, "this device maps no memory twice; fragmentation is not undone on it");
                    refused = Mapped::Unsupported;
                }
            }
        }
        self.give_mappings_back(base, bytes, mapped, vm);
        Err(refused)
    }

    /// Takes the first `mapped` bytes of mappings and their addresses away that nothing uses. What the driver refuses is left
    /// over.
    fn give_mappings_back(&self, base: DevicePtr, bytes: u64, mapped: u64, vm: &dyn VirtualMemory) {
        let mut left = Leftovers::default();
        // SAFETY: rule 3: adjacent mappings of a view in which no block lives, and whose last use is past.
        let unmapped = if mapped == 0 { Ok(()) } else { unsafe { vm.unmap(base, mapped) } };
        if let Err(error) = unmapped {
            tracing::error!(%error, %base, "a view could not be unmapped; it is tried again later");
            left.keep_view(base, bytes, mapped);
        // SAFETY: rule 3: one whole reservation, with nothing mapped in it.
        } else if let Err(error) = unsafe { vm.release_address(base, bytes) } {
            tracing::error!(%error, %base, "addresses could not be given back; it is tried again later");
            left.keep_view(base, bytes, 0);
        }
        self.0.state.lock().regions.leftovers.append(left);
    }

    /// Gives the addresses of segments back in which nothing is mapped.
    fn release_addresses(&self, segments: Vec<Segment>) {
        let Ok(vm) = self.0.backend.virtual_memory() else { return };
        for segment in segments {
            let (base, bytes) = (DevicePtr(segment.base), segment.bytes);
            self.0.foreign.end([segment]);
            // SAFETY: rule 3: one whole reservation, with nothing mapped in it.
            if let Err(error) = unsafe { vm.release_address(base, bytes) } {
                self.0.backend.clear_error();
                tracing::error!(%error, %base, "addresses could not be given back; it is tried again later");
                let mut left = Leftovers::default();
                left.keep_view(base, bytes, 0);
                self.0.state.lock().regions.leftovers.append(left);
            }
        }
    }
}
