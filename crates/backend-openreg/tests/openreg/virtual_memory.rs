//! Virtual memory: the states of reservations, handles and mappings.

use crate::support::{D0, D1, GRANULE as UNIT};
use backend_api::types::{DevicePtr, MIB};
use backend_api::*;
use backend_openreg::{Clock, Driver, MemoryMode, OpenReg, OpenRegConfig, PhysicalProperties, TrapKind};
use std::sync::Arc;

fn machines() -> [Arc<OpenReg>; 2] {
    [MemoryMode::Reserved, MemoryMode::Mapped]
        .map(|mode| OpenReg::new(OpenRegConfig::default().memory(mode).capacity(64 * MIB)).unwrap())
}

fn invalid<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().kind, ErrorKind::InvalidValue);
}

#[test]
fn one_cycle_from_reserve_to_release() {
    for machine in machines() {
        let vm = machine.virtual_memory().unwrap();
        assert_eq!(vm.granularity(D0, Granularity::Minimum).unwrap(), UNIT);
        let base = vm.reserve_address(D0, 8 * UNIT, 0, DevicePtr::NULL).unwrap();
        assert_eq!(machine.used(D0), 0, "addresses cost nothing");
        assert_eq!(machine.pointer_info(base).unwrap().kind, PointerKind::Unmanaged);
        let handle = vm.create_physical(D0, 2 * UNIT, HandleType::None).unwrap();
        assert_eq!(machine.used(D0), 2 * UNIT);
        let properties = PhysicalProperties { device: D0, bytes: 2 * UNIT, handle_type: HandleType::None };
        assert_eq!(Driver(&machine).physical_properties(handle).unwrap(), properties);
        let at = base.add(UNIT);
        // SAFETY: the range lies in the reservation and the handle is of that size.
        unsafe { vm.map(at, 2 * UNIT, handle) }.unwrap();
        assert_eq!(vm.access(at, D0).unwrap(), Access::None);
        assert!(machine.use_memory(machine.default_stream(D0), at, 1).is_err());
        assert_eq!(machine.take_traps()[0].kind, TrapKind::NoAccess);
        // SAFETY: the range is mapped.
        unsafe { vm.set_access(at, 2 * UNIT, &[D0], Access::ReadWrite) }.unwrap();
        assert_eq!(
            (vm.access(at, D0).unwrap(), vm.access(at, D1).unwrap()),
            (Access::ReadWrite, Access::None)
        );
        machine.use_memory(machine.default_stream(D0), at, 2 * UNIT).unwrap();
        let info = machine.pointer_info(at.add(5)).unwrap();
        assert_eq!(info, PointerInfo { kind: PointerKind::Device, device: Some(D0), base: at });
        // SAFETY: the handle is not used again; the mapping keeps the memory.
        unsafe { vm.release_physical(handle) }.unwrap();
        assert_eq!(machine.used(D0), 2 * UNIT);
        invalid(Driver(&machine).physical_properties(handle));
        let again = Driver(&machine).retain_physical(at.add(7)).unwrap();
        // SAFETY: refused while something is mapped.
        invalid(unsafe { vm.release_address(base, 8 * UNIT) });
        // SAFETY: rule 3.
        unsafe { vm.unmap(at, 2 * UNIT) }.unwrap();
        assert_eq!(machine.used(D0), 2 * UNIT, "the retained handle holds it");
        // SAFETY: the handle is not used again.
        unsafe { vm.release_physical(again) }.unwrap();
        assert_eq!(machine.used(D0), 0);
        // SAFETY: refused: not the whole reservation.
        invalid(unsafe { vm.release_address(base, UNIT) });
        // SAFETY: rule 3.
        unsafe { vm.release_address(base, 8 * UNIT) }.unwrap();
        assert_eq!(vm.reserve_address(D0, UNIT, 0, DevicePtr::NULL).unwrap(), base);
        assert!(machine.traps().is_empty());
    }
}

#[test]
fn wrong_sizes_places_and_orders_are_refused() {
    for machine in machines() {
        let vm = machine.virtual_memory().unwrap();
        let base = vm.reserve_address(D0, 4 * UNIT, 0, DevicePtr::NULL).unwrap();
        let handle = vm.create_physical(D0, 2 * UNIT, HandleType::None).unwrap();
        invalid(vm.create_physical(D0, UNIT + 4096, HandleType::None));
        invalid(vm.reserve_address(D0, 100, 0, DevicePtr::NULL));
        invalid(vm.reserve_address(D0, UNIT, 3, DevicePtr::NULL));
        assert_eq!(
            vm.create_physical(D0, 64 * MIB, HandleType::None).unwrap_err().kind,
            ErrorKind::OutOfMemory
        );
        assert_eq!(
            vm.create_physical(D0, UNIT, HandleType::Fabric).unwrap_err().kind,
            ErrorKind::NotSupported
        );
        // SAFETY: all of these are refused; that is what is tested.
        invalid(unsafe { vm.map(base, UNIT, handle) });
        // SAFETY: as above.
        invalid(unsafe { vm.map(base.add(3 * UNIT), 2 * UNIT, handle) });
        // SAFETY: as above.
        invalid(unsafe { vm.map(base.add(4096), 2 * UNIT, handle) });
        // SAFETY: as above.
        invalid(unsafe { vm.set_access(base, 2 * UNIT, &[D0], Access::ReadWrite) });
        // SAFETY: this one is right.
        unsafe { vm.map(base.add(UNIT), 2 * UNIT, handle) }.unwrap();
        for at in [0, 1, 2] {
            // SAFETY: refused: it overlaps.
            invalid(unsafe { vm.map(base.add(at * UNIT), 2 * UNIT, handle) });
        }
        // SAFETY: refused: not whole mappings.
        invalid(unsafe { vm.unmap(base.add(UNIT), UNIT) });
        // SAFETY: as above.
        invalid(unsafe { vm.unmap(base, 3 * UNIT) });
        assert_eq!(machine.used(D0), 2 * UNIT);
        let hinted = vm.reserve_address(D0, UNIT, 0, base.add(16 * UNIT)).unwrap();
        assert_eq!(hinted, base.add(16 * UNIT));
        assert_ne!(vm.reserve_address(D0, UNIT, 0, hinted).unwrap(), hinted, "a taken hint is only a hint");
        assert_eq!(vm.reserve_address(D0, UNIT, 64 * MIB, DevicePtr::NULL).unwrap().0 % (64 * MIB), 0);
    }
}

#[test]
fn several_mappings_are_unmapped_together_unless_in_use() {
    let config = OpenRegConfig::default().clock(Clock::Virtual { lag: 10 });
    let machine = OpenReg::new(config).unwrap();
    let vm = machine.virtual_memory().unwrap();
    let base = vm.reserve_address(D0, 3 * UNIT, 0, DevicePtr::NULL).unwrap();
    for index in 0..3 {
        let handle = vm.create_physical(D0, UNIT, HandleType::None).unwrap();
        // SAFETY: inside the reservation, where nothing is mapped.
        unsafe { vm.map(base.add(index * UNIT), UNIT, handle) }.unwrap();
        // SAFETY: not used again.
        unsafe { vm.release_physical(handle) }.unwrap();
    }
    // SAFETY: the range is mapped.
    unsafe { vm.set_access(base, 3 * UNIT, &[D0, D1], Access::ReadWrite) }.unwrap();
    machine.use_memory(machine.default_stream(D1), base.add(UNIT - 1), 2).unwrap();
    // SAFETY: trapped, that is what is tested.
    invalid(unsafe { vm.unmap(base, 3 * UNIT) });
    // SAFETY: as above.
    invalid(unsafe { vm.set_access(base, UNIT, &[D1], Access::None) });
    assert!(machine.take_traps().iter().all(|trap| trap.kind == TrapKind::StillInUse));
    assert_eq!(machine.used(D0), 3 * UNIT);
    machine.advance(10);
    // SAFETY: rule 3.
    unsafe { vm.unmap(base, 3 * UNIT) }.unwrap();
    assert_eq!(machine.used(D0), 0);
    assert!(machine.use_memory(machine.default_stream(D0), base, 1).is_err());
    assert_eq!(machine.traps()[0].kind, TrapKind::Unallocated);
}

#[test]
fn exported_memory_is_imported_as_the_same_memory() {
    for machine in machines() {
        let vm = machine.physical_sharing().unwrap();
        let private = vm.create_physical(D0, UNIT, HandleType::None).unwrap();
        assert_eq!(
            vm.export_physical(private, HandleType::PosixFd).unwrap_err().kind,
            ErrorKind::NotSupported
        );
        let handle = vm.create_physical(D0, UNIT, HandleType::PosixFd).unwrap();
        let shared = vm.export_physical(handle, HandleType::PosixFd).unwrap();
        let imported = vm.import_physical(D0, &shared).unwrap();
        assert_eq!(machine.used(D0), 2 * UNIT, "the same memory is not accounted twice");
        assert_eq!(Driver(&machine).physical_properties(imported).unwrap().bytes, UNIT);
        let other = OpenReg::new(machine.config().clone()).unwrap();
        let elsewhere = other.physical_sharing().unwrap().import_physical(D1, &shared).unwrap();
        assert_eq!(other.used(D1), 0, "the exporter accounts for it");
        assert_eq!(Driver(&other).physical_properties(elsewhere).unwrap().bytes, UNIT);
        // SAFETY: neither handle is used again.
        unsafe { vm.release_physical(handle) }.unwrap();
        // SAFETY: as above.
        unsafe { vm.release_physical(imported) }.unwrap();
        assert_eq!(machine.used(D0), UNIT);
        let file = std::fs::File::open("/dev/null").unwrap();
        invalid(vm.import_physical(D0, &ShareableHandle::PosixFd(file.into())));
    }
}

#[test]
fn switched_off_families_say_so() {
    let machine = OpenReg::new(OpenRegConfig::default().without_virtual_memory()).unwrap();
    let absent = machine.virtual_memory().unwrap_err();
    assert!(absent.to_string().contains("switched off"), "{absent}");
    assert_eq!(machine.attribute(D0, Attribute::VirtualMemoryManagement).unwrap(), 0);
    assert!(machine.ipc().unwrap_err().reason.contains("reserved memory"));
    let ptr = machine.malloc(D0, 512).unwrap();
    assert_eq!(
        Driver(&machine).host_access_of(ptr).unwrap_err().kind,
        ErrorKind::NotSupported,
        "it has no bytes"
    );
    machine.peers().unwrap();
    machine.capture().unwrap();
}
