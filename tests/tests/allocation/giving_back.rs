//! Memory that goes back to the device: when the cache is emptied, when it is old, and at the end.

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::snapshot::Action;
use alloc_core::types::{DeviceIndex, GIB, MIB};
use backend_openreg::{Call, Clock, OpenRegConfig};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{both, free_all, growable, of, of_bytes, reserved, roomy};
use granule_tests::views::settle;
use granule_tests::with_policy;

const M: i64 = 1 << 20;

/// Also what another device's stream used, and what this thread's current device has no part in.
fn a08_pytorch_196258_emptying_waits_on_the_streams_device_and_leaves_the_current_one<P: Policy>() {
    let config = OpenRegConfig::default().devices(3).capacity(GIB).clock(Clock::Virtual { lag: 1000 });
    for (settings, current) in both().into_iter().flat_map(|s| [0, 1, 2].map(|n| (s.clone(), DeviceIndex(n))))
    {
        on_each(&config, |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let user = rig.backend.create_stream(DeviceIndex(1), 0).unwrap();
            allocator.peers().enable(DeviceIndex(1), DEVICE).unwrap();
            let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
            for stream in [rig.stream(), user] {
                rig.use_memory(stream, ptr, 40 * MIB);
            }
            allocator.record_stream(ptr, user).unwrap();
            rig.backend.set_device(current).unwrap();
            free_all(&allocator, [ptr]);
            allocator.empty_cache().unwrap();
            assert_eq!(rig.backend.current_device().unwrap(), current);
            assert_eq!((rig.used(), allocator.stats(DEVICE).unwrap().active_bytes.all.current), (0, 0));
            rig.nothing_is_left(&allocator);
        });
    }
}

fn dropping_the_allocator_gives_the_cache_back<P: Policy>() {
    let (device, allocator, stream) = roomy::<P>(growable());
    let ptr = allocator.malloc(100 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    drop(allocator);
    assert_eq!(device.used(DEVICE), 0);
    assert_eq!(device.calls().get(Call::CreateEvent), device.calls().get(Call::DestroyEvent));
}

#[test]
fn c09_above_the_threshold_the_oldest_whole_segments_go_and_no_more() {
    for by_configure in [false, true] {
        on_each(&of_bytes(1000 * MIB), |rig| {
            let gc = Settings { garbage_collection_threshold: 0.5, ..Settings::default() };
            let allocator = rig.allocator(if by_configure { Settings::default() } else { gc.clone() });
            allocator.set_memory_fraction(0.4, DEVICE).unwrap();
            allocator.configure(gc).unwrap();
            let (stream, side) = (rig.stream(), rig.new_stream());
            let [old, young] = [100, 60].map(|n| allocator.malloc(n * MIB, stream).unwrap());
            free_all(&allocator, [old]);
            // Every search makes it older.
            for _ in 0..20 {
                let ptr = allocator.malloc(10 * MIB, side).unwrap();
                free_all(&allocator, [ptr]);
            }
            let busy = allocator.malloc(10 * MIB, side).unwrap();
            free_all(&allocator, [young]);
            rig.device.reset_calls();
            // 170 of 400 MiB: under the half, so nothing goes.
            let under = allocator.malloc(130 * MIB, stream).unwrap();
            let held = reserved(&allocator);
            assert_eq!((held, rig.device.calls().get(Call::Free)), (300 * M, 0), "taken beside the cache");
            // Over it: the oldest goes, the younger stays.
            let over = allocator.malloc(120 * MIB, stream).unwrap();
            assert_eq!(rig.device.calls().get(Call::Free), 1);
            assert_eq!(reserved(&allocator), held - 100 * M + 120 * M);
            let again = allocator.malloc(60 * MIB, stream).unwrap();
            assert_eq!(again, young);
            free_all(&allocator, [busy, under, over, again]);
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn emptying_gives_large_segments_back_first() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(of_bytes(GIB), Settings::default());
    allocator.history().record(&HistoryOptions::newest(100).deterministic());
    free_all(&allocator, [1000, 40 * MIB].map(|bytes| allocator.malloc(bytes, stream).unwrap()));
    allocator.empty_cache().unwrap();
    let entries = allocator.snapshot(true).device_traces.remove(0);
    let gone: Vec<_> = entries.iter().filter(|e| e.action == Action::SegmentFree).map(|e| e.size).collect();
    assert_eq!(gone, [40 * MIB, 2 * MIB]);
}

fn emptying_waits_once_for_what_was_freed_before<P: Policy>() {
    let (device, allocator, stream) = with_policy::<P>(of_bytes(GIB), Settings::default());
    settle(&device, &allocator, stream);
    free_all(&allocator, [1000, 40 * MIB].map(|bytes| allocator.malloc(bytes, stream).unwrap()));
    allocator.empty_cache().unwrap();
    assert_eq!(device.calls().get(Call::SynchronizeStream), 1);
}

#[test]
fn release_enough_releases_at_least_max_split() {
    let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(of_bytes(200 * MIB), settings);
    let side = [60 * MIB, 120 * MIB].map(|n| allocator.malloc(n, stream).unwrap());
    free_all(&allocator, side);
    allocator.malloc(30 * MIB, stream).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.reserved_bytes.all.current, stats.num_alloc_retries), (150 << 20, 0));
}

/// One stream's destruction made every later flush of the device fail, and leaked its memory.
fn a_destroyed_stream_does_not_stop_the_flush<P: Policy>() {
    for settings in both() {
        let (device, allocator, home) = with_policy::<P>(of(100), settings);
        let side = device.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(60 * MIB, side).unwrap();
        allocator.free(ptr).unwrap();
        // SAFETY: nothing uses the stream's handle after this but the allocator, which has to cope.
        unsafe { device.destroy_stream(side) }.unwrap();
        let ptr = allocator.malloc(60 * MIB, home).expect("the dead stream's memory can be had");
        allocator.free(ptr).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0);
    }
}

granule_tests::for_each_policy!(
    dropping_the_allocator_gives_the_cache_back,
    emptying_waits_once_for_what_was_freed_before,
    a_destroyed_stream_does_not_stop_the_flush,
    a08_pytorch_196258_emptying_waits_on_the_streams_device_and_leaves_the_current_one,
);
