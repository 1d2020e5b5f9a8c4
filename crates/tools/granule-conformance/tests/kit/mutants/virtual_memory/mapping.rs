//! Wrong maps and unmaps.

use crate::mutants::{Call, Mutant, does_nothing, lock, mutant};
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{Access, ErrorKind, HandleType, Result};
use std::collections::HashMap;
use std::time::Duration;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("virtual_memory.map_opens", "mapping opens the memory to the device")
        .map(|call| {
            call.go()?;
            // SAFETY: the range was mapped just now.
            unsafe {
                call.inner.virtual_memory()?.set_access(
                    call.at,
                    call.bytes,
                    &[DeviceIndex(0)],
                    Access::ReadWrite,
                )
            }
        })
        .caught_by("virtual_memory.no_access_at_first"),
    mutant("virtual_memory.aliased_maps", "every mapping shows the first living handle of its size")
        .map(|call| {
            let first = *lock(&call.kept::<FirstOfSize>()).entry(call.bytes).or_insert(call.handle);
            call.with(|it| it.handle = first)
        })
        // Once the first is gone, another one is the first.
        .release_physical(|call| {
            lock(&call.kept::<FirstOfSize>()).retain(|_, first| *first != call.handle);
            call.go()
        })
        .caught_by("virtual_memory.slots_are_distinct"),
    mutant("virtual_memory.adjacent_unmap_stops", "unmap takes away the first mapping of a range only")
        .map(notes_place)
        .unmap(|call| {
            let first = lock(&call.kept::<Places>()).iter().rev().find(|place| place.at == call.at).copied();
            call.with(|it| it.bytes = first.map_or(it.bytes, |place| place.bytes))
        })
        .caught_by("virtual_memory.adjacent_unmap"),
    mutant("virtual_memory.unmap_lies", "unmap does nothing")
        .unmap(does_nothing)
        .caught_by("virtual_memory.unmapped_is_free"),
    mutant("virtual_memory.map_moves_nothing", "a second mapping of a handle shows new memory")
        .map(|call| if is_known(call) { maps_new_memory(call) } else { notes_place(call) })
        .caught_by("virtual_memory.memory_moves"),
    mutant("virtual_memory.alias_is_fresh", "a handle that is mapped shows new memory at a second address")
        .map(|call| if is_known(call) { maps_new_memory(call) } else { notes_place(call) })
        .unmap(|call| unmaps(call).map(drop))
        .caught_by("virtual_memory.aliases_agree"),
    mutant("virtual_memory.unmap_takes_all", "unmap takes all mappings of the handle away")
        .map(notes_place)
        .unmap(|call| unmaps(call)?.into_iter().try_for_each(|gone| unmap_all_of(call, gone.handle)))
        .caught_by("virtual_memory.aliases_are_alone"),
    mutant("virtual_memory.map_replaces", "mapping at an occupied place replaces what is there")
        .map(|call| {
            let mapped = call.go();
            if !matches!(&mapped, Err(error) if error.kind == ErrorKind::InvalidValue) {
                return mapped;
            }
            // SAFETY: a simulated device refuses what is not mapped.
            unsafe { call.inner.virtual_memory()?.unmap(call.at, call.bytes)? };
            call.go()
        })
        .caught_by("virtual_memory.occupied_place"),
    mutant("virtual_memory.release_unmaps", "releasing a handle takes its mapping away")
        .map(notes_place)
        .release_physical(|call| {
            unmap_all_of(call, call.handle)?;
            call.go()
        })
        .caught_by("virtual_memory.released_handle_lives"),
    mutant("virtual_memory.foreign_handles", "handles of other backends are taken for its own")
        .map(|call| {
            call.handle.backend = call.inner.id();
            call.go()
        })
        .caught_by("virtual_memory.foreign_handle"),
    mutant("virtual_memory.unmap_waits", "unmap waits while a stream is busy")
        .launch_host_function(|call| {
            *lock(&call.kept::<bool>()) = true;
            call.go()
        })
        .unmap(|call| {
            if *lock(&call.kept::<bool>()) {
                // As long as a check needs to see it, instead of until the stream is done.
                std::thread::sleep(Duration::from_millis(150));
            }
            call.go()
        })
        .caught_by("virtual_memory.unmap_does_not_wait"),
];

type FirstOfSize = HashMap<u64, PhysicalHandle>;

/// What is mapped where.
#[derive(Clone, Copy)]
struct Place {
    at: DevicePtr,
    bytes: u64,
    handle: PhysicalHandle,
}

type Places = Vec<Place>;

fn notes_place(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go()?;
    let place = Place { at: call.at, bytes: call.bytes, handle: call.handle };
    lock(&call.kept::<Places>()).push(place);
    Ok(())
}

/// Whether the handle was mapped before, and not unmapped where that is noted.
fn is_known<A>(call: &Call<'_, A>) -> bool {
    lock(&call.kept::<Places>()).iter().any(|place| place.handle == call.handle)
}

fn maps_new_memory(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let family = call.inner.virtual_memory()?;
    let new = family.create_physical(DeviceIndex(0), call.bytes, HandleType::None)?;
    call.with(|it| it.handle = new)?;
    // SAFETY: rule 1: just made; the mapping keeps the memory.
    unsafe { family.release_physical(new) }
}

/// Unmaps, and says what was there.
fn unmaps(call: &mut Call<'_, Result<()>>) -> Result<Places> {
    call.go()?;
    let range = call.at.0..call.at.0 + call.bytes;
    Ok(lock(&call.kept::<Places>()).extract_if(.., |place| range.contains(&place.at.0)).collect())
}

fn unmap_all_of<A>(call: &Call<'_, A>, handle: PhysicalHandle) -> Result<()> {
    let family = call.inner.virtual_memory()?;
    for Place { at, bytes, .. } in lock(&call.kept::<Places>()).extract_if(.., |place| place.handle == handle)
    {
        // SAFETY: a simulated device refuses what is in use or not mapped.
        let _ = unsafe { family.unmap(at, bytes) };
    }
    Ok(())
}
