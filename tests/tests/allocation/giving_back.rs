//! Memory that goes back to the device: when the cache is emptied, when it is old, and at the end.

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::snapshot::Action;
use alloc_core::types::{GIB, MIB};
use backend_openreg::{Call, OpenRegConfig};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use granule_tests::setup::{both, growable, of, of_bytes, roomy};
use granule_tests::views::settle;
use granule_tests::with_policy;

#[test]
fn c09_garbage_collection_frees_the_oldest_above_the_threshold() {
    let settings = Settings { garbage_collection_threshold: 0.5, ..Settings::default() };
    let (device, allocator, stream) =
        with_policy::<PytorchPolicy>(OpenRegConfig::default().devices(1).capacity(1000 * MIB), settings);
    allocator.set_memory_fraction(0.4, DEVICE).unwrap();
    let old = allocator.malloc(100 * MIB, stream).unwrap();
    allocator.free(old).unwrap();
    let young = allocator.malloc(120 * MIB, stream).unwrap();
    // The old block ages while searches pass it by.
    for _ in 0..20 {
        let ptr = allocator.malloc(150 * MIB, stream);
        ptr.map(|ptr| allocator.free(ptr)).unwrap().unwrap();
    }
    allocator.free(young).unwrap();
    let more = allocator.malloc(180 * MIB, stream).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert!(stats.num_device_free >= 1, "something was collected");
    assert_eq!(stats.num_alloc_retries, 0, "without a flush");
    allocator.free(more).unwrap();
    drop(device);
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
fn c09_only_the_old_block_is_collected_however_the_threshold_was_set() {
    for by_configure in [false, true] {
        let gc = Settings { garbage_collection_threshold: 0.5, ..Settings::default() };
        let first = if by_configure { Settings::default() } else { gc.clone() };
        let (_device, allocator, stream) = with_policy::<PytorchPolicy>(of_bytes(1000 * MIB), first);
        allocator.set_memory_fraction(0.4, DEVICE).unwrap();
        if by_configure {
            allocator.configure(gc).unwrap();
        }
        allocator.history().record(&HistoryOptions::newest(1000).deterministic());
        let old = allocator.malloc(100 * MIB, stream).unwrap();
        let busy = allocator.malloc(20 * MIB, stream).unwrap();
        let young = allocator.malloc(60 * MIB, stream).unwrap();
        allocator.free(old).unwrap();
        for _ in 0..20 {
            let ptr = allocator.malloc(100 * MIB + 1, stream);
            allocator.free(ptr.unwrap()).unwrap();
        }
        allocator.free(young).unwrap();
        let more = allocator.malloc(130 * MIB, stream).unwrap();
        let entries = allocator.snapshot(true).device_traces.remove(0);
        let gone: Vec<_> =
            entries.iter().filter(|e| e.action == Action::SegmentFree).map(|e| e.addr).collect();
        assert_eq!(gone, [old.0], "by configure: {by_configure}");
        let _ = (busy, more);
    }
}

#[test]
fn emptying_gives_large_segments_back_first() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(of_bytes(GIB), Settings::default());
    allocator.history().record(&HistoryOptions::newest(100).deterministic());
    for ptr in [1000, 40 * MIB].map(|bytes| allocator.malloc(bytes, stream).unwrap()) {
        allocator.free(ptr).unwrap();
    }
    allocator.empty_cache().unwrap();
    let entries = allocator.snapshot(true).device_traces.remove(0);
    let gone: Vec<_> = entries.iter().filter(|e| e.action == Action::SegmentFree).map(|e| e.size).collect();
    assert_eq!(gone, [40 * MIB, 2 * MIB]);
}

fn emptying_waits_once_for_what_was_freed_before<P: Policy>() {
    let (device, allocator, stream) = with_policy::<P>(of_bytes(GIB), Settings::default());
    settle(&device, &allocator, stream);
    for ptr in [1000, 40 * MIB].map(|bytes| allocator.malloc(bytes, stream).unwrap()) {
        allocator.free(ptr).unwrap();
    }
    allocator.empty_cache().unwrap();
    assert_eq!(device.calls().get(Call::SynchronizeStream), 1);
}

#[test]
fn release_enough_releases_at_least_max_split() {
    let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(of_bytes(200 * MIB), settings);
    let side = [60 * MIB, 120 * MIB].map(|n| allocator.malloc(n, stream).unwrap());
    for ptr in side {
        allocator.free(ptr).unwrap();
    }
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
);
