//! Blocks that other streams use: when they are free again, and the events that tell.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::snapshot::Action;
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, Stream};
use backend_openreg::{Call, Clock, FaultPlan, OpenRegConfig};
use granule_tests::policy::Policy;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{free_all, growable, of, of_bytes};
use granule_tests::with_policy;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a04_memory_of_a_side_stream_serves_that_stream_only() {
    on_each(&of_bytes(GIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let side = rig.new_stream();
        let ptr = allocator.malloc(40 * MIB, side).unwrap();
        free_all(&allocator, [ptr]);
        let home = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        assert_ne!(home, ptr);
        assert_eq!(allocator.malloc(40 * MIB, side).unwrap(), ptr);
        free_all(&allocator, [home, ptr]);
        rig.nothing_is_left(&allocator);
    });
}

fn a05_a_block_used_elsewhere_is_reused_after_that_work_and_not_before<P: Policy>() {
    on_each(&of_bytes(GIB).clock(Clock::Workers), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let side = rig.new_stream();
        let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        let gate = rig.hold(side);
        rig.use_memory(side, ptr, 40 * MIB);
        allocator.record_stream(ptr, side).unwrap();
        free_all(&allocator, [ptr]);
        let seen = allocator.stats(DEVICE).unwrap();
        assert_eq!((seen.allocated_bytes.all.current, seen.active_bytes.all.current), (0, 40 << 20));
        assert_eq!(seen.granule.pending_bytes, 40 << 20);
        let other = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        assert_ne!(other, ptr, "the side stream is held up");
        gate.open();
        rig.backend.synchronize_stream(side).unwrap();
        assert_eq!(allocator.malloc(40 * MIB, rig.stream()).unwrap(), ptr);
        free_all(&allocator, [other, ptr]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a06_the_blocks_own_stream_delays_nothing() {
    on_each(&of_bytes(GIB).clock(Clock::Virtual { lag: 1000 }), |rig| {
        let allocator = rig.allocator(Settings::default());
        for stream in [rig.stream(), rig.new_stream()] {
            let ptr = allocator.malloc(40 * MIB, stream).unwrap();
            rig.use_memory(stream, ptr, 40 * MIB);
            allocator.record_stream(ptr, stream).unwrap();
            free_all(&allocator, [ptr]);
            assert_eq!(allocator.malloc(40 * MIB, stream).unwrap(), ptr);
            free_all(&allocator, [ptr]);
        }
        assert_eq!(rig.device.calls().get(Call::RecordEvent), 0);
    });
}

#[test]
fn a07_a_use_of_a_part_protects_the_whole_block() {
    on_each(&of_bytes(GIB).clock(Clock::Virtual { lag: 1000 }), |rig| {
        let allocator = rig.allocator(Settings::default());
        let side = rig.new_stream();
        // Parts of it: the first byte after its address, a multiple of 512, and the last byte.
        for offset in [1, 20 * MIB, 40 * MIB - 1] {
            let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
            rig.use_memory(side, ptr, 40 * MIB);
            allocator.record_stream(ptr.add(offset), side).unwrap();
            free_all(&allocator, [ptr]);
            let other = allocator.malloc(40 * MIB, rig.stream()).unwrap();
            assert_ne!(other, ptr, "offset {offset}");
            free_all(&allocator, [other]);
            allocator.empty_cache().unwrap();
        }
        let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        for wrong in [ptr.add(40 * MIB), DevicePtr(ptr.0 - 1)] {
            let error = allocator.record_stream(wrong, side).unwrap_err();
            assert!(matches!(error, AllocError::InvalidPointer { .. }), "{error}");
        }
        let inside = allocator.free(ptr.add(512)).unwrap_err();
        assert!(matches!(inside, AllocError::InvalidPointer { .. }), "a part cannot be freed: {inside}");
        free_all(&allocator, [ptr]);
        rig.nothing_is_left(&allocator);
    });
}

/// A slow stream does not hold up blocks that only a fast one used.
fn streams_do_not_wait_for_each_other<P: Policy>() {
    let config = OpenRegConfig::default().devices(1).clock(Clock::Virtual { lag: 1000 });
    let (device, allocator, home) = with_policy::<P>(config, Settings::default());
    let (slow, fast) = (device.create_stream(DEVICE, 0).unwrap(), device.create_stream(DEVICE, 0).unwrap());
    let held = allocator.malloc(30 * MIB, home).unwrap();
    let quick = allocator.malloc(40 * MIB, home).unwrap();
    allocator.record_stream(held, slow).unwrap();
    device.use_memory(slow, held, MIB).unwrap();
    allocator.free(held).unwrap();
    allocator.record_stream(quick, fast).unwrap();
    device.use_memory(fast, quick, MIB).unwrap();
    allocator.free(quick).unwrap();
    device.synchronize_stream(fast).unwrap();
    assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), quick);
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 30 * 1024 * 1024);
}

fn finished_frees_complete_in_the_order_in_which_streams_were_recorded<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(of_bytes(GIB).clock(Clock::Virtual { lag: 50 }), Settings::default());
    allocator.history().record(&HistoryOptions::newest(100).deterministic());
    let sides = [0; 2].map(|_| device.create_stream(DEVICE, 0).unwrap());
    let both = allocator.malloc(40 * MIB, home).unwrap();
    let each = [0; 2].map(|_| allocator.malloc(40 * MIB, home).unwrap());
    for n in 0..2 {
        device.use_memory(sides[n], both, MIB).unwrap();
        device.use_memory(sides[n], each[n], MIB).unwrap();
        allocator.record_stream(both, sides[n]).unwrap();
        allocator.record_stream(each[n], sides[n]).unwrap();
    }
    allocator.free(both).unwrap();
    allocator.free(each[0]).unwrap();
    allocator.free(each[1]).unwrap();
    device.advance(1000);
    allocator.poll(DEVICE).unwrap();
    let entries = allocator.snapshot(true).device_traces.remove(0);
    let done: Vec<_> = entries.iter().filter(|e| e.action == Action::FreeCompleted).map(|e| e.addr).collect();
    assert_eq!(done, [each[0].0, both.0, each[1].0]);
}

fn one_event_for_each_other_stream<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(of_bytes(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, home).unwrap();
    for stream in [home, side, side, home] {
        allocator.record_stream(ptr, stream).unwrap();
    }
    allocator.free(ptr).unwrap();
    assert_eq!(device.calls().get(Call::RecordEvent), 1);
}

fn dropping_the_allocator_destroys_events_still_queued<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(of_bytes(GIB).clock(Clock::Virtual { lag: 1000 }), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, home).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    device.use_memory(side, ptr, MIB).unwrap();
    allocator.free(ptr).unwrap();
    // The wait fails, so the event is still queued when the allocator goes.
    device.set_faults(FaultPlan::none().fail_all(Call::SynchronizeEvent, ErrorKind::Other));
    drop(allocator);
    assert_eq!(device.calls().get(Call::CreateEvent), device.calls().get(Call::DestroyEvent));
}

fn events_are_reused<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(of_bytes(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    device.set_faults(FaultPlan::none().fail_nth_of(Call::RecordEvent, 1, ErrorKind::Other));
    for _ in 0..5 {
        let ptr = allocator.malloc(40 * MIB, home).unwrap();
        allocator.record_stream(ptr, side).unwrap();
        allocator.free(ptr).unwrap();
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), ptr, "also where no event could be recorded");
        allocator.record_stream(ptr, side).unwrap();
        allocator.free(ptr).unwrap();
        allocator.poll(DEVICE).unwrap();
    }
    // The event whose record failed may be broken: it is destroyed, and one other serves all the rest.
    assert_eq!((device.calls().get(Call::CreateEvent), device.calls().get(Call::DestroyEvent)), (2, 1));
}

fn nothing_is_asked_once_nothing_is_pending<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(of_bytes(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, home).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    allocator.free(ptr).unwrap();
    allocator.poll(DEVICE).unwrap();
    device.reset_calls();
    allocator.malloc(40 * MIB, home).unwrap();
    assert_eq!(device.calls().total(), 0);
}

fn events_stay_with_their_device<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(OpenRegConfig::default().devices(2), Settings::default());
    let other = DeviceIndex(1);
    for (home, side) in [
        (home, device.create_stream(DEVICE, 0).unwrap()),
        (device.default_stream(DEVICE), device.create_stream(other, 0).unwrap()),
    ] {
        let ptr = allocator.malloc(40 * MIB, home).unwrap();
        allocator.record_stream(ptr, side).unwrap();
        allocator.free(ptr).unwrap();
        allocator.poll(DEVICE).unwrap();
    }
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.unrecorded_frees, 0);
}

/// A block recorded on a stream that was then destroyed stayed pending for ever, and stopped every flush.
fn a_recorded_stream_may_be_destroyed_before_the_free<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(of(100), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(60 * MIB, home).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    // SAFETY: as above.
    unsafe { device.destroy_stream(side) }.unwrap();
    allocator.free(ptr).unwrap();
    let again = allocator.malloc(70 * MIB, home).expect("the block comes back");
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 0);
    allocator.free(again).unwrap();
    let absent = Stream { device: DeviceIndex(200), ..home };
    let ptr = allocator.malloc(1, home).unwrap();
    assert!(matches!(allocator.record_stream(ptr, absent), Err(AllocError::InvalidDevice { .. })));
}

/// A synchronisation went on for as long as other threads freed blocks.
fn a_synchronisation_waits_only_for_what_was_pending<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(of(4000).clock(Clock::Workers), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let (started, stop) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..50_000 {
                if round == 20 {
                    started.wait();
                }
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let ptr = allocator.malloc(MIB, home).unwrap();
                device.use_memory_for(side, ptr, 512, Duration::from_micros(300)).unwrap();
                allocator.record_stream(ptr, side).unwrap();
                allocator.free(ptr).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
            panic!("the synchronisation did not end while blocks were freed");
        });
        started.wait();
        allocator.synchronise(DEVICE).unwrap();
        stop.store(true, Ordering::SeqCst);
    });
}

/// Out of memory was reported while a block that fits had just come back from other streams: it lies in a segment that
/// is still partly used, so giving the cache back to the driver does not help, only searching again does.
fn pytorch_189504_a_pending_block_that_fits_is_found_before_giving_up<P: Policy>() {
    for settings in [Settings::default(), growable()] {
        let (device, allocator, stream) =
            with_policy::<P>(of(100).clock(Clock::Virtual { lag: 50 }), settings);
        let side = device.create_stream(DEVICE, 0).unwrap();
        let whole = allocator.malloc(80 * MIB, stream).unwrap();
        allocator.free(whole).unwrap();
        let kept = allocator.malloc(20 * MIB, stream).unwrap();
        let pending = allocator.malloc(60 * MIB, stream).unwrap();
        device.use_memory(side, pending, MIB).unwrap();
        allocator.record_stream(pending, side).unwrap();
        allocator.free(pending).unwrap();
        let again = allocator.malloc(60 * MIB, stream).unwrap();
        assert_eq!(again, pending, "the very block that waited");
        assert_eq!(allocator.stats(DEVICE).unwrap().num_ooms, 0);
        allocator.free(again).unwrap();
        allocator.free(kept).unwrap();
        assert!(device.traps().is_empty());
    }
}

granule_tests::for_each_policy!(
    streams_do_not_wait_for_each_other,
    finished_frees_complete_in_the_order_in_which_streams_were_recorded,
    one_event_for_each_other_stream,
    dropping_the_allocator_destroys_events_still_queued,
    events_are_reused,
    nothing_is_asked_once_nothing_is_pending,
    events_stay_with_their_device,
    a_recorded_stream_may_be_destroyed_before_the_free,
    a_synchronisation_waits_only_for_what_was_pending,
    pytorch_189504_a_pending_block_that_fits_is_found_before_giving_up,
    a05_a_block_used_elsewhere_is_reused_after_that_work_and_not_before,
);
