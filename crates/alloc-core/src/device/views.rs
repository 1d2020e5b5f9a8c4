//! Memory that lies in pieces, shown in one: see `arena/views.rs`.

use super::grow::Purpose;
use super::{DeviceAllocator, SegmentChange};
use crate::arena::{Plan, Shown, View};
use crate::attention::Reason;
use crate::backend::{Access, VirtualMemory};
use crate::block::Tier;
use crate::call::Call;
use crate::directory::{Arena, PoolSlot};
use crate::error::Result;
use crate::policy::{Policy, Request};
use crate::region::Leftovers;
use crate::round::SMALL_SEGMENT;
use crate::segment::{Origin, Segment};
use crate::sync::{Ordering, assert_unlocked};
use crate::types::{DevicePtr, PhysicalHandle, PoolId};

/// How often memory is taken for one view, where other threads take away what was there.
const TRIES: usize = 8;

impl<P: Policy> DeviceAllocator<P> {
    /// Whether views may serve requests of this tier from this arena.
    fn shows(&self, arena: &Arena<P>, tier: Tier) -> bool {
        if !P::VIEWS || tier != Tier::Large || self.views_refused.load(Ordering::Relaxed) {
            return false;
        }
        // That mode takes the access to freed granules away, which they would keep in a view.
        if self.attention.has(Reason::HARDENED) {
            return false;
        }
        let state = arena.lock();
        // Pools that sleep or have a source of their own keep their memory in one place.
        state.pool.slot == PoolSlot::DEFAULT && state.grows() && !state.pool.sleeps
    }

    /// Serves a request from a view that is there already. Calls no driver.
    pub(super) fn search_views(
        &self,
        arena: &Arena<P>,
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
        arena: &Arena<P>,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        if self.shows(arena, request.tier)
            && let Ok(vm) = self.backend.virtual_memory()
        {
            // What follows counts in granules.
            self.ask_granule(vm)?;
        }
        if !self.shows(arena, request.tier) || self.has_room_beyond_need(arena, request) {
            if let Some(ptr) = self.grow(arena, request, Purpose::Serve, is_retry, call)? {
                return Ok(Some(ptr));
            }
            if !self.shows(arena, request.tier) {
                return Ok(None);
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
    fn has_room_beyond_need(&self, arena: &Arena<P>, request: &Request) -> bool {
        let in_use = self.in_use();
        let granule = self.next_granule(arena, request.tier, request.size);
        let missing =
            arena.lock().missing_memory(request.tier, request.size, granule).unwrap_or(request.size);
        let mut device = self.state.lock();
        // The request itself may be refused, and then was not needed.
        device.most_needed = device.most_needed.max(in_use);
        let most = device.most_needed.max(in_use.saturating_add(request.size));
        device.accounts.held().saturating_add(missing) <= most + most / P::SLACK
    }

    /// Serves a request from a new view, taking what memory is missing.
    fn show(
        &self,
        arena: &Arena<P>,
        request: &Request,
        is_retry: bool,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let _memory = self.in_transit();
        let mut granule = self.next_granule(arena, request.tier, request.size);
        if granule == 0 {
            // The hardened mode was switched on a moment ago: its granules are chosen otherwise.
            return self.grow(arena, request, Purpose::Serve, is_retry, call);
        }
        let finest =
            self.minimum_granule.get().map_or(granule, |minimum| SMALL_SEGMENT.next_multiple_of(*minimum));
        for _ in 0..TRIES {
            let mut state = arena.lock();
            let plan = state.plan_view(request.size, granule);
            if plan.missing == 0 {
                let Some(taken) = state.take_home(&plan.granules, plan.skip, request.size) else {
                    return Ok(None);
                };
                let handles = self.handles(&state, &plan.granules);
                let stream = state.id.stream;
                drop(state);
                let Some((base, mapped)) = self.map_view(&plan, &handles, vm)? else {
                    arena.lock().give_home_back(taken);
                    return Ok(None);
                };
                let bytes = mapped.iter().map(|(_, bytes)| bytes).sum();
                let pool = PoolId::DEFAULT;
                self.tell(self.segment_event(SegmentChange::Attached, pool, stream, base, bytes, true));
                let mut state = self.attend(arena, call);
                let registration = {
                    let mut device = self.state.lock();
                    device.regions.views.extend(mapped.iter().copied());
                    device.counters.device_alloc += 1;
                    device.register()
                };
                let mut segment = Segment::new(base, bytes, registration, request.tier, Origin::View);
                segment.context = state.history.call();
                let block = state.add_view(segment, plan.granules, (plan.skip, request.size), taken);
                return Ok(Some(state.hand_out_lent(&self.map, block, request)));
            }
            drop(state);
            if self.hand_over(arena, plan.missing, vm, call)? > 0 {
                continue;
            }
            let stock = Request { size: plan.missing, segment_bytes: plan.missing, ..*request };
            if self.grow(arena, &stock, Purpose::Stock { granule }, is_retry, call)?.is_none() {
                if granule <= finest {
                    return Ok(None);
                }
                // There may be enough for what is missing, and not for whole granules of the usual size.
                granule = finest;
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
    fn handles(&self, state: &crate::arena::ArenaState<P>, granules: &[Shown]) -> Vec<PhysicalHandle> {
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
            for ((at, shown), handle) in View::mappings(base.0, &plan.granules).zip(handles) {
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

    /// Gives up the views of an arena in which no block lives, so that their granules may leave. Blocks until the device is
    /// done with them; during a capture those stay of which that is not known.
    pub(super) fn drop_views(&self, arena: &Arena<P>, vm: &dyn VirtualMemory, call: &Call<'_>) -> Result<()> {
        if !P::VIEWS {
            return Ok(());
        }
        let gone = arena.lock().take_blank_views();
        if gone.is_empty() {
            return Ok(());
        }
        let _memory = self.in_transit();
        let blocks: Vec<_> = gone.iter().map(|(_, block)| *block).collect();
        let quiet = self.quiesce(arena, &blocks, call);
        for (view, block) in gone {
            if !matches!(quiet, Ok(true)) {
                arena.lock().keep_view(view, block);
                continue;
            }
            let (base, bytes, stream) = {
                let state = arena.lock();
                let segment = &state.segments[view.segment];
                (DevicePtr(segment.base), segment.bytes, state.id.stream)
            };
            let pool = PoolId::DEFAULT;
            self.tell(self.segment_event(SegmentChange::Detaching, pool, stream, base, bytes, true));
            let mapped: Vec<_> =
                View::mappings(base.0, &view.granules).map(|(at, shown)| (at, shown.bytes)).collect();
            self.give_view_back(base, bytes, &mapped, vm);
            let mut state = arena.lock();
            state.forget_view(&view);
            let segment = state.remove_segment(view.segment, block);
            {
                let mut device = self.state.lock();
                for (at, _) in &mapped {
                    device.regions.views.remove(at);
                }
                device.counters.device_free += 1;
            }
            drop(state);
            // Its context may be foreign code's.
            drop(segment);
        }
        quiet.map(|_| ())
    }
}
