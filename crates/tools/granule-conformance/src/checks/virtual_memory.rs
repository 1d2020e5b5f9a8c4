//! Virtual memory.

mod aliases;

use super::room::Room;
use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, prompt, refused};
use crate::{Context, Verdict};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{
    ADDRESS_BITS, Access, ErrorKind, Granularity, HandleType, PointerKind, ShareableHandle, VirtualMemory,
};

checks! { VirtualMemory;
    "virtual_memory.granularity":
        "the minimum granularity is a power of two, and the recommended one a multiple of it" => granularity,
    "virtual_memory.no_such_device": "a device that does not exist is InvalidValue" => no_such_device,
    "virtual_memory.sizes_are_positive":
        "rule 4: 0 bytes of addresses or of physical memory are InvalidValue" => sizes_are_positive,
    "virtual_memory.reservations_are_disjoint":
        "I1: two reservations have no address in common, and begin at a granule" => reservations_are_disjoint,
    "virtual_memory.within_57_bits": "I1: reserved addresses have 57 bits at most" => within_57_bits,
    "virtual_memory.reservation_is_aligned": "a reservation is aligned as asked" => reservation_is_aligned,
    "virtual_memory.reservation_takes_no_memory":
        "more addresses can be reserved than the device has memory" => reservation_takes_no_memory,
    "virtual_memory.addresses_come_back":
        "addresses that were given back can be reserved again, for ever" => addresses_come_back,
    "virtual_memory.mapped_addresses_stay":
        "rule 6: addresses are not given back while something is mapped there: InvalidValue, nothing changed"
            => mapped_addresses_stay,
    "virtual_memory.more_than_there_is":
        "physical memory beyond what the device has is OutOfMemory" => more_than_there_is,
    "virtual_memory.bytes_are_kept":
        "mapped memory with access keeps what is written to it" => bytes_are_kept,
    "virtual_memory.streams_use_it":
        "queued work reads and writes mapped memory like any other" => streams_use_it,
    "virtual_memory.no_access_at_first": "a new mapping is closed until access is set" => no_access_at_first,
    "virtual_memory.access_is_told": "access that was set is what access() tells" => access_is_told,
    "virtual_memory.access_can_be_taken": "access can be taken away again" => access_can_be_taken,
    "virtual_memory.access_of_nothing":
        "access() where nothing is mapped is InvalidValue" => access_of_nothing,
    "virtual_memory.slots_are_distinct":
        "I1: two handles mapped side by side are two memories" => slots_are_distinct,
    "virtual_memory.adjacent_unmap": "one call unmaps several adjacent mappings" => adjacent_unmap,
    "virtual_memory.unmapped_is_free":
        "after unmap the place is empty and takes another handle" => unmapped_is_free,
    "virtual_memory.memory_moves":
        "memory keeps its bytes when it is unmapped and mapped elsewhere" => memory_moves,
    "virtual_memory.aliases_agree":
        "a handle that is mapped at two addresses shows the same bytes at both, in a stream's order"
            => aliases::agree,
    "virtual_memory.aliases_are_alone":
        "of two mappings of a handle, unmapping one or taking its access leaves the other as it is"
            => aliases::are_alone,
    "virtual_memory.occupied_place":
        "a second handle at an occupied place is refused, and the first mapping stays (rule 6)"
            => occupied_place,
    "virtual_memory.released_handle_lives":
        "I4: physical memory lives while it is mapped, also after its handle was released"
            => released_handle_lives,
    "virtual_memory.foreign_handle": "rule 1: a handle of another backend is InvalidValue" => foreign_handle,
    "virtual_memory.memory_comes_back":
        "memory without handle and mapping goes back to the device" => memory_comes_back,
    "virtual_memory.pointer_is_known":
        "an address in mapped memory is device memory of the handle's device" => pointer_is_known,
    "virtual_memory.on_the_right_device":
        "physical memory is taken from the device that was named" => on_the_right_device,
    "virtual_memory.current_device_stays":
        "rule 5: the current device is as before after work about another device" => current_device_stays,
    "virtual_memory.unmap_does_not_wait": "unmap does not wait for queued work" => unmap_does_not_wait,
    "virtual_memory.private_memory_stays":
        "a handle that was not created for export is not exported" => private_memory_stays,
    "virtual_memory.foreign_descriptor":
        "a descriptor that is no physical memory is refused" => foreign_descriptor,
}

const SAMPLE: usize = 4096;

fn granularity(cx: &Context) -> Verdict {
    let (vmm, device) = (cx.backend().virtual_memory()?, cx.device()?);
    let least = vmm.granularity(device, Granularity::Minimum)?;
    let best = vmm.granularity(device, Granularity::Recommended)?;
    ensure!(least.is_power_of_two(), "the minimum is {least}");
    ensure!(best > 0 && best.is_multiple_of(least), "the recommended {best} is no multiple of {least}");
    Ok(())
}

fn within_57_bits(cx: &Context) -> Verdict {
    let room = Room::reserve(cx, cx.device()?, 4)?;
    ensure!(
        room.at(4).0 <= 1 << ADDRESS_BITS,
        "four granules end at {}, beyond {ADDRESS_BITS} bits",
        room.at(4)
    );
    Ok(())
}

fn no_such_device(cx: &Context) -> Verdict {
    let (vmm, none) = (cx.backend().virtual_memory()?, cx.no_device()?);
    let granule = vmm.granularity(cx.device()?, Granularity::Recommended)?;
    let wrong = [ErrorKind::InvalidValue];
    refused("granularity", vmm.granularity(none, Granularity::Minimum), &wrong)?;
    refused("create_physical", vmm.create_physical(none, granule, HandleType::None), &wrong)?;
    Ok(())
}

fn sizes_are_positive(cx: &Context) -> Verdict {
    let (vmm, device) = (cx.backend().virtual_memory()?, cx.device()?);
    let wrong = [ErrorKind::InvalidValue];
    refused("reserve_address(0)", vmm.reserve_address(device, 0, 0, DevicePtr::NULL), &wrong)?;
    refused("create_physical(0)", vmm.create_physical(device, 0, HandleType::None), &wrong)?;
    Ok(())
}

fn reservations_are_disjoint(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let least = cx.backend().virtual_memory()?.granularity(device, Granularity::Minimum)?;
    let rooms = [1, 3, 2].map(|slots| Room::reserve(cx, device, slots));
    let mut ranges = Vec::new();
    for (room, slots) in rooms.iter().zip([1, 3, 2]) {
        let room = room.as_ref().map_err(Clone::clone)?;
        let (from, to) = (room.at(0).0, room.at(slots).0);
        ensure!(from != 0 && from.is_multiple_of(least), "{from:#x} is no multiple of {least}");
        ensure!(ranges.iter().all(|&(a, b)| to <= a || b <= from), "[{from:#x}, {to:#x}) is in {ranges:x?}");
        ranges.push((from, to));
    }
    Ok(())
}

fn reservation_is_aligned(cx: &Context) -> Verdict {
    let (vmm, device) = (cx.backend().virtual_memory()?, cx.device()?);
    let granule = vmm.granularity(device, Granularity::Recommended)?;
    let mut held = Vec::new();
    let mut aligned = true;
    for _ in 0..3 {
        let at = vmm.reserve_address(device, granule, 64 * granule, DevicePtr::NULL)?;
        aligned &= at.0.is_multiple_of(64 * granule);
        held.push(at);
    }
    for &at in &held {
        // SAFETY: rule 3: base and size of one reservation, once.
        unsafe { vmm.release_address(at, granule)? };
    }
    ensure!(aligned, "{held:?} are not all multiples of {:#x}", 64 * granule);
    Ok(())
}

fn reservation_takes_no_memory(cx: &Context) -> Verdict {
    let (vmm, device) = (cx.backend().virtual_memory()?, cx.device()?);
    let granule = vmm.granularity(device, Granularity::Recommended)?;
    let total = cx.backend().memory_info(device)?.total;
    // What a growable segment reserves; in pieces where the driver gives no more at a time.
    let bytes = (total + total / 8).next_multiple_of(granule);
    let (first, piece) = at_a_time(vmm, device, bytes, granule)?;
    let (mut held, mut reserved) = (vec![first], Ok(()));
    while piece * (held.len() as u64) < bytes && reserved.is_ok() {
        reserved = vmm.reserve_address(device, piece, 0, DevicePtr::NULL).map(|at| held.push(at));
    }
    for at in held {
        // SAFETY: rule 3: base and size of one reservation, once.
        unsafe { vmm.release_address(at, piece)? };
    }
    Ok(reserved?)
}

/// As many of these bytes of addresses as the driver gives at a time: some boards have few.
fn at_a_time(
    vmm: &dyn VirtualMemory,
    device: DeviceIndex,
    mut bytes: u64,
    granule: u64,
) -> backend_api::Result<(DevicePtr, u64)> {
    loop {
        match vmm.reserve_address(device, bytes, 0, DevicePtr::NULL) {
            Err(error) if error.kind == ErrorKind::ResourceLimit && bytes > granule => {
                bytes = (bytes / 2).next_multiple_of(granule);
            }
            answer => return answer.map(|at| (at, bytes)),
        }
    }
}

fn addresses_come_back(cx: &Context) -> Verdict {
    let (vmm, device) = (cx.backend().virtual_memory()?, cx.device()?);
    let granule = vmm.granularity(device, Granularity::Recommended)?;
    let total = cx.backend().memory_info(device)?.total;
    // In all more than there are addresses.
    let bytes = (4 * total).clamp(64 << 30, 1 << 40).next_multiple_of(granule);
    let (first, bytes) = at_a_time(vmm, device, bytes, granule)?;
    // SAFETY: rule 3: base and size of one reservation, once.
    unsafe { vmm.release_address(first, bytes)? };
    for _ in 0..300 {
        let at = vmm.reserve_address(device, bytes, 0, DevicePtr::NULL)?;
        // SAFETY: rule 3: base and size of one reservation, once.
        unsafe { vmm.release_address(at, bytes)? };
    }
    Ok(())
}

fn mapped_addresses_stay(cx: &Context) -> Verdict {
    let room = Room::furnished(cx, 2)?;
    cx.write(room.at(0), &pattern(1, SAMPLE))?;
    refused("release_address of a mapped range", room.release_addresses(), &[ErrorKind::InvalidValue])?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(1, SAMPLE), "the bytes afterwards");
    room.close()
}

fn more_than_there_is(cx: &Context) -> Verdict {
    let (vmm, device) = (cx.backend().virtual_memory()?, cx.device()?);
    let granule = vmm.granularity(device, Granularity::Recommended)?;
    let bytes = (cx.backend().memory_info(device)?.total + 1).next_multiple_of(granule);
    let answer = vmm.create_physical(device, bytes, HandleType::None);
    refused("create_physical beyond the device", answer, &[ErrorKind::OutOfMemory])?;
    Room::furnished(cx, 1)?.close()
}

fn bytes_are_kept(cx: &Context) -> Verdict {
    let room = Room::furnished(cx, 1)?;
    // Both samples are in one granule, which may be a page.
    let sample = SAMPLE.min(room.granule() as usize / 2);
    let last = DevicePtr(room.at(1).0 - sample as u64);
    cx.write(room.at(0), &pattern(3, sample))?;
    cx.write(last, &pattern(4, sample))?;
    ensure_eq!(cx.read(room.at(0), sample)?, pattern(3, sample), "the first bytes");
    ensure_eq!(cx.read(last, sample)?, pattern(4, sample), "the last bytes");
    room.close()
}

fn streams_use_it(cx: &Context) -> Verdict {
    let room = Room::furnished(cx, 1)?;
    let stream = cx.stream()?;
    cx.fill(room.at(0), 0x5a, room.granule(), stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let last = DevicePtr(room.at(1).0 - SAMPLE as u64);
    ensure_eq!(cx.read(last, SAMPLE)?, vec![0x5a; SAMPLE], "the last bytes after a fill of all");
    room.close()
}

fn no_access_at_first(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let mut room = Room::reserve(cx, device, 1)?;
    let handle = room.create(HandleType::None)?;
    room.map(0, handle)?;
    ensure_eq!(room.access(0, device)?, Access::None, "access before it was set");
    room.close()
}

fn access_is_told(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let room = Room::furnished(cx, 1)?;
    ensure_eq!(room.access(0, device)?, Access::ReadWrite, "access after it was set");
    room.close()
}

fn access_can_be_taken(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let room = Room::furnished(cx, 1)?;
    cx.write(room.at(0), &pattern(5, SAMPLE))?;
    room.set_access(0, &[device], Access::None)?;
    ensure_eq!(room.access(0, device)?, Access::None, "access after it was taken");
    room.set_access(0, &[device], Access::ReadWrite)?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(5, SAMPLE), "the bytes when it is back");
    room.close()
}

fn access_of_nothing(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let room = Room::reserve(cx, device, 1)?;
    refused("access of an empty place", room.access(0, device), &[ErrorKind::InvalidValue])?;
    room.close()
}

fn slots_are_distinct(cx: &Context) -> Verdict {
    let mut room = Room::furnished(cx, 2)?;
    room.furnish(1)?;
    cx.write(room.at(0), &pattern(6, SAMPLE))?;
    cx.write(room.at(1), &pattern(7, SAMPLE))?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(6, SAMPLE), "the first handle's bytes");
    ensure_eq!(cx.read(room.at(1), SAMPLE)?, pattern(7, SAMPLE), "the second handle's bytes");
    room.close()
}

fn adjacent_unmap(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let mut room = Room::furnished(cx, 3)?;
    room.furnish(1)?;
    room.furnish(2)?;
    cx.write(room.at(2), &pattern(8, SAMPLE))?;
    room.unmap_first(2)?;
    for slot in 0..2 {
        refused("access of an unmapped place", room.access(slot, device), &[ErrorKind::InvalidValue])?;
    }
    ensure_eq!(cx.read(room.at(2), SAMPLE)?, pattern(8, SAMPLE), "the bytes of the third");
    room.close()
}

fn unmapped_is_free(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let mut room = Room::furnished(cx, 1)?;
    room.unmap(0)?;
    refused("access of an unmapped place", room.access(0, device), &[ErrorKind::InvalidValue])?;
    room.furnish(0)?;
    cx.write(room.at(0), &pattern(9, SAMPLE))?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(9, SAMPLE), "the new handle's bytes");
    room.close()
}

fn memory_moves(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let mut room = Room::reserve(cx, device, 2)?;
    let handle = room.furnish(0)?;
    cx.write(room.at(0), &pattern(10, SAMPLE))?;
    room.unmap(0)?;
    room.map(1, handle)?;
    room.set_access(1, &[device], Access::ReadWrite)?;
    ensure_eq!(cx.read(room.at(1), SAMPLE)?, pattern(10, SAMPLE), "the bytes at the new place");
    room.close()
}

fn occupied_place(cx: &Context) -> Verdict {
    let mut room = Room::furnished(cx, 1)?;
    cx.write(room.at(0), &pattern(11, SAMPLE))?;
    let other = room.create(HandleType::None)?;
    let kinds = [ErrorKind::InvalidValue, ErrorKind::Other];
    refused("map at an occupied place", room.map(0, other), &kinds)?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(11, SAMPLE), "the first mapping's bytes");
    room.close()
}

fn released_handle_lives(cx: &Context) -> Verdict {
    let mut room = Room::reserve(cx, cx.device()?, 1)?;
    let handle = room.furnish(0)?;
    cx.write(room.at(0), &pattern(12, SAMPLE))?;
    room.release(handle)?;
    // Whoever gets the memory now would write over it.
    let mut other = Room::reserve(cx, cx.device()?, 4)?;
    for slot in 0..4 {
        other.furnish(slot)?;
        cx.write(other.at(slot), &[0xee; SAMPLE])?;
    }
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(12, SAMPLE), "the bytes after the handle's release");
    other.close()?;
    room.close()
}

fn foreign_handle(cx: &Context) -> Verdict {
    let mut room = Room::reserve(cx, cx.device()?, 1)?;
    let own = room.create(HandleType::None)?;
    let foreign = PhysicalHandle { backend: BackendId(own.backend.0 ^ 0x4000), ..own };
    let wrong = [ErrorKind::InvalidValue];
    refused("map of a foreign handle", room.map(0, foreign), &wrong)?;
    refused("release of a foreign handle", room.release(foreign), &wrong)?;
    room.close()
}

fn memory_comes_back(cx: &Context) -> Verdict {
    const ROUNDS: u64 = 24;
    let (backend, device) = (cx.backend(), cx.device()?);
    let vmm = backend.virtual_memory()?;
    let granule = vmm.granularity(device, Granularity::Recommended)?;
    let bytes = (32_u64 << 20).next_multiple_of(granule);
    let before = backend.memory_info(device)?.free;
    for _ in 0..ROUNDS {
        let handle = vmm.create_physical(device, bytes, HandleType::None)?;
        // SAFETY: rule 1: just made, and not used again.
        unsafe { vmm.release_physical(handle)? };
    }
    let after = backend.memory_info(device)?.free;
    // Others may use the device too: only a leak of most of it counts.
    let lost = before.saturating_sub(after);
    ensure!(lost < ROUNDS * bytes / 2, "{lost} bytes are gone after {ROUNDS} times {bytes}");
    Ok(())
}

fn pointer_is_known(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let room = Room::furnished(cx, 1)?;
    for at in [room.at(0), DevicePtr(room.at(1).0 - 1)] {
        let info = cx.backend().pointer_info(at)?;
        ensure_eq!(info.kind, PointerKind::Device, "the kind of {at}");
        ensure_eq!(info.device, Some(device), "the device of {at}");
    }
    room.close()
}

fn on_the_right_device(cx: &Context) -> Verdict {
    cx.backend().virtual_memory()?;
    let device = cx.second_device()?;
    let mut room = Room::reserve(cx, device, 1)?;
    room.furnish(0)?;
    ensure_eq!(cx.backend().pointer_info(room.at(0))?.device, Some(device), "the address's device");
    room.close()
}

fn current_device_stays(cx: &Context) -> Verdict {
    cx.backend().virtual_memory()?;
    let (first, second) = (cx.device()?, cx.second_device()?);
    cx.backend().set_device(first)?;
    let stays = |what: &str| -> Verdict {
        ensure_eq!(cx.backend().current_device()?, first, "the current device after {what}");
        Ok(())
    };
    let mut room = Room::reserve(cx, second, 1)?;
    stays("reserve_address")?;
    let handle = room.create(HandleType::None)?;
    stays("create_physical")?;
    room.map(0, handle)?;
    stays("map")?;
    room.set_access(0, &[second], Access::ReadWrite)?;
    stays("set_access")?;
    room.unmap(0)?;
    stays("unmap")?;
    room.release(handle)?;
    stays("release_physical")?;
    room.close()?;
    stays("release_address")
}

fn unmap_does_not_wait(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let mut room = Room::reserve(cx, device, 1)?;
    let handle = room.furnish(0)?;
    let stream = cx.stream()?;
    let gate = cx.close(stream.handle)?;
    prompt("unmap", || {
        room.unmap(0)?;
        room.map(0, handle)?;
        Ok(room.set_access(0, &[device], Access::ReadWrite)?)
    })?;
    cx.stays_busy(stream.handle)?;
    gate.open();
    cx.eventually_idle(stream.handle)?;
    room.close()
}

fn private_memory_stays(cx: &Context) -> Verdict {
    let vmm = cx.backend().physical_sharing()?;
    let mut room = Room::reserve(cx, cx.device()?, 1)?;
    let handle = room.create(HandleType::None)?;
    let kinds = [ErrorKind::NotSupported, ErrorKind::InvalidValue];
    refused("export of private memory", vmm.export_physical(handle, HandleType::PosixFd), &kinds)?;
    room.close()
}

fn foreign_descriptor(cx: &Context) -> Verdict {
    let vmm = cx.backend().physical_sharing()?;
    let file = std::fs::File::open("/dev/null")?;
    let answer = vmm.import_physical(DeviceIndex(0), &ShareableHandle::PosixFd(file.into()));
    let kinds = [ErrorKind::InvalidValue, ErrorKind::NotSupported, ErrorKind::Other];
    refused("import of a file that is no memory", answer, &kinds)?;
    Ok(())
}
