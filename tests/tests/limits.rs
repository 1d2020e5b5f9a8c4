//! Granule's own limits on what is held: hard and soft, by device and by pool.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::AllocError;
use alloc_core::config::{Flavour, MemoryLimit, Settings, environment};
use alloc_core::policy::Policy;
use alloc_core::pool::Filter;
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, PoolId};
use backend_openreg::{Call, Clock, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, on_each};

const M: i64 = 1 << 20;
const OTHER: DeviceIndex = DeviceIndex(1);

fn two(capacity: u64) -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(capacity)
}

fn from_environment(text: &'static str) -> Settings {
    let own = |name: &str| (name == "GRANULE_CONF").then(|| text.to_owned());
    environment::read(own, Flavour::Cuda).unwrap().settings
}

fn free<P: Policy>(allocator: &Allocator<P>, blocks: impl IntoIterator<Item = DevicePtr>) {
    blocks.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
}

fn reserved<P: Policy>(allocator: &Allocator<P>) -> i64 {
    allocator.stats(DEVICE).unwrap().reserved_bytes.all.current
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
                free(&allocator, [fits, rest]);
                let all = allocator.malloc(100 * MIB, stream).unwrap();
                assert_eq!(rig.device.peak_used(device), 100 * MIB);
                free(&allocator, [all]);
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
        free(&allocator, [here, there, more]);
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

fn above_a_soft_limit_the_cache_goes_before_more_is_taken<P: Policy>() {
    for by_environment in [true, false] {
        on_each(&two(1000 * MIB), |rig| {
            let settings = if by_environment { "memory_soft_limit:100MiB" } else { "" };
            let allocator = rig.with_policy::<P>(from_environment(settings));
            if !by_environment {
                allocator.set_memory_limits(DEVICE, None, Some(MemoryLimit::Fraction(0.1))).unwrap();
            }
            let cached = allocator.malloc(60 * MIB, rig.stream()).unwrap();
            free(&allocator, [cached]);
            let first = allocator.malloc(40 * MIB + 1, rig.new_stream()).unwrap();
            assert_eq!(reserved(&allocator), 42 * M, "60 and 42 MiB would be over it");
            // Beyond it memory is taken all the same, without a failure.
            let second = allocator.malloc(200 * MIB, rig.stream()).unwrap();
            assert_eq!(reserved(&allocator), 242 * M);
            let seen = allocator.stats(DEVICE).unwrap();
            assert_eq!((seen.num_ooms, seen.num_alloc_retries), (0, 0));
            free(&allocator, [first, second]);
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
        free(&allocator, [neighbour]);
        rig.device.reset_calls();
        let again = allocator.malloc(10 * MIB, rig.stream()).unwrap();
        assert_eq!((again, rig.device.calls().get(Call::Malloc)), (neighbour, 0));
        free(&allocator, [used, keeper, again]);
        rig.nothing_is_left(&allocator);
    });
}

fn a_pools_limit_concerns_that_pool_alone<P: Policy>() {
    for settings in [Settings::default(), Settings { expandable_segments: true, ..Settings::default() }] {
        on_each(&two(1000 * MIB), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let pool = PoolId::fresh();
            let unknown = allocator.set_pool_limit(DEVICE, pool, None).unwrap_err();
            assert!(matches!(unknown, AllocError::UnknownPool { .. }), "{unknown}");
            allocator.begin_pool(DEVICE, pool, Filter::this_thread()).unwrap();
            allocator.set_pool_limit(DEVICE, pool, Some(MemoryLimit::Fraction(0.1))).unwrap();
            let fits = allocator.malloc(100 * MIB, rig.stream()).unwrap();
            let error = allocator.malloc(MIB, rig.stream()).unwrap_err();
            let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
            assert_eq!((report.pool, report.pool_limit, report.allowed), (pool, Some(100 * MIB), None));
            let line = format!("\n  pool {pool} may hold 100.00 MiB and no more");
            assert!(error.to_string().contains(&line), "{error}");
            allocator.end_pool(DEVICE, pool).unwrap();
            let default = allocator.malloc(200 * MIB, rig.stream()).expect("the default pool has no limit");

            allocator.set_pool_limit(DEVICE, PoolId::DEFAULT, Some(MemoryLimit::Bytes(240 * MIB))).unwrap();
            assert!(allocator.malloc(60 * MIB, rig.stream()).unwrap_err().is_out_of_memory());
            allocator.set_pool_limit(DEVICE, PoolId::DEFAULT, None).unwrap();
            let lifted = allocator.malloc(60 * MIB, rig.stream()).unwrap();
            free(&allocator, [fits, default, lifted]);
            allocator.release_pool(DEVICE, pool).unwrap();
            rig.nothing_is_left(&allocator);
        });
    }
}

/// Bytes on their way count: threads that grow at the same time do not pass a limit together.
fn limits_hold_under_threads<P: Policy>() {
    on_each(&two(1000 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(from_environment("memory_limit:100MiB"));
        let stream = rig.stream();
        let served: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| (0..10).filter(|_| allocator.malloc(10 * MIB, stream).is_ok()).count())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((served, rig.device.peak_used(DEVICE)), (10, 100 * MIB));
    });
}

granule_tests::for_each_policy!(
    a_hard_limit_from_the_environment_holds_on_each_device,
    limits_can_be_changed_for_one_device_and_lifted,
    above_a_soft_limit_the_cache_goes_before_more_is_taken,
    a_block_that_comes_back_under_the_soft_limit_serves_the_request,
    a_pools_limit_concerns_that_pool_alone,
    limits_hold_under_threads,
);
