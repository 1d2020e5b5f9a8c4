//! Memory of one stream for another: granules stay mapped where they served, *away*, so that they come back without a driver
//! call.

use super::Device;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaState, Growth};
use crate::backend::{Access, BackendError, VirtualMemory};
use crate::device::space;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{Block, BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::region::{Leftovers, Mapping, Place, bytes_of};
use crate::memory::segment::Origin;
use crate::policy::{Grain, Request, Sizes};
use crate::sync::assert_unlocked;
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;

/// A granule of an arena whose memory serves another one at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Away {
    pub(super) segment: SegmentId,
    pub(super) addr: u64,
    /// Where it serves: the arena's number, the segment there, and the address.
    pub(super) home: (u16, SegmentId, u64),
}

/// How often address space is made for the same granules, where other threads take it.
const TRIES: usize = 8;

/// A busy granule on its way to another arena.
#[derive(Clone, Copy, Debug)]
struct Moving {
    place: Place,
    memory: Mapping,
}

/// Memory on its way from one arena to another.
struct Trip<'a> {
    from: &'a Arena,
    to: &'a Arena,
    /// That of `to`.
    number: u16,
    call: &'a Call<'a>,
}

fn move_all(device: &Device, trip: &Trip<'_>, parts: &[BlockId]) -> Option<u64> {
    let is_known = |moving: &Moving| known(device, moving, trip.number).is_some();
    let (known, new): (Vec<_>, Vec<_>) = moving(device, trip.from, parts).into_iter().partition(is_known);
    let mut came = 0;
    for moving in known {
        came += bring_back(device, trip, moving);
    }
    let mut refused = false;
    match map(device, trip, &new) {
        Some(bytes) => came += bytes,
        None => refused = true,
    }
    (came > 0 || !refused).then_some(came)
}

/// Changes two arenas in one step.
fn with_both<R>(
    device: &Device,
    trip: &Trip<'_>,
    change: impl FnOnce(&mut ArenaState, &mut ArenaState) -> R,
) -> R {
    let Trip { from, to, number, call, .. } = *trip;
    let before = from.lock().tenure().number();
    let (mut from, mut to) = if before < number {
        let from = from.lock();
        (from, to.lock())
    } else {
        let to = to.lock();
        (from.lock(), to)
    };
    for state in [&mut from, &mut to] {
        state.ledger_mut().history_mut().begin_call(call.context());
    }
    let changed = change(&mut from, &mut to);
    let contexts = [&mut from, &mut to].map(|state| state.ledger_mut().history_mut().end_call());
    drop((from, to));
    device.site.foreign().end(contexts.into_iter().flatten());
    changed
}

fn moving(device: &Device, arena: &Arena, parts: &[BlockId]) -> Vec<Moving> {
    let state = arena.lock();
    let arena = state.tenure().number();
    let holdings = device.holdings.lock();
    let moving = |block: &BlockId| {
        let Block { addr, size: bytes, segment, .. } = state.layout().blocks()[*block];
        let Origin::Growable { region, .. } = state.layout().segments()[segment].origin else {
            return None;
        };
        let memory = Mapping { addr, bytes, handle: holdings.regions().handle(region, addr)? };
        let place = Place { arena, segment, region, addr, block: *block };
        Some(Moving { place, memory })
    };
    parts.iter().filter_map(moving).collect()
}

/// Where a granule is mapped in the arena with a number.
fn known(device: &Device, moving: &Moving, number: u16) -> Option<Place> {
    let Place { region, addr, .. } = moving.place;
    device.holdings.lock().regions().place_in(number, region, addr)
}

/// A granule serves again where it served before. Returns its bytes.
fn bring_back(device: &Device, trip: &Trip<'_>, moving: Moving) -> u64 {
    with_both(device, trip, |from, to| {
        let known = {
            let mut holdings = device.holdings.lock();
            let regions = holdings.regions_mut();
            let Place { region, addr, .. } = moving.place;
            // Not where it is being unmapped, because memory has to leave.
            let is_away = |known: &Place| to.layout().blocks()[known.block].state == BlockPhase::Away;
            let known = regions.place_in(trip.number, region, addr).filter(is_away);
            if let Some(known) = known {
                regions.send_away(moving.place, known);
            }
            known
        };
        let Some(known) = known else {
            from.heap_mut().return_free(moving.place.block);
            return 0;
        };
        send_away(moving.place.block, from);
        to.note_change(Action::SegmentMap, known.block);
        to.heap_mut().return_free(known.block);
        moving.memory.bytes
    })
}

/// Maps granules side by side where another arena has address space. Returns how many bytes came; `None` where the
/// driver maps no memory in two places.
fn map(device: &Device, trip: &Trip<'_>, run: &[Moving]) -> Option<u64> {
    let Trip { from, to, .. } = *trip;
    let vm = device.site.backend().virtual_memory();
    if run.is_empty() {
        return Some(0);
    }
    let sizes: Sizes = run.iter().map(|moving| moving.memory.bytes).collect();
    let bytes = sizes.iter().sum();
    let planned = vm.map(|vm| plan(device, to, &sizes, vm).map(|planned| planned.zip(Some(vm))));
    let Ok(Ok(Some(((growth, stream), vm)))) = planned else {
        if let Ok(Err(error)) = planned {
            device.site.backend().clear_error();
            tracing::warn!(%error, "no address space for another stream's memory");
        }
        stay(from, run.iter().map(|moving| moving.place.block));
        return Some(0);
    };
    let calls = device.site.calls();
    let home = home_of(&growth, &to.lock());
    let (addr, region) = (home.addr, home.region);
    device.holdings.lock().regions_mut().begin_backing(region, addr, &sizes);
    let memory = in_a_row(run, addr);
    let mapped = map_each(device, vm, &memory);
    if mapped.is_ok() {
        let owner = (PoolId::DEFAULT, stream);
        device.tell_growable(SegmentChange::Attached, owner, DevicePtr(addr), bytes, &calls);
    }
    commit(device, trip, run, (growth, &memory), home, mapped.is_ok());
    match mapped {
        Ok(()) => Some(bytes),
        // The next remedy may help.
        Err(error) if error.is_passing() => Some(0),
        Err(_) => None,
    }
}

/// Granules serve from `home` on, one after the other, or where they did.
fn commit(
    device: &Device,
    trip: &Trip<'_>,
    run: &[Moving],
    (growth, memory): (Growth, &[Mapping]),
    home: Place,
    is_mapped: bool,
) {
    let bytes = bytes_of(memory);
    with_both(device, trip, |from, to| {
        {
            let mut holdings = device.holdings.lock();
            if is_mapped {
                holdings.regions_mut().commit_backed(home.region, memory);
                for (moving, mapping) in run.iter().zip(memory) {
                    holdings.regions_mut().send_away(moving.place, Place { addr: mapping.addr, ..home });
                }
                holdings.count_moved(memory.len());
            } else {
                holdings.regions_mut().commit_vacant(home.region, home.addr..home.addr + bytes);
            }
        }
        for moving in run {
            match is_mapped {
                true => send_away(moving.place.block, from),
                false => from.heap_mut().return_free(moving.place.block),
            }
        }
        if is_mapped {
            to.ledger_mut().history_mut().record(Action::SegmentMap, home.addr, bytes);
            to.note_context(home.region);
        }
        if let Some(block) = growth.commit(to.heap_mut(), usize::from(is_mapped)) {
            to.heap_mut().insert_free(block);
        }
    });
}

/// Where granules of these sizes come to lie in an arena, which gets address space for them; and its stream. `None` where
/// there are no addresses.
fn plan(
    device: &Device,
    arena: &Arena,
    sizes: &Sizes,
    vm: &dyn VirtualMemory,
) -> Result<Option<(Growth, Stream)>> {
    let bytes = sizes.iter().sum();
    let stock = Request { requested: bytes, size: bytes, tier: Tier::Large, segment_bytes: bytes };
    let largest = sizes.iter().copied().max().unwrap_or(0);
    for _ in 0..TRIES {
        let mut state = arena.lock();
        if let Some(growth) = Growth::stock(state.heap_mut(), Tier::Large, sizes.clone()) {
            return Ok(Some((growth, state.tenure().stream())));
        }
        drop(state);
        if !space::add_region(device, arena, &stock, Some(Grain::even(largest)), vm)? {
            break;
        }
    }
    Ok(None)
}

/// Maps granules in their new places, side by side; nothing stays mapped on an error. Calls the driver.
fn map_each(
    device: &Device,
    vm: &dyn VirtualMemory,
    memory: &[Mapping],
) -> std::result::Result<(), BackendError> {
    assert_unlocked();
    let mut mapped = 0;
    let mut attempt = || {
        for mapping in memory {
            // SAFETY: rule 1: the memory has this size, and stays, because this thread has its granule. The range is
            // `Pending` by this thread, so nothing is mapped there.
            unsafe { vm.map(mapping.at(), mapping.bytes, mapping.handle) }?;
            mapped += 1;
        }
        let Some(first) = memory.first() else { return Ok(()) };
        let users = device.holdings.users();
        // SAFETY: the whole range was mapped just above.
        unsafe { vm.set_access(first.at(), bytes_of(memory), &users, Access::ReadWrite) }
    };
    let outcome = attempt();
    let Err(error) = &outcome else { return outcome };
    device.site.backend().clear_error();
    tracing::warn!(%error, "free memory of another stream could not be mapped for this one");
    let mut left = Leftovers::default();
    for mapping in &memory[..mapped] {
        // SAFETY: rule 3: mapped above, and never handed out.
        if let Err(error) = unsafe { vm.unmap(mapping.at(), mapping.bytes) } {
            tracing::error!(%error, "a granule could not be unmapped; it is tried again later");
            left.keep_mapping(mapping.at(), mapping.bytes);
        }
    }
    device.holdings.lock().regions_mut().keep(left);
    outcome
}

/// Granules that could not move are free where they were.
fn stay(arena: &Arena, blocks: impl IntoIterator<Item = BlockId>) {
    let mut state = arena.lock();
    blocks.into_iter().for_each(|block| state.heap_mut().return_free(block));
}

/// The memory of granules, one after the other from `at` on.
fn in_a_row(run: &[Moving], mut at: u64) -> Vec<Mapping> {
    let place = |moving: &Moving| {
        let mapping = Mapping { addr: at, ..moving.memory };
        at = mapping.end();
        mapping
    };
    run.iter().map(place).collect()
}

/// Where what a growth maps comes to lie.
fn home_of(growth: &Growth, state: &ArenaState) -> Place {
    let addr = growth.maps(state.layout()).first().map_or(0, |map| map.addr);
    let Some((segment, _)) = state.layout().segment_at(addr) else {
        unreachable!("a growth maps addresses of its arena")
    };
    let arena = state.tenure().number();
    Place { arena, segment, region: growth.region, addr, block: BlockId::NONE }
}

/// What the `granule` policy asks of other streams' memory.
/// The default pool's other arenas that have a free large block of at least `bytes`, in every call the same; none for that
/// of a private pool.
pub(in crate::device) fn givers<'a>(
    device: &'a Device,
    arena: &'a Arena,
    bytes: u64,
) -> impl Iterator<Item = &'a Arena> {
    let (number, slot) = {
        let state = arena.lock();
        (state.tenure().number(), state.tenure().slot())
    };
    let givers = (slot == PoolSlot::DEFAULT).then(|| device.arenas.spare(number, bytes));
    givers.into_iter().flatten().map(|giver| &**giver)
}

/// What an arena is called where memory is handed over.
pub(in crate::device) fn number(arena: &Arena) -> u16 {
    arena.lock().tenure().number()
}

/// The granules of an arena whose memory serves others.
pub(in crate::device) fn away_of(device: &Device, arena: &Arena) -> Vec<Away> {
    let number = number(arena);
    let places = device.holdings.lock().regions().away_from(number);
    let away = |(place, home): (Place, Place)| Away {
        segment: place.segment,
        addr: place.addr,
        home: (home.arena, home.segment, home.addr),
    };
    places.into_iter().map(away).collect()
}

/// Whether the granule at `addr`, in a free block, served the arena with this number before, and is mapped there still.
pub(in crate::device) fn is_mapped_in(
    device: &Device,
    state: &ArenaState,
    id: BlockId,
    addr: u64,
    other: u16,
) -> bool {
    let Origin::Growable { region, .. } = state.layout().segment_of(id).origin else { return false };
    device.holdings.lock().regions().place_in(other, region, addr).is_some()
}

/// Hands busy granules, each a block of its own, to another arena, of whose free memory they are part then. They stay mapped
/// where they were. Returns how many bytes came; `None` where the driver maps no memory in two places.
pub(in crate::device) fn hand_over(
    device: &Device,
    from: &Arena,
    to: &Arena,
    parts: &[BlockId],
    call: &Call<'_>,
) -> Option<u64> {
    if parts.is_empty() {
        return Some(0);
    }
    move_all(device, &Trip { from, to, number: number(to), call }, parts)
}

/// A busy granule's memory serves elsewhere from here on.
fn send_away(block: BlockId, state: &mut ArenaState) {
    state.note_change(Action::SegmentUnmap, block);
    let block = &mut state.heap_mut().layout_mut().blocks_mut()[block];
    (block.state, block.requested) = (BlockPhase::Away, 0);
}
