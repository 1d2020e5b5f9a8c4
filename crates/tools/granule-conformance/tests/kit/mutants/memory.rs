//! Backends that break rules of this area: device memory.

use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("memory.nothing_is_null", "a request for 0 bytes gives null, as on HIP")
        .malloc(|call| call.answer_if(call.bytes == 0, DevicePtr::NULL))
        .caught_by("memory.malloc_of_nothing"),
    mutant("memory.small_is_null", "small requests give null")
        .malloc(|call| call.answer_if(call.bytes == 1, DevicePtr::NULL))
        .caught_by("memory.malloc_is_not_null"),
    mutant("memory.odd_addresses", "memory is aligned to 256 bytes only")
        .malloc(shifts_up::<256>)
        .free(shifts_down::<256>)
        .caught_by("memory.aligned"),
    mutant("memory.high_addresses", "addresses have 58 bits")
        // Of a size that no check writes to: the simulator would, too.
        .malloc(|call| Ok(call.go()?.add(if call.bytes == 4 * MIB { HIGH } else { 0 })))
        .free(|call| call.with(|it| it.ptr.0 %= HIGH))
        .caught_by("memory.within_57_bits"),
    mutant("memory.hands_out_twice", "memory that is held is handed out again")
        .malloc(gives_last_again)
        .free(forgets_last)
        .caught_by("memory.disjoint"),
    mutant("memory.shared_by_devices", "two devices hand out the same memory")
        .malloc(|call| match last(call) {
            Some((owner, ptr, held)) if owner != call.device && (1..=held).contains(&call.bytes) => Ok(ptr),
            _ => notes_last(call),
        })
        .free(forgets_last)
        .caught_by("memory.disjoint_across_devices"),
    mutant("memory.half_the_size", "memory is half as large as asked")
        .malloc(|call| call.with(|it| it.bytes = it.bytes.div_ceil(2)))
        .caught_by("memory.large_enough"),
    mutant("memory.one_byte_short", "memory is one byte too small")
        .malloc(|call| call.with(|it| it.bytes -= u64::from(it.bytes > 1)))
        .caught_by("memory.last_byte_works"),
    mutant("memory.no_single_byte", "a request for one byte is refused")
        .malloc(|call| call.refuse_if(call.bytes == 1))
        .caught_by("memory.single_byte"),
    mutant("memory.wipes_neighbour", "taking memory changes other memory")
        .malloc(|call| {
            let neighbour = last(call);
            notes_last(call).inspect(|_| wipe(call.inner, neighbour))
        })
        .free(forgets_last)
        .caught_by("memory.keeps_its_bytes_while_others_come_and_go"),
    mutant("memory.refusal_wipes", "a refused request changes other memory")
        .malloc(|call| notes_last(call).inspect_err(|_| wipe(call.inner, last(call))))
        .free(forgets_last)
        .caught_by("memory.refused_malloc_keeps_others"),
    mutant("memory.always_first_device", "memory comes from device 0, whatever was asked")
        .malloc(on_first_device)
        .caught_by("memory.is_of_the_device_asked"),
    mutant("memory.short_is_invalid", "a lack of memory is InvalidValue")
        .malloc(|call| call.changed_error(|it| it.kind = ErrorKind::InvalidValue))
        .caught_by("memory.malloc_more_than_there_is"),
    mutant("memory.sizes_wrap", "sizes have 32 bits")
        .malloc(|call| match u32::try_from(call.bytes) {
            Ok(_) => call.go(),
            Err(_) => call.with(|it| it.bytes = (it.bytes & 0xFFFF).max(512)),
        })
        .caught_by("memory.malloc_absurd_sizes"),
    mutant("memory.sticky_malloc", "a refused malloc leaves an error for the next call")
        .malloc(leaves_its_error)
        .enter(strikes)
        .caught_by("memory.works_after_out_of_memory"),
    mutant("memory.null_is_invalid", "null cannot be freed")
        .free(|call| call.refuse_if(call.ptr.is_null()))
        .caught_by("memory.free_null"),
    mutant("memory.swallows_bad_frees", "free takes anything")
        .free(ignores_refusals)
        .caught_by("memory.free_twice"),
    mutant("memory.frees_from_inside", "a refused free of a pointer inside has freed the memory")
        .free(|call| {
            let answer = call.go();
            if answer.is_err()
                && let Ok(range) = call.inner.address_range(call.ptr)
            {
                let _ = call.with(|it| it.ptr = range.base);
            }
            answer
        })
        .caught_by("memory.refused_free_keeps_memory"),
    mutant("memory.free_leaks", "free gives nothing back")
        // Up to a limit, so that other checks still find memory.
        .free(|call| {
            let live = call.inner.address_range(call.ptr).ok().filter(|range| range.base == call.ptr);
            let leaked = call.keep(|leaked: &mut u64| {
                *leaked += live.map_or(0, |range| range.bytes);
                *leaked
            });
            call.answer_if(live.is_some() && leaked < 180 * MIB, ())
        })
        .caught_by("memory.freed_is_unmanaged"),
    mutant("memory.frees_in_reverse", "only the memory taken last can be freed")
        .malloc(|call| call.go().inspect(|ptr| call.keep(|held: &mut Vec<_>| held.push(*ptr))))
        .free(|call| {
            let is_last = call.keep(|held: &mut Vec<DevicePtr>| {
                let is_last = held.last() == Some(&call.ptr);
                held.retain(|other| *other != call.ptr);
                is_last
            });
            call.go()?;
            if is_last { Ok(()) } else { Err(error(ErrorKind::InvalidValue)) }
        })
        .caught_by("memory.free_in_any_order"),
    mutant("memory.frees_on_current", "free does nothing for a device that is not current")
        .free(|call| call.answer_if(call.inner.current_device()? != call.device, ()))
        .caught_by("memory.free_on_other_current_device"),
    mutant("memory.refusal_leaks", "a refused request has taken memory")
        .malloc(|call| {
            let answer = call.go();
            if answer.is_err() && call.turn() < 40 {
                let _ = call.with(|it| it.bytes = 2 * MIB);
            }
            answer
        })
        .caught_by("memory.refused_malloc_takes_nothing"),
    mutant("memory.more_than_all", "free and total are swapped")
        // Some memory is always taken, so that the swap is seen.
        .memory_info(|call| {
            call.changed(|it| *it = MemoryInfo { free: it.total, total: it.free.saturating_sub(1) })
        })
        .caught_by("memory.info_is_sane"),
    mutant("memory.any_device", "a device that is not there has the first one's memory")
        .memory_info(takes_unknown_device)
        .caught_by("memory.info_unknown_device_is_refused"),
    mutant("memory.old_numbers", "memory_info says what it said first")
        .memory_info(|call| {
            let now = call.go()?;
            Ok(call.keep(|first: &mut HashMap<DeviceIndex, _>| *first.entry(call.device).or_insert(now)))
        })
        .caught_by("memory.info_falls_with_malloc"),
    mutant("memory.only_first_device", "memory_info is about device 0")
        .memory_info(on_first_device)
        .caught_by("memory.info_is_of_its_device"),
    mutant("memory.total_is_free", "the total is what is free")
        .memory_info(|call| call.changed(|it| it.total = it.free))
        .caught_by("memory.info_total_is_constant"),
    mutant("memory.twice_the_total", "the total is twice what there is")
        .memory_info(|call| call.changed(|it| it.total *= 2))
        .properties(|call| call.changed(|it| it.total_memory *= 2))
        .caught_by("memory.total_can_be_had"),
    mutant("memory.twice_as_much", "the total and what is free are both too much by all there is")
        .memory_info(|call| {
            call.changed(|it| *it = MemoryInfo { free: it.free + it.total, total: 2 * it.total })
        })
        .properties(|call| call.changed(|it| it.total_memory *= 2))
        .caught_by("memory.total_can_be_had"),
    mutant("memory.never_rises", "free bytes only ever fall")
        .memory_info(never_rises)
        .caught_by("memory.info_rises_with_free"),
    mutant("memory.all_managed", "device memory is said to be managed")
        .pointer_info(|call| call.said_of(PointerKind::Device, |it| it.kind = PointerKind::Managed))
        .caught_by("memory.pointer_info_of_base"),
    mutant("memory.base_is_pointer", "every address is said to be a base")
        .pointer_info(|call| base_is_pointer(call, PointerKind::Device))
        .caught_by("memory.pointer_info_of_inside"),
    mutant("memory.end_belongs", "the address behind the end is said to be inside")
        .pointer_info(|call| match call.go()?.kind {
            PointerKind::Unmanaged => call.with(|it| it.ptr.0 = it.ptr.0.wrapping_sub(1)),
            _ => call.go(),
        })
        .caught_by("memory.pointer_info_of_end"),
    mutant("memory.unknown_is_error", "an unknown pointer is an error, as with the CUDA driver")
        .pointer_info(|call| {
            let unknown = call.go()?.kind == PointerKind::Unmanaged;
            call.refuse_if(unknown)
        })
        .caught_by("memory.pointer_info_of_unknown"),
    mutant("memory.high_is_error", "addresses beyond 47 bits are an error")
        .pointer_info(|call| call.refuse_if(call.ptr.0 >> 47 != 0))
        .caught_by("memory.pointer_info_of_any_value"),
    mutant("memory.sticky_unknown", "an unknown pointer leaves an error for the next call")
        .pointer_info(|call| {
            call.leave_error_if(|it| it.as_ref().is_ok_and(|it| it.kind == PointerKind::Unmanaged))
        })
        .enter(strikes)
        .caught_by("memory.pointer_info_leaves_no_error"),
    mutant("memory.no_base", "address_range says no base")
        .address_range(|call| call.changed(|it| it.base = DevicePtr::NULL))
        .caught_by("memory.range_of_base"),
    mutant("memory.range_from_here", "address_range begins at the address asked for")
        .address_range(|call| {
            let AddressRange { base, bytes } = call.go()?;
            Ok(AddressRange { base: call.ptr, bytes: bytes - (call.ptr.0 - base.0) })
        })
        .caught_by("memory.range_of_inside"),
    mutant("memory.range_of_granule", "address_range is of the driver's granule")
        .address_range(|call| call.changed(|it| it.bytes = it.bytes.next_multiple_of(2 << 20)))
        .caught_by("memory.range_ends_before_the_next"),
    mutant("memory.any_range", "an unknown pointer has a range")
        .address_range(|call| Ok(call.go().unwrap_or(AddressRange { base: call.ptr, bytes: 0 })))
        .caught_by("memory.range_of_unknown_is_refused"),
    mutant("memory.ranges_stay", "freed memory has a range")
        .free(|call| {
            if let Ok(range) = call.inner.address_range(call.ptr) {
                call.note(call.ptr, range);
            }
            call.go()
        })
        .address_range(|call| {
            let freed = call.noted(call.ptr);
            call.go().or_else(|error| freed.ok_or(error))
        })
        .caught_by("memory.freed_has_no_range"),
];

/// The lowest address that has too many bits.
pub(super) const HIGH: u64 = 1 << ADDRESS_BITS;

/// The allocation before: device, address, size as it is rounded.
type Last = Option<(DeviceIndex, DevicePtr, u64)>;

fn last<A>(call: &Call<'_, A>) -> Last {
    call.keep(|last: &mut Last| *last)
}

fn notes_last(call: &mut Call<'_, Result<DevicePtr>>) -> Result<DevicePtr> {
    let ptr = call.go()?;
    call.keep(|last: &mut Last| *last = Some((call.device, ptr, call.bytes.next_multiple_of(512))));
    Ok(ptr)
}

fn gives_last_again(call: &mut Call<'_, Result<DevicePtr>>) -> Result<DevicePtr> {
    match last(call) {
        Some((owner, ptr, held)) if owner == call.device && (1..=held).contains(&call.bytes) => Ok(ptr),
        _ => notes_last(call),
    }
}

fn forgets_last(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.keep(|last: &mut Last| last.take_if(|last| last.1 == call.ptr));
    call.go()
}

/// Changes the first byte of memory.
fn wipe(inner: &dyn Backend, memory: Last) {
    let Some((_, ptr, _)) = memory else { return };
    let byte = [0xD5u8; 1];
    let from = DevicePtr(byte.as_ptr().addr() as u64);
    // SAFETY: rule 2: one byte of an allocation that is still held; the copy is waited for.
    let _ = unsafe { inner.copy(ptr, from, 1, CopyKind::HostToDevice) };
}

/// What each device said before, and how much that rose since.
type Fallen = HashMap<DeviceIndex, (u64, u64)>;

fn never_rises(call: &mut Call<'_, Result<MemoryInfo>>) -> Result<MemoryInfo> {
    let now = call.go()?;
    call.keep(|fallen: &mut Fallen| {
        let (before, risen) = fallen.entry(call.device).or_insert((now.free, 0));
        *risen += now.free.saturating_sub(*before);
        *before = now.free;
        Ok(MemoryInfo { free: now.free.saturating_sub(*risen), total: now.total })
    })
}

/// Takes an address for its base, in memory of a kind.
pub(super) fn base_is_pointer(
    call: &mut Call<'_, Result<PointerInfo>>,
    kind: PointerKind,
) -> Result<PointerInfo> {
    let ptr = call.ptr;
    call.said_of(kind, |it| it.base = ptr)
}
