//! Backends that say wrong things about device memory and addresses.

use crate::mutants::{Call, Mutant, lock, mutant, on_first_device, strikes, takes_unknown_device};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{AddressRange, ErrorKind, MemoryInfo, PointerInfo, PointerKind, Result};
use std::collections::BTreeMap;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("memory.more_than_all", "free and total are swapped")
        // Some memory is always taken, so that the swap is seen.
        .memory_info(|call| call.changed(|it| *it = MemoryInfo { free: it.total, total: it.free - 1 }))
        .caught_by("memory.info_is_sane"),
    mutant("memory.any_device", "a device that is not there has the first one's memory")
        .memory_info(takes_unknown_device)
        .caught_by("memory.info_unknown_device_is_refused"),
    mutant("memory.old_numbers", "memory_info says what it said first")
        .memory_info(|call| {
            let now = call.go()?;
            Ok(*lock(&call.kept::<BTreeMap<DeviceIndex, MemoryInfo>>()).entry(call.device).or_insert(now))
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
        .pointer_info(|call| {
            call.changed(|it| {
                if it.kind == PointerKind::Device {
                    it.kind = PointerKind::Managed;
                }
            })
        })
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
            call.refuse_if(ErrorKind::InvalidValue, unknown)
        })
        .caught_by("memory.pointer_info_of_unknown"),
    mutant("memory.high_is_error", "addresses beyond 47 bits are an error")
        .pointer_info(|call| call.refuse_if(ErrorKind::InvalidValue, call.ptr.0 >> 47 != 0))
        .caught_by("memory.pointer_info_of_any_value"),
    mutant("memory.sticky_unknown", "an unknown pointer leaves an error for the next call")
        .pointer_info(|call| {
            let info = call.go()?;
            if info.kind == PointerKind::Unmanaged {
                call.leave_error();
            }
            Ok(info)
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
                lock(&call.kept::<Ranges>()).insert(call.ptr, range);
            }
            call.go()
        })
        .address_range(|call| {
            let freed = lock(&call.kept::<Ranges>()).get(&call.ptr).copied();
            call.go().or_else(|error| freed.ok_or(error))
        })
        .caught_by("memory.freed_has_no_range"),
];

type Ranges = BTreeMap<DevicePtr, AddressRange>;

/// What each device said before, and how much that rose since.
type Fallen = BTreeMap<DeviceIndex, (u64, u64)>;

fn never_rises(call: &mut Call<'_, Result<MemoryInfo>>) -> Result<MemoryInfo> {
    let now = call.go()?;
    let fallen = call.kept::<Fallen>();
    let mut fallen = lock(&fallen);
    let (before, risen) = fallen.entry(call.device).or_insert((now.free, 0));
    *risen += now.free.saturating_sub(*before);
    *before = now.free;
    Ok(MemoryInfo { free: now.free.saturating_sub(*risen), total: now.total })
}

/// Takes an address for its base, in memory of a kind.
pub(in crate::mutants) fn base_is_pointer(
    call: &mut Call<'_, Result<PointerInfo>>,
    kind: PointerKind,
) -> Result<PointerInfo> {
    let info = call.go()?;
    Ok(if info.kind == kind { PointerInfo { base: call.ptr, ..info } } else { info })
}
