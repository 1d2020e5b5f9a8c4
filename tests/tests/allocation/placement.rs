//! Which block serves a request, and what stays of it.

use alloc_core::backend::{Backend, PointerKind};
use alloc_core::config::Settings;
use alloc_core::types::{GIB, MIB};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use granule_tests::setup::{both, growable, of, of_bytes, roomy};
use granule_tests::with_policy;

#[test]
fn a10_equal_blocks_are_reused_in_segment_creation_order() {
    let (_device, allocator, stream) = roomy::<PytorchPolicy>(Settings::default());
    let blocks: Vec<_> = (0..4).map(|_| allocator.malloc(40 * MIB, stream).unwrap()).collect();
    for ptr in [2, 0, 3, 1].map(|n: usize| blocks[n]) {
        allocator.free(ptr).unwrap();
    }
    let again: Vec<_> = (0..4).map(|_| allocator.malloc(40 * MIB, stream).unwrap()).collect();
    assert_eq!(again, blocks);
}

/// max_split 50 MiB: what the reference saw.
#[test]
fn c08_oversize_rules() {
    let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
    let (_device, allocator, stream) = roomy::<PytorchPolicy>(settings);
    let reserved = || allocator.stats(DEVICE).unwrap().reserved_bytes.all.current / (1 << 20);
    let big = allocator.malloc(100 * MIB, stream).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().oversize_allocations.current, 1);
    allocator.free(big).unwrap();
    let small = allocator.malloc(30 * MIB, stream).unwrap();
    assert_eq!(reserved(), 130, "a normal request does not cut an oversize block");
    assert_eq!(allocator.malloc(90 * MIB, stream).unwrap(), big, "a close one takes it whole");
    allocator.free(big).unwrap();
    let middle = allocator.malloc(79 * MIB, stream).unwrap();
    assert_eq!(reserved(), 210, "one that would waste more than 20 MiB does not");
    for ptr in [small, middle] {
        allocator.free(ptr).unwrap();
    }
}

#[test]
fn base_allocation_and_cache_info_see_the_segment() {
    let (device, allocator, stream) = roomy::<PytorchPolicy>(Settings::default());
    let first = allocator.malloc(3 * MIB, stream).unwrap();
    let second = allocator.malloc(3 * MIB, stream).unwrap();
    let base = allocator.base_allocation(second).unwrap();
    assert_eq!((base.base, base.bytes), (first, 20 * MIB));
    assert_eq!(device.pointer_info(second).unwrap().kind, PointerKind::Device);
    let info = allocator.statistics().cache_info(DEVICE).unwrap();
    assert_eq!((info.largest_cached, info.device_free), (14 * MIB, 8 * GIB - 20 * MIB));
    assert_eq!(info.largest(), 8 * GIB - 20 * MIB);
    let grown = {
        allocator.configure(growable()).unwrap();
        allocator.malloc(30 * MIB, stream).unwrap()
    };
    let refused = allocator.base_allocation(grown).unwrap_err();
    assert!(refused.to_string().contains("growable memory"), "{refused}");
    assert!(refused.pytorch_message().contains("expandable_segments:True"), "{refused}");
    for ptr in [first, second, grown] {
        allocator.free(ptr).unwrap();
    }
}

#[test]
fn c08_oversize_counts_rise_and_fall() {
    let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(of_bytes(8 * GIB), settings);
    let counts = || {
        let stats = allocator.stats(DEVICE).unwrap();
        let (a, s) = (stats.oversize_allocations, stats.oversize_segments);
        ([a.current, a.peak, a.freed], [s.current, s.peak, s.freed])
    };
    let big = allocator.malloc(100 * MIB, stream).unwrap();
    assert_eq!(counts(), ([1, 1, 0], [1, 1, 0]));
    allocator.free(big).unwrap();
    assert_eq!(counts(), ([0, 1, 1], [1, 1, 0]), "the segment stays cached");
    allocator.empty_cache().unwrap();
    assert_eq!(counts(), ([0, 1, 1], [0, 1, 1]));
    allocator.statistics().reset_peaks(DEVICE).unwrap();
    allocator.statistics().reset_accumulated(DEVICE).unwrap();
    assert_eq!(counts(), ([0, 0, 0], [0, 0, 0]));
}

fn a_merged_block_shows_what_was_freed_last<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(of_bytes(GIB), Settings::default());
    let blocks: Vec<_> = [1000, 2000, 3000].map(|n| allocator.malloc(n, stream).unwrap()).into();
    allocator.free(blocks[0]).unwrap();
    allocator.free(blocks[1]).unwrap();
    let merged = allocator.snapshot(false).segments[0].blocks[0].clone();
    assert_eq!((merged.size, merged.requested_size), (1024 + 2048, 2000));
}

#[test]
fn segments_of_several_streams_are_listed_by_address() {
    let (device, allocator, home) = with_policy::<PytorchPolicy>(of_bytes(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    for stream in [home, side, home, side, home] {
        allocator.malloc(40 * MIB, stream).unwrap();
    }
    let at: Vec<_> = allocator.snapshot(false).segments.iter().map(|s| s.address).collect();
    assert!(at.len() == 5 && at.is_sorted(), "{at:x?}");
}

fn absurd_sizes_are_refused_and_change_nothing<P: Policy>() {
    let rounded = Settings { roundup_power2_divisions: [4; 16], ..Settings::default() };
    for settings in both().into_iter().chain([rounded]) {
        let (_device, allocator, home) = with_policy::<P>(of(100), settings);
        for bytes in [(1u64 << 60) - 1, (1 << 59) + 1, u64::MAX, 1 << 60] {
            assert!(allocator.malloc(bytes, home).unwrap_err().is_out_of_memory());
        }
        allocator.check_invariants();
    }
}

granule_tests::for_each_policy!(
    a_merged_block_shows_what_was_freed_last,
    absurd_sizes_are_refused_and_change_nothing,
);
