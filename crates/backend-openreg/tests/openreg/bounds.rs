//! Requests at the edge of what is allowed: the smallest, the largest, and those that confuse two things.

use crate::support::*;
use backend_api::types::DevicePtr;
use backend_api::*;
use backend_openreg::{Clock, Driver, OpenRegConfig, TrapKind};

#[test]
fn small_pool_memory_is_used_again() {
    let machine = machine(OpenRegConfig::default());
    let (pools, stream) = (Driver(&machine), machine.default_stream(D0));
    let first = pools.malloc_async(100, stream).unwrap();
    pools.free_async(first, stream).unwrap();
    assert_eq!(pools.malloc_async(8, stream).unwrap(), first);
    assert_eq!(machine.used(D0), 512);
}

#[test]
fn a_full_device_takes_back_what_its_pool_keeps() {
    let machine = machine(OpenRegConfig::default().capacity(8 * MIB));
    let (pools, stream) = (Driver(&machine), machine.default_stream(D0));
    let kept = pools.malloc_async(2 * MIB, stream).unwrap();
    pools.free_async(kept, stream).unwrap();
    assert_eq!(machine.used(D0), 2 * MIB);
    let whole = pools.malloc_async(8 * MIB, stream).unwrap();
    assert_eq!(kind(pools.malloc_async(1, stream)), ErrorKind::OutOfMemory);
    assert_eq!(kind(pools.malloc_async(0, stream)), ErrorKind::InvalidValue);
    assert_eq!(kind(free(&machine, D0, whole)), ErrorKind::InvalidValue, "it is the pool's");
    pools.free_async(whole, stream).unwrap();
}

#[test]
fn words_are_written_in_stream_order() {
    let machine = mapped();
    let (at, stream) = (machine.malloc(D0, 64).unwrap(), machine.default_stream(D0));
    let write =
        |offset: u64, value: u32| Driver(&machine).fill(stream, at.add(offset), &value.to_ne_bytes(), 4);
    fill(&machine, at, 0xff, 64, stream).unwrap();
    write(60, 0x0102_0304).unwrap();
    assert_eq!(kind(write(64, 0)), ErrorKind::InvalidValue);
    assert_eq!(download(&machine, at.add(56), 8).unwrap(), [0xff, 0xff, 0xff, 0xff, 4, 3, 2, 1]);
}

#[test]
fn copies_that_confuse_host_and_device_are_trapped() {
    let machine = mapped();
    let (at, gone) = (machine.malloc(D0, 64).unwrap(), machine.malloc(D0, 64).unwrap());
    free(&machine, D0, gone).unwrap();
    // SAFETY: the machine refuses the device address before it touches it.
    let copied = unsafe { machine.copy(at, gone, 64, CopyKind::HostToDevice) };
    assert_eq!(kind(copied), ErrorKind::InvalidValue);
    assert_eq!(machine.take_traps()[0].kind, TrapKind::Unallocated);
    assert_eq!(kind(upload(&machine, at, &[])), ErrorKind::InvalidValue, "0 bytes");
    upload(&machine, at, &[7; 64]).unwrap();
    assert_eq!(kind(upload(&machine, at.add(1), &[7; 64])), ErrorKind::InvalidValue, "past the end");
    copy_on_device(&machine, at.add(32), at, 16, machine.default_stream(D0)).unwrap();
    assert_eq!(download(&machine, at, 64).unwrap(), [7; 64]);
}

#[test]
fn no_number_of_bytes_breaks_the_accounting() {
    for config in [OpenRegConfig::default(), mapped().config().clone()] {
        let machine = machine(config.capacity(u64::MAX).clock(Clock::Virtual { lag: 0 }));
        for bytes in [u64::MAX, u64::MAX - 1, u64::MAX - 4096, 1 << 63] {
            let refused = kind(machine.malloc(D0, bytes));
            assert!(matches!(refused, ErrorKind::OutOfMemory | ErrorKind::ResourceLimit), "{refused:?}");
            assert_eq!(machine.used(D0), 0);
            assert!(Driver(&machine).malloc_async(bytes, machine.default_stream(D0)).is_err());
        }
        let whole = u64::MAX - GRANULE + 1;
        assert!(vmm(&machine).reserve_address(D0, whole, 0, DevicePtr::NULL).is_err());
        machine.malloc(D0, GRANULE).expect("nothing was lost");
    }
}

#[test]
fn registered_memory_stays_while_a_copy_is_queued() {
    let machine = late(5);
    let registration = machine.host_registration().unwrap();
    let bytes = vec![0_u8; 8192];
    let at = DevicePtr(bytes.as_ptr().expose_provenance() as u64);
    let register = |at: DevicePtr, bytes: u64| {
        // SAFETY: the vector outlives its registration; other addresses are refused.
        unsafe { registration.register(at, bytes, HostFlags::PORTABLE) }
    };
    let unregister = || {
        // SAFETY: rule 3 is checked by the machine.
        unsafe { registration.unregister(at) }
    };
    for (wrong, bytes) in [(DevicePtr::NULL, 64), (at, 0), (at, u64::MAX)] {
        assert_eq!(kind(register(wrong, bytes)), ErrorKind::InvalidValue);
    }
    let (device, stream) = (machine.malloc(D0, 8192).unwrap(), machine.default_stream(D0));
    assert_eq!(kind(register(device, 64)), ErrorKind::InvalidValue, "device memory is no host memory");
    register(at, 8192).unwrap();
    // SAFETY: rule 2: both ranges live until the stream is synchronised.
    unsafe { machine.copy_async(device, at, 8192, CopyKind::HostToDevice, stream) }.unwrap();
    assert_eq!(kind(unregister()), ErrorKind::InvalidValue);
    assert_eq!(machine.take_traps()[0].kind, TrapKind::StillInUse);
    machine.synchronize_stream(stream).unwrap();
    unregister().unwrap();
}

#[test]
fn page_locked_memory_stays_while_a_copy_is_queued() {
    let machine = late(5);
    let (host, device) =
        (machine.host_malloc(64, HostFlags::empty()).unwrap(), machine.malloc(D0, 64).unwrap());
    // SAFETY: rule 2: both ranges live until the stream is synchronised.
    unsafe { machine.copy_async(host, device, 64, CopyKind::DeviceToHost, machine.default_stream(D0)) }
        .unwrap();
    assert_eq!(kind(host_free(&machine, host)), ErrorKind::InvalidValue);
    assert_eq!(machine.take_traps()[0].kind, TrapKind::StillInUse);
    machine.synchronize_device(D0).unwrap();
    host_free(&machine, host).unwrap();
}
