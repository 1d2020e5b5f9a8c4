//! A capture, and what goes on beside it: on other devices, in other allocators of the process, and where a driver fails.

use alloc_core::backend::{Backend, CaptureMode, CaptureStatus, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::graph::GraphCapture;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, Retention, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, MIB, Stream};
use backend_openreg::{Call, Clock, Effect, Fault, FaultPlan};
use granule_tests::Allocator;
use granule_tests::graphs::begin;
use granule_tests::policy::Policy;
use granule_tests::quiet::Retires;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{both, of};

const OTHER: DeviceIndex = DeviceIndex(1);

fn is_whole(rig: &Rig, stream: Stream) -> bool {
    let status = rig.backend.capture().unwrap().status(stream);
    matches!(status, Ok(CaptureStatus::Active(_)))
}

/// A block that waits for `user`, on the device of `home`.
fn pend(rig: &Rig, allocator: &Allocator, home: Stream, user: Stream) {
    let ptr = allocator.malloc(5 * MIB, home).unwrap();
    rig.device.use_memory(Stream { backend: rig.device.id(), ..user }, ptr, MIB).unwrap();
    allocator.record_stream(ptr, user).unwrap();
    allocator.free(ptr).unwrap();
}

/// What a program does on another device breaks no capture, of whatever mode, on whatever thread.
fn another_device_breaks_no_capture<P: Policy>() {
    on_each(&of(400).devices(2).clock(Clock::Virtual { lag: 4 }), |rig| {
        for settings in both() {
            let (allocator, stream) = (rig.with_policy::<P>(settings), rig.new_stream());
            let home = rig.backend.create_stream(OTHER, 0).unwrap();
            let user = rig.backend.create_stream(OTHER, 0).unwrap();
            type Deed<'a> = (&'static str, &'a (dyn Fn() + Sync));
            let deeds: [Deed<'_>; 7] = [
                ("malloc", &|| allocator.free(allocator.malloc(50 * MIB, home).unwrap()).unwrap()),
                ("poll", &|| allocator.poll(OTHER).unwrap()),
                ("synchronise", &|| allocator.synchronise(OTHER).unwrap()),
                ("snapshot", &|| drop(allocator.snapshot(true))),
                ("more than there is", &|| drop(allocator.malloc(900 * MIB, home).unwrap_err())),
                ("retire", &|| {
                    let short = rig.backend.create_stream(OTHER, 0).unwrap();
                    allocator.free(allocator.malloc(MIB, short).unwrap()).unwrap();
                    allocator.retire(short).unwrap();
                }),
                ("empty", &|| allocator.empty_cache().unwrap()),
            ];
            for mode in [CaptureMode::ThreadLocal, CaptureMode::Global] {
                for (what, deed) in deeds {
                    for elsewhere in [true, false] {
                        pend(rig, &allocator, home, user);
                        let capture = GraphCapture::begin(&allocator, stream, mode, None).unwrap();
                        let captured = allocator.malloc(MIB, stream).unwrap();
                        if elsewhere {
                            std::thread::scope(|scope| scope.spawn(deed).join().unwrap());
                        } else {
                            deed();
                        }
                        assert!(
                            is_whole(rig, stream),
                            "{}: {what} broke it ({mode:?}, elsewhere: {elsewhere})",
                            rig.name
                        );
                        allocator.free(captured).unwrap();
                        drop(capture.end().unwrap());
                    }
                }
            }
            allocator.retire(home).unwrap();
            allocator.retire(user).unwrap();
            rig.nothing_is_left(&allocator);
        }
    });
}

/// An allocator that was not told of a capture records no event in it: the block waits until the stream is itself again.
fn another_allocator_leaves_a_capture_alone<P: Policy>() {
    on_each(&of(400), |rig| {
        let settings = Settings::default;
        let (allocator, other) = (rig.with_policy::<P>(settings()), rig.with_policy::<P>(settings()));
        let (stream, home) = (rig.new_stream(), rig.new_stream());
        let ptr = other.malloc(30 * MIB, home).unwrap();
        rig.device.use_memory(Stream { backend: rig.device.id(), ..stream }, ptr, MIB).unwrap();
        other.record_stream(ptr, stream).unwrap();
        let capture = begin(&allocator, stream);
        let recorded = rig.device.calls().get(Call::RecordEvent);
        other.free(ptr).unwrap();
        assert_eq!(rig.device.calls().get(Call::RecordEvent), recorded, "{}", rig.name);
        let next = other.malloc(30 * MIB, home).unwrap();
        assert_ne!(next, ptr, "{}: it waits for the captured stream", rig.name);
        assert!(is_whole(rig, stream), "{}", rig.name);
        drop(capture.end().unwrap());
        other.synchronise(DEVICE).unwrap();
        other.free(next).unwrap();
        let stats = other.stats(DEVICE).unwrap();
        assert_eq!(stats.active_bytes.all.current, 0, "{}: both came back", rig.name);
        other.empty_cache().unwrap();
        drop(other);
        rig.nothing_is_left(&allocator);
    });
}

/// Whichever call of the driver fails: a wait for the whole device, which covers for it, would break the capture.
fn what_cannot_be_waited_for_stays_until_the_capture_ends<P: Policy>() {
    on_each(&of(400).clock(Clock::Virtual { lag: 4 }), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        let (home, user) = (rig.new_stream(), rig.new_stream());
        pend(rig, &allocator, home, user);
        let capture = GraphCapture::begin(&allocator, stream, CaptureMode::Relaxed, None).unwrap();
        let fails = |call| Fault::from(1, Effect::Fail(ErrorKind::Other)).of(call);
        let faults =
            FaultPlan::none().with(fails(Call::SynchronizeEvent)).with(fails(Call::SynchronizeStream));
        rig.device.set_faults(faults);
        let error = allocator.synchronise(DEVICE).expect_err("nothing could be waited for");
        assert!(error.to_string().contains("fault plan"), "{}: the cause is named: {error}", rig.name);
        rig.device.set_faults(FaultPlan::none());
        assert!(is_whole(rig, stream), "{}: {error}", rig.name);
        drop(capture.end().unwrap());
        allocator.synchronise(DEVICE).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// A request beside a capture that nothing serves is out of memory, though a captured stream could not be waited for.
fn a_request_beside_a_capture_is_out_of_memory<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream, home) =
            (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.new_stream());
        let ptr = allocator.malloc(30 * MIB, home).unwrap();
        rig.device.use_memory(Stream { backend: rig.device.id(), ..stream }, ptr, MIB).unwrap();
        allocator.record_stream(ptr, stream).unwrap();
        rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::RecordEvent, 1, ErrorKind::Other));
        allocator.free(ptr).unwrap();
        rig.device.set_faults(FaultPlan::none());
        let capture = GraphCapture::begin(&allocator, stream, CaptureMode::Relaxed, None).unwrap();
        let error = allocator.malloc(90 * MIB, home).expect_err("there is no room");
        assert!(error.is_out_of_memory(), "{}: {error}", rig.name);
        assert!(is_whole(rig, stream), "{}", rig.name);
        drop(capture.end().unwrap());
        let again = allocator.malloc(90 * MIB, home).expect("the stream can be waited for again");
        allocator.free(again).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// The ring that files go through was given back after the thread's capture mode, and of several devices the first to end gave
/// that back for all.
fn sleep_on_other_devices_breaks_no_capture<P: Policy>() {
    on_each(&of(400).devices(3), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        let options = || PoolOptions { sleep_tag: Some(SleepTag::new("a")), ..PoolOptions::default() };
        let asleep = [OTHER, DeviceIndex(2)].map(|device| {
            let pool = MemoryPool::new(&allocator, device, options()).unwrap();
            let _scope = pool.enter(Filter::Always).unwrap();
            let ptr = allocator.malloc(4 * MIB, rig.backend.default_stream(device)).unwrap();
            (pool, ptr)
        });
        let capturing = rig.backend.capture().unwrap();
        for backup in [Backup::File(std::env::temp_dir()), Backup::HostPinned(Retention::Keep)] {
            for mode in [CaptureMode::ThreadLocal, CaptureMode::Global] {
                let own = capturing.exchange_mode(mode).unwrap();
                let capture = GraphCapture::begin(&allocator, stream, mode, None).unwrap();
                let sleeping = allocator.sleep_mode();
                // SAFETY: nothing uses the blocks.
                unsafe { sleeping.sleep(Tags::All, &backup) }.unwrap();
                assert!(is_whole(rig, stream), "{}: {backup:?} {mode:?}", rig.name);
                sleeping.wake(Tags::All).unwrap();
                sleeping.drop_backups();
                assert!(is_whole(rig, stream), "{}: the wake, {backup:?} {mode:?}", rig.name);
                drop(capture.end().unwrap());
                assert_eq!(capturing.exchange_mode(own).unwrap(), mode, "{}", rig.name);
            }
        }
        for (pool, ptr) in asleep {
            allocator.free(ptr).unwrap();
            drop(pool);
        }
        rig.nothing_is_left(&allocator);
    });
}

granule_tests::for_each_policy!(
    sleep_on_other_devices_breaks_no_capture,
    another_device_breaks_no_capture,
    another_allocator_leaves_a_capture_alone,
    what_cannot_be_waited_for_stays_until_the_capture_ends,
    a_request_beside_a_capture_is_out_of_memory,
);
