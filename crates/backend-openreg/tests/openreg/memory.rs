//! Malloc and free on reserved memory: addresses, capacity, pointers, traps.

use crate::support::{D0, D1};
use backend_api::types::{DeviceIndex, DevicePtr, GIB, MIB};
use backend_api::*;
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig, TrapKind};

#[test]
fn an_80_gib_device_costs_nothing() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    let all = machine.malloc(D0, 80 * GIB).unwrap();
    assert_eq!(machine.memory_info(D0).unwrap(), MemoryInfo { free: 0, total: 80 * GIB });
    assert_eq!(machine.memory_info(D1).unwrap().free, 80 * GIB);
    // SAFETY: the memory is not in use (rule 3).
    unsafe { machine.free(D0, all) }.unwrap();
    assert_eq!((machine.used(D0), machine.peak_used(D0)), (0, 80 * GIB));
}

#[test]
fn requests_are_accounted_as_drivers_do() {
    let machine = OpenReg::new(OpenRegConfig::default().capacity(8 * MIB)).unwrap();
    for (asked, accounted) in [
        (1, 512),
        (512, 512),
        (513, 1024),
        (MIB - 1, MIB),
        (MIB, 2 * MIB),
        (2 * MIB, 2 * MIB),
        (2 * MIB + 1, 4 * MIB),
    ] {
        let before = machine.used(D0);
        let ptr = machine.malloc(D0, asked).unwrap();
        assert_eq!(machine.used(D0) - before, accounted, "{asked} bytes");
        // SAFETY: rule 3.
        unsafe { machine.free(D0, ptr) }.unwrap();
        assert_eq!(machine.used(D0), before);
    }
    let kept = machine.malloc(D0, 6 * MIB + 1).unwrap();
    let full = machine.malloc(D0, 1).unwrap_err();
    assert_eq!((full.kind, full.call, full.device), (ErrorKind::OutOfMemory, "orMalloc", D0));
    assert!(full.detail.contains("0 of 8388608 are free"), "{full}");
    machine.set_capacity(D0, 9 * MIB);
    machine.malloc(D0, MIB - 512).unwrap();
    machine.set_capacity(D0, MIB);
    assert_eq!(machine.memory_info(D0).unwrap(), MemoryInfo { free: 0, total: MIB });
    assert_eq!(machine.malloc(D0, 1).unwrap_err().kind, ErrorKind::OutOfMemory);
    // SAFETY: rule 3.
    unsafe { machine.free(D0, kept) }.unwrap();
    assert_eq!(machine.malloc(D0, u64::MAX).unwrap_err().kind, ErrorKind::OutOfMemory);
}

#[test]
fn new_ranges_take_the_lowest_free_address() {
    let run = || {
        let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
        let mut seen = Vec::new();
        let small = machine.malloc(D0, 100).unwrap();
        let large: Vec<DevicePtr> = (0..4).map(|_| machine.malloc(D0, 3 * MIB).unwrap()).collect();
        let next = machine.malloc(D0, 100).unwrap();
        assert_eq!(next.0, small.0 + 512, "the gap before the first large range is used");
        assert!(large.iter().all(|ptr| ptr.0 % (2 * MIB) == 0));
        // SAFETY: rule 3.
        unsafe { machine.free(D0, large[1]) }.unwrap();
        // SAFETY: rule 3.
        unsafe { machine.free(D0, large[2]) }.unwrap();
        let reserved =
            machine.virtual_memory().unwrap().reserve_address(D0, 8 * MIB, 0, DevicePtr::NULL).unwrap();
        assert_eq!(reserved, large[1], "two neighbours make room for a larger one");
        seen.extend(large);
        seen.extend([small, next, reserved, machine.malloc(D1, 5).unwrap()]);
        seen
    };
    assert_eq!(run(), run());
}

#[test]
fn wrong_frees_are_refused_and_change_nothing() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    let ptr = machine.malloc(D0, 4096).unwrap();
    let used = machine.used(D0);
    for wrong in [ptr.add(512), DevicePtr(1), DevicePtr(u64::MAX)] {
        // SAFETY: any value is answered (`Backend::free`).
        let error = unsafe { machine.free(D0, wrong) }.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidValue);
    }
    // SAFETY: as above.
    assert!(unsafe { machine.free(D1, ptr) }.is_err(), "the other device's");
    assert_eq!(machine.used(D0), used);
    // SAFETY: rule 3; then null; then a second time, which is answered.
    unsafe { machine.free(D0, ptr) }.unwrap();
    // SAFETY: null is fine.
    unsafe { machine.free(D0, DevicePtr::NULL) }.unwrap();
    // SAFETY: a dead pointer is answered.
    assert_eq!(unsafe { machine.free(D0, ptr) }.unwrap_err().kind, ErrorKind::InvalidValue);
    assert_eq!(machine.malloc(D0, 0).unwrap_err().kind, ErrorKind::InvalidValue);
    assert_eq!(machine.malloc(DeviceIndex(7), 1).unwrap_err().kind, ErrorKind::InvalidValue);
    assert_eq!(
        machine.calls().get(Call::Malloc),
        2,
        "a call on a device that is not there reaches no driver"
    );
}

#[test]
fn pointers_know_their_allocation() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    let ptr = machine.malloc(D1, 1000).unwrap();
    for k in [0, 1, 999] {
        let info = machine.pointer_info(ptr.add(k)).unwrap();
        assert_eq!(info, PointerInfo { kind: PointerKind::Device, device: Some(D1), base: ptr });
        assert_eq!(machine.address_range(ptr.add(k)).unwrap(), AddressRange { base: ptr, bytes: 1000 });
    }
    for unknown in [ptr.add(1000), DevicePtr::NULL, DevicePtr(u64::MAX)] {
        assert_eq!(machine.pointer_info(unknown).unwrap().kind, PointerKind::Unmanaged);
        assert!(machine.address_range(unknown).is_err());
    }
    let host = machine.host_malloc(100, HostFlags::PORTABLE).unwrap();
    assert_eq!(host.0 % 4096, 0);
    assert_eq!(
        machine.pointer_info(host.add(99)).unwrap(),
        PointerInfo { kind: PointerKind::Host, device: None, base: host }
    );
    // SAFETY: rule 3.
    unsafe { machine.host_free(host) }.unwrap();
    assert_eq!(machine.pointer_info(host).unwrap().kind, PointerKind::Unmanaged);
    // SAFETY: null is fine, a dead pointer is answered.
    assert!(unsafe { machine.host_free(DevicePtr::NULL) }.is_ok());
    // SAFETY: as above.
    assert!(unsafe { machine.host_free(host) }.is_err());
}

#[test]
fn touching_memory_that_is_not_there_traps() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    let stream = machine.default_stream(D0);
    let ptr = machine.malloc(D0, 4096).unwrap();
    machine.use_memory(stream, ptr, 4096).unwrap();
    // SAFETY: rule 2.
    unsafe { machine.memset_async(ptr, 1, 4096, stream) }.unwrap();
    // SAFETY: the machine checks the range, that is what is tested.
    assert!(unsafe { machine.memset_async(ptr.add(1), 1, 4096, stream) }.is_err());
    assert!(machine.use_memory(stream, DevicePtr(4096), 1).is_err());
    // SAFETY: as above.
    assert!(unsafe { machine.copy(ptr, DevicePtr(4096), 64, CopyKind::DeviceToDevice) }.is_err());
    let traps = machine.take_traps();
    let kinds: Vec<_> = traps.iter().map(|trap| (trap.kind, trap.call)).collect();
    assert_eq!(
        kinds,
        [
            (TrapKind::Unallocated, Call::MemsetAsync),
            (TrapKind::Unallocated, Call::UseMemory),
            (TrapKind::Unallocated, Call::Copy)
        ]
    );
    assert_eq!((traps[0].ptr, traps[0].bytes, traps[0].device), (ptr.add(1), 4096, D0));
    // SAFETY: the kind is wrong: that is refused, and no trap.
    assert!(unsafe { machine.copy(ptr, ptr.add(64), 64, CopyKind::DeviceToHost) }.is_err());
    assert!(machine.traps().is_empty());
}

#[test]
fn freeing_memory_in_use_traps_and_keeps_it() {
    let machine = OpenReg::new(OpenRegConfig::default().clock(Clock::Virtual { lag: 5 })).unwrap();
    let stream = machine.create_stream(D0, 0).unwrap();
    let ptr = machine.malloc(D0, 4096).unwrap();
    let other = machine.malloc(D0, 4096).unwrap();
    machine.use_memory(stream, ptr.add(100), 8).unwrap();
    // SAFETY: the machine checks the use, that is what is tested.
    let error = unsafe { machine.free(D0, ptr) }.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidValue);
    assert_eq!(machine.take_traps()[0].kind, TrapKind::StillInUse);
    assert_eq!(machine.pointer_info(ptr).unwrap().kind, PointerKind::Device);
    // SAFETY: nothing uses it (rule 3).
    unsafe { machine.free(D0, other) }.unwrap();
    machine.synchronize_stream(stream).unwrap();
    // SAFETY: the stream has passed the use (rule 3).
    unsafe { machine.free(D0, ptr) }.unwrap();
    assert!(machine.traps().is_empty());
}

#[test]
fn a_set_up_that_makes_no_sense_is_refused_with_advice() {
    for config in [
        OpenRegConfig::default().devices(65),
        OpenRegConfig::default().granularity(3 << 20),
        OpenRegConfig::default().concurrency(0),
    ] {
        let error = OpenReg::new(config).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidValue);
        assert!(!error.detail.is_empty());
    }
    let none = OpenReg::new(OpenRegConfig::default().devices(0)).unwrap();
    assert_eq!(none.device_count().unwrap(), 0);
    assert_eq!(none.malloc(D0, 1).unwrap_err().kind, ErrorKind::InvalidValue);
    let many = OpenReg::new(OpenRegConfig::default().devices(64)).unwrap();
    many.malloc(DeviceIndex(63), 80 * GIB).unwrap();
}
