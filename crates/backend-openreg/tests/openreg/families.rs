//! The smaller families, peers and host registration; driver pools, managed memory; and many threads at once.

use crate::support::{D0, D1};
use backend_api::types::{DeviceIndex, DevicePtr, MIB};
use backend_api::*;
use backend_openreg::{Clock, Driver, MemoryMode, OpenReg, OpenRegConfig, PoolFigure, TrapKind};

const D2: DeviceIndex = DeviceIndex(2);

#[test]
fn kernels_need_peer_access_and_copies_do_not() {
    let machine = OpenReg::new(OpenRegConfig::default().devices(3).without_peer(D0, D2)).unwrap();
    let peers = machine.peers().unwrap();
    assert!(peers.can_access(D0, D1).unwrap() && !peers.can_access(D0, D2).unwrap());
    assert!(peers.can_access(D2, D0).unwrap() && !peers.can_access(D1, D1).unwrap());
    let [on_0, on_1] = [D0, D1].map(|device| machine.malloc(device, MIB).unwrap());
    let stream = machine.default_stream(D0);
    assert!(machine.use_memory(stream, on_1, 8).is_err());
    assert_eq!(machine.take_traps()[0].kind, TrapKind::NoPeerAccess);
    // SAFETY: rule 2: both live.
    unsafe { peers.copy_peer_async((D1, on_1), (D0, on_0), MIB, stream) }.unwrap();
    // SAFETY: refused: the devices are the wrong way round.
    assert!(unsafe { peers.copy_peer_async((D0, on_1), (D1, on_0), MIB, stream) }.is_err());
    for _ in 0..2 {
        peers.enable_access(D0, D1).unwrap();
    }
    machine.use_memory(stream, on_1, 8).unwrap();
    assert_eq!(peers.enable_access(D0, D2).unwrap_err().kind, ErrorKind::NotSupported);
    assert!(peers.enable_access(D0, DeviceIndex(3)).is_err());
    let vm = machine.virtual_memory().unwrap();
    let base = vm.reserve_address(D2, 2 * MIB, 0, DevicePtr::NULL).unwrap();
    let handle = vm.create_physical(D2, 2 * MIB, HandleType::None).unwrap();
    // SAFETY: inside the reservation.
    unsafe { vm.map(base, 2 * MIB, handle) }.unwrap();
    // SAFETY: mapped; refused for the device that cannot reach it.
    assert!(unsafe { vm.set_access(base, 2 * MIB, &[D2, D0], Access::ReadWrite) }.is_err());
    assert_eq!(vm.access(base, D2).unwrap(), Access::None, "a refused call changes nothing");
    // SAFETY: mapped.
    unsafe { vm.set_access(base, 2 * MIB, &[D2, D1], Access::ReadWrite) }.unwrap();
    machine.use_memory(machine.default_stream(D1), base, 8).unwrap();
}

#[test]
fn driver_pools_keep_memory_until_a_synchronisation() {
    let config = OpenRegConfig::default().capacity(16 * MIB).clock(Clock::Virtual { lag: 3 });
    let machine = OpenReg::new(config).unwrap();
    let pools = Driver(&machine);
    let stream = machine.create_stream(D0, 0).unwrap();
    let figure = |which| pools.pool_figure(D0, which).unwrap();
    let ptr = pools.malloc_async(3 * MIB, stream).unwrap();
    assert_eq!((figure(PoolFigure::UsedCurrent), machine.used(D0)), (4 * MIB, 4 * MIB));
    machine.use_memory(stream, ptr, 3 * MIB).unwrap();
    pools.free_async(ptr, stream).unwrap();
    assert!(pools.free_async(ptr, stream).is_err());
    assert!(machine.use_memory(stream, ptr, 1).is_err(), "freed in stream order already");
    assert_eq!(machine.take_traps()[0].kind, TrapKind::Unallocated);
    let other = pools.malloc_async(3 * MIB, stream).unwrap();
    assert_ne!(other, ptr, "the free is not passed yet");
    machine.advance(3);
    assert_eq!(pools.malloc_async(3 * MIB, stream).unwrap(), ptr);
    for ptr in [ptr, other] {
        pools.free_async(ptr, stream).unwrap();
    }
    pools.set_pool_figure(D0, PoolFigure::ReleaseThreshold, 4 * MIB).unwrap();
    machine.synchronize_stream(stream).unwrap();
    assert_eq!((figure(PoolFigure::UsedCurrent), figure(PoolFigure::ReservedCurrent)), (0, 4 * MIB));
    assert_eq!((figure(PoolFigure::UsedHigh), figure(PoolFigure::ReservedHigh)), (8 * MIB, 8 * MIB));
    pools.set_pool_figure(D0, PoolFigure::UsedHigh, 0).unwrap();
    assert_eq!(figure(PoolFigure::UsedHigh), 0);
    assert!(pools.set_pool_figure(D0, PoolFigure::UsedCurrent, 0).is_err());
    let all = pools.malloc_async(16 * MIB, stream).unwrap();
    assert_eq!(pools.malloc_async(1, stream).unwrap_err().kind, ErrorKind::OutOfMemory);
    pools.free_async(all, stream).unwrap();
    machine.advance(3);
    pools.trim_pool(D0, 0).unwrap();
    assert_eq!(machine.used(D0), 0);
}

#[test]
fn host_memory_is_registered_once_and_seen_by_devices() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    let registration = machine.host_registration().unwrap();
    let buffer = vec![0_u8; 8192];
    let ptr = DevicePtr(buffer.as_ptr().expose_provenance() as u64);
    // SAFETY: the buffer lives to the end of the test.
    unsafe { registration.register(ptr, 8192, HostFlags::MAPPED) }.unwrap();
    // SAFETY: refused: it overlaps.
    assert!(unsafe { registration.register(ptr.add(4096), 8192, HostFlags::MAPPED) }.is_err());
    assert_eq!(machine.pointer_info(ptr.add(8191)).unwrap().kind, PointerKind::Host);
    // SAFETY: refused: it was registered, not allocated here.
    assert!(unsafe { machine.host_free(ptr) }.is_err());
    // SAFETY: null and interior pointers are answered.
    assert!(unsafe { registration.unregister(DevicePtr::NULL) }.is_err());
    // SAFETY: as above.
    assert!(unsafe { registration.unregister(ptr.add(1)) }.is_err());
    // SAFETY: rule 3.
    unsafe { registration.unregister(ptr) }.unwrap();
}

#[test]
fn managed_memory_is_everyones() {
    for mode in [MemoryMode::Reserved, MemoryMode::Mapped] {
        let machine = OpenReg::new(OpenRegConfig::default().memory(mode).capacity(32 * MIB)).unwrap();
        let managed = Driver(&machine);
        let ptr = managed.malloc_managed(D0, MIB).unwrap();
        machine.use_memory(machine.default_stream(D1), ptr, MIB).unwrap();
        // SAFETY: rule 3.
        unsafe { machine.free(D0, ptr) }.unwrap();
        assert_eq!(machine.used(D0), 0);
    }
}

#[test]
fn many_threads_leave_nothing_behind() {
    for clock in [Clock::Workers, Clock::Virtual { lag: 7 }] {
        let machine = OpenReg::new(OpenRegConfig::default().clock(clock)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let machine = &machine;
                scope.spawn(move || {
                    let device = DeviceIndex((thread % 2) as u16);
                    let stream = machine.create_stream(device, 0).unwrap();
                    let event = machine.create_event(device, EventFlags::empty()).unwrap();
                    for turn in 0..300 {
                        let ptr = machine.malloc(device, 512 * (turn % 40 + 1) * (thread + 1)).unwrap();
                        machine.use_memory(stream, ptr, 512).unwrap();
                        machine.record_event(event, stream).unwrap();
                        machine.wait_event(machine.default_stream(device), event).unwrap();
                        machine.synchronize_event(event).unwrap();
                        // SAFETY: the stream has passed the use (rule 3).
                        unsafe { machine.free(device, ptr) }.unwrap();
                    }
                    // SAFETY: not used again.
                    unsafe { machine.destroy_stream(stream) }.unwrap();
                });
            }
        });
        for device in [D0, D1] {
            machine.synchronize_device(device).unwrap();
            assert_eq!(machine.used(device), 0);
        }
        assert!(machine.traps().is_empty(), "{:?}", machine.traps());
    }
}
