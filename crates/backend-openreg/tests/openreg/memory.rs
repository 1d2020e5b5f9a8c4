//! Device memory: accounting, addresses, frees, and what pointers are.

use crate::support::*;
use alloc_core::backend::*;
use alloc_core::types::DevicePtr;
use backend_openreg::{Call, OpenRegConfig};

#[test]
fn large_requests_take_granules_and_small_ones_take_512_bytes() {
    let machine = machine(OpenRegConfig::default());
    for (bytes, accounted) in [
        (1, 512),
        (512, 512),
        (513, 1024),
        (MIB - 1, MIB),
        (MIB, 2 * MIB),
        (2 * MIB, 2 * MIB),
        (2 * MIB + 1, 4 * MIB),
        (3 * GIB, 3 * GIB),
    ] {
        let at = machine.malloc(D0, bytes).unwrap();
        assert_eq!(machine.used(D0), accounted, "for {bytes} bytes");
        assert_eq!(machine.used(D1), 0);
        free(&machine, D0, at).unwrap();
        assert_eq!(machine.used(D0), 0);
    }
    assert_eq!(machine.peak_used(D0), 3 * GIB);
    machine.reset_peak(D0);
    assert_eq!(machine.peak_used(D0), 0);
}

#[test]
fn a_full_device_refuses_and_changes_nothing() {
    let machine = machine(OpenRegConfig::default().capacity(5 * MIB));
    let large = machine.malloc(D0, 3 * MIB).unwrap();
    assert_eq!(machine.memory_info(D0).unwrap(), MemoryInfo { free: MIB, total: 5 * MIB });
    let error = machine.malloc(D0, MIB).unwrap_err();
    assert!(error.is_out_of_memory(), "1 MiB takes 2 MiB, and 1 MiB is free: {error}");
    assert_eq!(error.call, "orMalloc");
    assert_eq!(machine.used(D0), 4 * MIB);
    let small = machine.malloc(D0, MIB - 512).unwrap();
    machine.malloc(D1, 4 * MIB).expect("devices do not share their memory");
    machine.set_capacity(D0, MIB);
    assert_eq!(machine.memory_info(D0).unwrap(), MemoryInfo { free: 0, total: MIB });
    free(&machine, D0, large).unwrap();
    assert_eq!(machine.malloc(D0, 512).map_err(|error| error.kind).unwrap(), large, "512 bytes are left");
    assert_eq!(kind(machine.malloc(D0, 512)), ErrorKind::OutOfMemory);
    free(&machine, D0, small).unwrap();
}

#[test]
fn sizes_without_sense_are_refused() {
    let machine = machine(OpenRegConfig::default());
    assert_eq!(kind(machine.malloc(D0, 0)), ErrorKind::InvalidValue);
    assert_eq!(kind(machine.malloc(D0, u64::MAX)), ErrorKind::OutOfMemory);
    assert_eq!(machine.used(D0), 0);
}

#[test]
fn a_device_may_be_large_at_no_cost() {
    let machine = machine(OpenRegConfig::default());
    assert_eq!(machine.capacity(D0), 80 * GIB);
    let at = machine.malloc(D0, 80 * GIB).unwrap();
    fill(&machine, at, 1, 80 * GIB, machine.default_stream(D0)).unwrap();
    machine.synchronize_device(D0).unwrap();
    free(&machine, D0, at).unwrap();
}

#[test]
fn memory_is_aligned_and_disjoint() {
    let machine = machine(OpenRegConfig::default());
    let mut ranges: Vec<(u64, u64)> = (0..300_u64)
        .map(|round| {
            let bytes = 1 + (round * round * 7919) % (3 * MIB);
            (machine.malloc(D0, bytes).unwrap().0, bytes)
        })
        .collect();
    ranges.sort_unstable();
    assert!(ranges.iter().all(|(at, _)| at % 512 == 0));
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
}

#[test]
fn the_lowest_free_address_is_taken_in_every_run() {
    let run = || {
        let machine = machine(OpenRegConfig::default());
        let [first, second, third] = [4, 6, 2].map(|size| machine.malloc(D0, size * MIB).unwrap());
        assert_eq!((second.0 - first.0, third.0 - second.0), (4 * MIB, 6 * MIB));
        free(&machine, D0, second).unwrap();
        assert_eq!(machine.malloc(D0, 7 * MIB).unwrap(), third.add(2 * MIB), "too large for the hole");
        assert_eq!(machine.malloc(D0, 2 * MIB).unwrap(), second);
        assert_eq!(machine.malloc(D0, 4 * MIB).unwrap(), second.add(2 * MIB));
        free(&machine, D0, first).unwrap();
        assert_eq!(machine.malloc(D0, 512).unwrap(), first);
        assert!(machine.malloc(D1, 512).unwrap() > third, "each device has addresses of its own");
        first
    };
    assert_eq!(run(), run());
}

#[test]
fn wrong_frees_are_refused() {
    let (machine, other) = (machine(OpenRegConfig::default()), machine(OpenRegConfig::default()));
    let at = machine.malloc(D0, 3 * MIB).unwrap();
    free(&machine, D0, DevicePtr::NULL).expect("null is no memory");
    for (device, ptr) in [(D0, at.add(512)), (D0, DevicePtr(4096)), (D0, DevicePtr(u64::MAX)), (D1, at)] {
        assert_eq!(kind(free(&machine, device, ptr)), ErrorKind::InvalidValue);
    }
    assert_eq!(kind(free(&other, D0, at)), ErrorKind::InvalidValue);
    free(&machine, D0, at).unwrap();
    assert_eq!(kind(free(&machine, D0, at)), ErrorKind::InvalidValue, "twice");
    let reservation = vmm(&machine).reserve_address(D0, GRANULE, 0, DevicePtr::NULL).unwrap();
    assert_eq!(kind(free(&machine, D0, reservation)), ErrorKind::InvalidValue);
    assert_eq!(machine.used(D0), 0);
    assert!(machine.traps().is_empty());
}

#[test]
fn every_byte_knows_its_allocation() {
    let machine = machine(OpenRegConfig::default());
    let at = machine.malloc(D1, 1000).unwrap();
    let known = PointerInfo { kind: PointerKind::Device, device: Some(D1), base: at };
    for offset in [0, 1, 511, 999] {
        assert_eq!(machine.pointer_info(at.add(offset)).unwrap(), known);
        let range = machine.address_range(at.add(offset)).unwrap();
        assert_eq!(range, AddressRange { base: at, bytes: 1000 });
    }
    let unknown = PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL };
    let local = 7_u8;
    let host = (&raw const local).expose_provenance() as u64;
    for ptr in [0, 1, host, at.0 - 1, at.0 + 1000, u64::MAX] {
        assert_eq!(machine.pointer_info(DevicePtr(ptr)).unwrap(), unknown);
        assert_eq!(kind(machine.address_range(DevicePtr(ptr))), ErrorKind::InvalidValue);
    }
    let mapping = map_new(&machine, D0, GRANULE).unwrap();
    let info = machine.pointer_info(mapping.add(4097)).unwrap();
    assert_eq!(info, PointerInfo { kind: PointerKind::Device, device: Some(D0), base: mapping });
}

#[test]
fn host_memory_is_real_and_known() {
    let machine = machine(OpenRegConfig::default());
    host_free(&machine, DevicePtr::NULL).expect("null is no memory");
    assert_eq!(kind(machine.host_malloc(0, HostFlags::empty())), ErrorKind::InvalidValue);
    let at = machine.host_malloc(5000, HostFlags::PORTABLE).unwrap();
    assert!(at.0.is_multiple_of(4096));
    let bytes = std::ptr::with_exposed_provenance_mut::<u8>(at.0 as usize);
    // SAFETY: 5000 writable bytes were just handed out, and nothing else uses them.
    unsafe { bytes.write_bytes(9, 5000) };
    let info = machine.pointer_info(at.add(4999)).unwrap();
    assert_eq!(info, PointerInfo { kind: PointerKind::Host, device: None, base: at });
    assert_eq!(kind(host_free(&machine, at.add(1))), ErrorKind::InvalidValue);
    host_free(&machine, at).unwrap();
    assert_eq!(kind(host_free(&machine, at)), ErrorKind::InvalidValue);
    assert_eq!(machine.pointer_info(at).unwrap().kind, PointerKind::Unmanaged);
    assert_eq!(machine.used(D0), 0, "it is no device's memory");
}

#[test]
fn calls_are_counted_by_name_failed_ones_too() {
    let machine = machine(OpenRegConfig::default().capacity(4 * MIB));
    let before = machine.calls();
    let at = machine.malloc(D0, MIB).unwrap();
    assert_eq!(kind(machine.malloc(D0, 4 * MIB)), ErrorKind::OutOfMemory);
    free(&machine, D0, at).unwrap();
    let made = machine.calls().since(&before);
    assert_eq!(made.iter().collect::<Vec<_>>(), [(Call::Malloc, 2), (Call::Free, 1)]);
    assert_eq!((made.get(Call::Malloc), made.get(Call::Map), made.total()), (2, 0, 3));
    assert_eq!(machine.used(D0) + machine.peak_used(D0), 2 * MIB, "observing costs no call");
    assert_eq!(machine.calls().total(), 3);
    machine.reset_calls();
    assert_eq!(machine.calls().total(), 0);
}
