//! Memory for a miss: what lies free in pieces is shown in one before more is taken.

mod call_home;
mod donors;

use super::Purpose;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::granule::{self as views, Blocks, Granule, Plan};
use crate::arena::{ArenaOf, ArenaState};
use crate::base::round::SMALL_SEGMENT;
use crate::device::Device;
use crate::device::arenas;
use crate::device::space::Mapped;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::Tier;
use crate::policy::{GranuleSizes, Request};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::types::{DevicePtr, MIB};

/// A view begins with the free end of a granule, if that is at least this part of a usual one.
const LEAST_END: u64 = 8;
/// Attempts at memory for one view, where other threads take away what was there.
const TRIES: usize = 8;
/// Part of the peak need that may be held beyond it, before free memory is aliased instead of mapping more: 0.2 %.
const SLACK: u64 = 500;

/// Part of the peak need that is hardly worth a view: 0.1 %.
const HARDLY_MORE: u64 = 1000;

/// A device is tight once more than this part of it is held: what fits then counts for more than driver calls.
const TIGHT: u64 = 2;
/// The largest granules that are taken there.
const TIGHT_GRANULE: u64 = 8 * MIB;

/// Facts learned of a device.
#[derive(Debug, Default)]
pub(in crate::device) struct Learned {
    /// Memory was seen to be the same in two places.
    proven: AtomicBool,
    /// It is not, or the driver maps none twice.
    refused: AtomicBool,
    /// The default pool sleeps with a tag, and keeps its memory in one place.
    at_home: AtomicBool,
    /// The most bytes that were in use when memory was taken, since the program last emptied the cache: what has to be held at
    /// least.
    most_needed: AtomicU64,
}

/// The smallest granules that memory is made of, once the unit of virtual memory is known.
fn finest(device: &Device) -> Option<u64> {
    device.driver.unit().map(|unit| SMALL_SEGMENT.next_multiple_of(unit))
}

/// The most bytes that a view could show in one piece.
fn most_shown(arena: &mut ArenaOf<Granule>) -> u64 {
    let (memory, segments) = arena.heap_mut().known_and_segments();
    memory.pieces(segments).most()
}

/// True if much of the device is held.
fn is_tight(device: &Device) -> bool {
    device.held() > device.driver.total_memory() / TIGHT
}

/// Plans a view for `size` bytes, with free ends of granules of at least `least` bytes. Where nothing is missing, what
/// the request needs of that is taken out, unless another thread was first.
fn plan(arena: &Arena, size: u64, finest: u64, least: u64) -> (Plan, Option<Blocks>) {
    let mut state = arena.lock();
    let (memory, segments) = state.granule_mut().heap_mut().known_and_segments();
    let plan = memory.pieces(segments).plan_view(segments, size, finest, least);
    let granules = plan.granules.iter().copied();
    let taken = (plan.missing == 0)
        .then(|| views::take_home(state.granule_mut().heap_mut(), granules, plan.skip, size));
    (plan, taken.flatten())
}

impl Learned {
    /// True if views may serve requests of this tier from this arena.
    fn shows(&self, arena: &Arena, tier: Tier) -> bool {
        tier == Tier::Large && self.shows_from(arena.lock().granule(), tier)
    }

    /// The same of an arena that is locked.
    fn shows_from(&self, state: &ArenaOf<Granule>, tier: Tier) -> bool {
        self.proven.load(Ordering::Relaxed) && self.may_show_from(state, tier)
    }

    /// The same, if memory can be in two places.
    fn may_show_from(&self, state: &ArenaOf<Granule>, tier: Tier) -> bool {
        // Pools that sleep or have a source of their own keep their memory in one place.
        tier == Tier::Large
            && !self.refused.load(Ordering::Relaxed)
            && state.is_movable()
            && !self.at_home.load(Ordering::Relaxed)
    }

    pub(crate) fn note_need(&self, in_use: u64) -> u64 {
        self.most_needed.fetch_max(in_use, Ordering::Relaxed).max(in_use)
    }

    pub(crate) fn forget_need(&self) {
        self.most_needed.store(0, Ordering::Relaxed);
    }

    pub(crate) fn stay_at_home(&self, home: bool) {
        self.at_home.store(home, Ordering::Relaxed);
    }

    /// Tries memory in two places before views serve a request of this tier from this arena.
    pub(crate) fn prepare(&self, device: &Device, arena: &Arena, tier: Tier, call: &Call<'_>) {
        let is_due = !self.proven.load(Ordering::Relaxed) && self.may_show_from(arena.lock().granule(), tier);
        if is_due && let Some(agree) = device.try_aliases(arena, call) {
            let seen = if agree { &self.proven } else { &self.refused };
            seen.store(true, Ordering::Relaxed);
        }
    }

    /// The most bytes that a view could show in one piece.
    pub(crate) fn most_in_pieces(&self, state: &mut ArenaState, tier: Tier) -> u64 {
        let arena = state.granule_mut();
        if self.shows_from(arena, tier) { most_shown(arena) } else { 0 }
    }

    /// Bytes to map for a request that views serve with what they can show: what is missing, in the smallest granules
    /// there are.
    pub(crate) fn missing(&self, device: &Device, state: &mut ArenaState, request: &Request) -> Option<u64> {
        let arena = state.granule_mut();
        let finest = finest(device).filter(|_| self.shows_from(arena, request.tier))?;
        Some(request.size.saturating_sub(most_shown(arena)).next_multiple_of(finest))
    }

    pub(crate) fn granule(
        &self,
        device: &Device,
        arena: &Arena,
        tier: Tier,
        size: u64,
    ) -> Option<GranuleSizes> {
        let unit = device.driver.unit()?;
        let finest = SMALL_SEGMENT.next_multiple_of(unit);
        if tier == Tier::Large
            && (arena.lock().binding().slot() != PoolSlot::DEFAULT || !self.shows(arena, tier))
        {
            // Private pools' budgets often count bytes; and without views small granules cost no more calls.
            return Some(GranuleSizes::even(finest));
        }
        let usual = arena.lock().next_granule(tier, unit, size);
        let most = if is_tight(device) { TIGHT_GRANULE } else { u64::MAX };
        let whole = |bytes: u64| bytes.min(most).next_multiple_of(finest);
        Some(GranuleSizes { usual: whole(usual.usual), least: whole(usual.least) })
    }

    /// Serves a request from a view that is there already. Calls no driver.
    pub(crate) fn search(
        &self,
        device: &Device,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Option<DevicePtr> {
        if !self.shows(arena, request.tier) {
            return None;
        }
        let mut state = arenas::attend(device, arena, call);
        let run = views::run_for(state.granule_mut().heap_mut(), request.size)?;
        let block = views::take_run(state.granule_mut(), &run, request.size)?;
        Some(state.hand_out_whole(block, request.requested))
    }

    /// Takes memory for a request that misses: from the device while that holds next to nothing more than what is in use
    /// needs; else what lies free in pieces is shown in one, and only what is missing is taken.
    pub(crate) fn serve(
        &self,
        device: &Device,
        arena: &Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        // Counts below are in granules.
        if let Ok(vm) = device.driver.backend().virtual_memory() {
            device.driver.ask_granule(vm)?;
        }
        if !self.shows(arena, request.tier) {
            return device.grow(arena, request, Purpose::Serve, is_retry, call);
        }
        if self.has_room_beyond_need(device, arena, request)
            && let Some(ptr) = device.grow(arena, request, Purpose::Serve, is_retry, call)?
        {
            return Ok(Some(ptr));
        }
        let shown = self.show(device, arena, request, is_retry, call)?;
        if shown.is_none() && !self.shows(arena, request.tier) {
            // The driver has just said that it maps nothing twice.
            return device.grow(arena, request, Purpose::Serve, is_retry, call);
        }
        Ok(shown)
    }

    /// True if held memory, with what a request would add to it, stays within the most that was needed, and a little.
    /// What would be rejected does not: what is free in pieces may do.
    fn has_room_beyond_need(&self, device: &Device, arena: &Arena, request: &Request) -> bool {
        let in_use = device.arenas.in_use();
        let granule = self.granule(device, arena, request.tier, request.size);
        let missing = arena.lock().heap().missing_memory(request.tier, request.size, granule);
        // The request itself may be refused, and then was not needed.
        let most = self.note_need(in_use).max(in_use.saturating_add(request.size));
        let held = device.held().saturating_add(missing.unwrap_or(request.size));
        held <= most + most / SLACK && !device.rejects_more(device.exact_need(arena, request))
    }

    /// Serves a request from a new view, taking what memory is missing.
    fn show(
        &self,
        device: &Device,
        arena: &Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let _memory = device.slow_path.begin();
        let (Some(mut granule), Some(finest)) =
            (self.granule(device, arena, request.tier, request.size), finest(device))
        else {
            // There is no virtual memory.
            return device.grow(arena, request, Purpose::Serve, is_retry, call);
        };
        // A smaller free end is not worth a mapping, unless the request would be refused.
        let mut least = granule.usual / LEAST_END;
        let mut refused = u64::MAX;
        if !is_tight(device)
            && call_home::call_home(device, arena, request.size, call)
            && let Some(ptr) = device.search(arena, request, false, call)
        {
            return Ok(Some(ptr));
        }
        for _ in 0..TRIES {
            let (plan, taken) = plan(arena, request.size, finest, least);
            if plan.missing == 0 {
                return taken.map_or(Ok(None), |taken| self.map(device, arena, request, plan, taken, call));
            }
            let bytes = granule.round(plan.missing, finest);
            if bytes >= refused {
                return Ok(None);
            }
            let Some(came) = self.fetch(device, arena, (plan.missing, finest), call) else {
                return Ok(None);
            };
            if came > 0 {
                // It may lie side by side with what was free.
                if let Some(ptr) = device.search(arena, request, false, call) {
                    return Ok(Some(ptr));
                }
                continue;
            }
            if self.is_as_good_at_home(device, arena, request, granule, plan.missing)
                && let Some(ptr) = device.grow(arena, request, Purpose::Serve, is_retry, call)?
            {
                return Ok(Some(ptr));
            }
            let stock = Request { size: bytes, segment_bytes: bytes, ..*request };
            // Smaller ends of granules, and no more than is missing, may do.
            let rejected = least > 1 && device.rejects_more(bytes);
            if rejected || device.grow(arena, &stock, Purpose::Stock(granule), is_retry, call)?.is_none() {
                // There may be enough for what is missing, and not for whole granules of the usual size. Only the smallest are rejected.
                refused = if rejected { u64::MAX } else { bytes };
                (granule, least) = (GranuleSizes::even(finest), 1);
            } else if let Some(ptr) = device.search(arena, request, false, call) {
                // The new memory does by itself, with what is free beside it.
                return Ok(Some(ptr));
            }
        }
        Ok(None)
    }

    /// True if growth takes hardly more memory than a view, where the device has room: a view costs driver calls,
    /// and then lasts no longer than what it shows.
    fn is_as_good_at_home(
        &self,
        device: &Device,
        arena: &Arena,
        request: &Request,
        granule: GranuleSizes,
        for_view: u64,
    ) -> bool {
        if is_tight(device) {
            return false;
        }
        let at_home = arena.lock().heap().missing_memory(request.tier, request.size, Some(granule));
        let hardly_more = self.most_needed.load(Ordering::Relaxed) / HARDLY_MORE;
        at_home.is_some_and(|bytes| bytes <= for_view + hardly_more)
            && !device.rejects_more(device.exact_need(arena, request))
    }

    /// Lets free memory of other streams come here, up to `missing` bytes. Returns how many came; `None` where the driver maps no
    /// memory in two places.
    fn fetch(
        &self,
        device: &Device,
        arena: &Arena,
        (missing, finest): (u64, u64),
        call: &Call<'_>,
    ) -> Option<u64> {
        // A request that the whole device could not serve takes nothing from other streams.
        if device.arenas.in_use().saturating_add(missing) > device.driver.total_memory() {
            return Some(0);
        }
        let came = donors::hand_over(device, arena, (missing, finest), call);
        if came.is_none() {
            self.refused.store(true, Ordering::Relaxed);
        }
        came
    }

    /// Makes a view, and serves a request from it. `taken` are the home bytes of the request, as busy.
    fn map(
        &self,
        device: &Device,
        arena: &Arena,
        request: &Request,
        plan: Plan,
        taken: Blocks,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let Plan { granules, skip, .. } = plan;
        let mut home = Home { arena, taken };
        device.bound_views(arena, call);
        let mapped = device.map_again(arena, &granules, request, call, |state, segment| {
            let taken = std::mem::take(&mut home.taken);
            views::add_view(state.granule_mut(), segment, granules.clone(), (skip, request.size), taken)
        });
        match mapped? {
            Mapped::Served(ptr) => Ok(Some(ptr)),
            Mapped::Refused => Ok(None),
            Mapped::Unsupported => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(None)
            }
        }
    }
}

/// The home bytes of a request, as busy, while a view is made for it. What is not shown in the end is free again, also where
/// code of the program panics meanwhile.
struct Home<'a> {
    arena: &'a Arena,
    taken: Blocks,
}

impl Drop for Home<'_> {
    fn drop(&mut self) {
        if !self.taken.is_empty() {
            views::give_home_back(
                self.arena.lock().granule_mut().heap_mut(),
                std::mem::take(&mut self.taken),
            );
        }
    }
}
