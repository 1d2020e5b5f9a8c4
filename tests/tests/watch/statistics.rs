//! The device's figures: which there are, and how they are reset.

use alloc_core::config::Settings;
use alloc_core::stats::{DeviceStats, Read};
use alloc_core::types::{GIB, MIB};
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use granule_tests::setup::{of_bytes, roomy};
use granule_tests::with_policy;

#[test]
fn s04_resets_touch_their_part_only() {
    let (_device, allocator, stream) = roomy::<PytorchPolicy>(Settings::default());
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    allocator.statistics().reset_peaks(DEVICE).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.allocated_bytes.all.peak, stats.allocated_bytes.all.allocated), (0, 3 * 1024 * 1024));
    allocator.statistics().reset_accumulated(DEVICE).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.allocated_bytes.all.allocated, stats.allocated_bytes.all.freed), (0, 0));
    assert_eq!((stats.num_device_alloc, stats.reserved_bytes.all.current), (0, 20 * 1024 * 1024));
}

fn s04_event_counts_are_reset<P: Policy>() {
    let settings = Settings { throw_on_oom: true, per_process_memory_fraction: 0.5, ..Settings::default() };
    let (_device, allocator, stream) = with_policy::<P>(of_bytes(64 * MIB), settings);
    allocator.set_memory_fraction(1.0, DEVICE).unwrap();
    assert!(allocator.malloc(60 * MIB, stream).is_err());
    allocator.configure(Settings::default()).unwrap();
    assert!(allocator.malloc(100 * MIB, stream).is_err());
    let counts = || {
        let s = allocator.stats(DEVICE).unwrap();
        [s.num_alloc_retries, s.num_ooms, s.num_oom_rejections, s.num_sync_all_streams]
    };
    assert!(counts().iter().all(|n| *n > 0), "{:?}", counts());
    allocator.statistics().reset_accumulated(DEVICE).unwrap();
    assert_eq!(counts(), [0; 4]);
}

/// Counters and sums begin anew, PyTorch's and Granule's own; levels and peaks stay.
fn a_reset_touches_each_counter_of_the_table<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(of_bytes(128 * MIB), Settings::default());
    let blocks: Vec<_> = (0..6).map(|_| allocator.malloc(20 * MIB, stream).unwrap()).collect();
    blocks.iter().step_by(2).for_each(|ptr| allocator.free(*ptr).unwrap());
    // Out of what lies between live blocks, where that can be moved.
    let _ = allocator.malloc(50 * MIB, stream);
    let before = allocator.stats(DEVICE).unwrap();
    let granules = P::NAME == GranulePolicy::NAME;
    assert_eq!(before.granule.granules_moved > 0, granules);
    allocator.statistics().reset_accumulated(DEVICE).unwrap();
    let after = allocator.stats(DEVICE).unwrap();
    for figure in DeviceStats::figures() {
        for (was, is) in figure.values(&before).iter().zip(figure.values(&after)) {
            let sum =
                matches!(figure.read, Read::Counter(_)) || matches!(is.part, Some("allocated" | "freed"));
            assert_eq!(is.value, if sum { 0 } else { was.value }, "{} {:?}", figure.name, is.part);
        }
    }
}

fn figures_derived_from_statistics<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(of_bytes(GIB), Settings::default());
    allocator.malloc(15 * MIB, stream).unwrap();
    allocator.malloc(MIB, stream).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert!((stats.efficiency() - 16.0 / 18.0).abs() < 1e-9, "{}", stats.efficiency());
    let flat = stats.flatten();
    assert_eq!(flat["reserved_bytes.small_pool.current"], 2 << 20);
    assert_eq!(flat["reserved_bytes.large_pool.current"], 16 << 20);
    assert_eq!(flat["reserved_bytes.all.peak"], 18 << 20);
}

granule_tests::for_each_policy!(
    s04_event_counts_are_reset,
    a_reset_touches_each_counter_of_the_table,
    figures_derived_from_statistics,
);
