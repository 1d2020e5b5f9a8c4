//! Statistics and limits, S01 to S13 of the checklist: on the simulated device, and on HIP seen as CUDA.

use alloc_core::AllocError;
use alloc_core::config::{Flavour, Settings, environment, pytorch};
use alloc_core::pool::Filter;
use alloc_core::stats::{DeviceStats, Stat, StatArray};
use alloc_core::types::{DeviceIndex, KIB, MIB, PoolId};
use backend_openreg::{Call, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{free_all, growable, of_bytes};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

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

/// Every figure that counts, of every array.
fn every_stat(seen: &DeviceStats) -> Vec<Stat> {
    let arrays = [
        seen.allocation,
        seen.segment,
        seen.active,
        seen.inactive_split,
        seen.allocated_bytes,
        seen.reserved_bytes,
        seen.active_bytes,
        seen.inactive_split_bytes,
        seen.requested_bytes,
    ];
    let arrays = arrays.into_iter().chain(seen.reserved_bytes_by_private_pools.values().copied());
    let each = arrays.flat_map(|array| [array.all, array.small_pool, array.large_pool]);
    each.chain([seen.oversize_allocations, seen.oversize_segments]).collect()
}

#[test]
fn s04_resets_change_their_part_and_nothing_else() {
    on_each(&of_bytes(200 * MIB), |rig| {
        let settings = Settings { max_split_size: 60 * MIB, ..Settings::default() };
        let allocator = rig.allocator(settings);
        let kept: Vec<_> =
            [KIB, 70 * MIB, 3 * MIB].map(|n| allocator.malloc(n, rig.stream()).unwrap()).into();
        let gone = allocator.malloc(80 * MIB, rig.stream()).unwrap();
        allocator.malloc(90 * MIB, rig.stream()).unwrap_err();
        free_all(&allocator, [gone, kept[2]]);
        allocator.empty_cache().unwrap();
        let before = stats(&allocator);
        let counts = |s: &DeviceStats| {
            [s.num_alloc_retries, s.num_ooms, s.num_sync_all_streams, s.num_device_alloc, s.num_device_free]
        };
        assert!(counts(&before).iter().all(|count| *count > 0), "{:?}", counts(&before));
        assert!(every_stat(&before).iter().any(|stat| stat.peak > stat.current));

        allocator.statistics().reset_peaks(DEVICE).unwrap();
        let after = stats(&allocator);
        for (before, after) in every_stat(&before).into_iter().zip(every_stat(&after)) {
            assert_eq!(after, Stat { peak: before.current, ..before });
        }
        assert_eq!(counts(&after), counts(&before));

        allocator.statistics().reset_accumulated(DEVICE).unwrap();
        let last = stats(&allocator);
        for (after, last) in every_stat(&after).into_iter().zip(every_stat(&last)) {
            assert_eq!(last, Stat { allocated: 0, freed: 0, ..after });
        }
        assert_eq!(counts(&last), [0; 5]);
        assert_eq!(last.max_split_size, 60 * M, "a setting, not a count");
        free_all(&allocator, [kept[0], kept[1]]);
        rig.nothing_is_left(&allocator);
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
fn s08_a_fraction_out_of_range_is_refused_and_one_in_range_is_read_back() {
    on_each(&of_bytes(1000 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = allocator.set_memory_fraction(wrong, DEVICE).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid fraction:{wrong}. Please set within [0, 1]."));
            assert!((allocator.memory_fraction(DEVICE).unwrap() - 1.0).abs() < f64::EPSILON);
        }
        for fraction in [0.0, 0.123_456_789, 0.5, 1.0] {
            allocator.set_memory_fraction(fraction, DEVICE).unwrap();
            assert!((allocator.memory_fraction(DEVICE).unwrap() - fraction).abs() < 1e-9);
        }
    });
}

#[test]
fn s09_half_of_the_device_can_be_had_and_no_more() {
    on_each(&of_bytes(1000 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let cached = allocator.malloc(300 * MIB, rig.stream()).unwrap();
        free_all(&allocator, [cached]);
        allocator.set_memory_fraction(0.5, DEVICE).unwrap();
        allocator.empty_cache().unwrap();
        let most = allocator.malloc(499 * MIB, rig.stream()).unwrap();
        let error = allocator.malloc(500 * MIB, rig.stream()).unwrap_err();
        let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
        assert_eq!((report.allowed, report.device_free), (Some(500 * MIB), 500 * MIB));
        assert!(
            report.pytorch_message().contains("of which 500.00 MiB is free. 500.00 MiB allowed; Of the"),
            "{error}"
        );
        free_all(&allocator, [most]);
        allocator.set_memory_fraction(1.0, DEVICE).unwrap();
        let all = allocator.malloc(1000 * MIB, rig.stream()).expect("the limit is lifted");
        free_all(&allocator, [all]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn s10_a_fraction_from_the_environment_is_in_force_and_shows() {
    on_each(&of_bytes(1000 * MIB), |rig| {
        let text = |name: &str| {
            (name == "PYTORCH_CUDA_ALLOC_CONF").then(|| "per_process_memory_fraction:0.25".to_owned())
        };
        let settings = environment::read(text, Flavour::Cuda).unwrap().settings;
        let allocator = rig.allocator(settings.clone());
        assert!((allocator.memory_fraction(DEVICE).unwrap() - 0.25).abs() < 1e-9);
        assert!(allocator.malloc(252 * MIB, rig.stream()).unwrap_err().is_out_of_memory());
        // As in PyTorch, later settings leave the fraction as it was.
        allocator.configure(Settings { per_process_memory_fraction: 1.0, ..settings }).unwrap();
        assert!((allocator.memory_fraction(DEVICE).unwrap() - 0.25).abs() < 1e-9);
        let ptr = allocator.malloc(250 * MIB, rig.stream()).unwrap();
        free_all(&allocator, [ptr]);
    });
}

#[test]
fn s11_rejections_are_counted_and_told_on_each_device_by_itself() {
    let config = OpenRegConfig::default().devices(2).capacity(1000 * MIB);
    on_each(&config, |rig| {
        let settings =
            Settings { throw_on_oom: true, per_process_memory_fraction: 0.5, ..Settings::default() };
        let allocator = rig.allocator(settings);
        let told = Arc::new(Mutex::new(Vec::new()));
        let told_here = Arc::clone(&told);
        allocator.hooks().on_rejection(move |device, wanted, held, limit| {
            told_here.lock().unwrap().push((device.0, wanted, held, limit));
        });
        allocator.hooks().on_out_of_memory(|report| panic!("a rejection is no such error: {report}"));
        let label = rig.backend.label();
        for device in [DeviceIndex(0), DeviceIndex(1)] {
            let stream = rig.backend.default_stream(device);
            // The allowed maximum would refuse before; what counts is the option.
            allocator.set_memory_fraction(1.0, device).unwrap();
            let held = allocator.malloc(100 * MIB, stream).unwrap();
            rig.device.reset_calls();
            let error = allocator.malloc(401 * MIB, stream).unwrap_err();
            assert!(error.is_out_of_memory());
            assert_eq!(
                error.to_string(),
                format!(
                    "{label} out of memory. Allocation was preemptively rejected because it would exceed \
                     per_process_memory_fraction limit. Requested size: 401.00 MiB"
                )
            );
            let calls = rig.device.calls();
            assert_eq!((calls.get(Call::Malloc), calls.get(Call::Free)), (0, 0), "no remedy was tried");
            let seen = allocator.stats(device).unwrap();
            assert_eq!((seen.num_oom_rejections, seen.num_ooms, seen.num_alloc_retries), (1, 0, 0));
            let rest = allocator.malloc(400 * MIB, stream).expect("the limit itself is allowed");
            free_all(&allocator, [held, rest]);
        }
        let wanted = (402 * MIB, 100 * MIB, 500 * MIB);
        assert_eq!(*told.lock().unwrap(), [0, 1].map(|n| (n, wanted.0, wanted.1, wanted.2)));
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
