//! Limits on what is held: the memory fraction, and Granule's own, hard and soft, by device and by pool; and sizes that no
//! limit could admit.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::budget::Budget;
use alloc_core::config::{Flavour, MemoryLimit, Settings, environment, strict};
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::types::{DeviceIndex, GIB, MIB};
use backend_openreg::{Call, Clock, FaultPlan, OpenRegConfig};
use granule_tests::policy::{GranulePolicy, Policy};
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{both, free_all, growable, of, of_bytes, reserved};
use granule_tests::views::{Numbers, settle};
use granule_tests::with_policy;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const M: i64 = 1 << 20;
const OTHER: DeviceIndex = DeviceIndex(1);

fn two(capacity: u64) -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(capacity)
}

fn from_environment(text: &'static str) -> Settings {
    let own = |name: &str| (name == "GRANULE_CONF").then(|| text.to_owned());
    environment::read(own, Flavour::Cuda).unwrap().settings
}

fn a02_a_size_that_cannot_be_is_refused_and_changes_nothing<P: Policy>() {
    let rounded = Settings { roundup_power2_divisions: [4; 16], ..Settings::default() };
    for settings in both().into_iter().chain([rounded]) {
        on_each(&of_bytes(GIB), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let before = allocator.stats(DEVICE).unwrap();
            for size in [-1_i64, -5, i64::MIN, 1 << 60] {
                let error = allocator.malloc(size.cast_unsigned(), rig.stream()).unwrap_err();
                assert!(matches!(error, AllocError::MoreThanAnExabyte { .. }), "{error}");
                assert!(error.to_string().ends_with("Tried to allocate more than 1EB memory."), "{error}");
            }
            assert_eq!(allocator.stats(DEVICE).unwrap(), before);
            assert_eq!(rig.device.calls().get(Call::Malloc), 0);
            for bytes in [(1 << 60) - 1, (1 << 59) + 1] {
                assert!(allocator.malloc(bytes, rig.stream()).unwrap_err().is_out_of_memory());
            }
            allocator.check_invariants();
        });
    }
}

fn a_hard_limit_from_the_environment_holds_on_each_device<P: Policy>() {
    for text in ["memory_limit:100MiB", "memory_limit:0.1", "memory_limit:100MiB,expandable_segments:True"] {
        on_each(&two(1000 * MIB), |rig| {
            let allocator = rig.with_policy::<P>(from_environment(text));
            for device in [DEVICE, OTHER] {
                let stream = rig.backend.default_stream(device);
                let fits = allocator.malloc(60 * MIB, stream).unwrap();
                let error = allocator.malloc(60 * MIB, stream).unwrap_err();
                let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
                assert_eq!((report.allowed, report.device_free), (Some(100 * MIB), 940 * MIB), "{text}");
                assert!(error.to_string().contains("100.00 MiB may be held. "), "{error}");
                let rest = allocator.malloc(40 * MIB, stream).expect("up to the limit");
                assert_eq!(rig.device.used(device), 100 * MIB);
                // What is cached counts, and makes room where it is needed.
                free_all(&allocator, [fits, rest]);
                let all = allocator.malloc(100 * MIB, stream).unwrap();
                assert_eq!(rig.device.peak_used(device), 100 * MIB);
                free_all(&allocator, [all]);
            }
            rig.nothing_is_left(&allocator);
        });
    }
}

fn limits_can_be_changed_for_one_device_and_lifted<P: Policy>() {
    on_each(&two(1000 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let streams = [DEVICE, OTHER].map(|device| rig.backend.default_stream(device));
        allocator.set_memory_limits(OTHER, Some(MemoryLimit::Bytes(100 * MIB)), None).unwrap();
        let here = allocator.malloc(500 * MIB, streams[0]).expect("this device has no limit");
        assert!(allocator.malloc(102 * MIB, streams[1]).unwrap_err().is_out_of_memory());
        // The smaller of limit and fraction counts.
        allocator.set_memory_fraction(0.05, OTHER).unwrap();
        assert!(allocator.malloc(52 * MIB, streams[1]).unwrap_err().is_out_of_memory());
        allocator.set_memory_fraction(1.0, OTHER).unwrap();
        let there = allocator.malloc(100 * MIB, streams[1]).unwrap();
        assert!(allocator.malloc(2 * MIB, streams[1]).unwrap_err().is_out_of_memory());
        allocator.set_memory_limits(OTHER, None, None).unwrap();
        let more = allocator.malloc(800 * MIB, streams[1]).unwrap();
        free_all(&allocator, [here, there, more]);
        for wrong in [MemoryLimit::Bytes(0), MemoryLimit::Fraction(0.0), MemoryLimit::Fraction(f64::NAN)] {
            for (hard, soft) in [(Some(wrong), None), (None, Some(wrong))] {
                let error = allocator.set_memory_limits(DEVICE, hard, soft).unwrap_err();
                assert!(matches!(error, AllocError::Settings(_)), "{error}");
            }
        }
        let absent = allocator.set_memory_limits(DeviceIndex(7), None, None).unwrap_err();
        assert!(matches!(absent, AllocError::InvalidDevice { .. }), "{absent}");
    });
}

fn limits_set_by_a_call_stay_until_settings_name_others<P: Policy>() {
    on_each(&two(1000 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let configure = |text: &str| {
            allocator.configure(strict::parse(text, &allocator.settings()).unwrap().settings).unwrap();
        };
        let may_hold = |megabytes: u64| {
            let all = allocator.malloc(megabytes * MIB, rig.stream());
            let answer = all.is_ok();
            free_all(&allocator, all);
            allocator.empty_cache().unwrap();
            answer
        };
        let [low, high] = [100, 300].map(|n| Some(MemoryLimit::Bytes(n * MIB)));
        allocator.set_memory_limits(DEVICE, low, Some(MemoryLimit::Bytes(50 * MIB))).unwrap();
        configure("segments_ipc:False");
        assert!(may_hold(100) && !may_hold(102), "nothing was said about it");
        let cached = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        free_all(&allocator, [cached]);
        let other = allocator.malloc(30 * MIB, rig.new_stream()).unwrap();
        assert_eq!(reserved(&allocator), 30 * M, "the soft limit stays, too");
        free_all(&allocator, [other]);
        configure("memory_limit:200MiB");
        assert!(may_hold(200) && !may_hold(202), "the newest counts");
        allocator.set_memory_limits(DEVICE, high, None).unwrap();
        configure("memory_limit:200MiB,segments_ipc:True");
        assert!(may_hold(300) && !may_hold(302), "the settings say what they said before");
        configure("memory_limit:unlimited");
        assert!(may_hold(900));
    });
}

/// One device has no room for what a tenant is guaranteed: the others keep what they were allowed, too.
fn a_limit_that_one_device_refuses_holds_on_none<P: Policy>() {
    on_each(&two(1000 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(from_environment("memory_limit:800MiB"));
        let guarantee = Some(MemoryLimit::Bytes(300 * MIB));
        let budget = Budget { guarantee, ..Budget::default() };
        allocator.budgets().create_tenant(OTHER, "late", &budget).unwrap();
        let refused = allocator.configure(from_environment("memory_limit:200MiB")).unwrap_err();
        assert!(matches!(refused, AllocError::Budget { .. }), "{refused}");
        for (device, most) in [(DEVICE, 800), (OTHER, 500)] {
            let stream = rig.backend.default_stream(device);
            let all = allocator.malloc(most * MIB, stream).unwrap();
            assert!(allocator.malloc(2 * MIB, stream).unwrap_err().is_out_of_memory());
            free_all(&allocator, [all]);
        }
    });
}

fn above_a_soft_limit_the_cache_goes_before_more_is_taken<P: Policy>() {
    for by_environment in [true, false] {
        on_each(&two(1000 * MIB), |rig| {
            let settings = if by_environment { "memory_soft_limit:100MiB" } else { "" };
            let allocator = rig.with_policy::<P>(from_environment(settings));
            if !by_environment {
                allocator.set_memory_limits(DEVICE, None, Some(MemoryLimit::Fraction(0.1))).unwrap();
            }
            let cached = allocator.malloc(60 * MIB, rig.stream()).unwrap();
            free_all(&allocator, [cached]);
            let first = allocator.malloc(40 * MIB + 1, rig.new_stream()).unwrap();
            assert_eq!(reserved(&allocator), 42 * M, "60 and 42 MiB would be over it");
            // Beyond it memory is taken all the same, without a failure.
            let second = allocator.malloc(200 * MIB, rig.stream()).unwrap();
            assert_eq!(reserved(&allocator), 242 * M);
            let seen = allocator.stats(DEVICE).unwrap();
            assert_eq!((seen.num_ooms, seen.num_alloc_retries), (0, 0));
            free_all(&allocator, [first, second]);
            rig.nothing_is_left(&allocator);
        });
    }
}

/// Giving the cache back waits for pending frees: one that fits then is used before the device is asked.
fn a_block_that_comes_back_under_the_soft_limit_serves_the_request<P: Policy>() {
    on_each(&two(1000 * MIB).clock(Clock::Virtual { lag: 1000 }), |rig| {
        let settings =
            Settings { memory_soft_limit: Some(MemoryLimit::Bytes(50 * MIB)), ..Settings::default() };
        let allocator = rig.with_policy::<P>(settings);
        let side = rig.new_stream();
        let used = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        let keeper = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        let neighbour = allocator.malloc(10 * MIB, rig.stream()).unwrap();
        rig.use_memory(side, neighbour, 10 * MIB);
        allocator.record_stream(neighbour, side).unwrap();
        free_all(&allocator, [neighbour]);
        rig.device.reset_calls();
        let again = allocator.malloc(10 * MIB, rig.stream()).unwrap();
        assert_eq!((again, rig.device.calls().get(Call::Malloc)), (neighbour, 0));
        free_all(&allocator, [used, keeper, again]);
        rig.nothing_is_left(&allocator);
    });
}

fn s08_a_fraction_out_of_range_is_refused_and_one_in_range_is_read_back<P: Policy>() {
    on_each(&of_bytes(1000 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
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

fn s09_half_of_the_device_can_be_had_and_no_more<P: Policy>() {
    on_each(&of_bytes(1000 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
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

fn s10_a_fraction_from_the_environment_is_in_force_and_shows<P: Policy>() {
    on_each(&of_bytes(1000 * MIB), |rig| {
        let text = |name: &str| {
            (name == "PYTORCH_CUDA_ALLOC_CONF").then(|| "per_process_memory_fraction:0.25".to_owned())
        };
        let settings = environment::read(text, Flavour::Cuda).unwrap().settings;
        let allocator = rig.with_policy::<P>(settings.clone());
        assert!((allocator.memory_fraction(DEVICE).unwrap() - 0.25).abs() < 1e-9);
        assert!(allocator.malloc(252 * MIB, rig.stream()).unwrap_err().is_out_of_memory());
        // As in PyTorch, later settings leave the fraction as it was.
        allocator.configure(Settings { per_process_memory_fraction: 1.0, ..settings }).unwrap();
        assert!((allocator.memory_fraction(DEVICE).unwrap() - 0.25).abs() < 1e-9);
        let ptr = allocator.malloc(250 * MIB, rig.stream()).unwrap();
        free_all(&allocator, [ptr]);
    });
}

fn s11_rejections_are_counted_and_told_on_each_device_by_itself<P: Policy>() {
    on_each(&two(1000 * MIB), |rig| {
        let settings =
            Settings { throw_on_oom: true, per_process_memory_fraction: 0.5, ..Settings::default() };
        let allocator = rig.with_policy::<P>(settings);
        let told = Arc::new(Mutex::new(Vec::new()));
        let told_here = Arc::clone(&told);
        allocator.hooks().on_rejection(move |device, wanted, held, limit| {
            told_here.lock().unwrap().push((device.0, wanted, held, limit));
        });
        allocator.hooks().on_out_of_memory(|report| panic!("a rejection is no such error: {report}"));
        let label = rig.backend.label();
        for device in [DEVICE, OTHER] {
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
            assert_eq!(*told.lock().unwrap(), [(device.0, 402 * MIB, 100 * MIB, 500 * MIB)]);
            assert!(matches!(allocator.malloc(1, stream), Err(AllocError::Rejected { .. })));
            told.lock().unwrap().clear();
            free_all(&allocator, [held, rest]);
        }
    });
}

/// The other thread takes memory for the same stream and pool.
fn who_is_told_of_a_rejection_may_wait_for_another_thread<P: Policy>() {
    for settings in [Settings::default(), growable()] {
        let settings = Settings { throw_on_oom: true, per_process_memory_fraction: 0.5, ..settings };
        let (_device, allocator, stream) = with_policy::<P>(of_bytes(1000 * MIB), settings);
        allocator.set_memory_fraction(1.0, DEVICE).unwrap();
        let (allocator, served) = (Arc::new(allocator), Arc::new(Mutex::new(None)));
        let (asks, told) = (Arc::downgrade(&allocator), Arc::clone(&served));
        allocator.hooks().on_rejection(move |_, _, _, _| {
            let (asks, (answers, answered)) = (asks.upgrade().unwrap(), std::sync::mpsc::channel());
            std::thread::spawn(move || answers.send(asks.malloc(30 * MIB, stream).map_err(drop)));
            *told.lock().unwrap() = answered.recv_timeout(Duration::from_secs(5)).ok();
        });
        assert!(matches!(allocator.malloc(600 * MIB, stream), Err(AllocError::Rejected { .. })));
        let block =
            served.lock().unwrap().take().expect("it did not have to wait for the one that was rejected");
        allocator.free(block.unwrap()).unwrap();
    }
}

fn s09_a_fraction_is_rounded_to_bytes<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(of_bytes(999 * MIB), Settings::default());
    #[allow(clippy::cast_precision_loss)]
    allocator.set_memory_fraction((126 * MIB) as f64 / (999 * MIB) as f64, DEVICE).unwrap();
    allocator.malloc(126 * MIB, stream).expect("the product is a bit below 126 MiB");
}

fn a_failed_request_leaves_nothing_counted_as_held<P: Policy>() {
    for settings in [Settings::default(), growable()] {
        let (device, allocator, stream) = with_policy::<P>(of_bytes(1000 * MIB), settings.clone());
        allocator.set_memory_fraction(0.5, DEVICE).unwrap();
        settle(&device, &allocator, stream);
        let grows = settings.expandable_segments || P::NAME == "granule";
        let call = if grows { Call::CreatePhysical } else { Call::Malloc };
        device.set_faults(FaultPlan::none().fail_nth_of(call, 1, ErrorKind::Other));
        assert!(matches!(allocator.malloc(400 * MIB, stream), Err(AllocError::Backend(_))));
        allocator.malloc(400 * MIB, stream).expect("the fraction has room for it once");
    }
}

/// Bytes on their way count: two threads could take more than is allowed, which was checked, and taken later.
fn limits_hold_under_threads<P: Policy>() {
    for by_fraction in std::iter::repeat_n([true, false], 300).flatten() {
        let (device, allocator, home) = with_policy::<P>(of(1000), Settings::default());
        let other = device.create_stream(DEVICE, 0).unwrap();
        if by_fraction {
            allocator.set_memory_fraction(0.5, DEVICE).unwrap();
        } else {
            allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(500 * MIB)), None).unwrap();
        }
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for stream in [home, other] {
                let (allocator, start) = (&allocator, &start);
                scope.spawn(move || {
                    start.wait();
                    let _ = allocator.malloc(300 * MIB, stream);
                });
            }
        });
        let held = allocator.stats(DEVICE).unwrap().reserved_bytes.all.peak.unsigned_abs();
        assert!((300 * MIB..=500 * MIB).contains(&held), "one of them is served");
    }
}

/// What a first growable segment maps is counted, not the segment that PyTorch would take: 4 MiB were refused of 8 MiB, by every
/// limit.
#[test]
fn the_first_memory_of_a_stream_or_a_pool_counts_as_what_is_taken_for_it() {
    let rejecting = Settings { throw_on_oom: true, ..Settings::default() };
    for (settings, fraction, limit) in [
        (rejecting.clone(), 1.0, None),
        (Settings { per_process_memory_fraction: 0.5, ..rejecting }, 1.0, None),
        (Settings::default(), 0.5, None),
        (Settings::default(), 1.0, Some(MemoryLimit::Bytes(64 * MIB))),
    ] {
        let capacity = if settings.per_process_memory_fraction * fraction < 1.0 { 128 } else { 64 };
        let (device, allocator, stream) = with_policy::<GranulePolicy>(of(capacity), settings);
        allocator.set_memory_fraction(fraction, DEVICE).unwrap();
        allocator.set_memory_limits(DEVICE, limit, None).unwrap();
        let most = allocator.malloc(56 * MIB, stream).unwrap();
        let other = device.create_stream(DEVICE, 0).unwrap();
        let of_stream = allocator.malloc(4 * MIB, other).expect("8 MiB are left");
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let scope = pool.enter(Filter::Always).unwrap();
        let of_pool = allocator.malloc(4 * MIB, stream).expect("4 MiB are left");
        assert_eq!(device.used(DEVICE), 64 * MIB);
        assert!(allocator.malloc(4 * MIB, stream).unwrap_err().is_out_of_memory());
        drop(scope);
        free_all(&allocator, [most, of_stream, of_pool]);
    }
}

/// The same of a pool's own limit.
#[test]
fn the_first_memory_of_a_limited_pool_counts_as_what_is_taken_for_it() {
    let (device, allocator, stream) = with_policy::<GranulePolicy>(of(100), Settings::default());
    let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
    allocator.pools().set_hard_limit(DEVICE, pool.id(), Some(MemoryLimit::Bytes(8 * MIB))).unwrap();
    let _scope = pool.enter(Filter::Always).unwrap();
    let ptr = allocator.malloc(4 * MIB, stream).expect("8 MiB may be taken");
    assert_eq!(device.used(DEVICE), 4 * MIB);
    allocator.free(ptr).unwrap();
}

/// Granules of the usual size were rejected where smaller ones did.
#[test]
fn what_fits_in_the_smallest_granules_is_not_rejected() {
    let settings = Settings { throw_on_oom: true, ..Settings::default() };
    let (device, allocator, stream) = with_policy::<GranulePolicy>(of(604), settings);
    let take = |mib: u64| allocator.malloc(mib * MIB, stream).expect("the device has that left");
    let blocks = [512, 60, 30].map(take);
    assert_eq!(device.used(DEVICE), 602 * MIB);
    assert!(matches!(allocator.malloc(4 * MIB, stream), Err(AllocError::Rejected { .. })));
    assert_eq!(allocator.stats(DEVICE).unwrap().num_oom_rejections, 1);
    free_all(&allocator, blocks);
}

/// What whole granules take counts: 516 MiB were held of 500 MiB. PyTorch's own limits count requests: its growable segments
/// exceed them by less than a step.
fn no_limit_is_exceeded_by_whole_granules<P: Policy>() {
    let half = Settings { per_process_memory_fraction: 0.5, throw_on_oom: true, ..Settings::default() };
    let most = MemoryLimit::Bytes(510 * MIB);
    for (limit, settings) in ["fraction", "hard", "pool", "tenant", "guarantee"]
        .map(|name| (name, Settings::default()))
        .into_iter()
        .chain([("rejections", half.clone()), ("rejections alone", half)])
    {
        for (granule_size, expandable_segments) in [(0, false), (0, true), (8, true), (64, true), (96, true)]
        {
            let large_segment_size = 20.max(granule_size) * MIB;
            let granule_size = if P::NAME == "granule" { granule_size * MIB } else { 0 };
            let grain =
                Settings { granule_size, large_segment_size, expandable_segments, ..settings.clone() };
            let settings = Settings { max_non_split_rounding: large_segment_size, ..grain };
            let of_pytorch = matches!(limit, "fraction" | "rejections" | "rejections alone");
            let beyond = if P::NAME == "pytorch" && of_pytorch { large_segment_size } else { 1 };
            for seed in 1..=4 {
                let (device, allocator, stream) = with_policy::<P>(of_bytes(1020 * MIB), settings.clone());
                settle(&device, &allocator, stream);
                let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
                let _scope = matches!(limit, "pool" | "tenant").then(|| pool.enter(Filter::Always).unwrap());
                let (pools, budgets) = (allocator.pools(), allocator.budgets());
                match limit {
                    "fraction" => allocator.set_memory_fraction(0.5, DEVICE).unwrap(),
                    "rejections alone" => allocator.set_memory_fraction(1.0, DEVICE).unwrap(),
                    "hard" => allocator.set_memory_limits(DEVICE, Some(most), None).unwrap(),
                    "pool" => pools.set_hard_limit(DEVICE, pool.id(), Some(most)).unwrap(),
                    "tenant" => {
                        let budget = Budget { hard: Some(most), ..Budget::default() };
                        budgets
                            .join(pool.id(), budgets.create_tenant(DEVICE, "t", &budget).unwrap())
                            .unwrap();
                    }
                    "guarantee" => {
                        let budget = Budget { guarantee: Some(most), ..Budget::default() };
                        budgets.create_tenant(DEVICE, "t", &budget).unwrap();
                    }
                    _ => {}
                }
                let (mut numbers, mut live, mut refused) = (Numbers(seed), Vec::new(), 0);
                for step in 0..80 {
                    match allocator.malloc((2 + numbers.below(100)) * MIB + numbers.below(2) * 512, stream) {
                        Ok(block) => live.push(block),
                        Err(error) => {
                            assert!(error.is_out_of_memory(), "{error}");
                            refused += 1;
                            let gone = live.swap_remove(numbers.below(live.len() as u64) as usize);
                            free_all(&allocator, [gone]);
                        }
                    }
                    let (held, what) =
                        (device.used(DEVICE), (limit, granule_size >> 20, expandable_segments));
                    assert!(held < 510 * MIB + beyond, "{what:?}, {seed}: {} MiB after {step}", held >> 20);
                }
                assert!(refused > 0, "the limit binds");
                allocator.check_invariants();
            }
        }
    }
}

/// A request that fits in granules of the smallest size is served under every limit, also as the first.
#[test]
fn what_a_limit_leaves_can_be_had_in_the_smallest_granules() {
    let half = Settings { per_process_memory_fraction: 0.5, ..Settings::default() };
    for throw_on_oom in [false, true] {
        for granule_size in [0, 64 * MIB] {
            let settings = Settings { throw_on_oom, granule_size, ..half.clone() };
            let (device, allocator, stream) = with_policy::<GranulePolicy>(of_bytes(1000 * MIB), settings);
            settle(&device, &allocator, stream);
            for blocks in [&[500][..], &[430, 70], &[20, 300, 180]] {
                let live: Vec<_> =
                    blocks.iter().map(|mib| allocator.malloc(mib * MIB, stream).unwrap()).collect();
                assert_eq!(device.used(DEVICE), 500 * MIB, "{blocks:?}");
                free_all(&allocator, live);
                allocator.empty_cache().unwrap();
            }
        }
    }
}

granule_tests::for_each_policy!(
    a_hard_limit_from_the_environment_holds_on_each_device,
    limits_can_be_changed_for_one_device_and_lifted,
    limits_set_by_a_call_stay_until_settings_name_others,
    a_limit_that_one_device_refuses_holds_on_none,
    above_a_soft_limit_the_cache_goes_before_more_is_taken,
    a_block_that_comes_back_under_the_soft_limit_serves_the_request,
    limits_hold_under_threads,
    no_limit_is_exceeded_by_whole_granules,
    s09_a_fraction_is_rounded_to_bytes,
    who_is_told_of_a_rejection_may_wait_for_another_thread,
    a_failed_request_leaves_nothing_counted_as_held,
    s08_a_fraction_out_of_range_is_refused_and_one_in_range_is_read_back,
    s09_half_of_the_device_can_be_had_and_no_more,
    s10_a_fraction_from_the_environment_is_in_force_and_shows,
    s11_rejections_are_counted_and_told_on_each_device_by_itself,
    a02_a_size_that_cannot_be_is_refused_and_changes_nothing,
);
