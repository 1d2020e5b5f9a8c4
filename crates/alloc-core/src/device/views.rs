//! Memory that lies in pieces, shown in one: see `arena/views.rs`.

use super::DeviceAllocator;
use super::grow::Purpose;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaState, Plan, Shown, side_by_side};
use crate::backend::{Access, VirtualMemory};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{State, Tier};
use crate::memory::region::Leftovers;
use crate::memory::segment::{Origin, Segment};
use crate::policy::{Holding, Request};
use crate::process::attention::Reason;
use crate::sync::{Ordering, assert_unlocked};
use crate::types::{DevicePtr, PhysicalHandle, PoolId};
use crate::watch::observers::{SegmentChange, SegmentEvent};

/// Views show at most this many times what the device holds.
const MOST_SHOWN: u64 = 4;
/// A view begins with the free end of a granule, if that is at least this part of a usual one.
const LEAST_END: u64 = 8;
/// How often memory is taken for one view, where other threads take away what was there.
const TRIES: usize = 8;

impl DeviceAllocator {
    /// Whether views may serve requests of this tier from this arena.
    pub(super) fn shows(&self, arena: &Arena, tier: Tier) -> bool {
        self.arenas.traits().views && tier == Tier::Large && self.shows_from(&arena.lock(), tier)
    }

    /// The same of an arena that is locked.
    fn shows_from(&self, state: &ArenaState, tier: Tier) -> bool {
        if !self.arenas.traits().views || tier != Tier::Large || self.views_refused.load(Ordering::Relaxed) {
            return false;
        }
        // That mode takes the access to freed granules away, which they would keep in a view.
        if self.attention.has(Reason::HARDENED) {
            return false;
        }
        // Pools that sleep or have a source of their own keep their memory in one place.
        state.pool.slot == PoolSlot::DEFAULT && state.grows() && !self.default_has_tag.load(Ordering::Relaxed)
    }

    /// The most bytes that a request of this tier finds free in one piece, or that a view can show it in one.
    pub(super) fn most_in_one_piece(&self, state: &ArenaState, tier: Tier) -> u64 {
        let free = state.blocks.iter().filter(|(_, b)| b.state == State::Free && b.tier == tier);
        let block = free.map(|(_, block)| block.size).max().unwrap_or(0);
        if self.shows_from(state, tier) { block.max(state.most_shown()) } else { block }
    }

    /// What has to be taken from the device for a request that nothing free serves: what is missing, in the smallest granules
    /// there are, where views join it with what they can show; else what the policy takes.
    pub(super) fn missing_for(&self, state: &ArenaState, request: &Request) -> u64 {
        match self.finest_granule() {
            Some(finest) if self.shows_from(state, request.tier) => {
                request.size.saturating_sub(state.most_shown()).next_multiple_of(finest)
            }
            _ if state.grows() => {
                let of = |minimum| state.policy.granule(request.tier, minimum, &Holding::default());
                let granule = self.minimum_granule.get().map_or(1, |minimum| of(*minimum));
                let missing = state.missing_memory(request.tier, request.size, 0);
                missing.unwrap_or_else(|| request.segment_bytes.next_multiple_of(granule))
            }
            _ => request.segment_bytes,
        }
    }

    /// Serves a request from a view that is there already. Calls no driver.
    pub(super) fn search_views(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Option<DevicePtr> {
        if !self.shows(arena, request.tier) {
            return None;
        }
        let mut state = self.attend(arena, call);
        let run = state.run_for(request.size)?;
        let block = state.take_run(&run, request.size)?;
        Some(state.hand_out_lent(&self.map, block, request))
    }

    /// Takes memory for a request that misses: from the device while that holds next to nothing more than what is in use
    /// needs; else what lies free in pieces is shown in one, and only what is missing is taken.
    pub(super) fn take_memory(
        &self,
        arena: &Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        if is_retry {
            self.state.lock().counters.alloc_retries += 1;
        }
        if self.arenas.traits().views
            && let Ok(vm) = self.backend.virtual_memory()
        {
            // What follows counts in granules.
            self.ask_granule(vm)?;
        }
        if !self.shows(arena, request.tier) || self.has_room_beyond_need(arena, request) {
            if !self.shows(arena, request.tier) {
                return self.grow(arena, request, Purpose::Serve, is_retry, call);
            }
            if let Some(ptr) = self.grow(arena, request, Purpose::Serve, is_retry, call)? {
                return Ok(Some(ptr));
            }
        }
        match self.backend.virtual_memory() {
            Ok(vm) => {
                let shown = self.show(arena, request, is_retry, vm, call)?;
                if shown.is_none() && !self.shows(arena, request.tier) {
                    // The driver has just said that it maps nothing twice.
                    return self.grow(arena, request, Purpose::Serve, is_retry, call);
                }
                Ok(shown)
            }
            Err(_) => Ok(None),
        }
    }

    /// Whether what is held, with what a request would add to it, stays within the most that ever was needed, and a little.
    fn has_room_beyond_need(&self, arena: &Arena, request: &Request) -> bool {
        let in_use = self.in_use();
        let granule = self.next_granule(arena, request.tier, request.size);
        let missing =
            arena.lock().missing_memory(request.tier, request.size, granule).unwrap_or(request.size);
        let mut device = self.state.lock();
        // The request itself may be refused, and then was not needed.
        device.most_needed = device.most_needed.max(in_use);
        let most = device.most_needed.max(in_use.saturating_add(request.size));
        device.accounts.held().saturating_add(missing) <= most + most / self.arenas.traits().slack
    }

    /// Serves a request from a new view, taking what memory is missing.
    fn show(
        &self,
        arena: &Arena,
        request: &Request,
        is_retry: bool,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let calls = self.foreign.calls();
        let _memory = self.in_transit();
        let mut granule = self.next_granule(arena, request.tier, request.size);
        if granule == 0 {
            // The hardened mode was switched on a moment ago: its granules are chosen otherwise.
            return self.grow(arena, request, Purpose::Serve, is_retry, call);
        }
        let finest = self.finest_granule().unwrap_or(granule);
        // A smaller free end is not worth a mapping, unless the request would be refused.
        let mut least = granule / LEAST_END;
        let mut refused = u64::MAX;
        for _ in 0..TRIES {
            let mut state = arena.lock();
            let plan = state.plan_view(request.size, granule, least);
            if plan.missing == 0 {
                let Some(taken) = state.take_home(plan.granules.iter().copied(), plan.skip, request.size)
                else {
                    return Ok(None);
                };
                let handles = self.handles(&state, &plan.granules);
                let stream = state.id.stream;
                drop(state);
                self.bound_views(arena, vm, call);
                let shown = self.map_view(&plan, &handles, vm);
                let (base, mapped) = match shown {
                    Ok(Some(mapped)) => mapped,
                    nothing => {
                        arena.lock().give_home_back(taken);
                        return nothing.map(|_| None);
                    }
                };
                let bytes = mapped.iter().map(|(_, bytes)| bytes).sum();
                let pool = PoolId::DEFAULT;
                let event = self.segment_event(SegmentChange::Attached, pool, stream, base, bytes, true);
                self.observers.tell(event, &calls);
                let mut state = self.attend(arena, call);
                let registration = {
                    let mut device = self.state.lock();
                    device.regions.views.extend(mapped.iter().copied());
                    device.counters.device_alloc += 1;
                    device.counters.granules_moved += i64::try_from(mapped.len()).unwrap_or(i64::MAX);
                    device.register()
                };
                let mut segment = Segment::new(base, bytes, registration, request.tier, Origin::View);
                segment.context = state.history.call();
                let block = state.add_view(segment, plan.granules, (plan.skip, request.size), taken);
                let ptr = state.hand_out_lent(&self.map, block, request);
                drop(state);
                return self.arrived(Ok(ptr), &calls).map(Some);
            }
            drop(state);
            if plan.missing >= refused {
                return Ok(None);
            }
            // A request that the whole device could not serve takes nothing from other streams.
            let possible = self.in_use().saturating_add(plan.missing) <= self.total_memory;
            if possible && self.hand_over(arena, plan.missing, vm, call)? > 0 {
                continue;
            }
            let stock = Request { size: plan.missing, segment_bytes: plan.missing, ..*request };
            if self.grow(arena, &stock, Purpose::Stock { granule }, is_retry, call)?.is_none() {
                // There may be enough for what is missing, and not for whole granules of the usual size.
                refused = plan.missing;
                (granule, least) = (finest, 1);
                continue;
            }
            // The new memory may do by itself, with what is free beside it.
            if let Some(ptr) = self.search(arena, request, false, call) {
                return Ok(Some(ptr));
            }
        }
        Ok(None)
    }

    /// The physical memory of granules.
    fn handles(&self, state: &crate::arena::ArenaState, granules: &[Shown]) -> Vec<PhysicalHandle> {
        let device = self.state.lock();
        let handle = |shown: &Shown| match state.segments[shown.segment].origin {
            Origin::Growable { region, .. } => device.regions.handle(region, shown.addr),
            _ => None,
        };
        let handles: Vec<_> = granules.iter().filter_map(handle).collect();
        debug_assert_eq!(handles.len(), granules.len(), "what is free has memory");
        handles
    }

    /// Maps granules side by side; returns the address and each mapping. `Ok(None)` where there are no addresses, or the
    /// driver maps nothing twice. Calls the driver.
    #[allow(clippy::type_complexity)] // an address and a list
    fn map_view(
        &self,
        plan: &Plan,
        handles: &[PhysicalHandle],
        vm: &dyn VirtualMemory,
    ) -> Result<Option<(DevicePtr, Vec<(u64, u64)>)>> {
        assert_unlocked();
        let bytes = plan.granules.iter().map(|shown| shown.bytes).sum();
        let base = match vm.reserve_address(self.device, bytes, 0, DevicePtr::NULL) {
            Ok(base) => base,
            Err(error) => {
                self.backend.clear_error();
                tracing::warn!(%error, bytes, "no address space for a view of free memory");
                return Ok(None);
            }
        };
        let mut mapped = Vec::with_capacity(handles.len());
        let attempt = (|| {
            if !Self::can_serve(base, bytes) {
                return Ok(false);
            }
            for ((at, shown), handle) in side_by_side(base.0, &plan.granules).zip(handles) {
                // SAFETY: rule 1: the handle is that of a granule of this size, part of which this thread has taken out, so
                // that it stays. The range lies in the reservation made above, where nothing is mapped yet.
                unsafe { vm.map(DevicePtr(at), shown.bytes, *handle) }?;
                mapped.push((at, shown.bytes));
            }
            // SAFETY: the whole range was mapped just above.
            unsafe { vm.set_access(base, bytes, &self.users(), Access::ReadWrite) }?;
            Ok::<_, crate::backend::BackendError>(true)
        })();
        if let Ok(true) = attempt {
            return Ok(Some((base, mapped)));
        }
        if let Err(error) = attempt {
            self.backend.clear_error();
            if error.is_out_of_memory() {
                tracing::info!(%error, "free memory could not be shown in one piece");
            } else {
                tracing::warn!(%error, "this device maps no memory twice; fragmentation is not undone on it");
                self.views_refused.store(true, Ordering::Relaxed);
            }
        }
        self.give_view_back(base, bytes, &mapped, vm);
        Ok(None)
    }

    /// Takes mappings and addresses of a view away that nothing uses. What the driver refuses is left over.
    fn give_view_back(&self, base: DevicePtr, bytes: u64, mapped: &[(u64, u64)], vm: &dyn VirtualMemory) {
        let mut left = Leftovers::default();
        let whole: u64 = mapped.iter().map(|(_, bytes)| bytes).sum();
        // SAFETY: rule 3: adjacent mappings of a view in which no block lives, and whose last use is past.
        let unmapped = if whole == 0 { Ok(()) } else { unsafe { vm.unmap(base, whole) } };
        if let Err(error) = unmapped {
            tracing::error!(%error, %base, "a view could not be unmapped; it is tried again later");
            left.keep_view(base, bytes, whole);
        // SAFETY: rule 3: one whole reservation, with nothing mapped in it.
        } else if let Err(error) = unsafe { vm.release_address(base, bytes) } {
            tracing::error!(%error, %base, "addresses could not be given back; it is tried again later");
            left.keep_view(base, bytes, 0);
        }
        self.state.lock().regions.leftovers.append(left);
    }

    /// Gives up all that an arena's views show and no block uses, so that it may leave. Blocks until the device is done with it;
    /// during a capture everything stays of which that is not known.
    pub(super) fn drop_views(&self, arena: &Arena, vm: &dyn VirtualMemory, call: &Call<'_>) -> Result<()> {
        if self.arenas.traits().views {
            self.drop_some_views(arena, u64::MAX, false, vm, call)
        } else {
            Ok(())
        }
    }

    /// [`drop_views`](Self::drop_views) of what the device is known to be done with. Waits for nothing.
    pub(super) fn drop_past_views(
        &self,
        arena: &Arena,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
    ) -> Result<()> {
        self.drop_some_views(arena, u64::MAX, true, vm, call)
    }

    /// Keeps what an arena's views show within a multiple of what the device holds: where they show `bytes`, and that is more,
    /// the parts leave that served nobody for the longest. A program whose sizes never repeat would map for ever, and search
    /// all of it.
    fn bound_views(&self, arena: &Arena, vm: &dyn VirtualMemory, call: &Call<'_>) {
        let most = self.state.lock().accounts.held().saturating_mul(MOST_SHOWN);
        let beyond = || arena.lock().views.bytes.saturating_sub(most);
        if beyond() == 0 {
            return;
        }
        // Enough that it is not done for every view. To wait is for where the device never was seen to be done with any of it.
        let enough = |beyond: u64| beyond + most / MOST_SHOWN;
        let mut outcome = self.drop_some_views(arena, enough(beyond()), true, vm, call);
        // To wait would break a capture, also one that nobody told of.
        let stream = arena.lock().id.stream;
        if beyond() > 0 && !call.capturing && !self.may_be_capturing(stream) {
            outcome = outcome.and_then(|()| self.drop_some_views(arena, enough(beyond()), false, vm, call));
        }
        if let Err(error) = outcome {
            // The request does not depend on it.
            self.backend.clear_error();
            tracing::warn!(%error, "views show more than they should; it is tried again with the next one");
        }
    }

    fn drop_some_views(
        &self,
        arena: &Arena,
        enough: u64,
        only_past: bool,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
    ) -> Result<()> {
        let calls = self.foreign.calls();
        let _memory = self.in_transit();
        let (leaving, stream) = {
            let mut state = arena.lock();
            (state.begin_leaving(enough, only_past), state.id.stream)
        };
        if leaving.is_empty() {
            return Ok(());
        }
        let newest = leaving.iter().map(|part| part.epoch).max().unwrap_or(0);
        let quiet = self.quiesce_up_to(arena, newest, call);
        for part in leaving {
            let (at, bytes) = (DevicePtr(part.addr), part.bytes);
            let unmapped = matches!(quiet, Ok(true)) && {
                let event =
                    self.segment_event(SegmentChange::Detaching, PoolId::DEFAULT, stream, at, bytes, true);
                self.observers.tell(event, &calls);
                // SAFETY: rule 3: adjacent mappings in which no block lives, and whose last use is past.
                let outcome = unsafe { vm.unmap(at, bytes) };
                if let Err(error) = &outcome {
                    self.backend.clear_error();
                    tracing::error!(%error, %at, bytes, "part of a view could not be unmapped; it stays");
                    self.observers.tell(SegmentEvent { change: SegmentChange::Attached, ..event }, &calls);
                }
                outcome.is_ok()
            };
            let mut state = arena.lock();
            let places = state.end_leaving(&part, unmapped);
            if unmapped {
                let mut device = self.state.lock();
                for at in places {
                    device.regions.views.remove(&at);
                }
                device.counters.device_free += 1;
            }
        }
        self.drop_empty_views(arena, vm);
        quiet.map(|_| ())
    }

    /// Gives the addresses back of views that show nothing any more.
    fn drop_empty_views(&self, arena: &Arena, vm: &dyn VirtualMemory) {
        let gone: Vec<_> = {
            let mut state = arena.lock();
            let empty = state.take_empty_views();
            empty.into_iter().filter_map(|(segment, block)| state.remove_segment(segment, block)).collect()
        };
        for segment in gone {
            let (base, bytes) = (segment.base, segment.bytes);
            self.foreign.end([segment]);
            let base = DevicePtr(base);
            // SAFETY: rule 3: one whole reservation, with nothing mapped in it.
            if let Err(error) = unsafe { vm.release_address(base, bytes) } {
                self.backend.clear_error();
                tracing::error!(%error, %base, "addresses could not be given back; it is tried again later");
                let mut left = Leftovers::default();
                left.keep_view(base, bytes, 0);
                self.state.lock().regions.leftovers.append(left);
            }
        }
    }
}
