//! Which block serves a request, and what stays of it.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, PointerKind};
use alloc_core::config::Settings;
use alloc_core::stats::Stat;
use alloc_core::types::{DevicePtr, GIB, KIB, MIB};
use backend_openreg::Call;
use granule_tests::policy::PytorchPolicy;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{both, free_all, growable, of_bytes, reserved, roomy};
use std::collections::BTreeMap;

const M: i64 = 1 << 20;

#[test]
fn a10_equal_blocks_are_reused_in_the_order_of_their_segments() {
    on_each(&of_bytes(GIB), |rig| {
        // The driver gives the lowest address that is free: these make it give lower and lower ones.
        let holes: Vec<_> = (0..3).map(|_| rig.backend.malloc(DEVICE, 20 * MIB).unwrap()).collect();
        let allocator = rig.allocator(Settings::default());
        let mut blocks = Vec::new();
        for hole in holes.into_iter().rev() {
            // SAFETY: rule 3: made above and never used.
            unsafe { rig.backend.free(DEVICE, hole) }.unwrap();
            blocks.push(allocator.malloc(20 * MIB, rig.stream()).unwrap());
        }
        assert!(blocks.is_sorted_by(|a, b| a > b), "descending: {blocks:?}");
        let reuse = |sizes: u64| -> Vec<_> {
            (0..3).map(|_| allocator.malloc(sizes, rig.stream()).unwrap()).collect()
        };
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            free_all(&allocator, order.map(|n| blocks[n]));
            assert_eq!(reuse(20 * MIB), blocks, "freed as {order:?}");
        }
        // Split and merged, they are what they were.
        free_all(&allocator, blocks.clone());
        let parts: Vec<_> = (0..4).map(|_| allocator.malloc(12 * MIB, rig.stream()).unwrap()).collect();
        assert_eq!(parts[..3], blocks);
        free_all(&allocator, parts);
        assert_eq!(reuse(20 * MIB), blocks);
        free_all(&allocator, blocks);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a11_the_golden_sequence_in_both_variants() {
    // allocated, requested, reserved, inactive bytes, segments, active, inactive blocks, device allocs, frees
    let table: [(&str, [i64; 9]); 16] = [
        ("a=1", [512, 1, 2_097_152, 2_096_640, 1, 1, 1, 1, 0]),
        ("b=1000", [1_536, 1_001, 2_097_152, 2_095_616, 1, 2, 1, 1, 0]),
        ("c=3145728", [3_147_264, 3_146_729, 23_068_672, 19_921_408, 2, 3, 2, 2, 0]),
        ("d=3145728", [6_292_992, 6_292_457, 23_068_672, 16_775_680, 2, 4, 2, 2, 0]),
        ("del c", [3_147_264, 3_146_729, 23_068_672, 19_921_408, 2, 3, 3, 2, 0]),
        ("e=2097152", [6_292_992, 5_243_881, 23_068_672, 16_775_680, 2, 4, 2, 2, 0]),
        ("del d", [3_147_264, 2_098_153, 23_068_672, 19_921_408, 2, 3, 2, 2, 0]),
        ("del e", [1_536, 1_001, 23_068_672, 2_095_616, 2, 2, 1, 2, 0]),
        ("f=12582913", [12_584_960, 12_583_914, 23_068_672, 10_483_712, 2, 3, 2, 2, 0]),
        ("del f", [1_536, 1_001, 23_068_672, 2_095_616, 2, 2, 1, 2, 0]),
        ("g=11534336", [11_535_872, 11_535_337, 23_068_672, 11_532_800, 2, 3, 2, 2, 0]),
        ("del a", [11_535_360, 11_535_336, 23_068_672, 11_533_312, 2, 2, 3, 2, 0]),
        ("del b", [11_534_336, 11_534_336, 23_068_672, 9_437_184, 2, 1, 1, 2, 0]),
        ("empty", [11_534_336, 11_534_336, 20_971_520, 9_437_184, 1, 1, 1, 2, 1]),
        ("del g", [0, 0, 20_971_520, 0, 1, 0, 0, 2, 1]),
        ("empty", [0, 0, 0, 0, 0, 0, 0, 2, 2]),
    ];
    for settings in both() {
        on_each(&of_bytes(8 * GIB), |rig| {
            let growable = settings.expandable_segments;
            let allocator = rig.allocator(settings.clone());
            let mut blocks = BTreeMap::new();
            for (step, mut expected) in table {
                match (step.strip_prefix("del "), step.split_once('=')) {
                    (Some(name), _) => free_all(&allocator, blocks.remove(name)),
                    (_, Some((name, bytes))) => {
                        let ptr = allocator.malloc(bytes.parse().unwrap(), rig.stream()).unwrap();
                        blocks.insert(name, ptr);
                    }
                    _ => allocator.empty_cache().unwrap(),
                }
                if growable {
                    // e is cut to its size; splits and segments are not counted.
                    expected[0] = match step {
                        "e=2097152" => 5_244_416,
                        "del d" => 2_098_688,
                        _ => expected[0],
                    };
                    for column in [3, 4, 6] {
                        expected[column] = 0;
                    }
                }
                let seen = allocator.stats(DEVICE).unwrap();
                let found = [
                    seen.allocated_bytes.all.current,
                    seen.requested_bytes.all.current,
                    seen.reserved_bytes.all.current,
                    seen.inactive_split_bytes.all.current,
                    seen.segment.all.current,
                    seen.active.all.current,
                    seen.inactive_split.all.current,
                    seen.num_device_alloc,
                    seen.num_device_free,
                ];
                assert_eq!(found, expected, "{step}, growable {growable}");
            }
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn a12_a_block_can_be_had_at_an_exact_address() {
    for settings in both() {
        on_each(&of_bytes(GIB), |rig| {
            let allocator = rig.allocator(settings.clone());
            let stream = rig.stream();
            let refused = |bytes, ptr| {
                let error = allocator.malloc_at(bytes, ptr, stream).unwrap_err();
                assert!(matches!(error, AllocError::ExactAddress { .. }), "{error}");
                assert!(error.to_string().contains("exact address"), "{error}");
                error.to_string()
            };
            // In the middle of a free block: what is before and behind it stays free.
            let base = allocator.malloc(40 * MIB, stream).unwrap();
            free_all(&allocator, [base]);
            rig.device.reset_calls();
            let middle = allocator.malloc_at(10 * MIB - 5, base.add(8 * MIB), stream).unwrap();
            assert_eq!((middle, allocator.block_size(middle)), (base.add(8 * MIB), Some(10 * MIB)));
            let seen = allocator.stats(DEVICE).unwrap();
            assert_eq!((seen.allocation.all.current, seen.allocated_bytes.all.current), (1, 10 << 20));
            assert_eq!(seen.requested_bytes.all.current, (10 << 20) - 5);
            assert_eq!(allocator.malloc(8 * MIB, stream).unwrap(), base);
            assert_eq!(allocator.malloc(22 * MIB, stream).unwrap(), base.add(18 * MIB));
            assert_eq!(rig.device.calls().get(Call::Malloc), 0, "out of what was there");
            // Occupied, misaligned, too short, nowhere.
            refused(MIB + 1, base);
            refused(MIB + 1, middle);
            let text = refused(MIB + 1, base.add(256));
            assert!(text.contains("addr must be aligned to kMinBlockSize (512 bytes)"), "{text}");
            free_all(&allocator, [middle]);
            refused(10 * MIB + 1, middle);
            refused(MIB + 1, DevicePtr(512));
            // Another stream and the other size class have nothing there.
            let error = allocator.malloc_at(MIB + 1, middle, rig.new_stream()).unwrap_err();
            assert!(error.to_string().contains("exact address"), "{error}");
            refused(KIB, middle);
            assert_eq!(allocator.malloc_at(0, base.add(3), stream).unwrap(), DevicePtr::NULL);
            allocator.check_invariants();
            assert_eq!(allocator.malloc_at(10 * MIB, middle, stream).unwrap(), middle);
            free_all(&allocator, [base, middle, base.add(18 * MIB)]);

            // Behind several small blocks that have merged.
            let small: Vec<_> = (0..8).map(|_| allocator.malloc(KIB, stream).unwrap()).collect();
            free_all(&allocator, small.clone());
            let at = small[5].add(512);
            assert_eq!(allocator.malloc_at(700, at, stream).unwrap(), at);
            assert_eq!(allocator.malloc(5 * KIB + 512, stream).unwrap(), small[0], "what lies before it");
            free_all(&allocator, [at, small[0]]);
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn c08_blocks_over_the_split_limit_are_not_cut() {
    on_each(&of_bytes(8 * GIB), |rig| {
        let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
        let allocator = rig.allocator(settings);
        let stream = rig.stream();
        let oversize = || {
            let seen = allocator.stats(DEVICE).unwrap();
            (seen.oversize_allocations.current, seen.oversize_segments.current)
        };
        let big = allocator.malloc(100 * MIB, stream).unwrap();
        assert_eq!(oversize(), (1, 1));
        free_all(&allocator, [big]);
        assert_eq!(oversize(), (0, 1));
        let small = allocator.malloc(30 * MIB, stream).unwrap();
        assert_eq!(reserved(&allocator), 130 * M, "a segment of its own");
        let close = allocator.malloc(90 * MIB, stream).unwrap();
        assert_eq!((close, allocator.block_size(close)), (big, Some(100 * MIB)), "whole");
        assert_eq!(oversize(), (1, 1));
        free_all(&allocator, [close]);
        let nearest = allocator.malloc(80 * MIB + 512, stream).unwrap();
        assert_eq!(nearest, big, "less than 20 MiB too large");
        free_all(&allocator, [nearest]);
        let far = allocator.malloc(80 * MIB, stream).unwrap();
        assert_eq!(reserved(&allocator), 210 * M, "20 MiB too large is too large");
        assert_eq!(oversize(), (1, 2));
        free_all(&allocator, [small, far]);
        rig.nothing_is_left(&allocator);
        let seen = allocator.stats(DEVICE).unwrap();
        let over = |peak, count| Stat { current: 0, peak, allocated: count, freed: count };
        assert_eq!((seen.oversize_allocations, seen.oversize_segments), (over(1, 4), over(2, 2)));
    });
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
    free_all(&allocator, [first, second, grown]);
}
