//! The device's figures: which there are, and how they are reset.

use alloc_core::config::{Flavour, Settings, pytorch};
use alloc_core::pool::Filter;
use alloc_core::stats::{DeviceStats, Read, Stat, StatArray};
use alloc_core::types::{DeviceIndex, GIB, KIB, MIB, PoolId};
use backend_openreg::Call;
use granule_tests::policy::{GranulePolicy, Policy};
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{free_all, growable, of_bytes};
use granule_tests::{Allocator, with_policy};
use std::collections::BTreeSet;

const M: i64 = 1 << 20;

fn read(text: &str, base: &Settings) -> Settings {
    pytorch::parse(text, base, Flavour::Cuda).unwrap().settings
}

fn stats(allocator: &Allocator) -> DeviceStats {
    allocator.stats(DEVICE).unwrap()
}

#[test]
fn s01_bytes_move_by_rounded_sizes_and_return_to_base() {
    on_each(&of_bytes(8192 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let base = allocator.malloc(5000, rig.stream()).unwrap();
        let bytes = || stats(&allocator).allocated_bytes.all;
        let (mut current, mut blocks) = (5120, Vec::new());
        assert_eq!((bytes().current, bytes().peak), (current, current));
        for (request, rounded) in
            [(1, 512), (512, 512), (513, 1024), (MIB, M), (MIB + 1, M + 512), (12 * MIB - 1, 12 * M)]
        {
            blocks.push(allocator.malloc(request, rig.stream()).unwrap());
            current += rounded;
            assert_eq!((bytes().current, bytes().peak), (current, current), "after {request}");
        }
        let peak = current;
        for (ptr, rounded) in blocks.into_iter().zip([512, 512, 1024, M, M + 512, 12 * M]) {
            allocator.free(ptr).unwrap();
            current -= rounded;
            assert_eq!((bytes().current, bytes().peak), (current, peak));
        }
        assert_eq!(bytes(), Stat { current: 5120, peak, allocated: peak, freed: peak - 5120 });
        free_all(&allocator, [base]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn s02_one_small_request_counts_once_and_in_the_small_pool_only() {
    on_each(&of_bytes(1024 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let ptr = allocator.malloc(KIB, rig.stream()).unwrap();
        let seen = stats(&allocator);
        let once = Stat { current: 1, peak: 1, allocated: 1, freed: 0 };
        let expected = StatArray { all: once, small_pool: once, large_pool: Stat::default() };
        assert_eq!((seen.allocation, seen.active), (expected, expected));
        free_all(&allocator, [ptr]);
        let seen = stats(&allocator);
        let gone = Stat { current: 0, freed: 1, ..once };
        let expected = StatArray { all: gone, small_pool: gone, large_pool: Stat::default() };
        assert_eq!((seen.allocation, seen.active), (expected, expected));
    });
}

#[test]
fn s03_the_keys_are_exactly_the_documented_ones() {
    on_each(&of_bytes(1024 * MIB), |rig| {
        let mut expected: BTreeSet<String> = [
            "num_alloc_retries",
            "num_ooms",
            "max_split_size",
            "num_sync_all_streams",
            "num_device_alloc",
            "num_device_free",
            "num_oom_rejections",
        ]
        .map(String::from)
        .into();
        let fields = ["current", "peak", "allocated", "freed"];
        let array = |expected: &mut BTreeSet<String>, name: &str| {
            for pool in ["all", "small_pool", "large_pool"] {
                expected.extend(fields.map(|field| format!("{name}.{pool}.{field}")));
            }
        };
        for name in [
            "allocation",
            "segment",
            "active",
            "inactive_split",
            "allocated_bytes",
            "reserved_bytes",
            "active_bytes",
            "inactive_split_bytes",
            "requested_bytes",
        ] {
            array(&mut expected, name);
        }
        for name in ["oversize_allocations", "oversize_segments"] {
            expected.extend(fields.map(|field| format!("{name}.{field}")));
        }
        let allocator = rig.allocator(Settings { max_split_size: 64 * MIB, ..Settings::default() });
        let flat = stats(&allocator).flatten();
        assert_eq!(flat.keys().cloned().collect::<BTreeSet<_>>(), expected);
        assert_eq!((flat.len(), flat["max_split_size"]), (123, 64 * M));
        let pool = PoolId::fresh();
        allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
        let ptr = allocator.malloc(KIB, rig.stream()).unwrap();
        array(&mut expected, &format!("reserved_bytes_by_private_pools.{}_{}", pool.0, pool.1));
        let flat = stats(&allocator).flatten();
        assert_eq!(flat.keys().cloned().collect::<BTreeSet<_>>(), expected);
        free_all(&allocator, [ptr]);
    });
}

#[test]
fn s05_summary_and_snapshot_can_be_had_in_any_state() {
    let golden = include_str!("../../data/memory_summary.txt");
    on_each(&of_bytes(64 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let empty = stats(&allocator).pytorch_summary(DEVICE, false);
        assert!(
            empty.contains("| Allocated memory      |      0 B   |      0 B   |      0 B   |      0 B   |\n")
        );
        assert_eq!(allocator.snapshot(true).segments, []);

        let blocks = [1, 1000, 3 * MIB].map(|n| allocator.malloc(n, rig.stream()).unwrap());
        free_all(&allocator, [blocks[2]]);
        assert_eq!(stats(&allocator).pytorch_summary(DEVICE, false), golden);
        let short: String =
            golden.lines().filter(|line| !line.contains("from ")).map(|line| format!("{line}\n")).collect();
        assert_eq!(stats(&allocator).pytorch_summary(DEVICE, true), short);
        let other = stats(&allocator).pytorch_summary(DeviceIndex(12), true);
        assert!(other.contains("PyTorch CUDA memory summary, device ID 12                |\n"), "{other}");

        allocator.malloc(100 * MIB, rig.stream()).unwrap_err();
        let failed = stats(&allocator).pytorch_summary(DEVICE, true);
        let line = "|            CUDA OOMs: 1            |        cudaMalloc retries: 1         |\n";
        assert!(failed.contains(line), "{failed}");
        let seen = allocator.snapshot(true);
        assert_eq!(seen.segments.iter().map(|segment| segment.total_size).collect::<Vec<_>>(), [2 * MIB]);
        free_all(&allocator, [blocks[0], blocks[1]]);
    });
}

#[test]
fn s06_requested_bytes_are_those_asked_for() {
    on_each(&of_bytes(1024 * MIB), |rig| {
        for text in ["", "roundup_power2_divisions:4"] {
            let allocator = rig.allocator(read(text, &Settings::default()));
            let mut blocks = Vec::new();
            let mut asked = 0;
            for request in [1, 600, 2049, 1_048_577, 3 * MIB + 5] {
                blocks.push(allocator.malloc(request, rig.stream()).unwrap());
                asked += i64::try_from(request).unwrap();
                let seen = stats(&allocator);
                assert_eq!(seen.requested_bytes.all.current, asked, "{text}");
                assert!(seen.allocated_bytes.all.current > asked);
            }
            free_all(&allocator, blocks);
            assert_eq!(stats(&allocator).requested_bytes.all.current, 0);
        }
    });
}

#[test]
fn s07_roundup_divisions_give_the_predicted_sizes_until_they_are_reset() {
    on_each(&of_bytes(8192 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let takes = |request: u64| {
            let ptr = allocator.malloc(request, rig.stream()).unwrap();
            let bytes = allocator.block_size(ptr).unwrap();
            assert_eq!(stats(&allocator).allocated_bytes.all.current, i64::try_from(bytes).unwrap());
            allocator.free(ptr).unwrap();
            bytes
        };
        let list = "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]";
        let table: [(&str, &[(u64, u64)]); 4] = [
            (
                "roundup_power2_divisions:4",
                &[(600, 1024), (1200, 1536), (2049, 2560), (1_048_577, 1_310_720), (3 * MIB + 5, 3_670_016)],
            ),
            ("roundup_power2_divisions:8", &[(100 * MIB + 1, 104 * MIB), (9 * MIB - 1, 9 * MIB)]),
            (
                list,
                &[
                    (65 * MIB, 72 * MIB),
                    (129 * MIB, 192 * MIB),
                    (257 * MIB, 320 * MIB),
                    (513 * MIB, 768 * MIB),
                    (1025 * MIB, 1280 * MIB),
                    (2050 * MIB - 1, 2050 * MIB),
                ],
            ),
            ("", &[(600, 1024), (1200, 1536), (2049, 2560), (3 * MIB + 5, 3_146_240), (66 * MIB, 66 * MIB)]),
        ];
        for (text, sizes) in table {
            allocator.configure(read(text, &allocator.settings())).unwrap();
            for (request, block) in sizes {
                assert_eq!(takes(*request), *block, "{request} under {text:?}");
            }
        }
    });
}

#[test]
fn s12_device_calls_are_counted_for_segments_and_for_mapped_memory() {
    on_each(&of_bytes(1024 * MIB), |rig| {
        for (settings, taken, mallocs) in [(Settings::default(), 3, 3), (growable(), 3, 0)] {
            let allocator = rig.allocator(settings);
            rig.device.reset_calls();
            let counts = || {
                let seen = stats(&allocator);
                (seen.num_device_alloc, seen.num_device_free)
            };
            let mut blocks = Vec::new();
            // In a growable segment the third is a second step of the same.
            for (n, bytes) in [KIB, 40 * MIB, 60 * MIB].into_iter().enumerate() {
                blocks.push(allocator.malloc(bytes, rig.stream()).unwrap());
                assert_eq!(counts(), (i64::try_from(n).unwrap() + 1, 0));
            }
            assert_eq!((counts().0, rig.device.calls().get(Call::Malloc)), (taken, mallocs));
            free_all(&allocator, blocks);
            assert_eq!(counts(), (taken, 0), "cached");
            allocator.empty_cache().unwrap();
            let returned = if mallocs == 0 { 2 } else { 3 };
            assert_eq!(counts(), (taken, returned), "one step for what lies together");
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn s13_private_pools_have_their_own_reserved_bytes() {
    on_each(&of_bytes(1024 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let [first, second] = [PoolId::fresh(), PoolId::fresh()];
        let by_pool = || stats(&allocator).reserved_bytes_by_private_pools;
        let mut blocks = vec![allocator.malloc(30 * MIB, rig.stream()).unwrap()];
        for (pool, bytes) in [(first, 40 * MIB), (second, KIB)] {
            allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
            assert!(!by_pool().contains_key(&pool), "an entry comes with the first segment");
            blocks.push(allocator.malloc(bytes, rig.stream()).unwrap());
            allocator.pools().end(DEVICE, pool).unwrap();
        }
        assert_eq!(by_pool().len(), 2);
        let held = |bytes| Stat { current: bytes, peak: bytes, allocated: bytes, freed: 0 };
        let large = StatArray { all: held(40 * M), large_pool: held(40 * M), ..StatArray::default() };
        let small = StatArray { all: held(2 * M), small_pool: held(2 * M), ..StatArray::default() };
        assert_eq!((by_pool()[&first], by_pool()[&second]), (large, small));
        assert_eq!(stats(&allocator).reserved_bytes.all.current, 72 * M);

        free_all(&allocator, blocks);
        for pool in [first, second] {
            allocator.pools().release(DEVICE, pool).unwrap();
        }
        allocator.empty_cache().unwrap();
        let gone = Stat { current: 0, freed: 40 * M, ..held(40 * M) };
        assert_eq!(by_pool()[&first].all, gone);
        allocator.statistics().reset_peaks(DEVICE).unwrap();
        assert_eq!(by_pool()[&first].all, Stat { peak: 0, ..gone });
        allocator.statistics().reset_accumulated(DEVICE).unwrap();
        assert_eq!(by_pool()[&first], StatArray::default());
        assert_eq!(by_pool().len(), 2, "the entries stay");
        rig.nothing_is_left(&allocator);
    });
}

/// Counters and sums begin anew, and peaks by a call of their own, PyTorch's and Granule's; levels stay.
fn s04_resets_change_their_part_and_nothing_else<P: Policy>() {
    on_each(&of_bytes(200 * MIB), |rig| {
        let settings = Settings { max_split_size: 60 * MIB, ..Settings::default() };
        let allocator = rig.with_policy::<P>(settings.clone());
        let stream = rig.stream();
        let oversize = allocator.malloc(70 * MIB, stream).unwrap();
        let blocks: Vec<_> = (0..6).map(|_| allocator.malloc(20 * MIB, stream).unwrap()).collect();
        free_all(&allocator, blocks.iter().step_by(2).copied());
        // Out of what lies between live blocks, where that can be moved.
        let between = allocator.malloc(50 * MIB, stream).unwrap();
        allocator.malloc(150 * MIB, stream).unwrap_err();
        allocator.configure(Settings { throw_on_oom: true, ..settings }).unwrap();
        allocator.malloc(300 * MIB, stream).unwrap_err();
        free_all(&allocator, [oversize]);
        allocator.empty_cache().unwrap();
        let before = stats(&allocator);
        let counts = |s: &DeviceStats| {
            let tried = [s.num_alloc_retries, s.num_ooms, s.num_oom_rejections, s.num_sync_all_streams];
            [tried.as_slice(), &[s.num_device_alloc, s.num_device_free]].concat()
        };
        assert!(counts(&before).iter().all(|count| *count > 0), "{:?}", counts(&before));
        assert_eq!(before.granule.granules_moved > 0, P::NAME == GranulePolicy::NAME);

        allocator.statistics().reset_peaks(DEVICE).unwrap();
        let without_peaks = stats(&allocator);
        allocator.statistics().reset_accumulated(DEVICE).unwrap();
        let last = stats(&allocator);
        for figure in DeviceStats::figures() {
            let [was, then, now] = [&before, &without_peaks, &last].map(|stats| figure.values(stats));
            let mut current = 0;
            for ((was, then), now) in was.iter().zip(then).zip(now) {
                let name = format!("{} {:?}", figure.name, was.part);
                current = if was.part == Some("current") { was.value } else { current };
                assert_eq!(then.value, if was.part == Some("peak") { current } else { was.value }, "{name}");
                let is_counter = matches!(figure.read, Read::Counter(_));
                let sum = is_counter || matches!(was.part, Some("allocated" | "freed"));
                assert_eq!(now.value, if sum { 0 } else { then.value }, "{name}");
            }
        }
        assert!(before.allocated_bytes.all.peak > last.allocated_bytes.all.peak);
        assert_eq!(last.max_split_size, 60 * M, "a setting, not a count");
        free_all(&allocator, blocks.into_iter().skip(1).step_by(2).chain([between]));
        rig.nothing_is_left(&allocator);
    });
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
    figures_derived_from_statistics,
    s04_resets_change_their_part_and_nothing_else,
);
