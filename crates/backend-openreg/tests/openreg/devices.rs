//! Devices: which there are, which is current, and what they say of themselves.

use crate::support::*;
use backend_api::types::{DeviceIndex, DeviceKind, Stream};
use backend_api::*;
use backend_openreg::{Call, Driver, FaultPlan, OpenRegConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn the_current_device_belongs_to_the_thread_and_the_machine() {
    let (machine, other) = (machine(OpenRegConfig::default()), machine(OpenRegConfig::default()));
    machine.set_device(D1).unwrap();
    assert_eq!(machine.current_device().unwrap(), D1);
    assert_eq!(other.current_device().unwrap(), D0);
    let seen = std::thread::scope(|scope| scope.spawn(|| machine.current_device().unwrap()).join().unwrap());
    assert_eq!(seen, D0);
    machine.malloc(D0, 512).unwrap();
    assert_eq!(kind(machine.malloc(D0, 0)), ErrorKind::InvalidValue);
    assert_eq!(machine.current_device().unwrap(), D1, "calls leave it as they found it");
}

#[test]
fn a_guard_restores_the_device_on_every_exit() {
    let machine = machine(OpenRegConfig::default().devices(3));
    machine.set_device(DeviceIndex(2)).unwrap();
    {
        let guard = DeviceGuard::new(&*machine, D1).unwrap();
        assert_eq!(guard.previous(), DeviceIndex(2));
        assert_eq!(machine.current_device().unwrap(), D1);
    }
    assert_eq!(machine.current_device().unwrap(), DeviceIndex(2));
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _guard = DeviceGuard::new(&*machine, D0).unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err());
    assert_eq!(machine.current_device().unwrap(), DeviceIndex(2));
    assert_eq!(DeviceGuard::new(&*machine, DeviceIndex(3)).unwrap_err().kind, ErrorKind::InvalidValue);
    machine.set_faults(FaultPlan::none().fail_nth_of(Call::SetDevice, 1, ErrorKind::Other));
    assert_eq!(DeviceGuard::new(&*machine, D0).unwrap_err().kind, ErrorKind::Other);
    assert_eq!(machine.current_device().unwrap(), DeviceIndex(2));
}

#[test]
fn absent_devices_are_refused_by_every_call() {
    let machine = machine(OpenRegConfig::default().devices(1));
    assert_eq!(machine.device_count().unwrap(), 1);
    let stream = Stream { device: D1, ..machine.default_stream(D0) };
    let answers = [
        kind(machine.set_device(D1)),
        kind(machine.malloc(D1, 512)),
        kind(machine.memory_info(D1)),
        kind(machine.properties(D1)),
        kind(machine.attribute(D1, Attribute::WarpSize)),
        kind(machine.has_primary_context(DeviceIndex(u16::MAX))),
        kind(machine.create_stream(D1, 0)),
        kind(machine.create_event(D1, EventFlags::empty())),
        kind(machine.synchronize_device(D1)),
        kind(machine.synchronize_stream(stream)),
        kind(machine.priority_range(D1)),
        kind(vmm(&machine).granularity(D1, Granularity::Minimum)),
        kind(vmm(&machine).create_physical(D1, GRANULE, HandleType::None)),
        kind(machine.peers().unwrap().can_access(D0, D1)),
        kind(machine.peers().unwrap().enable_access(D1, D0)),
        kind(Driver(&machine).trim_pool(D1, 0)),
    ];
    assert!(answers.iter().all(|&answer| answer == ErrorKind::InvalidValue), "{answers:?}");
    assert_eq!(machine.current_device().unwrap(), D0);
    assert_eq!((machine.capacity(D1), machine.used(D1), machine.peak_used(D1)), (0, 0, 0));
}

#[test]
fn a_machine_may_have_no_device() {
    let machine = machine(OpenRegConfig::default().devices(0));
    assert_eq!(machine.device_count().unwrap(), 0);
    assert_eq!(kind(machine.malloc(D0, 512)), ErrorKind::InvalidValue);
    assert_eq!(kind(machine.current_device()), ErrorKind::InvalidValue);
}

#[test]
fn devices_say_what_they_are() {
    let config = OpenRegConfig::default().capacity(GIB).without_virtual_memory();
    let machine = machine(config);
    assert_eq!((machine.name(), machine.kind()), ("openreg", DeviceKind::PrivateUse1));
    assert_eq!(machine.error_name(1), "orErrorUnknown");
    assert_eq!(machine.error_name(-7), "unknown");
    let (first, second) = (machine.properties(D0).unwrap(), machine.properties(D1).unwrap());
    assert_eq!(first.total_memory, GIB);
    assert_ne!(first.uuid, second.uuid);
    assert_ne!(first.pci_bus_id, second.pci_bus_id);
    let warp = machine.attribute(D0, Attribute::WarpSize).unwrap();
    assert_eq!(warp, i64::from(first.warp_size));
    assert_eq!(machine.attribute(D0, Attribute::VirtualMemoryManagement).unwrap(), 0);
    assert!(machine.has_primary_context(D1).unwrap());
    machine.clear_error();
}

#[test]
fn families_can_be_switched_off_and_say_why() {
    let machine = machine(OpenRegConfig::default().families(backend_openreg::Families::empty()));
    let absent = [
        machine.pinned_host().err(),
        machine.virtual_memory().err(),
        machine.physical_sharing().err(),
        machine.ipc().err(),
        machine.peers().err(),
        machine.capture().err(),
        machine.host_registration().err(),
    ];
    for absent in absent {
        let absent = absent.expect("the family is off");
        assert!(!absent.reason.is_empty());
        assert_eq!(BackendError::from(absent).kind, ErrorKind::NotSupported);
    }
    let reserved = crate::support::machine(OpenRegConfig::default());
    assert!(reserved.ipc().unwrap_err().reason.contains("Mapped"), "bytes are needed to share them");
}

#[test]
fn a_lost_device_takes_neither_the_host_nor_its_neighbour_along() {
    let machine = mapped();
    let (lost, kept) = (machine.malloc(D0, 512).unwrap(), machine.malloc(D1, 512).unwrap());
    machine.lose_device(D0);
    for answer in [
        kind(free(&machine, D0, lost)),
        kind(machine.address_range(lost)),
        kind(machine.ipc().unwrap().export_memory(lost)),
        kind(Driver(&machine).host_access_of(lost)),
        kind(machine.set_device(D0)),
    ] {
        assert_eq!(answer, ErrorKind::DeviceLost);
    }
    assert_eq!(machine.current_device().unwrap(), D0, "which device a thread has is no question to it");
    let guard = DeviceGuard::new(&*machine, D1).unwrap();
    assert_eq!(machine.pointer_info(kept).unwrap().device, Some(D1));
    assert_eq!(machine.address_range(kept).unwrap().base, kept);
    machine.ipc().unwrap().export_memory(kept).unwrap();
    let host = machine.host_malloc(64, HostFlags::empty()).unwrap();
    host_free(&machine, host).unwrap();
    free(&machine, D1, kept).unwrap();
    assert_eq!(machine.device_count().unwrap(), 2);
    drop(guard);
    assert_eq!(machine.current_device().unwrap(), D1, "a lost device cannot be made current again");
}
