//! Backends that break rules of this area: virtual memory.

use super::memory::HIGH;
use super::*;
use std::ops::Range;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("virtual_memory.odd_granularity", "the minimum granularity has one byte too many")
        .granularity(|call| Ok(call.go()? + u64::from(call.which == Granularity::Minimum)))
        .caught_by("virtual_memory.granularity"),
    mutant("virtual_memory.any_device", "a device that does not exist is taken for the first")
        .granularity(takes_unknown_device)
        .create_physical(takes_unknown_device)
        .caught_by("virtual_memory.no_such_device"),
    mutant("virtual_memory.nothing_is_something", "0 bytes are rounded up")
        .create_physical(|call| {
            let least = granule(call)?;
            call.with(|it| it.bytes = it.bytes.max(least))
        })
        .caught_by("virtual_memory.sizes_are_positive"),
    mutant("virtual_memory.same_addresses", "every reservation is the first one")
        .reserve_address(|call| call.again_if(|_, _| true))
        .caught_by("virtual_memory.reservations_are_disjoint"),
    mutant("virtual_memory.high_addresses", "reserved addresses have 58 bits")
        .reserve_address(|call| Ok(call.go()?.add(HIGH)))
        .release_address(|call| call.with(|it| it.base.0 %= HIGH))
        .caught_by("virtual_memory.within_57_bits"),
    mutant("virtual_memory.no_alignment", "the alignment asked for is forgotten")
        .reserve_address(|call| call.with(|it| it.alignment = 0))
        .caught_by("virtual_memory.reservation_is_aligned"),
    mutant("virtual_memory.addresses_cost", "addresses beyond the device's memory are refused")
        .reserve_address(|call| {
            let total = call.inner.memory_info(call.device)?.total;
            call.refuse_as(ErrorKind::OutOfMemory, call.bytes > total)
        })
        .caught_by("virtual_memory.reservation_takes_no_memory"),
    mutant("virtual_memory.addresses_leak", "addresses given back stay reserved")
        .release_address(does_nothing)
        .caught_by("virtual_memory.addresses_come_back"),
    mutant("virtual_memory.release_of_mapped", "mapped addresses are given back without a word")
        .release_address(ignores_refusals)
        .caught_by("virtual_memory.mapped_addresses_stay"),
    mutant("virtual_memory.wrong_kind_when_full", "too little memory is reported as a wrong argument")
        .create_physical(|call| call.changed_error(|it| it.kind = ErrorKind::InvalidValue))
        .caught_by("virtual_memory.more_than_there_is"),
    mutant("virtual_memory.last_page_closed", "access is set to all but the last handle's worth of a range")
        .set_access(|call| {
            let granule = granule(call)?;
            if call.bytes == granule { Ok(()) } else { call.with(|it| it.bytes -= granule) }
        })
        .caught_by("virtual_memory.bytes_are_kept"),
    mutant("virtual_memory.streams_barred", "queued fills of mapped memory write one byte less")
        .memset_async(|call| call.with(|it| it.bytes = it.bytes.saturating_sub(1).max(1)))
        .caught_by("virtual_memory.streams_use_it"),
    mutant("virtual_memory.access_unknown", "access() always says None")
        .access(|call| call.changed(|it| *it = Access::None))
        .caught_by("virtual_memory.access_is_told"),
    mutant("virtual_memory.access_for_ever", "access that is taken away stays")
        .set_access(|call| call.answer_if(call.access == Access::None, ()))
        .caught_by("virtual_memory.access_can_be_taken"),
    mutant("virtual_memory.access_of_all", "access() answers for empty places too")
        .access(|call| Ok(call.go().unwrap_or(Access::None)))
        .caught_by("virtual_memory.access_of_nothing"),
    mutant("virtual_memory.handles_leak", "releasing a handle does nothing")
        .release_physical(does_nothing)
        .caught_by("virtual_memory.memory_comes_back"),
    mutant("virtual_memory.mapped_is_unknown", "pointer_info does not know reserved addresses")
        .reserve_address(|call| {
            let base = call.go()?.0;
            call.keep(|reserved: &mut Reserved| reserved.push(base..base + call.bytes));
            Ok(DevicePtr(base))
        })
        .pointer_info(|call| {
            let is_reserved =
                call.keep(|reserved: &mut Reserved| reserved.iter().any(|range| range.contains(&call.ptr.0)));
            call.answer_if(is_reserved, UNKNOWN)
        })
        .caught_by("virtual_memory.pointer_is_known"),
    mutant("virtual_memory.first_device", "physical memory always comes from the first device")
        .create_physical(on_first_device)
        .caught_by("virtual_memory.on_the_right_device"),
    mutant("virtual_memory.device_left_behind", "creating memory leaves its device current")
        .create_physical(|call| call.leave_current(call.device))
        .caught_by("virtual_memory.current_device_stays"),
    mutant("virtual_memory.all_is_shareable", "every handle is created for export")
        .create_physical(|call| call.with(|it| it.handle_type = HandleType::PosixFd))
        .caught_by("virtual_memory.private_memory_stays"),
    mutant("virtual_memory.any_descriptor", "any descriptor imports as new memory")
        .import_physical(|call| call.go().or_else(|_| super::ipc::new_memory(call)))
        .caught_by("virtual_memory.foreign_descriptor"),
    mutant("virtual_memory.map_opens", "mapping opens the memory to the device")
        .map(|call| {
            call.go()?;
            let family = call.inner.virtual_memory()?;
            // SAFETY: the range was mapped just now.
            unsafe { family.set_access(call.at, call.bytes, &[DeviceIndex(0)], Access::ReadWrite) }
        })
        .caught_by("virtual_memory.no_access_at_first"),
    mutant("virtual_memory.aliased_maps", "every mapping shows the first living handle of its size")
        .map(|call| {
            let first = call.keep(|first: &mut FirstOfSize| *first.entry(call.bytes).or_insert(call.handle));
            call.with(|it| it.handle = first)
        })
        // Once the first is gone, another one is the first.
        .release_physical(|call| {
            call.with(|it| it.keep(|all: &mut FirstOfSize| all.retain(|_, first| *first != it.handle)))
        })
        .caught_by("virtual_memory.slots_are_distinct"),
    mutant("virtual_memory.adjacent_unmap_stops", "unmap takes away the first mapping of a range only")
        .map(notes_place)
        .unmap(|call| {
            let first: Option<Mapped> = call.noted(call.at);
            call.with(|it| it.bytes = first.map_or(it.bytes, |mapped| mapped.bytes))
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
        .unmap(|call| unmaps(call)?.into_values().try_for_each(|gone| unmap_all_of(call, gone.handle)))
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
        .map(|call| call.with(|it| it.handle.backend = it.inner.id()))
        .caught_by("virtual_memory.foreign_handle"),
    mutant("virtual_memory.unmap_waits", "unmap waits while a stream is busy")
        .launch_host_function(|call| call.with(|it| it.keep(|busy: &mut bool| *busy = true)))
        .unmap(|call| {
            let busy = call.keep(|busy: &mut bool| *busy);
            if busy { pauses(call) } else { call.go() }
        })
        .caught_by("virtual_memory.unmap_does_not_wait"),
];

/// What is said of an address that is no memory.
pub(super) const UNKNOWN: PointerInfo =
    PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL };

/// The addresses of reservations.
type Reserved = Vec<Range<u64>>;

/// The first device's granule: all of them have the same.
pub(super) fn granule<A>(call: &Call<'_, A>) -> Result<u64> {
    call.inner.virtual_memory()?.granularity(DeviceIndex(0), Granularity::Minimum)
}

type FirstOfSize = HashMap<u64, PhysicalHandle>;

/// What is mapped at an address.
#[derive(Clone, Copy)]
struct Mapped {
    bytes: u64,
    handle: PhysicalHandle,
}

type Places = HashMap<DevicePtr, Mapped>;

fn notes_place(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go().inspect(|()| call.note(call.at, Mapped { bytes: call.bytes, handle: call.handle }))
}

/// Whether the handle was mapped before, and not unmapped where that is noted.
fn is_known<A>(call: &Call<'_, A>) -> bool {
    call.keep(|places: &mut Places| places.values().any(|mapped| mapped.handle == call.handle))
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
    Ok(call.keep(|places: &mut Places| places.extract_if(|at, _| range.contains(&at.0)).collect()))
}

fn unmap_all_of<A>(call: &Call<'_, A>, handle: PhysicalHandle) -> Result<()> {
    let family = call.inner.virtual_memory()?;
    call.keep(|places: &mut Places| {
        for (at, mapped) in places.extract_if(|_, mapped| mapped.handle == handle) {
            // SAFETY: a simulated device refuses what is in use or not mapped.
            let _ = unsafe { family.unmap(at, mapped.bytes) };
        }
    });
    Ok(())
}
