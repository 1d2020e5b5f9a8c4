//! Pinned memory that is cached, where it is better than PyTorch's: what is lost or held up there, and size classes.

use crate::machines::{calls, idle, machine, plain, slow, with};
use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::{PolicyName, Settings};
use alloc_core::host::{HostAllocator, HostBlockId, HostOptions};
use alloc_core::types::{DeviceIndex, GIB, KIB, MIB};
use backend_openreg::{Call, Clock, Effect, Families, Fault, FaultPlan, OpenReg, OpenRegConfig};
use granule_tests::pinned::nothing_is_pinned;
use granule_tests::rig::DEVICE;
use std::sync::Arc;

fn reserving(bytes: u64) -> Settings {
    Settings { pinned_reserve_segment_size: bytes, ..Settings::default() }
}

/// PyTorch 2.15 cuts the reserve and never mends it: after the first emptying, all of this is the driver's work.
#[test]
fn emptied_space_of_the_reserve_is_used_again() {
    let machine = idle();
    let host = with(&machine, &reserving(MIB));
    for round in 0..50 {
        let blocks: Vec<_> = (0..4).map(|_| host.allocate(256 * KIB).unwrap()).collect();
        let base = blocks.iter().map(|block| block.ptr).min().unwrap();
        assert!(blocks.iter().all(|block| block.ptr.0 + block.size <= base.0 + MIB), "round {round}");
        blocks.iter().for_each(|block| host.free(block.id).unwrap());
        host.empty_cache().unwrap();
        // Pieces of other sizes fit where these were.
        let whole = host.allocate(MIB).unwrap();
        assert_eq!(whole.ptr, base);
        assert_eq!(host.stats().granule.reserve_free_bytes, 0);
        host.free(whole.id).unwrap();
        host.empty_cache().unwrap();
        let stats = host.stats();
        assert_eq!((stats.granule.reserve_bytes, stats.granule.reserve_free_bytes), (MIB as i64, MIB as i64));
        assert_eq!((stats.allocations.current, stats.allocated_bytes.current), (0, 0));
    }
    assert_eq!((calls(&machine, Call::HostMalloc), calls(&machine, Call::HostFree)), (1, 0));
    drop(host);
    nothing_is_pinned(&machine);
}

#[test]
fn the_reserve_is_made_at_first_use_with_the_first_size_and_the_driver_serves_the_rest() {
    let machine = idle();
    let host = with(&machine, &reserving(64 * KIB));
    host.configure(&reserving(GIB)).unwrap();
    assert_eq!((calls(&machine, Call::HostMalloc), host.stats().granule.reserve_bytes), (0, 0));
    let small = host.allocate(1).unwrap();
    assert_eq!(host.stats().granule.reserve_bytes, 64 * KIB as i64);
    assert_eq!(host.stats().granule.reserve_free_bytes, 60 * KIB as i64, "pieces are pages");
    let large = host.allocate(64 * KIB).unwrap();
    assert_eq!(calls(&machine, Call::HostMalloc), 2);
    // The reserve stays while a piece of it is in the program's hands.
    host.free(large.id).unwrap();
    drop(host);
    assert_eq!(calls(&machine, Call::HostFree), 1);
    let at: *mut u8 = std::ptr::with_exposed_provenance_mut(small.ptr.0 as usize);
    // SAFETY: the block was never given back.
    unsafe { at.write(1) };
}

#[test]
fn a_reserve_that_cannot_be_made_is_tried_again_and_holds_nobody_up() {
    let machine = idle();
    let host = with(&machine, &reserving(MIB));
    machine.set_faults(FaultPlan::none().fail_nth_of(Call::HostMalloc, 1, ErrorKind::OutOfMemory));
    let from_driver = host.allocate(KIB).unwrap();
    assert_eq!(host.stats().granule.reserve_bytes, 0);
    let from_reserve = host.allocate(2 * KIB).unwrap();
    assert_eq!(host.stats().granule.reserve_bytes, MIB as i64);
    [from_driver, from_reserve].into_iter().for_each(|block| host.free(block.id).unwrap());
    drop(host);
    let (asked, given) = (calls(&machine, Call::HostMalloc), calls(&machine, Call::HostFree));
    assert_eq!((asked, given), (3, 2), "one of the calls failed");
}

/// PyTorch 2.15 looks at freed blocks in the order of their frees, and stops at the first that is in use.
#[test]
fn n02_a_stuck_stream_holds_up_its_own_blocks_alone() {
    let machine = machine(OpenRegConfig::default().devices(2).clock(Clock::Workers));
    let host = plain(&machine);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let stuck = machine.create_stream(DEVICE, 0).unwrap();
    let wait = move || {
        let _ = gate.recv();
    };
    machine.launch_host_function(stuck, Box::new(wait)).unwrap();
    let held = host.allocate(MIB).unwrap();
    assert!(host.record_event(held.ptr, held.id, stuck).unwrap());
    host.free(held.id).unwrap();
    // Freed after it, on the same device and on another one; each in a size of its own.
    for (n, device) in [DEVICE, DeviceIndex(1)].into_iter().cycle().take(6).enumerate() {
        let stream = machine.create_stream(device, 0).unwrap();
        let size = KIB << n;
        let block = host.allocate(size).unwrap();
        assert!(host.record_event(block.ptr, block.id, stream).unwrap());
        host.free(block.id).unwrap();
        machine.synchronize_stream(stream).unwrap();
        assert_eq!(host.allocate(size).unwrap().ptr, block.ptr, "stream {n} is done");
    }
    // Used by both: it waits for the slow one.
    let quick = machine.create_stream(DEVICE, 0).unwrap();
    let both = host.allocate(2 * MIB).unwrap();
    for stream in [quick, stuck] {
        assert!(host.record_event(both.ptr, both.id, stream).unwrap());
    }
    host.free(both.id).unwrap();
    machine.synchronize_stream(quick).unwrap();
    assert_ne!(host.allocate(2 * MIB).unwrap().ptr, both.ptr);
    assert_eq!(host.stats().granule.pending_bytes, 3 * MIB as i64);
    assert_ne!(host.allocate(MIB).unwrap().ptr, held.ptr);
    drop(open);
    machine.synchronize_stream(stuck).unwrap();
    assert_eq!(host.allocate(MIB).unwrap().ptr, held.ptr);
    assert_eq!(host.allocate(2 * MIB).unwrap().ptr, both.ptr);
}

/// A device that is lost says nothing about its events any more; others do.
#[test]
fn a_lost_device_holds_up_its_own_blocks_alone() {
    let machine = slow(2);
    let host = plain(&machine);
    let blocks = [DEVICE, DeviceIndex(1)].map(|device| {
        let stream = machine.create_stream(device, 0).unwrap();
        let block = host.allocate(MIB).unwrap();
        assert!(host.record_event(block.ptr, block.id, stream).unwrap());
        block
    });
    blocks.iter().for_each(|block| host.free(block.id).unwrap());
    machine.advance(10);
    machine.lose_device(DEVICE);
    assert_eq!(host.allocate(MIB).unwrap().ptr, blocks[1].ptr);
    let AllocError::Backend(lost) = host.poll().unwrap_err() else { panic!("the wrong kind") };
    assert_eq!(lost.kind, ErrorKind::DeviceLost);
    assert_ne!(host.allocate(MIB).unwrap().ptr, blocks[0].ptr);
}

/// PyTorch 2.15 loses such a block for good.
#[test]
fn a_block_whose_event_cannot_be_recorded_comes_back_after_a_synchronisation_and_not_before() {
    let machine = slow(0);
    let host = plain(&machine);
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let block = host.allocate(MIB).unwrap();
    assert!(host.record_event(block.ptr, block.id, stream).unwrap());
    machine.set_faults(FaultPlan::none().fail_all(Call::RecordEvent, ErrorKind::Other));
    host.free(block.id).unwrap();
    machine.set_faults(FaultPlan::none());
    assert_eq!(host.stats().granule.unrecorded_frees, 1);
    host.poll().unwrap();
    host.empty_cache().unwrap();
    assert_ne!(host.allocate(MIB).unwrap().ptr, block.ptr);
    assert_eq!(host.stats().granule.pending_bytes, MIB as i64);
    host.synchronise().unwrap();
    assert_eq!(host.stats().granule.pending_bytes, 0);
    assert_eq!(host.allocate(MIB).unwrap().ptr, block.ptr);
}

#[test]
fn what_was_freed_or_is_foreign_cannot_be_freed() {
    let machine = idle();
    let (host, other) = (plain(&machine), plain(&machine));
    let block = host.allocate(KIB).unwrap();
    for wrong in [HostBlockId(u64::MAX), HostBlockId(block.ptr.0), other.allocate(KIB).unwrap().id] {
        assert!(matches!(host.free(wrong), Err(AllocError::UnknownHostBlock { id }) if id == wrong.0));
    }
    host.free(block.id).unwrap();
    let next = host.allocate(KIB).unwrap();
    assert_eq!(next.ptr, block.ptr);
    host.free(block.id).unwrap_err();
    assert_eq!(host.stats().active_requests.current, 1, "the next owner keeps it");
    let foreign = idle().default_stream(DEVICE);
    assert!(matches!(host.record_event(next.ptr, next.id, foreign), Err(AllocError::ForeignStream)));
    let nowhere = alloc_core::types::Stream { device: DeviceIndex(9), ..machine.default_stream(DEVICE) };
    assert!(matches!(host.allocate_for(1, nowhere), Err(AllocError::InvalidDevice { .. })));
    assert!(matches!(host.allocate(u64::MAX), Err(AllocError::Limit(_))));
}

#[test]
fn before_memory_runs_out_the_cache_is_emptied_and_devices_are_waited_for() {
    let machine = slow(1000);
    let host = plain(&machine);
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let short = |failures: u64| {
        let faults =
            (1..=failures).map(|n| Fault::at(n, Effect::Fail(ErrorKind::OutOfMemory)).of(Call::HostMalloc));
        machine.set_faults(faults.fold(FaultPlan::none(), FaultPlan::with));
    };
    let cached = host.allocate(MIB).unwrap();
    let waits = host.allocate(4 * MIB).unwrap();
    assert!(host.record_event(waits.ptr, waits.id, stream).unwrap());
    [cached, waits].into_iter().for_each(|block| host.free(block.id).unwrap());
    short(1);
    host.allocate(16 * MIB).unwrap();
    assert_eq!((host.stats().num_host_free(), host.stats().granule.pending_bytes), (1, 4 * MIB as i64));
    short(2);
    host.allocate(16 * MIB).unwrap();
    assert_eq!((host.stats().num_host_free(), host.stats().granule.pending_bytes), (2, 0));
    short(9);
    let AllocError::Backend(refused) = host.allocate(16 * MIB).unwrap_err() else { panic!("the wrong kind") };
    assert!(refused.is_out_of_memory());
    machine.set_faults(FaultPlan::none());
    assert_eq!(calls(&machine, Call::HostMalloc), 2 + 2 + 3 + 3);
    // Another kind of error is no matter of memory.
    host.free(host.allocate(MIB).unwrap().id).unwrap();
    machine.set_faults(FaultPlan::none().fail_nth_of(Call::HostMalloc, 1, ErrorKind::Other));
    host.allocate(16 * MIB).unwrap_err();
    assert_eq!(host.stats().num_host_free(), 2, "the cache stays");
}

#[test]
fn what_the_driver_does_not_take_back_stays_cached() {
    let machine = idle();
    for catch_all in [false, true] {
        let settings =
            Settings { pinned_max_cached_size: KIB, pinned_free_catch_all: catch_all, ..Settings::default() };
        let host = with(&machine, &settings);
        let large = host.allocate(MIB).unwrap();
        machine.set_faults(FaultPlan::none().fail_nth_of(Call::HostFree, 1, ErrorKind::Other));
        assert_eq!(host.free(large.id).is_ok(), catch_all);
        let stats = host.stats();
        assert_eq!((stats.active_requests.current, stats.allocations.current), (0, 1));
        assert_eq!(host.allocate(MIB).unwrap().ptr, large.ptr);
    }
}

fn of_granule(machine: &Arc<OpenReg>) -> HostAllocator {
    HostAllocator::new(machine.clone(), &Settings::default(), HostOptions::of(PolicyName::Granule)).unwrap()
}

#[test]
fn granules_sizes_are_pages_and_those_of_pytorch_come_with_its_policy() {
    let machine = idle();
    assert_eq!(HostOptions::of(PolicyName::Pytorch), HostOptions::default());
    let host = of_granule(&machine);
    for bytes in [1, 4096, 5 * KIB, 13 * MIB - 3, 65 * MIB + 1] {
        assert_eq!(host.allocate(bytes).unwrap().size, bytes.next_multiple_of(4096));
    }
    // A setting chooses otherwise, also later.
    host.configure(&Settings { pinned_sizes: Some(PolicyName::Pytorch), ..Settings::default() }).unwrap();
    assert_eq!(host.allocate(33 * MIB).unwrap().size, 64 * MIB);
    let exact = Settings { pinned_sizes: Some(PolicyName::Granule), ..Settings::default() };
    let other = HostAllocator::new(machine.clone(), &exact, HostOptions::default()).unwrap();
    assert_eq!(other.allocate(33 * MIB).unwrap().size, 33 * MIB);
}

#[test]
fn a_larger_free_block_serves_as_long_as_all_waste_little() {
    let machine = idle();
    let host = of_granule(&machine);
    let large = host.allocate(400 * MIB).unwrap();
    let block = host.allocate(100 * MIB).unwrap();
    host.free(block.id).unwrap();
    // 2 % of 500 MiB are 10.
    let near = host.allocate(92 * MIB).unwrap();
    assert_eq!(near.ptr, block.ptr);
    let other = host.allocate(50 * MIB).unwrap();
    host.free(other.id).unwrap();
    let nearly = host.allocate(49 * MIB).unwrap();
    assert_eq!(nearly.ptr, other.ptr);
    host.free(nearly.id).unwrap();
    assert_eq!(host.allocate(47 * MIB).unwrap().size, 47 * MIB, "3 MiB more would be too much");
    host.free(large.id).unwrap();
    // Small programs are not kept from reuse.
    let small = of_granule(&machine);
    let first = small.allocate(500 * KIB).unwrap();
    small.free(first.id).unwrap();
    assert_eq!(small.allocate(100).unwrap().ptr, first.ptr);
}

#[test]
fn free_blocks_go_back_when_new_ones_are_made_beyond_what_was_in_use_at_once() {
    let machine = idle();
    let host = of_granule(&machine);
    let blocks = [30 * MIB, 20 * MIB, 50 * MIB].map(|bytes| host.allocate(bytes).unwrap());
    blocks.iter().for_each(|block| host.free(block.id).unwrap());
    let held = || host.stats().allocated_bytes.current as u64;
    assert_eq!(held(), 100 * MIB, "what was in use at once is kept");
    let made = host.allocate(60 * MIB).unwrap();
    assert_eq!(held(), 90 * MIB, "blocks leave whole");
    host.free(made.id).unwrap();
    let settings =
        Settings { pinned_sizes: Some(PolicyName::Granule), pinned_spare: 0.5, ..Settings::default() };
    host.configure(&settings).unwrap();
    let next = host.allocate(70 * MIB).unwrap();
    assert_eq!(held(), 130 * MIB, "a setting lets more stay");
    host.free(next.id).unwrap();
    host.configure(&Settings { pinned_spare: 0.02, ..settings }).unwrap();
    // A cache that was emptied begins anew.
    host.empty_cache().unwrap();
    host.free(host.allocate(10 * MIB).unwrap().id).unwrap();
    host.free(host.allocate(20 * MIB).unwrap().id).unwrap();
    assert_eq!(held(), 20 * MIB);
}

#[test]
fn a_free_block_that_the_driver_keeps_is_cached_again_and_the_request_served() {
    let machine = idle();
    let host = of_granule(&machine);
    let block = host.allocate(30 * MIB).unwrap();
    host.free(block.id).unwrap();
    machine.set_faults(FaultPlan::none().fail_nth_of(Call::HostFree, 1, ErrorKind::Other));
    let large = host.allocate(40 * MIB).unwrap();
    assert_eq!(host.stats().allocated_bytes.current as u64, 70 * MIB);
    host.free(large.id).unwrap();
    assert_eq!(host.allocate(30 * MIB).unwrap().ptr, block.ptr);
}

#[test]
fn without_registration_the_driver_allocates_what_was_to_be_registered() {
    let families = Families::all() - Families::HOST_REGISTRATION;
    let machine = machine(OpenRegConfig::default().devices(1).families(families));
    let host = with(&machine, &Settings { pinned_use_host_register: true, ..Settings::default() });
    host.free(host.allocate(KIB).unwrap().id).unwrap();
    assert_eq!((calls(&machine, Call::HostMalloc), calls(&machine, Call::RegisterHost)), (1, 0));
}

#[test]
fn a_device_without_pinned_memory_registers_pages_or_says_that_it_cannot() {
    let device = |families| machine(OpenRegConfig::default().devices(1).families(families));
    let registers = device(Families::all() - Families::PINNED_HOST);
    let host = with(&registers, &Settings::default());
    host.free(host.allocate(KIB).unwrap().id).unwrap();
    assert_eq!((calls(&registers, Call::HostMalloc), calls(&registers, Call::RegisterHost)), (0, 1));
    let neither = device(Families::all() - Families::PINNED_HOST - Families::HOST_REGISTRATION);
    let host = with(&neither, &Settings::default());
    let refused = host.allocate(KIB).unwrap_err();
    let AllocError::Backend(error) = &refused else { panic!("{refused:?}") };
    assert_eq!(error.kind, ErrorKind::NotSupported);
    let said = refused.to_string();
    assert!(said.contains("pinned host memory") && said.contains("use ordinary memory"), "{said}");
    assert_eq!(host.stats().num_host_alloc(), 0);
}
