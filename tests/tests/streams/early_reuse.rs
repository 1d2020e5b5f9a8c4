//! Early reuse: a block that other streams still use is handed out at once, and the device keeps the order.

use alloc_core::backend::ErrorKind;
use alloc_core::config::Settings;
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::types::{DevicePtr, MIB, Stream};
use backend_openreg::{Call, Clock, FaultPlan, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, Rig, on_each};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn workers() -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(4096 * MIB).clock(Clock::Workers)
}

fn lagging() -> OpenRegConfig {
    workers().clock(Clock::Virtual { lag: 1000 })
}

fn early() -> Settings {
    Settings { early_reuse: true, ..Settings::default() }
}

/// `users` work on a block, which is freed meanwhile.
fn use_and_free(rig: &Rig, allocator: &Allocator, (ptr, bytes): (DevicePtr, u64), users: &[Stream]) {
    for user in users {
        rig.use_memory(*user, ptr, bytes);
        allocator.record_stream(ptr, *user).unwrap();
    }
    allocator.free(ptr).unwrap();
}

/// A block of `stream` that was freed while `users` work on it.
fn pending(rig: &Rig, allocator: &Allocator, bytes: u64, stream: Stream, users: &[Stream]) -> DevicePtr {
    let ptr = allocator.malloc(bytes, stream).unwrap();
    use_and_free(rig, allocator, (ptr, bytes), users);
    ptr
}

fn pending_bytes(allocator: &Allocator) -> i64 {
    allocator.stats(DEVICE).unwrap().granule.pending_bytes
}

fn a_pending_block_is_reused_at_once_and_in_order<P: Policy>() {
    for settings in [early(), Settings { expandable_segments: true, ..early() }] {
        on_each(&workers(), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let (home, side) = (rig.stream(), rig.new_stream());
            let order = Arc::new(Mutex::new(Vec::new()));
            let note = |stream: Stream, what: &'static str| {
                let order = Arc::clone(&order);
                let push = move || order.lock().unwrap().push(what);
                rig.backend.launch_host_function(stream, Box::new(push)).unwrap();
            };
            let gate = rig.hold(side);
            note(side, "used");
            let ptr = pending(rig, &allocator, 40 * MIB, home, &[side]);
            let used = rig.used();
            rig.device.reset_calls();
            assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), ptr, "at once, while it is used");
            let calls = rig.device.calls();
            assert_eq!((calls.get(Call::Malloc), calls.get(Call::CreatePhysical), rig.used()), (0, 0, used));
            assert_eq!(calls.get(Call::WaitEvent), 1);
            assert_eq!(calls.get(Call::SynchronizeEvent) + calls.get(Call::SynchronizeStream), 0);
            assert_eq!(pending_bytes(&allocator), 0);
            note(home, "reused");
            rig.use_memory(home, ptr, 40 * MIB);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(*order.lock().unwrap(), Vec::<&str>::new());
            gate.open();
            rig.backend.synchronize_stream(home).unwrap();
            assert_eq!(*order.lock().unwrap(), ["used", "reused"]);
            allocator.free(ptr).unwrap();
            rig.nothing_is_left(&allocator);
        });
    }
}

fn it_is_off_unless_asked_for<P: Policy>() {
    on_each(&workers(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let (home, side) = (rig.stream(), rig.new_stream());
        let gate = rig.hold(side);
        let ptr = pending(rig, &allocator, 40 * MIB, home, &[side]);
        let other = allocator.malloc(40 * MIB, home).unwrap();
        assert_ne!(other, ptr);
        assert_eq!(rig.device.calls().get(Call::WaitEvent), 0);
        gate.open();
        allocator.free(other).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// A block that waits for an idle stream does not wait for the busy one before it.
fn streams_do_not_hold_each_other_up<P: Policy>() {
    on_each(&workers(), |rig| {
        let allocator = rig.with_policy::<P>(early());
        let (home, slow, fast) = (rig.stream(), rig.new_stream(), rig.new_stream());
        let gate = rig.hold(slow);
        let held = pending(rig, &allocator, 40 * MIB, home, &[slow]);
        let other = pending(rig, &allocator, 60 * MIB, home, &[fast]);
        rig.backend.synchronize_stream(fast).unwrap();
        allocator.poll(DEVICE).unwrap();
        assert_eq!(pending_bytes(&allocator), 40 << 20, "only the slow stream's is left");
        assert_eq!(allocator.malloc(60 * MIB, home).unwrap(), other);

        // Reusing what waits for the fast stream does not make the home stream wait for the slow one.
        let first = rig.hold(fast);
        rig.use_memory(fast, other, 60 * MIB);
        allocator.record_stream(other, fast).unwrap();
        allocator.free(other).unwrap();
        assert_eq!(allocator.malloc(60 * MIB, home).unwrap(), other, "40 MiB would not do");
        first.open();
        rig.backend.synchronize_stream(home).expect("returns while the slow stream is held up");
        assert_eq!(pending_bytes(&allocator), 40 << 20);
        gate.open();
        allocator.free(other).unwrap();
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), held);
        allocator.free(held).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

fn the_smallest_that_fits_is_taken_and_waits_for_each_of_its_streams<P: Policy>() {
    on_each(&lagging(), |rig| {
        let allocator = rig.with_policy::<P>(early());
        let (home, sides) = (rig.stream(), [rig.new_stream(), rig.new_stream()]);
        let sizes = [80, 60, 20].map(|n| n * MIB);
        let [large, fit, small] = sizes.map(|bytes| allocator.malloc(bytes, home).unwrap());
        use_and_free(rig, &allocator, (large, sizes[0]), &sides[..1]);
        use_and_free(rig, &allocator, (fit, sizes[1]), &sides);
        use_and_free(rig, &allocator, (small, sizes[2]), &sides[..1]);
        rig.device.reset_calls();
        assert_eq!(allocator.malloc(50 * MIB, home).unwrap(), fit);
        assert_eq!(rig.device.calls().get(Call::WaitEvent), 2, "one for each stream");
        assert_eq!(pending_bytes(&allocator), 100 << 20);
        // Another stream's pending blocks are not for this one.
        let elsewhere = allocator.malloc(50 * MIB, sides[0]).unwrap();
        assert!(elsewhere != large && elsewhere != small && elsewhere != fit);
        for ptr in [fit, elsewhere] {
            allocator.free(ptr).unwrap();
        }
        rig.nothing_is_left(&allocator);
    });
}

fn a_driver_that_refuses_to_order_streams_costs_new_memory_only<P: Policy>() {
    on_each(&lagging(), |rig| {
        let allocator = rig.with_policy::<P>(early());
        let (home, side) = (rig.stream(), rig.new_stream());
        let ptr = pending(rig, &allocator, 40 * MIB, home, &[side]);
        rig.device.set_faults(FaultPlan::none().fail_all(Call::WaitEvent, ErrorKind::Other));
        let other = allocator.malloc(40 * MIB, home).unwrap();
        assert_ne!(other, ptr);
        assert_eq!(pending_bytes(&allocator), 40 << 20, "it waits as before");
        rig.device.set_faults(FaultPlan::none());
        rig.device.advance(5000);
        assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), ptr);
        for ptr in [ptr, other] {
            allocator.free(ptr).unwrap();
        }
        rig.nothing_is_left(&allocator);
    });
}

/// What is cut off a block that was taken early is still in use by the other stream: it cannot leave because its free
/// is long over, but only after the stream that took it has passed its wait.
#[test]
fn the_rest_of_a_block_taken_early_does_not_leave_too_soon() {
    // Only this one: old fixed segments are collected.
    type P = PytorchPolicy;
    on_each(&lagging(), |rig| {
        let fixed = Settings { garbage_collection_threshold: 0.01, ..early() };
        let allocator = rig.with_policy::<P>(fixed.clone());
        allocator.set_memory_fraction(0.9, DEVICE).unwrap();
        let (home, side) = (rig.stream(), rig.new_stream());
        let old = allocator.malloc(40 * MIB, home).unwrap();
        allocator.configure(Settings { expandable_segments: true, ..fixed }).unwrap();
        let ptr = pending(rig, &allocator, 100 * MIB, home, &[side]);
        allocator.free(old).unwrap();
        // Collecting the old segment waits for the home stream, before the pending block is taken.
        let half = allocator.malloc(50 * MIB, home).unwrap();
        assert_eq!((half, rig.used()), (ptr, 100 * MIB));
        allocator.empty_cache().unwrap();
        assert_eq!(rig.device.traps(), Vec::new(), "unmapped while the side stream used it");
        assert_eq!(rig.used(), 60 * MIB);
        allocator.free(half).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

granule_tests::for_each_policy!(
    a_pending_block_is_reused_at_once_and_in_order,
    it_is_off_unless_asked_for,
    streams_do_not_hold_each_other_up,
    the_smallest_that_fits_is_taken_and_waits_for_each_of_its_streams,
    a_driver_that_refuses_to_order_streams_costs_new_memory_only,
);
