//! Aliases that are unmapped: what views map and no block uses, and granules whose memory serves another stream.
//!
//! Memory leaves the device once no alias of it is left. Who needs that, or finds that aliases are too many, comes here.

use super::Device;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::granule::{Granule, SlotState};
use crate::arena::{ArenaOf, ArenaState, Heap};
use crate::backend::VirtualMemory;
use crate::device::space::side_by_side;
use crate::device::{frees, space};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{Block, BlockId, BlockPhase, SegmentId};
use crate::memory::region::{HandedOver, Place};
use crate::memory::segment::Segment;
use crate::process::callbacks::CallbackScope;
use crate::sync::assert_unlocked;
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::observers::SegmentChange;
use std::ops::Range;

/// Aliases map at most this many times what the device holds: those in the views of an arena, and those that are granules.
const MOST: u64 = 4;

/// Aliases to unmap.
#[derive(Clone, Copy, Debug)]
enum Which {
    /// Those in views, in which no block lives, until they come to so many bytes: first of views that served nobody for the
    /// longest.
    OfViews(u64),
    /// Granules whose memory serves another stream, and that no view shows.
    Granules,
}

/// Adjacent aliases that are about to go, and up to when the device may be using them.
#[derive(Debug)]
struct LeavingAliases {
    addr: u64,
    bytes: u64,
    epoch: u64,
    of: Of,
}

/// View, or granule.
#[derive(Debug)]
enum Of {
    /// Slots of a view, from which nothing is served any more.
    View(SegmentId, Range<usize>),
    /// A busy granule.
    Granule(Place),
}

impl Device {
    /// Memory of an arena is about to leave: its aliases go first, in the arena and where it served other streams. Blocks,
    /// unless a capture forbids it; then what the device may be using stays.
    pub(super) fn unmap_aliases(&self, arena: &Arena, call: &Call<'_>) -> Result<()> {
        if self.granule.is_none() {
            return Ok(());
        }
        let mut outcome = unmap(self, arena, Which::OfViews(u64::MAX), false, call);
        if self.accounting.lock().regions().alias_bytes() > 0 {
            for other in neighbours(self, arena) {
                for which in [Which::OfViews(u64::MAX), Which::Granules] {
                    outcome = outcome.and(unmap(self, other, which, call.capturing, call));
                }
            }
        }
        outcome
    }

    /// Keeps the views of an arena within a multiple of what the device holds. A program whose sizes never repeat would map
    /// for ever, and search all of it.
    pub(super) fn bound_views(&self, arena: &Arena, call: &Call<'_>) {
        let most = self.held().saturating_mul(MOST);
        let beyond = || arena.lock().granule().heap().known().shown_bytes().saturating_sub(most);
        // Enough that it is not done for every view. To wait is for where the device never was seen to be done with any of it.
        let enough = |beyond: u64| Which::OfViews(beyond + most / MOST);
        for only_past in [true, false] {
            let beyond = beyond();
            if beyond == 0 || !(only_past || self.may_wait(arena, call)) {
                return;
            }
            self.try_to_unmap(arena, enough(beyond), only_past, call);
        }
    }

    /// Keeps granules whose memory serves other streams within the same multiple, where `to` has just got some.
    pub(super) fn bound_granules(&self, to: &Arena, call: &Call<'_>) {
        let aliases = self.accounting.lock().regions().alias_bytes();
        if aliases > self.held().saturating_mul(MOST) {
            for arena in neighbours(self, to) {
                self.try_to_unmap(arena, Which::Granules, true, call);
            }
        }
    }

    /// Unmaps what a request does not depend on.
    fn try_to_unmap(&self, arena: &Arena, which: Which, only_past: bool, call: &Call<'_>) {
        if let Err(error) = unmap(self, arena, which, only_past, call) {
            self.driver.backend().clear_error();
            tracing::warn!(%error, "more is mapped twice than should be; it is tried again with the next request");
        }
    }
}

/// The default pool's other arenas; none for that of a private pool.
fn neighbours<'a>(device: &'a Device, arena: &'a Arena) -> Vec<&'a Arena> {
    if arena.lock().binding().slot() != PoolSlot::DEFAULT {
        return Vec::new();
    }
    let all = device.arenas.directory().of_pool(PoolSlot::DEFAULT).into_iter().map(|other| &**other);
    all.filter(|other| !std::ptr::eq(*other, arena)).collect()
}

/// Unmaps aliases once the device is done with them; with `only_past`, those only with which it is known to be done. Blocks,
/// unless a capture forbids it or with `only_past`. Calls the driver.
fn unmap(device: &Device, arena: &Arena, which: Which, only_past: bool, call: &Call<'_>) -> Result<()> {
    let Ok(vm) = device.driver.backend().virtual_memory() else { return Ok(()) };
    let _memory = device.slow_path.begin();
    let (leaving, owner) = {
        let mut state = arena.lock();
        let leaving = match which {
            Which::OfViews(enough) => begin_in_views(state.granule_mut(), enough, only_past),
            Which::Granules => begin_granules(device, &mut state, only_past),
        };
        (leaving, state.binding().maps_for())
    };
    let Some(newest) = leaving.iter().map(|leaving| leaving.epoch).max() else { return Ok(()) };
    let calls = device.driver.calls();
    let quiet = frees::quiesce_up_to(device, arena, newest, call);
    let mut outcome = quiet.as_ref().map(drop).map_err(Clone::clone);
    for leaving in leaving {
        let is_past = matches!(quiet, Ok(true)) || arena.lock().is_past(leaving.epoch);
        let unmapped = is_past && unmap_one(device, &leaving, owner, vm, &calls);
        outcome = outcome.and(commit(device, arena, leaving, unmapped, vm));
    }
    if let Which::OfViews(_) = which {
        let empty = take_empty(arena.lock().granule_mut().heap_mut());
        space::release_addresses(device, empty);
    }
    outcome
}

/// Takes slots out of views in which no block lives. Nothing is served from there any more.
fn begin_in_views(arena: &mut ArenaOf<Granule>, enough: u64, only_past: bool) -> Vec<LeavingAliases> {
    let heap = arena.heap();
    let mut all: Vec<LeavingAliases> = Vec::new();
    let mut order: Vec<_> = (0..heap.known().views().len()).collect();
    order.sort_unstable_by_key(|view| heap.known().views()[*view].used);
    let mut left = enough;
    for view in order {
        let heap = arena.heap();
        if left == 0 {
            break;
        }
        let segment = heap.known().views()[view].segment;
        let may_leave =
            |block: &Block| block.state == BlockPhase::Alias && (!only_past || arena.is_past(block.epoch));
        let unused = heap.layout().of_segment(segment).filter(|(_, block)| may_leave(block));
        let unused: Vec<_> = unused.map(|(_, block)| (block.addr, block.end(), block.epoch)).collect();
        let base = heap.layout().segments()[segment].base;
        let first = all.len();
        for (number, (addr, slot)) in heap.known().views()[view].places(base).enumerate() {
            let bytes = slot.shown.bytes;
            let around = unused.iter().find(|(from, to, _)| *from <= addr && addr + bytes <= *to);
            let Some(&(.., epoch)) = around.filter(|_| slot.state == SlotState::Mapped) else { continue };
            left = left.saturating_sub(bytes);
            match all[first..].last_mut() {
                Some(LeavingAliases { bytes: before, epoch: newest, of: Of::View(_, slots), .. })
                    if slots.end == number =>
                {
                    slots.end += 1;
                    *before += bytes;
                    *newest = epoch.max(*newest);
                }
                _ => {
                    all.push(LeavingAliases { addr, bytes, epoch, of: Of::View(segment, number..number + 1) })
                }
            }
        }
        for leaving in &all[first..] {
            if let Of::View(_, slots) = &leaving.of {
                arena.heap_mut().known_mut().begin_leaving(view, slots.clone());
            }
        }
    }
    all
}

/// Takes granules out, as busy, whose memory serves another stream.
fn begin_granules(device: &Device, state: &mut ArenaState, only_past: bool) -> Vec<LeavingAliases> {
    let mut accounting = device.accounting.lock();
    let number = state.binding().number();
    let may_leave = |HandedOver { alias, .. }: &HandedOver| {
        let block = &state.layout().blocks()[alias.block];
        block.state == BlockPhase::Alias
            && !accounting.regions().is_shown(*alias)
            && (!only_past || state.is_past(block.epoch))
    };
    let leaving: Vec<_> = accounting.regions().aliases_of(number).into_iter().filter(may_leave).collect();
    let begin = |HandedOver { alias, .. }: HandedOver| {
        let block = &mut state.heap_mut().layout_mut().blocks_mut()[alias.block];
        block.state = BlockPhase::Busy;
        accounting.regions_mut().begin(alias.region, block.addr..block.end());
        LeavingAliases { addr: block.addr, bytes: block.size, epoch: block.epoch, of: Of::Granule(alias) }
    };
    leaving.into_iter().map(begin).collect()
}

/// Unmaps adjacent aliases. Returns whether the driver did.
fn unmap_one(
    device: &Device,
    leaving: &LeavingAliases,
    owner: (PoolId, Stream),
    vm: &dyn VirtualMemory,
    calls: &CallbackScope<'_>,
) -> bool {
    let (at, bytes) = (DevicePtr(leaving.addr), leaving.bytes);
    device.tell_growable(SegmentChange::Detaching, owner, at, bytes, calls);
    assert_unlocked();
    // SAFETY: rule 3: adjacent mappings, which this thread has taken out: no block lives there, and their last use is past.
    let outcome = unsafe { vm.unmap(at, bytes) };
    if let Err(error) = &outcome {
        device.driver.backend().clear_error();
        tracing::error!(%error, %at, bytes, "memory that is mapped twice could not be unmapped; it stays");
        device.tell_growable(SegmentChange::Attached, owner, at, bytes, calls);
    }
    outcome.is_ok()
}

/// Aliases are address space without memory, or what they were before.
fn commit(
    device: &Device,
    arena: &Arena,
    leaving: LeavingAliases,
    unmapped: bool,
    vm: &dyn VirtualMemory,
) -> Result<()> {
    let LeavingAliases { addr, bytes, of, .. } = leaving;
    let mut state = arena.lock();
    let mut accounting = device.accounting.lock();
    accounting.counters_mut().device_free += i64::from(unmapped);
    let regions = accounting.regions_mut();
    match of {
        Of::View(view, slots) => {
            let memory = state.granule_mut().heap_mut().known_mut();
            let ended = memory.end_leaving(view, slots, unmapped);
            for (at, shown) in side_by_side(addr, &ended).filter(|_| unmapped) {
                regions.remove_slot(state.place(shown.segment, shown.addr), at);
            }
        }
        Of::Granule(place) if unmapped => {
            regions.remove_alias(place);
            drop(accounting);
            let empty = state.heap_mut().commit_evict(place.block, bytes);
            drop(state);
            if let Some((segment, block)) = empty {
                return space::remove_region(device, arena, segment, block, place.region, vm);
            }
        }
        Of::Granule(place) => {
            regions.keep_alias(place);
            state.heap_mut().layout_mut().blocks_mut()[place.block].state = BlockPhase::Alias;
        }
    }
    Ok(())
}

/// Takes the views out that are nothing but addresses.
fn take_empty(heap: &mut Heap<Granule>) -> Vec<Segment> {
    let first = |segment: SegmentId| heap.layout().segments()[segment].first;
    let is_unused = |id: BlockId| {
        let block = &heap.layout().blocks()[id];
        block.state == BlockPhase::Alias && !block.is_split()
    };
    let gone = heap.known().views().iter().filter(|view| {
        is_unused(first(view.segment)) && view.slots.iter().all(|slot| slot.state == SlotState::Gone)
    });
    let empty: Vec<_> = gone.map(|view| (view.segment, first(view.segment))).collect();
    heap.known_mut().forget_views(&empty);
    empty.into_iter().filter_map(|(segment, block)| heap.remove_segment(segment, block)).collect()
}
