//! A device's address space: growable segments that come and go, mappings in them, in a second place or for another
//! stream, and leftovers that the driver refused to undo.

use super::Device;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::granule::Shown;
use crate::arena::{ArenaState, Bed};
use crate::backend::{BackendError, ErrorKind, HandleType, VirtualMemory};
use crate::base::round::MIN_BLOCK;
use crate::error::Result;
use crate::memory::address_map::AddressMap;
use crate::memory::aliases;
use crate::memory::backup::{Saved, refused};
use crate::memory::block::{BlockId, BlockPhase};
use crate::memory::region::{self, Backing, Leftovers, Mapping, RegionId, Source, bytes_of};
use crate::memory::segment::{Origin, Segment};
use crate::policy::{GranuleSizes, Holding, Request};
use crate::sync::plain::{AtomicBool, AtomicU64};
use crate::sync::{Mutex, Rank, assert_unlocked};
use crate::types::{DevicePtr, PhysicalHandle};
use std::sync::atomic::Ordering;

/// True if the address map can hold every block of a new range.
pub(super) fn can_serve(base: DevicePtr, bytes: u64) -> bool {
    let last = base.0.checked_add(bytes).map(|end| DevicePtr(end - MIN_BLOCK));
    !base.is_null() && AddressMap::can_hold(base) && last.is_some_and(AddressMap::can_hold)
}

/// Granules that one request may take: a request for more is larger than any device, and would fill tables of the host.
const MOST_GRANULES: u64 = 1 << 20;
/// Regions of a device that may have huge pages in the address map at a time. With more of them, each may hold little.
const ROOMY: u32 = 64;

/// Outcome of mapping granules in a second place, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    /// They are, and a request was served from there.
    Served(DevicePtr),
    /// There are no addresses for them, or no memory of the driver's own.
    Refused,
    /// The driver maps no memory in two places.
    Unsupported,
}

/// Granules that are mapped side by side from `base` on, and where.
pub(super) fn side_by_side(base: u64, granules: &[Shown]) -> impl Iterator<Item = (u64, &Shown)> {
    granules.iter().scan(base, |at, granule| {
        let here = *at;
        *at += granule.bytes;
        Some((here, granule))
    })
}

/// State of a device's reservations of addresses.
pub(super) struct Addresses {
    /// Held while leftovers are tried again.
    retrying: Mutex<()>,
    /// Most bytes of addresses at a time, where the driver refused more.
    largest: AtomicU64,
    /// Set while the last reservation was refused.
    refused: AtomicBool,
    /// Addresses were given back since: a larger reservation may succeed.
    came_back: AtomicBool,
    /// True if memory can be mapped in two places; `None` until that was tried. Held during the trial.
    aliases: Mutex<Option<bool>>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            retrying: Mutex::new(Rank::Synchronisation, ()),
            largest: AtomicU64::new(u64::MAX),
            refused: AtomicBool::new(false),
            came_back: AtomicBool::new(false),
            aliases: Mutex::new(Rank::Synchronisation, None),
        }
    }
}

/// Tries if memory can be mapped in two places; `None` where nothing was learned. Not legal beside a capture. Blocks
/// for some milliseconds. Calls the driver.
pub(in crate::device) fn prove_aliases(device: &Device) -> Option<bool> {
    let (backend, index) = (&**device.driver.backend(), device.index());
    let vm = backend.virtual_memory().ok()?;
    // One thread at a time: the answer holds for all, and less memory is in flight.
    let mut answer = device.addresses.aliases.lock();
    if answer.is_some() {
        return *answer;
    }
    let mut left = Leftovers::default();
    let tried = aliases::prove(backend, vm, index, &mut left);
    device.accounting.lock().regions_mut().keep(left);
    *answer = tried.as_ref().ok().map(Option::is_none);
    let agree = *answer;
    drop(answer);
    match tried {
        Ok(None) => {}
        Ok(Some(dropped)) => tracing::warn!(device = %index, "{dropped}"),
        Err(error) => tracing::debug!(%error, device = %index, "memory in two places is tried again later"),
    }
    agree
}

/// The physical memory of granules.
pub(in crate::device) fn handles(
    device: &Device,
    state: &ArenaState,
    granules: &[Shown],
) -> Vec<PhysicalHandle> {
    let accounting = device.accounting.lock();
    let handle = |granule: &Shown| {
        let place = state.place(granule.segment, granule.addr);
        accounting.regions().handle(place.region, place.addr)
    };
    let handles: Vec<_> = granules.iter().filter_map(handle).collect();
    debug_assert_eq!(handles.len(), granules.len(), "what is free has memory");
    handles
}

/// Maps granules side by side; returns the address. Calls the driver.
pub(in crate::device) fn map_side_by_side(
    device: &Device,
    granules: &[Shown],
    handles: &[PhysicalHandle],
    vm: &dyn VirtualMemory,
) -> std::result::Result<DevicePtr, Mapped> {
    assert_unlocked();
    let bytes = granules.iter().map(|granule| granule.bytes).sum();
    let base = match vm.reserve_address(device.driver.device(), bytes, 0, DevicePtr::NULL) {
        Ok(base) => base,
        Err(error) => {
            device.driver.backend().clear_error();
            tracing::warn!(%error, bytes, "no address space for a view of free memory");
            return Err(Mapped::Refused);
        }
    };
    let place = |((addr, shown), handle): ((u64, &Shown), &PhysicalHandle)| Mapping {
        addr,
        bytes: shown.bytes,
        handle: *handle,
    };
    let memory: Vec<_> = side_by_side(base.0, granules).zip(handles).map(place).collect();
    let attempt = can_serve(base, bytes).then(|| {
        // SAFETY: rule 1: the handles are those of granules of these sizes, part of which this thread has taken out, so that
        // they stay. The range lies in the reservation made above, where nothing is mapped yet.
        unsafe { region::map(&**device.driver.backend(), vm, &memory, &device.accounting.users()) }
    });
    let (mut refused, mut mapped) = (Mapped::Refused, 0);
    match attempt {
        Some(Ok(())) => return Ok(base),
        None => {}
        Some(Err((error, granules))) => {
            mapped = bytes_of(&memory[..granules]);
            if error.is_passing() {
                tracing::info!(%error, "free memory could not be shown in one piece");
            } else {
                tracing::warn!(%error, "this device maps no memory twice; fragmentation is not undone on it");
                refused = Mapped::Unsupported;
            }
        }
    }
    give_mappings_back(device, base, bytes, mapped, vm);
    Err(refused)
}

/// Gives back the addresses of segments in which nothing is mapped.
pub(in crate::device) fn release_addresses(device: &Device, segments: Vec<Segment>) {
    let Ok(vm) = device.driver.backend().virtual_memory() else { return };
    for segment in segments {
        let (base, bytes) = (DevicePtr(segment.base), segment.bytes);
        device.driver.callbacks().end([segment]);
        // SAFETY: rule 3: one whole reservation, with nothing mapped in it.
        if let Err(error) = unsafe { vm.release_address(base, bytes) } {
            device.driver.backend().clear_error();
            tracing::error!(%error, %base, "addresses could not be given back; it is tried again later");
            let mut left = Leftovers::default();
            left.keep_view(base, bytes, 0);
            device.accounting.lock().regions_mut().keep(left);
        }
    }
}

/// True if a request takes more granules than any device has.
pub(in crate::device) fn is_beyond_reach(
    device: &Device,
    arena: &Arena,
    request: &Request,
    of: Option<GranuleSizes>,
    vm: &dyn VirtualMemory,
) -> Result<bool> {
    let unit = device.driver.ask_granule(vm)?;
    let usual = || arena.lock().binding().policy().granule(request.tier, unit, &Holding::default());
    Ok(request.size / of.unwrap_or_else(usual).usual > MOST_GRANULES)
}

/// Reserves address space for a new growable segment; `false` where it would be too small for the
/// request.
pub(in crate::device) fn add_region(
    device: &Device,
    arena: &Arena,
    request: &Request,
    of: Option<GranuleSizes>,
    vm: &dyn VirtualMemory,
) -> Result<bool> {
    assert_unlocked();
    let minimum = device.driver.ask_granule(vm)?;
    let (unit, bytes, alignment) = {
        let mut state = arena.lock();
        let granule = sizes_for(&mut state, request, of, minimum).usual;
        let class =
            device.accounting.lock().class_reserve(state.binding().stream(), device.driver.total_memory());
        let policy = state.binding().policy();
        let reserve = class.unwrap_or_else(|| policy.reserve(device.driver.total_memory(), granule));
        let (reserve, alignment) = policy.reservation(reserve, request.size);
        (policy.unit(granule, minimum), reserve.next_multiple_of(granule), alignment)
    };
    if bytes < request.size {
        return Ok(false);
    }
    let least = request.size.next_multiple_of(unit);
    let Some((base, bytes)) = reserve_up_to(device, bytes, least, unit, alignment, vm)? else {
        return Ok(false);
    };
    let mut state = arena.lock();
    let (region, registration) = {
        let mut accounting = device.accounting.lock();
        (accounting.regions_mut().add(base, bytes, unit), accounting.register())
    };
    let origin = Origin::Growable { region, unit };
    let segment = Segment::new(base, bytes, registration, request.tier, origin);
    let (_, block) = state.heap_mut().add_segment(segment, BlockPhase::Busy);
    state.heap_mut().insert_unmapped(block);
    drop(state);
    if region.0 < ROOMY {
        device.driver.map().expect(base.0..base.0 + bytes);
    }
    Ok(true)
}

/// Granules of a new growable segment for a request: `of` these sizes, or of the arena's choice in units of `minimum`
/// where that is `None`. Explicit sizes hold, whatever the settings have become since.
pub(in crate::device) fn sizes_for(
    state: &mut ArenaState,
    request: &Request,
    of: Option<GranuleSizes>,
    minimum: u64,
) -> GranuleSizes {
    if let Some(of) = of {
        return of;
    }
    state.next_granule(request.tier, minimum, request.size)
}

/// Properties of new granules.
pub(in crate::device) fn backing(device: &Device, source: &Source) -> Backing {
    Backing {
        device: device.driver.device(),
        handle_type: handle_type(device),
        access: device.accounting.users(),
        source: source.clone(),
    }
}

pub(in crate::device) fn remove_region(
    device: &Device,
    arena: &Arena,
    segment: crate::memory::block::SegmentId,
    block: BlockId,
    region: RegionId,
    vm: &dyn VirtualMemory,
) -> Result<()> {
    let (base, bytes) = {
        let mut state = arena.lock();
        let (base, bytes) =
            (state.layout().segments()[segment].base, state.layout().segments()[segment].bytes);
        if device.accounting.lock().regions().has_leftovers_in(base, bytes) {
            // Kept until the leftovers are gone, which every flush tries.
            state.heap_mut().insert_unmapped(block);
            return Ok(());
        }
        (base, bytes)
    };
    assert_unlocked();
    // SAFETY: rule 3: one whole reservation; its one block is busy and unmapped, and nothing is left over in it.
    let released = unsafe { vm.release_address(DevicePtr(base), bytes) };
    let mut state = arena.lock();
    if let Err(error) = released {
        state.heap_mut().insert_unmapped(block);
        return Err(error.into());
    }
    let segment = state.heap_mut().remove_segment(segment, block);
    device.accounting.lock().regions_mut().remove(region);
    drop(state);
    device.addresses.came_back.store(true, Ordering::Relaxed);
    device.driver.callbacks().end(segment);
    Ok(())
}

/// Tries leftovers again that the driver, or a pool's source, refused to undo.
pub(in crate::device) fn retry_leftovers(device: &Device) {
    refused::retry(&**device.driver.backend());
    let Ok(vm) = device.driver.backend().virtual_memory() else { return };
    let calls = device.driver.calls();
    let (_memory, callbacks) = {
        // One thread at a time: a thread that grows next to a retry waits for it, or it would find the places taken.
        let _alone = device.addresses.retrying.lock();
        let leftovers = device.accounting.lock().regions_mut().take_leftovers();
        if leftovers.is_empty() {
            return;
        }
        let memory = device.slow_path.begin();
        let (left, callbacks) = leftovers.retry(vm, &calls);
        device.accounting.lock().regions_mut().keep(left);
        (memory, callbacks)
    };
    // Foreign code is called with no lock held.
    let left = callbacks.release(vm, &calls);
    device.accounting.lock().regions_mut().keep(left);
}

/// See [`Exchange::handle_type`].
pub(in crate::device) fn handle_type(device: &Device) -> HandleType {
    device.exchange.handle_type(|| device.accounting.lock().settings().segments_ipc)
}

/// Forgets free memory that sleeps: it need not be woken. Returns the bytes, and the driver's answer where that left
/// empty address space.
pub(in crate::device) fn drop_free_asleep(
    device: &Device,
    arena: &Arena,
    slot: PoolSlot,
    vm: &dyn VirtualMemory,
) -> (u64, Result<()>) {
    let mut bytes = 0;
    let mut empty = Vec::new();
    let mut forgotten: Vec<Saved> = Vec::new();
    {
        let mut state = arena.lock();
        if state.binding().slot() != slot || !state.layout().has_sleepers() {
            return (0, Ok(()));
        }
        for (segment, region_id) in state.layout().growable() {
            let mut accounting = device.accounting.lock();
            let Some(region) = accounting.regions().get(region_id) else { continue };
            let (ranges, whole) = Bed::of(state.heap_mut(), segment).drop_free_asleep(region);
            for range in ranges {
                bytes += range.end - range.start;
                forgotten.extend(accounting.regions_mut().forget_saved(region_id, range.clone()));
                accounting.regions_mut().commit_vacant(region_id, range);
            }
            empty.extend(whole.map(|block| (segment, block, region_id)));
        }
    }
    drop(forgotten);
    let mut outcome = Ok(());
    for (segment, block, region) in empty {
        outcome = outcome.and(remove_region(device, arena, segment, block, region, vm));
    }
    (bytes, outcome)
}

/// Takes away the first `mapped` bytes of unused mappings, and their addresses. Leftovers are kept where the driver
/// refuses.
fn give_mappings_back(device: &Device, base: DevicePtr, bytes: u64, mapped: u64, vm: &dyn VirtualMemory) {
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
    device.accounting.lock().regions_mut().keep(left);
}

/// Address space for a growable segment: `bytes`, or half of it and so on down to `least` where the driver
/// refuses that even after remedies gave regions back. Some boards have less address space than memory. `None` where
/// there is none.
fn reserve_up_to(
    device: &Device,
    bytes: u64,
    least: u64,
    unit: u64,
    alignment: u64,
    vm: &dyn VirtualMemory,
) -> Result<Option<(DevicePtr, u64)>> {
    // The noted size may be no multiple of this unit: it was another tier's.
    let whole = |most: u64| bytes.min(most - most % unit).max(least);
    let known = device.addresses.largest.load(Ordering::Relaxed);
    let more = whole(known.saturating_mul(2));
    if device.addresses.came_back.swap(false, Ordering::Relaxed)
        && more > whole(known)
        && let Some(base) = reserve(device, more, alignment, vm)?
    {
        device.addresses.largest.store(if more < bytes { more } else { u64::MAX }, Ordering::Relaxed);
        return Ok(Some((base, more)));
    }
    let mut wanted = whole(known);
    loop {
        if let Some(base) = reserve(device, wanted, alignment, vm)? {
            device.addresses.refused.store(false, Ordering::Relaxed);
            if wanted < bytes && device.addresses.largest.fetch_min(wanted, Ordering::Relaxed) == u64::MAX {
                let device = device.driver.device();
                tracing::warn!(
                    %device,
                    "reservation of a whole device's addresses was refused, so growable segments get {wanted} bytes, not {bytes}"
                );
            }
            return Ok(Some((base, wanted)));
        }
        let again = device.addresses.refused.swap(wanted > least, Ordering::Relaxed);
        if !again || wanted <= least {
            return Ok(None);
        }
        wanted = (wanted / 2).next_multiple_of(unit).max(least);
    }
}

/// Address space for a growable segment. `None` where there is none.
fn reserve(device: &Device, bytes: u64, alignment: u64, vm: &dyn VirtualMemory) -> Result<Option<DevicePtr>> {
    let index = device.driver.device();
    let base = match vm.reserve_address(index, bytes, alignment, DevicePtr::NULL) {
        Ok(base) => base,
        // Remedies give whole regions back, so a lack of addresses is no end.
        Err(error) if matches!(error.kind, ErrorKind::OutOfMemory | ErrorKind::ResourceLimit) => {
            device.driver.backend().clear_error();
            tracing::debug!(%error, bytes, "no address space for another growable segment");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    if can_serve(base, bytes) {
        return Ok(Some(base));
    }
    // SAFETY: rule 3: reserved just now, nothing mapped.
    let _ = unsafe { vm.release_address(base, bytes) };
    let detail = format!("the driver reserved {bytes} bytes at {base}, beyond 57 bits of address");
    Err(BackendError::new(ErrorKind::Other, 0, "reserve address", index, detail).into())
}
