//! Memory of one stream for another: granules stay mapped where they served, as aliases, so that they come back without a
//! driver call.

use super::Device;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaState, Growth};
use crate::backend::{BackendError, VirtualMemory};
use crate::device::space;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{Block, BlockId, BlockPhase, Tier};
use crate::memory::region::{self, Leftovers, Mapping, Place, bytes_of};
use crate::policy::{GranuleSizes, Request, Sizes};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;

/// Attempts to reserve addresses for the same granules, where other threads take it.
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

/// Hands busy granules, each a block of its own, to another arena, of whose free memory they are part then. They stay mapped
/// where they were. Returns how many bytes came; `None` where the driver maps no memory in two places.
pub(in crate::device) fn hand_over(
    device: &Device,
    from: &Arena,
    to: &Arena,
    parts: &[BlockId],
    call: &Call<'_>,
) -> Option<u64> {
    let number = to.lock().binding().number();
    let trip = Trip { from, to, number, call };
    let is_known =
        |moving: &Moving| device.accounting.lock().regions().alias_in(number, moving.place).is_some();
    let (known, new): (Vec<_>, Vec<_>) = moving(device, from, parts).into_iter().partition(is_known);
    let mut came = 0;
    for moving in known {
        came += bring_back(device, &trip, moving);
    }
    let mapped = map(device, &trip, &new);
    came += mapped.unwrap_or(0);
    (came > 0 || mapped.is_some()).then_some(came)
}

/// Changes two arenas in one step.
fn with_both<R>(
    device: &Device,
    trip: &Trip<'_>,
    change: impl FnOnce(&mut ArenaState, &mut ArenaState) -> R,
) -> R {
    let Trip { from, to, number, call, .. } = *trip;
    let before = from.lock().binding().number();
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
    device.driver.callbacks().end(contexts.into_iter().flatten());
    changed
}

fn moving(device: &Device, arena: &Arena, parts: &[BlockId]) -> Vec<Moving> {
    let state = arena.lock();
    let accounting = device.accounting.lock();
    let moving = |block: &BlockId| {
        let Block { addr, size: bytes, segment, .. } = state.layout().blocks()[*block];
        let place = Place { block: *block, ..state.place(segment, addr) };
        let memory = Mapping { addr, bytes, handle: accounting.regions().handle(place.region, addr)? };
        Some(Moving { place, memory })
    };
    parts.iter().filter_map(moving).collect()
}

/// A granule serves again where it served before. Returns its bytes.
fn bring_back(device: &Device, trip: &Trip<'_>, moving: Moving) -> u64 {
    with_both(device, trip, |from, to| {
        let known = {
            let mut accounting = device.accounting.lock();
            let regions = accounting.regions_mut();
            // Not where it is being unmapped, because memory has to leave.
            let is_there = |known: &Place| to.layout().blocks()[known.block].state == BlockPhase::Alias;
            let known = regions.alias_in(trip.number, moving.place).filter(is_there);
            if let Some(known) = known {
                regions.hand_over(moving.place, known);
            }
            known
        };
        let Some(known) = known else {
            from.heap_mut().return_free(moving.place.block);
            return 0;
        };
        become_alias(moving.place.block, from);
        to.note_change(Action::SegmentMap, known.block);
        to.heap_mut().return_free(known.block);
        moving.memory.bytes
    })
}

/// Maps granules side by side where another arena has address space. Returns how many bytes came; `None` where the
/// driver maps no memory in two places.
fn map(device: &Device, trip: &Trip<'_>, run: &[Moving]) -> Option<u64> {
    let Trip { from, to, .. } = *trip;
    let vm = device.driver.backend().virtual_memory();
    if run.is_empty() {
        return Some(0);
    }
    let sizes: Sizes = run.iter().map(|moving| moving.memory.bytes).collect();
    let bytes = sizes.iter().sum();
    let planned = vm.map(|vm| plan(device, to, &sizes, vm).map(|planned| planned.zip(Some(vm))));
    let Ok(Ok(Some(((growth, stream), vm)))) = planned else {
        if let Ok(Err(error)) = planned {
            device.driver.backend().clear_error();
            tracing::warn!(%error, "no address space for another stream's memory");
        }
        stay(from, run.iter().map(|moving| moving.place.block));
        return Some(0);
    };
    let calls = device.driver.calls();
    let home = home_of(&growth, &to.lock());
    let (addr, region) = (home.addr, home.region);
    device.accounting.lock().regions_mut().begin_backing(region, addr, &sizes);
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

/// Commits ownership from `home` on, granule by granule, or where it was.
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
            let mut accounting = device.accounting.lock();
            if is_mapped {
                accounting.regions_mut().commit_backed(home.region, memory);
                for (moving, mapping) in run.iter().zip(memory) {
                    accounting.regions_mut().hand_over(moving.place, Place { addr: mapping.addr, ..home });
                }
                accounting.count_moved(memory.len());
            } else {
                accounting.regions_mut().commit_vacant(home.region, home.addr..home.addr + bytes);
            }
        }
        for moving in run {
            match is_mapped {
                true => become_alias(moving.place.block, from),
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

/// Plans a growth for granules of these sizes in an arena, which reserves addresses for it; and its stream. `None`
/// where there are no addresses.
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
            return Ok(Some((growth, state.binding().stream())));
        }
        drop(state);
        if !space::add_region(device, arena, &stock, Some(GranuleSizes::even(largest)), vm)? {
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
    // SAFETY: rule 1: the memory has these sizes, and stays, because this thread has its granules. The range is `Pending` by this
    // thread, so nothing is mapped there.
    let outcome = unsafe { region::map(&**device.driver.backend(), vm, memory, &device.accounting.users()) };
    let Err((error, mapped)) = outcome else { return Ok(()) };
    tracing::warn!(%error, "free memory of another stream could not be mapped for this one");
    let mut left = Leftovers::default();
    for mapping in &memory[..mapped] {
        // SAFETY: rule 3: mapped above, and never handed out.
        if let Err(error) = unsafe { vm.unmap(mapping.at(), mapping.bytes) } {
            tracing::error!(%error, "a granule could not be unmapped; it is tried again later");
            left.keep_mapping(mapping.at(), mapping.bytes);
        }
    }
    device.accounting.lock().regions_mut().keep(left);
    Err(error)
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

/// First place that a growth maps.
fn home_of(growth: &Growth, state: &ArenaState) -> Place {
    let addr = growth.maps(state.layout()).first().map_or(0, |map| map.addr);
    let Some((segment, _)) = state.layout().segment_at(addr) else {
        unreachable!("a growth maps addresses of its arena")
    };
    state.place(segment, addr)
}

/// The default pool's other arenas that have a free large block of at least `bytes`, in every call the same; none for that
/// of a private pool.
pub(in crate::device) fn givers<'a>(
    device: &'a Device,
    arena: &'a Arena,
    bytes: u64,
) -> impl Iterator<Item = &'a Arena> {
    let (number, slot) = {
        let state = arena.lock();
        (state.binding().number(), state.binding().slot())
    };
    let givers = (slot == PoolSlot::DEFAULT).then(|| device.arenas.spare(number, bytes));
    givers.into_iter().flatten().map(|giver| &**giver)
}

/// A busy granule's memory serves elsewhere from here on.
fn become_alias(block: BlockId, state: &mut ArenaState) {
    state.note_change(Action::SegmentUnmap, block);
    let block = &mut state.heap_mut().layout_mut().blocks_mut()[block];
    (block.state, block.requested) = (BlockPhase::Alias, 0);
}
