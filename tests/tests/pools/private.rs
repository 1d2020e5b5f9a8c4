//! Private pools: who uses them, whose memory serves whom, limits, priming, figures, scopes, dead pools.

use alloc_core::AllocError;
use alloc_core::backend::ErrorKind;
use alloc_core::config::{MemoryLimit, PytorchRelease, Settings};
use alloc_core::device::{SegmentChange, SegmentEvent};
use alloc_core::pool::{Filter, MemoryPool, PoolOptions, PoolStats};
use alloc_core::sleep::{Backup, SleepTag, Tags};
use alloc_core::types::{DevicePtr, KIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, FaultPlan};
use granule_tests::Allocator;
use granule_tests::graphs::{begin, begin_in, is_unknown};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::pools::{new_pool, take};
use granule_tests::quiet::{Retires, Sleeps};
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{SOON, both, free_all, growable, of};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier, OnceLock, mpsc};
use std::time::Duration;

/// Segments of a pool: address, bytes, number of blocks.
fn segments(allocator: &Allocator, pool: PoolId) -> Vec<(u64, u64, usize)> {
    let segments = allocator.pools().snapshot(pool, false).segments;
    assert!(segments.iter().all(|segment| segment.pool_id == pool));
    segments.iter().map(|s| (s.address, s.total_size, s.blocks.len())).collect()
}

#[test]
fn p01_a_new_pool_has_one_user_and_two_while_a_scope_is_open() {
    on_each(&of(200), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let outside = allocator.malloc(3 * MIB, home).unwrap();
        let pool = new_pool(&allocator);
        assert_eq!(pool.use_count().unwrap(), 1);
        assert_eq!(segments(&allocator, pool.id()), []);
        let scope = pool.enter(Filter::this_thread()).unwrap();
        assert_eq!(pool.use_count().unwrap(), 2);
        let inside = allocator.malloc(3 * MIB, home).unwrap();
        assert_eq!(pool.use_count().unwrap(), 2, "a block is no user");
        drop(scope);
        assert_eq!(pool.use_count().unwrap(), 1);
        let after = allocator.malloc(3 * MIB, home).unwrap();
        assert_eq!(segments(&allocator, pool.id()), [(inside.0, 20 * MIB, 2)]);
        let default = segments(&allocator, PoolId::DEFAULT);
        assert_eq!(default, [(outside.0, 20 * MIB, 3)], "the requests before and after are neighbours");
        assert_eq!(after, outside.add(3 * MIB));
        free_all(&allocator, [outside, inside, after]);
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn p02_ids_tell_user_pools_from_capture_pools() {
    let (user, other) = (PoolId::fresh(), PoolId::fresh());
    let (capture, second) = (PoolId::fresh_for_capture(), PoolId::fresh_for_capture());
    assert!(user.0 == 0 && 0 < user.1 && user.1 < other.1, "{user} {other}");
    assert!(capture.1 == 0 && 0 < capture.0 && capture.0 < second.0, "{capture} {second}");
    on_each(&of(100), |rig| {
        let allocator = rig.allocator(Settings::default());
        let id = new_pool(&allocator).id();
        assert!(id.0 == 0 && id.1 > other.1, "never used before: {id}");
        let refused = allocator.pools().create(DEVICE, PoolId::DEFAULT, None).unwrap_err();
        assert!(matches!(refused, AllocError::Pool { pool: PoolId::DEFAULT, .. }));
        let refused = allocator.pools().begin(DEVICE, PoolId::DEFAULT, Filter::Always).unwrap_err();
        assert!(matches!(refused, AllocError::Pool { pool: PoolId::DEFAULT, .. }));
    });
}

/// PyTorch switches growable segments off while it searches these pools, and refuses that request.
#[test]
fn p05_p13_an_opted_in_pool_lends_to_a_request_that_nothing_else_can_serve() {
    // The device has no more, or a limit allows no more.
    for capacity in [100, 200] {
        on_each(&of(capacity), |rig| {
            for settings in both() {
                let (allocator, home) = (rig.allocator(settings), rig.stream());
                allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(100 * MIB)), None).unwrap();
                let pool = new_pool(&allocator);
                let cached = take(&allocator, &pool, 60 * MIB, home).unwrap();
                allocator.free(cached).unwrap();
                let fits = allocator.malloc(20 * MIB, home).unwrap();
                assert_ne!(fits, cached, "the device has room");
                let opt_in = |lends| allocator.pools().set_use_on_oom(DEVICE, pool.id(), lends).unwrap();
                assert!(allocator.malloc(60 * MIB, home).unwrap_err().is_out_of_memory(), "not of itself");
                opt_in(true);
                let lent = allocator.malloc(60 * MIB, home).unwrap();
                assert_eq!(lent, cached);
                assert_eq!(pool.stats().unwrap().allocated_bytes, 60 * MIB, "it still is the pool's");
                assert_eq!(pool.use_count().unwrap(), 1);
                allocator.free(lent).unwrap();
                // Another stream gets none of it.
                assert!(allocator.malloc(60 * MIB, rig.new_stream()).unwrap_err().is_out_of_memory());
                opt_in(false);
                assert!(allocator.malloc(60 * MIB, home).unwrap_err().is_out_of_memory());
                opt_in(true);
                let again = allocator.malloc(60 * MIB, home).unwrap();
                assert_eq!(again, cached);
                drop(pool);
                allocator.free(again).unwrap();
                // The pool is gone: its memory is given back first, like anything cached, and lent no more.
                let after = allocator.malloc(60 * MIB, home).unwrap();
                assert_eq!(allocator.stats(DEVICE).unwrap().reserved_bytes_by_private_pools.len(), 1);
                allocator.free(after).unwrap();
                allocator.free(fits).unwrap();
                rig.nothing_is_left(&allocator);
            }
        });
    }
}

#[test]
fn p05_pools_lend_before_the_cache_is_given_back() {
    on_each(&of(100), |rig| {
        for release in [PytorchRelease::V2_11, PytorchRelease::V2_15] {
            let settings = Settings { pytorch_release: Some(release), ..Settings::default() };
            let (allocator, home) = (rig.allocator(settings), rig.stream());
            let pool = new_pool(&allocator);
            allocator.pools().set_use_on_oom(DEVICE, pool.id(), true).unwrap();
            let lendable = take(&allocator, &pool, 40 * MIB, home).unwrap();
            allocator.free(lendable).unwrap();
            let [cached, live] = [30 * MIB, 20 * MIB].map(|bytes| allocator.malloc(bytes, home).unwrap());
            allocator.free(cached).unwrap();
            assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), lendable, "{release}");
            assert_eq!(allocator.stats(DEVICE).unwrap().num_alloc_retries, 0, "{release}");
            [lendable, live].into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            drop(pool);
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn p06_a_no_split_pool_hands_out_whole_segments() {
    on_each(&of(200), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let options = PoolOptions { no_split: true, ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
        let id = pool.id();
        let live = [KIB, KIB, 3 * MIB].map(|bytes| take(&allocator, &pool, bytes, home).unwrap());
        assert_eq!(live.map(|ptr| allocator.block_size(ptr).unwrap()), [2 * MIB, 2 * MIB, 20 * MIB]);
        let blocks: Vec<_> = segments(&allocator, id).into_iter().map(|(_, bytes, n)| (bytes, n)).collect();
        let mut sorted = blocks.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [(2 * MIB, 1), (2 * MIB, 1), (20 * MIB, 1)]);
        allocator.free(live[2]).unwrap();
        assert_eq!(take(&allocator, &pool, 9 * MIB, home).unwrap(), live[2], "reused whole");
        allocator.free(live[2]).unwrap();
        let scope = pool.enter(Filter::this_thread()).unwrap();
        let inside = allocator.malloc_at(9 * MIB, live[2].add(10 * MIB), home);
        assert!(matches!(inside, Err(AllocError::ExactAddress { .. })), "{inside:?}");
        assert_eq!(allocator.malloc_at(9 * MIB, live[2], home).unwrap(), live[2]);
        drop(scope);
        assert_eq!(allocator.block_size(live[2]), Some(20 * MIB), "whole, at an address, too");
        free_all(&allocator, live);
        drop(pool);
        assert!(is_unknown(&allocator, id));
        // A pool of the same id is another one.
        allocator.pools().begin(DEVICE, id, Filter::Always).unwrap();
        let [one, two] = [KIB, KIB].map(|bytes| allocator.malloc(bytes, home).unwrap());
        assert_eq!((allocator.block_size(one), two), (Some(KIB), one.add(KIB)));
        allocator.free(one).unwrap();
        allocator.free(two).unwrap();
        allocator.pools().end(DEVICE, id).unwrap();
        allocator.pools().release(DEVICE, id).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn p07_of_nested_pools_the_innermost_serves() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let (outer, inner) = (new_pool(&allocator), new_pool(&allocator));
        let take = || allocator.malloc(30 * MIB, home).unwrap();
        let outer_scope = outer.enter(Filter::this_thread()).unwrap();
        let mut live = vec![take()];
        let inner_scope = inner.enter(Filter::this_thread()).unwrap();
        live.extend([take(), take()]);
        drop(inner_scope);
        live.push(take());
        drop(outer_scope);
        live.push(take());
        let of_pool = |pool| segments(&allocator, pool).into_iter().map(|(at, ..)| DevicePtr(at)).collect();
        let by_pool: [BTreeSet<_>; 3] = [outer.id(), inner.id(), PoolId::DEFAULT].map(of_pool);
        assert_eq!(by_pool.each_ref().map(BTreeSet::len), [2, 2, 1]);
        assert_eq!(by_pool[0], BTreeSet::from([live[0], live[3]]));
        assert_eq!(by_pool[1], BTreeSet::from([live[1], live[2]]));
        // Scopes may also end in another order than they began.
        let first = outer.enter(Filter::this_thread()).unwrap();
        let second = inner.enter(Filter::this_thread()).unwrap();
        drop(first);
        live.push(take());
        assert_eq!(segments(&allocator, inner.id()).len(), 3);
        drop(second);
        live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        drop((outer, inner));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn p08_two_threads_in_two_pools_do_not_mix() {
    on_each(&of(1024), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let start = Barrier::new(2);
        let work = |seed: u64| {
            let pool = new_pool(&allocator);
            let _scope = pool.enter(Filter::this_thread()).unwrap();
            start.wait();
            let mut live = Vec::new();
            let mut handed_out = BTreeSet::new();
            for n in 0..400 {
                let ptr = allocator.malloc((n * 7919 * seed) % (3 * MIB) + 1, home).unwrap();
                handed_out.insert(ptr);
                live.push(ptr);
                if n % 3 != 0 {
                    allocator.free(live.swap_remove((n * seed) as usize % live.len())).unwrap();
                }
            }
            let segments = segments(&allocator, pool.id());
            let inside =
                |ptr: &DevicePtr| segments.iter().any(|(at, bytes, _)| (*at..at + bytes).contains(&ptr.0));
            assert!(handed_out.iter().all(inside), "every address is the thread's own pool's");
            live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            segments
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| work(3));
            (work(5), other.join().unwrap())
        });
        assert!(!one.is_empty() && !other.is_empty());
        assert_eq!(segments(&allocator, PoolId::DEFAULT), []);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn p09_emptying_the_cache_in_a_scope_leaves_the_pool_alone() {
    on_each(&of(200), |rig| {
        for settings in both() {
            let (allocator, home) = (rig.allocator(settings), rig.stream());
            let default = allocator.malloc(40 * MIB, home).unwrap();
            allocator.free(default).unwrap();
            let pool = new_pool(&allocator);
            let scope = pool.enter(Filter::this_thread()).unwrap();
            let cached = allocator.malloc(20 * MIB, home).unwrap();
            allocator.free(cached).unwrap();
            assert_eq!(rig.used(), 60 * MIB);
            allocator.empty_cache().unwrap();
            assert_eq!(rig.used(), 20 * MIB, "the default pool's memory went");
            assert_eq!(pool.stats().unwrap().free_bytes, 20 * MIB);
            drop(scope);
            allocator.empty_cache().unwrap();
            allocator.pools().empty(pool.id()).unwrap();
            assert_eq!(rig.used(), 20 * MIB, "also outside of it, while the pool is in use");
            drop(pool);
            assert_eq!(rig.used(), 0, "the pool's end gives it back");
            rig.nothing_is_left(&allocator);
        }
    });
}

/// PyTorch 2.15 counts the reference before it refuses: the pool is never freed.
#[test]
fn p10_beginning_a_pool_twice_is_refused_and_leaks_nothing() {
    on_each(&of(100), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let pool = new_pool(&allocator);
        let id = pool.id();
        let scope = pool.enter(Filter::this_thread()).unwrap();
        let refused = pool.enter(Filter::Always).unwrap_err();
        assert!(refused.to_string().contains("already recording to mempool_id"), "{refused}");
        assert_eq!(pool.use_count().unwrap(), 2);
        let ptr = allocator.malloc(MIB, home).unwrap();
        allocator.free(ptr).unwrap();
        drop(scope);
        assert_eq!(pool.use_count().unwrap(), 1);
        let refused = allocator.pools().end(DEVICE, id).unwrap_err();
        assert!(refused.to_string().contains("not currently recording to mempool_id"), "{refused}");
        drop(pool);
        assert!(is_unknown(&allocator, id), "no reference is left");
        assert_eq!(rig.used(), 0);
    });
}

/// PyTorch counts mappings up once for each allocation and down once for each block: the pool's end aborts.
#[test]
fn p04_p12_pytorch_168956_a_growable_pool_survives_partial_frees_and_its_end() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.allocator(growable()), rig.stream());
        let pool = new_pool(&allocator);
        let id = pool.id();
        let whole = take(&allocator, &pool, 200 * MIB, home).unwrap();
        allocator.free(whole).unwrap();
        let parts = [0; 4].map(|_| take(&allocator, &pool, 20 * MIB, home).unwrap());
        assert_eq!(parts, [0, 20, 40, 60].map(|at| whole.add(at * MIB)));
        allocator.free(parts[0]).unwrap();
        allocator.free(parts[2]).unwrap();
        drop(pool);
        let held = || allocator.stats(DEVICE).unwrap().reserved_bytes_by_private_pools[&id].all;
        assert_eq!((rig.used(), held().current), (40 * MIB, 40 << 20), "two live blocks keep a granule each");
        assert!(matches!(allocator.pools().create(DEVICE, id, None), Err(AllocError::DeadPool { .. })));
        rig.use_memory(home, parts[1], 20 * MIB);
        rig.use_memory(home, parts[3], 20 * MIB);
        allocator.record_stream(parts[1], rig.new_stream()).unwrap();
        allocator.free(parts[1]).unwrap();
        allocator.free(parts[3]).unwrap();
        rig.nothing_is_left(&allocator);
        assert!(is_unknown(&allocator, id), "the record is gone");
        assert_eq!((held().current, held().peak), (0, 200 << 20));
    });
}

/// PyTorch 2.15 counts two mappings and one unmapping here: the record is never erased.
#[test]
fn p12_mappings_that_become_one_block_leave_no_record() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.allocator(growable()), rig.stream());
        let pool = new_pool(&allocator);
        let id = pool.id();
        let parts = [0; 3].map(|_| take(&allocator, &pool, 20 * MIB, home).unwrap());
        assert_eq!(allocator.stats(DEVICE).unwrap().num_device_alloc, 3);
        parts.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        drop(pool);
        assert_eq!(allocator.stats(DEVICE).unwrap().num_device_free, 1, "one block is unmapped");
        assert!(is_unknown(&allocator, id));
        assert_eq!(rig.used(), 0);
    });
}

/// PyTorch issue 159674: cached memory of the default pool is no help to a request in a pool's scope.
fn pytorch_159674_a_request_in_a_scope_reclaims_the_default_pools_cache<P: Policy>() {
    on_each(&of(100), |rig| {
        for settings in both() {
            let (allocator, home, other) = (rig.with_policy::<P>(settings), rig.stream(), rig.new_stream());
            let cached =
                [(home, 40), (other, 40)].map(|(stream, n)| allocator.malloc(n * MIB, stream).unwrap());
            cached.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            let pool = new_pool(&allocator);
            let ptr = take(&allocator, &pool, 80 * MIB, home).expect("80 MiB are cached");
            let stats = allocator.pools().stats(DEVICE, PoolId::DEFAULT).unwrap();
            assert_eq!(stats.reserved_bytes.all.current, 0);
            assert_eq!(allocator.stats(DEVICE).unwrap().num_alloc_retries, 1);
            allocator.free(ptr).unwrap();
            drop(pool);
            rig.nothing_is_left(&allocator);
        }
    });
}

fn a_pool_can_be_limited<P: Policy>() {
    on_each(&of(400), |rig| {
        for settings in both() {
            let (allocator, home) = (rig.with_policy::<P>(settings), rig.stream());
            let (pool, free) = (new_pool(&allocator), new_pool(&allocator));
            allocator.pools().set_hard_limit(DEVICE, pool.id(), Some(MemoryLimit::Bytes(60 * MIB))).unwrap();
            let live = [40, 20].map(|n| take(&allocator, &pool, n * MIB, home).unwrap());
            let refused = take(&allocator, &pool, 20 * MIB, home).unwrap_err();
            let AllocError::OutOfMemory(report) = &refused else { panic!("{refused}") };
            assert_eq!((report.pool, report.pool_limit, report.allowed), (pool.id(), Some(60 * MIB), None));
            let line = format!("\n  pool {} may hold 60.00 MiB and no more", pool.id());
            assert!(refused.to_string().contains(&line), "{refused}");
            assert_eq!(rig.used(), 60 * MIB);
            // Others are not concerned, and what is cached within the limit is.
            let outside = take(&allocator, &free, 80 * MIB, home).unwrap();
            allocator.free(live[1]).unwrap();
            assert_eq!(take(&allocator, &pool, 20 * MIB, home).unwrap(), live[1]);
            allocator.pools().set_hard_limit(DEVICE, pool.id(), Some(MemoryLimit::Fraction(0.25))).unwrap();
            let more = take(&allocator, &pool, 40 * MIB, home).expect("a quarter of the device is 100 MiB");
            assert!(take(&allocator, &pool, 20 * MIB, home).is_err());
            allocator.pools().set_hard_limit(DEVICE, pool.id(), None).unwrap();
            let last = take(&allocator, &pool, 20 * MIB, home).unwrap();
            let default = Some(MemoryLimit::Bytes(40 * MIB));
            allocator.pools().set_hard_limit(DEVICE, PoolId::DEFAULT, default).unwrap();
            assert!(allocator.malloc(60 * MIB, home).unwrap_err().is_out_of_memory());
            [live[0], live[1], outside, more, last].into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            let unknown = allocator.pools().set_hard_limit(DEVICE, PoolId(0, u64::MAX), None);
            assert!(matches!(unknown, Err(AllocError::UnknownPool { .. })));
            drop((pool, free));
            rig.nothing_is_left(&allocator);
        }
    });
}

fn a_primed_pool_serves_a_capture_without_the_device<P: Policy>() {
    on_each(&of(400), |rig| {
        for settings in both() {
            let (allocator, stream) = (rig.with_policy::<P>(settings), rig.new_stream());
            let pool = new_pool(&allocator);
            let sizes = [30 * MIB, 9 * MIB, 9 * MIB, 700 * KIB, KIB, 0];
            allocator.pools().prime(pool.id(), stream, &sizes).unwrap();
            assert_eq!(pool.stats().unwrap().allocation, 0, "nothing of it is handed out");
            assert!(pool.stats().unwrap().free_bytes > 48 * MIB);
            let capture = begin_in(&allocator, stream, Some(pool.id()));
            let calls = rig.device.calls();
            let live = sizes.map(|bytes| allocator.malloc(bytes, stream).unwrap());
            let calls = rig.device.calls().since(&calls);
            assert_eq!(calls.get(Call::Malloc) + calls.get(Call::CreatePhysical) + calls.get(Call::Map), 0);
            live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            drop(capture.end().unwrap());
            // What does not fit is an error; what was taken until then stays cached.
            let before = pool.stats().unwrap();
            let refused = allocator.pools().prime(pool.id(), stream, &[KIB, 1000 * MIB]).unwrap_err();
            assert!(refused.is_out_of_memory());
            assert_eq!(pool.stats().unwrap().allocation, before.allocation);
            drop(pool);
            rig.nothing_is_left(&allocator);
        }
    });
}

fn emptying_a_pool_concerns_no_other<P: Policy>() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let [one, other] = [PoolId::fresh(), PoolId::fresh()];
        for pool in [one, other, PoolId::DEFAULT] {
            if pool != PoolId::DEFAULT {
                allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
            }
            let ptr = allocator.malloc(20 * MIB, home).unwrap();
            allocator.free(ptr).unwrap();
            if pool != PoolId::DEFAULT {
                allocator.pools().end(DEVICE, pool).unwrap();
            }
        }
        allocator.pools().empty(one).unwrap();
        assert_eq!(rig.used(), 60 * MIB, "it is in use");
        allocator.pools().release(DEVICE, one).unwrap();
        allocator.pools().release(DEVICE, other).unwrap();
        allocator.pools().empty(one).unwrap();
        assert_eq!(rig.used(), 40 * MIB);
        assert!(matches!(allocator.pools().stats(DEVICE, one), Err(AllocError::UnknownPool { .. })));
        allocator.pools().empty(one).expect("one that is gone is empty");
        allocator.pools().empty(PoolId::DEFAULT).unwrap();
        assert_eq!((rig.used(), allocator.pools().use_count(DEVICE, other).unwrap()), (20 * MIB, 0));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn the_figures_of_a_pool_are_its_own() {
    // Only this one: segments of PyTorch's sizes are counted.
    type P = PytorchPolicy;
    on_each(&of(400), |rig| {
        let (allocator, home, side) =
            (rig.with_policy::<P>(Settings::default()), rig.stream(), rig.new_stream());
        let outside = allocator.malloc(30 * MIB, home).unwrap();
        let pool = new_pool(&allocator);
        assert_eq!(pool.stats().unwrap(), PoolStats { use_count: 1, ..PoolStats::default() });
        let small = take(&allocator, &pool, 700, home).unwrap();
        let large = take(&allocator, &pool, 5 * MIB + 1, home).unwrap();
        let elsewhere = take(&allocator, &pool, 30 * MIB, side).unwrap();
        allocator.free(elsewhere).unwrap();
        let stats = pool.stats().unwrap();
        let (blocks, bytes) = (KIB + 5 * MIB + 512, 700 + 5 * MIB + 1);
        assert_eq!((stats.allocation, stats.allocated_bytes, stats.active_bytes), (2, blocks, blocks));
        assert_eq!((stats.requested_bytes, stats.segments), (bytes, 3));
        assert_eq!(stats.free_bytes, 52 * MIB - blocks);
        let reserved = stats.reserved_bytes;
        let rows =
            [reserved.all, reserved.small_pool, reserved.large_pool].map(|row| row.current.unsigned_abs());
        assert_eq!(rows, [52 * MIB, 2 * MIB, 50 * MIB]);
        let by_pool = allocator.stats(DEVICE).unwrap().reserved_bytes_by_private_pools;
        assert_eq!(by_pool.len(), 1);
        assert_eq!(by_pool[&pool.id()], reserved);
        let default = allocator.pools().stats(DEVICE, PoolId::DEFAULT).unwrap();
        assert_eq!((default.allocation, default.allocated_bytes, default.segments), (1, 30 * MIB, 1));
        [outside, small, large].into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn p04_a_dead_pool_serves_nobody_and_its_block_lives<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, home) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let id = PoolId::fresh();
        allocator.pools().begin(DEVICE, id, Filter::Always).unwrap();
        let live = allocator.malloc(3 * MIB, home).unwrap();
        allocator.pools().release(DEVICE, id).unwrap();
        let is_dead = |outcome: Result<(), AllocError>| {
            assert!(matches!(outcome, Err(AllocError::DeadPool { pool }) if pool == id), "{outcome:?}");
        };
        is_dead(allocator.malloc(KIB, home).map(drop));
        is_dead(allocator.pools().release(DEVICE, id));
        is_dead(allocator.pools().create(DEVICE, id, None));
        is_dead(allocator.pools().set_use_on_oom(DEVICE, id, true));
        is_dead(allocator.pools().set_no_split(DEVICE, id));
        is_dead(allocator.pools().prime(id, home, &[KIB]));
        allocator.pools().end(DEVICE, id).unwrap();
        is_dead(allocator.pools().begin(DEVICE, id, Filter::Always));
        assert_eq!(allocator.pools().use_count(DEVICE, id).unwrap(), 0);
        let outside = allocator.malloc(KIB, home).expect("its scope is closed");
        assert_eq!(
            allocator.pools().stats(DEVICE, id).unwrap().allocated_bytes,
            3 * MIB,
            "what is live stays"
        );
        rig.use_memory(home, live, 3 * MIB);
        allocator.free(live).unwrap();
        allocator.free(outside).unwrap();
        rig.nothing_is_left(&allocator);
        let unknown = |outcome: Result<(), AllocError>| {
            assert!(matches!(outcome, Err(AllocError::UnknownPool { pool }) if pool == id), "{outcome:?}");
        };
        unknown(allocator.pools().release(DEVICE, id));
        unknown(allocator.pools().set_no_split(DEVICE, id));
        unknown(allocator.pools().prime(id, home, &[KIB]));
    });
}

/// Another thread ends the scope and forgets the pool while a request finds its way there: it is served without it.
fn a_pool_that_is_gone_before_a_request_arrives_does_not_fail_it<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, home) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let id = PoolId::fresh();
        let other = Arc::downgrade(&allocator);
        let ends_it = move |_: Stream| {
            let allocator = other.upgrade().unwrap();
            allocator.pools().end(DEVICE, id).unwrap();
            allocator.pools().release(DEVICE, id).unwrap();
            allocator.pools().empty(id).unwrap();
            true
        };
        allocator.pools().begin(DEVICE, id, Filter::Custom(Arc::new(ends_it))).unwrap();
        let served = allocator.malloc(KIB, home).expect("the default pool serves it");
        assert_eq!(allocator.pools().stats(DEVICE, PoolId::DEFAULT).unwrap().allocation, 1);
        allocator.free(served).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

fn a_scope_serves_the_requests_that_its_filter_accepts<P: Policy>() {
    on_each(&of(400), |rig| {
        let (allocator, home, side) =
            (rig.with_policy::<P>(Settings::default()), rig.stream(), rig.new_stream());
        let pool = new_pool(&allocator);
        let handle = side.raw;
        let cases: [(Filter, [bool; 3]); 5] = [
            (Filter::Always, [true, true, true]),
            (Filter::this_thread(), [true, true, false]),
            (Filter::Stream(side), [false, true, false]),
            (Filter::CaptureOf(side), [false, false, false]),
            (Filter::Custom(Arc::new(move |stream| stream.raw == handle)), [false, true, false]),
        ];
        for (filter, expected) in cases {
            let shown = format!("{filter:?}");
            let _scope = pool.enter(filter).unwrap();
            let served = |stream| {
                let before = pool.stats().unwrap().allocation;
                let ptr = allocator.malloc(KIB, stream).unwrap();
                let mine = pool.stats().unwrap().allocation > before;
                allocator.free(ptr).unwrap();
                mine
            };
            let elsewhere = std::thread::scope(|scope| scope.spawn(|| served(home)).join().unwrap());
            assert_eq!([served(home), served(side), elsewhere], expected, "{shown}");
        }
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// A thread that flushes knows which arenas to flush; one of them becomes another pool's meanwhile.
fn a_flush_spares_the_pool_that_got_an_arena_of_a_dead_one<P: Policy>() {
    on_each(&of(400), |rig| {
        for settings in [Settings::default(), growable()] {
            let (allocator, home, side) = (rig.with_policy::<P>(settings), rig.stream(), rig.new_stream());
            let outside = allocator.malloc(30 * MIB, home).unwrap();
            let old = new_pool(&allocator);
            allocator.free(take(&allocator, &old, 30 * MIB, side).unwrap()).unwrap();
            drop(old);
            let (engine, young) = (Arc::downgrade(&allocator), Arc::new(OnceLock::new()));
            let made = Arc::clone(&young);
            allocator.hooks().on_segment(move |event: &SegmentEvent| {
                let Some(allocator) = engine.upgrade() else { return };
                if event.change == SegmentChange::Detaching && made.get().is_none() {
                    let pool = new_pool(&allocator);
                    allocator.free(take(&allocator, &pool, 30 * MIB, side).unwrap()).unwrap();
                    made.set(pool).unwrap();
                }
            });
            allocator.free(outside).unwrap();
            allocator.empty_cache().unwrap();
            let held = young.get().unwrap().stats().unwrap().reserved_bytes.all.current;
            assert!(held >= 30 * MIB as i64, "{}: a pool in use keeps its memory", rig.name);
        }
    });
}

fn a_checkpoint_of_another_allocator_is_refused<P: Policy>() {
    on_each(&of(400), |rig| {
        let (former, home) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let ptr = former.malloc(30 * MIB, home).unwrap();
        let saved = former.pools().checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
        former.free(ptr).unwrap();
        drop(former);
        let allocator = rig.with_policy::<P>(Settings::default());
        let short = allocator.malloc(12 * MIB, home).unwrap();
        assert_eq!(short, ptr, "another segment, at the same place");
        allocator.free(short).unwrap();
        let refused = allocator.pools().restore(&saved, None).unwrap_err();
        assert!(matches!(refused, AllocError::Checkpoint { .. }), "{refused}");
        rig.nothing_is_left(&allocator);
    });
}

fn a_pools_limit_goes_with_the_pool<P: Policy>() {
    on_each(&of(400), |rig| {
        let (allocator, home, id) =
            (rig.with_policy::<P>(Settings::default()), rig.stream(), PoolId::fresh());
        let once = || {
            allocator.pools().begin(DEVICE, id, Filter::Always).unwrap();
            let outcome = allocator.malloc(40 * MIB, home).map(|ptr| allocator.free(ptr).unwrap());
            allocator.pools().end(DEVICE, id).unwrap();
            outcome
        };
        allocator.pools().create(DEVICE, id, None).unwrap();
        allocator.pools().set_hard_limit(DEVICE, id, Some(MemoryLimit::Bytes(20 * MIB))).unwrap();
        assert!(once().unwrap_err().is_out_of_memory());
        for _ in 0..2 {
            allocator.pools().release(DEVICE, id).unwrap();
        }
        once().expect("a new pool with the same name");
    });
}

/// The free end of a segment becomes part of the block: only the rest is new, and fits under the limit.
#[test]
fn a_limit_counts_what_is_taken_and_not_what_is_there() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.with_policy::<PytorchPolicy>(growable()), rig.stream());
        let pool = new_pool(&allocator);
        allocator.pools().set_hard_limit(DEVICE, pool.id(), Some(MemoryLimit::Bytes(100 * MIB))).unwrap();
        let low = take(&allocator, &pool, 40 * MIB, home).unwrap();
        allocator.free(take(&allocator, &pool, 40 * MIB, home).unwrap()).unwrap();
        let too_much = take(&allocator, &pool, 61 * MIB, home).unwrap_err();
        assert!(too_much.is_out_of_memory(), "80 MiB would be mapped above the first block: {too_much}");
        let fits = take(&allocator, &pool, 60 * MIB, home).expect("20 MiB more are allowed");
        assert_eq!((fits, rig.used()), (low.add(40 * MIB), 100 * MIB));
        allocator.free(low).unwrap();
        allocator.free(fits).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// A later stream with the same handle is another one, also to the scopes of pools; and the handle is never named again.
fn a_scope_of_a_retired_stream_serves_no_successor<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream, other) =
            (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.new_stream());
        for filter in [Filter::Stream(stream), Filter::CaptureOf(stream)] {
            let pool = new_pool(&allocator);
            let scope = pool.enter(filter).unwrap();
            allocator.retire(stream).unwrap();
            let later = allocator.malloc(MIB, stream).unwrap();
            assert_eq!(pool.stats().unwrap().allocation, 0, "{}: the stream is not this one", rig.name);
            let capture = begin(&allocator, other);
            rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::CaptureStatus, 3, ErrorKind::Other));
            allocator.malloc(MIB, other).expect("nobody asks about a stream that is gone");
            rig.device.set_faults(FaultPlan::none());
            drop((capture, scope));
            allocator.free(later).unwrap();
        }
    });
}

/// A request to the default pool in need was served from a pool that can sleep: the block lost its contents with the pool, and
/// whoever had it knew of no sleep.
fn a_pool_that_sleeps_serves_no_request_but_its_own<P: Policy>() {
    on_each(&of(64), |rig| {
        let (allocator, home) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let sleep_tag = Some(SleepTag::new("a"));
        let options = PoolOptions { use_on_oom: true, sleep_tag, ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
        let [kept, cached] = [0, 1].map(|_| take(&allocator, &pool, 20 * MIB, home).unwrap());
        allocator.free(cached).unwrap();
        let first = allocator.malloc(20 * MIB, home).unwrap();
        // The device has nothing left for this one, and the pool has.
        let second = allocator.malloc(20 * MIB, home);
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        assert_eq!(allocator.sleep_mode().is_asleep(kept), Some(true), "{}", rig.name);
        for ptr in std::iter::once(first).chain(second) {
            assert_eq!(
                allocator.sleep_mode().is_asleep(ptr),
                Some(false),
                "{}: of the default pool",
                rig.name
            );
            allocator.free(ptr).unwrap();
        }
        allocator.empty_cache().unwrap();
        allocator.sleep_mode().wake(Tags::All).unwrap();
        allocator.free(kept).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// PyTorch waits only for what the pool itself had that other streams use.
fn the_end_of_a_pool_waits_for_its_own_memory_alone<P: Policy>() {
    for settings in both() {
        let rig = Rig::openreg(of(400).clock(Clock::Workers));
        let (allocator, home, slow) = (rig.with_policy::<P>(settings), rig.stream(), rig.new_stream());
        let pool_with = |is_used: bool, goes: &dyn Fn(DevicePtr)| {
            let pool = new_pool(&allocator);
            if is_used {
                goes(take(&allocator, &pool, 5 * MIB, home).unwrap());
            }
            pool
        };
        let crosses = |ptr| {
            allocator.record_stream(ptr, slow).unwrap();
            allocator.free(ptr).unwrap();
        };
        let live = Cell::new(DevicePtr::NULL);
        let others = [
            pool_with(false, &|_| ()),
            pool_with(true, &|ptr| allocator.free(ptr).unwrap()),
            pool_with(true, &|ptr| live.set(ptr)),
        ];
        let gate = rig.hold(slow);
        crosses(allocator.malloc(30 * MIB, home).unwrap());
        let own = pool_with(true, &crosses);
        let (returned, ends) = mpsc::channel();
        let ended = std::thread::scope(|scope| {
            scope.spawn(move || {
                drop(others);
                returned.send(()).unwrap();
                drop(own);
                returned.send(()).unwrap();
            });
            let ended = ends.recv_timeout(SOON);
            let waits = ends.recv_timeout(Duration::from_millis(100)).is_err();
            gate.open();
            ended.is_ok() && waits && ends.recv_timeout(SOON).is_ok()
        });
        assert!(ended, "the others' ends wait for nobody, and the last for its block's user");
        allocator.free(live.get()).unwrap();
        rig.nothing_is_left(&allocator);
    }
}

granule_tests::for_each_policy!(
    the_end_of_a_pool_waits_for_its_own_memory_alone,
    a_pool_that_sleeps_serves_no_request_but_its_own,
    a_pool_can_be_limited,
    a_primed_pool_serves_a_capture_without_the_device,
    emptying_a_pool_concerns_no_other,
    a_pool_that_is_gone_before_a_request_arrives_does_not_fail_it,
    a_scope_serves_the_requests_that_its_filter_accepts,
    a_flush_spares_the_pool_that_got_an_arena_of_a_dead_one,
    a_checkpoint_of_another_allocator_is_refused,
    a_pools_limit_goes_with_the_pool,
    a_scope_of_a_retired_stream_serves_no_successor,
    pytorch_159674_a_request_in_a_scope_reclaims_the_default_pools_cache,
    p04_a_dead_pool_serves_nobody_and_its_block_lives,
);
