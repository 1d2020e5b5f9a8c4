//! Physical handles: how long they live, where they may be mapped, and whom they serve.

use crate::support::*;
use backend_api::types::{DevicePtr, PhysicalHandle};
use backend_api::*;
use backend_openreg::{Driver, OpenReg, OpenRegConfig, PhysicalProperties};

fn create(machine: &OpenReg, granules: u64) -> PhysicalHandle {
    vmm(machine).create_physical(D0, granules * GRANULE, HandleType::None).expect("it fits")
}

fn reserve(machine: &OpenReg, granules: u64) -> DevicePtr {
    vmm(machine).reserve_address(D0, granules * GRANULE, 0, DevicePtr::NULL).expect("there is room")
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
fn memory_lives_while_it_has_a_handle_or_a_mapping() {
    let machine = machine(OpenRegConfig::default().capacity(2 * GRANULE));
    let (at, handle) = (reserve(&machine, 2), create(&machine, 2));
    let refused = vmm(&machine).create_physical(D0, GRANULE, HandleType::None);
    assert_eq!(kind(refused), ErrorKind::OutOfMemory);
    map(&machine, at, 2 * GRANULE, handle).unwrap();
    release_physical(&machine, handle).unwrap();
    assert_eq!(machine.used(D0), 2 * GRANULE);
    assert_eq!(kind(release_physical(&machine, handle)), ErrorKind::InvalidValue);
    let again = Driver(&machine).retain_physical(at.add(GRANULE)).unwrap();
    unmap(&machine, at, 2 * GRANULE).unwrap();
    assert_eq!(machine.used(D0), 2 * GRANULE, "the retained handle holds it");
    let properties = Driver(&machine).physical_properties(again).unwrap();
    let expected = PhysicalProperties { device: D0, bytes: 2 * GRANULE, handle_type: HandleType::None };
    assert_eq!(properties, expected);
    release_physical(&machine, again).unwrap();
    assert_eq!(machine.used(D0), 0);
    assert_eq!(kind(Driver(&machine).physical_properties(again)), ErrorKind::InvalidValue);
    assert_eq!(kind(map(&machine, at, 2 * GRANULE, again)), ErrorKind::InvalidValue);
    assert_eq!(kind(Driver(&machine).retain_physical(at)), ErrorKind::InvalidValue);
}

#[test]
fn handles_of_other_machines_are_refused() {
    let (machine, other) = (machine(OpenRegConfig::default()), machine(OpenRegConfig::default()));
    let (at, own, foreign) = (reserve(&machine, 1), create(&machine, 1), create(&other, 1));
    assert_eq!(own.raw, foreign.raw, "the numbers alone would not tell");
    assert_eq!(kind(map(&machine, at, GRANULE, foreign)), ErrorKind::InvalidValue);
    assert_eq!(kind(release_physical(&machine, foreign)), ErrorKind::InvalidValue);
    assert_eq!(kind(Driver(&machine).physical_properties(foreign)), ErrorKind::InvalidValue);
    assert_eq!(kind(vmm(&machine).export_physical(foreign, HandleType::PosixFd)), ErrorKind::InvalidValue);
    assert_eq!(machine.used(D0), GRANULE);
}
