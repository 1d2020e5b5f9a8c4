//! Virtual memory: who may do what when.

use crate::support::*;
use alloc_core::backend::*;
use alloc_core::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_openreg::{OpenReg, OpenRegConfig};

fn create(machine: &OpenReg, granules: u64) -> PhysicalHandle {
    vmm(machine).create_physical(D0, granules * GRANULE, HandleType::None).expect("it fits")
}

fn reserve(machine: &OpenReg, granules: u64) -> DevicePtr {
    vmm(machine).reserve_address(D0, granules * GRANULE, 0, DevicePtr::NULL).expect("there is room")
}

#[test]
fn sizes_are_whole_granules() {
    let machine = machine(OpenRegConfig::default().granularity(64 * KIB));
    let unit = vmm(&machine).granularity(D0, Granularity::Recommended).unwrap();
    assert_eq!(unit, 64 * KIB);
    for bytes in [0, 1, unit - 1, unit + 4096] {
        let created = vmm(&machine).create_physical(D0, bytes, HandleType::None);
        assert_eq!(kind(created), ErrorKind::InvalidValue);
        let reserved = vmm(&machine).reserve_address(D0, bytes, 0, DevicePtr::NULL);
        assert_eq!(kind(reserved), ErrorKind::InvalidValue);
    }
    assert!(vmm(&machine).create_physical(D0, 3 * unit, HandleType::None).is_ok());
    assert_eq!(machine.used(D0), 3 * unit, "physical memory is accounted as asked for");
}

#[test]
fn reservations_cost_addresses_only() {
    let machine = machine(OpenRegConfig::default().capacity(GRANULE));
    let first = reserve(&machine, 4096);
    let second = reserve(&machine, 1);
    assert_eq!(second, first.add(4096 * GRANULE), "the lowest free address");
    assert_eq!(machine.used(D0), 0);
    let aligned = vmm(&machine).reserve_address(D0, GRANULE, GIB, DevicePtr::NULL).unwrap();
    assert!(aligned.0.is_multiple_of(GIB));
    let odd = vmm(&machine).reserve_address(D0, GRANULE, 3 * GRANULE, DevicePtr::NULL);
    assert_eq!(kind(odd), ErrorKind::InvalidValue);
    let hint = aligned.add(64 * GIB);
    assert_eq!(vmm(&machine).reserve_address(D0, GRANULE, 0, hint).unwrap(), hint);
    let taken = vmm(&machine).reserve_address(D0, GRANULE, 0, hint).unwrap();
    assert_ne!(taken, hint, "a hint is only a hint");
    assert_eq!(kind(release_address(&machine, first, GRANULE)), ErrorKind::InvalidValue);
    assert_eq!(kind(release_address(&machine, first.add(GRANULE), GRANULE)), ErrorKind::InvalidValue);
    release_address(&machine, first, 4096 * GRANULE).unwrap();
    assert_eq!(kind(release_address(&machine, first, 4096 * GRANULE)), ErrorKind::InvalidValue);
    assert_eq!(reserve(&machine, 1), first);
}

#[test]
fn mapping_needs_a_whole_handle_and_free_reserved_addresses() {
    let machine = machine(OpenRegConfig::default());
    let (at, handle) = (reserve(&machine, 4), create(&machine, 2));
    for (place, bytes) in [
        (at, GRANULE),
        (at, 3 * GRANULE),
        (at.add(4096), 2 * GRANULE),
        (at.add(3 * GRANULE), 2 * GRANULE),
        (at.add(64 * GRANULE), 2 * GRANULE),
        (DevicePtr(u64::MAX - GRANULE + 1), 2 * GRANULE),
        (DevicePtr::NULL, 2 * GRANULE),
    ] {
        assert_eq!(kind(map(&machine, place, bytes, handle)), ErrorKind::InvalidValue, "{place} +{bytes}");
    }
    let malloc = machine.malloc(D0, 8 * GRANULE).unwrap();
    assert_eq!(kind(map(&machine, malloc, 2 * GRANULE, handle)), ErrorKind::InvalidValue);
    map(&machine, at.add(GRANULE), 2 * GRANULE, handle).unwrap();
    for taken in 0..3 {
        let again = map(&machine, at.add(taken * GRANULE), 2 * GRANULE, handle);
        assert_eq!(kind(again), ErrorKind::InvalidValue, "part of it is mapped");
    }
    let small = create(&machine, 1);
    map(&machine, at, GRANULE, small).unwrap();
    map(&machine, at.add(3 * GRANULE), GRANULE, small).expect("one handle may be mapped in many places");
}

#[test]
fn access_comes_after_the_mapping_and_covers_whole_mappings() {
    let machine = machine(OpenRegConfig::default());
    let (at, stream) = (reserve(&machine, 2), machine.default_stream(D0));
    let every = |access| set_access(&machine, at, 2 * GRANULE, &[D0], access);
    assert_eq!(kind(every(Access::ReadWrite)), ErrorKind::InvalidValue, "nothing is mapped");
    map(&machine, at, GRANULE, create(&machine, 1)).unwrap();
    assert_eq!(kind(every(Access::ReadWrite)), ErrorKind::InvalidValue, "the second granule is not mapped");
    assert_eq!(vmm(&machine).access(at, D0).unwrap(), Access::None);
    assert_eq!(kind(machine.use_memory(stream, at, 1)), ErrorKind::InvalidValue);
    map(&machine, at.add(GRANULE), GRANULE, create(&machine, 1)).unwrap();
    let half = set_access(&machine, at, GRANULE / 2, &[D0], Access::ReadWrite);
    assert_eq!(kind(half), ErrorKind::InvalidValue);
    let absent = set_access(&machine, at, GRANULE, &[DeviceIndex(9)], Access::ReadWrite);
    assert_eq!(kind(absent), ErrorKind::InvalidValue);
    every(Access::ReadWrite).unwrap();
    machine.use_memory(stream, at, 2 * GRANULE).expect("work may cross adjacent mappings");
    assert_eq!(vmm(&machine).access(at.add(GRANULE + 5), D0).unwrap(), Access::ReadWrite);
    assert_eq!(vmm(&machine).access(at, D1).unwrap(), Access::None);
    every(Access::Read).unwrap();
    assert_eq!(vmm(&machine).access(at, D0).unwrap(), Access::Read);
    assert_eq!(kind(fill(&machine, at, 0, 1, stream)), ErrorKind::InvalidValue);
    every(Access::None).unwrap();
    assert_eq!(vmm(&machine).access(at, D0).unwrap(), Access::None);
    assert_eq!(kind(vmm(&machine).access(at.add(2 * GRANULE), D0)), ErrorKind::InvalidValue);
}

#[test]
fn unmapping_takes_whole_mappings_and_precedes_the_release_of_addresses() {
    let machine = machine(OpenRegConfig::default());
    let at = reserve(&machine, 4);
    map(&machine, at, 2 * GRANULE, create(&machine, 2)).unwrap();
    map(&machine, at.add(2 * GRANULE), GRANULE, create(&machine, 1)).unwrap();
    for (place, bytes) in [
        (at, GRANULE),
        (at.add(GRANULE), GRANULE),
        (at, 4 * GRANULE),
        (at, 0),
        (at.add(3 * GRANULE), GRANULE),
        (at, u64::MAX),
    ] {
        assert_eq!(kind(unmap(&machine, place, bytes)), ErrorKind::InvalidValue, "{place} +{bytes}");
    }
    assert_eq!(kind(release_address(&machine, at, 4 * GRANULE)), ErrorKind::InvalidValue);
    unmap(&machine, at, 3 * GRANULE).expect("adjacent mappings go together");
    assert_eq!(kind(unmap(&machine, at, 3 * GRANULE)), ErrorKind::InvalidValue);
    release_address(&machine, at, 4 * GRANULE).unwrap();
}

#[test]
fn memory_lives_while_it_has_a_handle_or_a_mapping() {
    let machine = machine(OpenRegConfig::default().capacity(2 * GRANULE));
    let (at, handle) = (reserve(&machine, 2), create(&machine, 2));
    let refused = vmm(&machine).create_physical(D0, GRANULE, HandleType::None);
    assert_eq!(kind(refused), ErrorKind::OutOfMemory);
    map(&machine, at, 2 * GRANULE, handle).unwrap();
    release_physical(&machine, handle).unwrap();
    assert_eq!(machine.used(D0), 2 * GRANULE);
    assert_eq!(kind(release_physical(&machine, handle)), ErrorKind::InvalidValue);
    let again = vmm(&machine).retain_physical(at.add(GRANULE)).unwrap();
    unmap(&machine, at, 2 * GRANULE).unwrap();
    assert_eq!(machine.used(D0), 2 * GRANULE, "the retained handle holds it");
    let properties = vmm(&machine).physical_properties(again).unwrap();
    let expected = PhysicalProperties { device: D0, bytes: 2 * GRANULE, handle_type: HandleType::None };
    assert_eq!(properties, expected);
    release_physical(&machine, again).unwrap();
    assert_eq!(machine.used(D0), 0);
    assert_eq!(kind(vmm(&machine).physical_properties(again)), ErrorKind::InvalidValue);
    assert_eq!(kind(map(&machine, at, 2 * GRANULE, again)), ErrorKind::InvalidValue);
    assert_eq!(kind(vmm(&machine).retain_physical(at)), ErrorKind::InvalidValue);
}

#[test]
fn handles_of_other_machines_are_refused() {
    let (machine, other) = (machine(OpenRegConfig::default()), machine(OpenRegConfig::default()));
    let (at, own, foreign) = (reserve(&machine, 1), create(&machine, 1), create(&other, 1));
    assert_eq!(own.raw, foreign.raw, "the numbers alone would not tell");
    assert_eq!(kind(map(&machine, at, GRANULE, foreign)), ErrorKind::InvalidValue);
    assert_eq!(kind(release_physical(&machine, foreign)), ErrorKind::InvalidValue);
    assert_eq!(kind(vmm(&machine).physical_properties(foreign)), ErrorKind::InvalidValue);
    assert_eq!(kind(vmm(&machine).export_physical(foreign, HandleType::PosixFd)), ErrorKind::InvalidValue);
    assert_eq!(machine.used(D0), GRANULE);
}

#[test]
fn only_devices_that_reach_the_memory_get_access() {
    let machine = machine(OpenRegConfig::default().without_peer(D1, D0));
    let at = map_new(&machine, D0, GRANULE).unwrap();
    let refused = set_access(&machine, at, GRANULE, &[D0, D1], Access::ReadWrite);
    assert_eq!(kind(refused), ErrorKind::InvalidValue);
    assert_eq!(vmm(&machine).access(at, D1).unwrap(), Access::None);
    let there = map_new(&machine, D1, GRANULE).unwrap();
    set_access(&machine, there, GRANULE, &[D0], Access::ReadWrite).expect("the other way is open");
    machine.use_memory(machine.default_stream(D0), there, GRANULE).unwrap();
    machine.use_memory(machine.default_stream(D1), there, GRANULE).unwrap();
}

#[test]
fn handles_can_be_exported_and_imported() {
    for machine in [machine(OpenRegConfig::default()), mapped()] {
        let plain = create(&machine, 1);
        assert_eq!(kind(vmm(&machine).export_physical(plain, HandleType::PosixFd)), ErrorKind::NotSupported);
        let fabric = vmm(&machine).create_physical(D0, GRANULE, HandleType::Fabric);
        assert_eq!(kind(fabric), ErrorKind::NotSupported);
        let handle = vmm(&machine).create_physical(D0, GRANULE, HandleType::PosixFd).unwrap();
        let shared = vmm(&machine).export_physical(handle, HandleType::PosixFd).unwrap();
        let imported = vmm(&machine).import_physical(D0, &shared).unwrap();
        let properties = vmm(&machine).physical_properties(imported).unwrap();
        assert_eq!((properties.bytes, properties.handle_type), (GRANULE, HandleType::PosixFd));
        assert_eq!(machine.used(D0), 2 * GRANULE, "imported memory is accounted where it was made");
        release_physical(&machine, handle).unwrap();
        assert_eq!(machine.used(D0), 2 * GRANULE, "the import holds it");
        release_physical(&machine, imported).unwrap();
        assert_eq!(machine.used(D0), GRANULE);
        let fabric = vmm(&machine).import_physical(D0, &ShareableHandle::Fabric([0; 64]));
        assert_eq!(kind(fabric), ErrorKind::NotSupported);
        let null = std::fs::File::open("/dev/null").unwrap();
        let wrong = vmm(&machine).import_physical(D0, &ShareableHandle::PosixFd(null.into()));
        assert_eq!(kind(wrong), ErrorKind::InvalidValue);
    }
}
