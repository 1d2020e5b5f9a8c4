//! Private pools: P01 to P12 of the checklist, on each rig.

use alloc_core::AllocError;
use alloc_core::backend::Backend;
use alloc_core::config::{MemoryLimit, PytorchRelease, Settings};
use alloc_core::pool::{Filter, MemoryPool, PoolOptions, SegmentSource};
use alloc_core::types::{DevicePtr, KIB, MIB, PoolId, Stream};
use granule_tests::Allocator;
use granule_tests::graphs::is_unknown;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{both, growable, of};
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier, Mutex};

fn pool_of(allocator: &Allocator, options: PoolOptions) -> MemoryPool {
    MemoryPool::new(allocator, DEVICE, options).unwrap()
}

/// Memory from the pool.
fn take(allocator: &Allocator, pool: &MemoryPool, bytes: u64, stream: Stream) -> DevicePtr {
    let _scope = pool.enter(Filter::this_thread()).unwrap();
    allocator.malloc(bytes, stream).unwrap()
}

/// Segments of a pool: address, bytes, number of blocks.
fn segments(allocator: &Allocator, pool: PoolId) -> Vec<(u64, u64, usize)> {
    let segments = allocator.pools().snapshot(pool, false).segments;
    assert!(segments.iter().all(|segment| segment.pool_id == pool));
    segments.iter().map(|s| (s.address, s.total_size, s.blocks.len())).collect()
}

/// Memory from the driver, with a record of what was asked.
#[derive(Debug)]
struct Counting {
    backend: Arc<dyn Backend>,
    taken: Mutex<Vec<u64>>,
    returned: Mutex<Vec<u64>>,
}

impl Counting {
    fn over(backend: &Arc<dyn Backend>) -> Arc<Self> {
        let backend = Arc::clone(backend);
        Arc::new(Self { backend, taken: Mutex::default(), returned: Mutex::default() })
    }
}

// SAFETY: the memory is the driver's own, rule I1.
unsafe impl SegmentSource for Counting {
    fn alloc(&self, bytes: u64, stream: Stream) -> Option<DevicePtr> {
        self.taken.lock().unwrap().push(bytes);
        self.backend.malloc(stream.device, bytes).ok()
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, stream: Stream) {
        self.returned.lock().unwrap().push(bytes);
        // SAFETY: rule 3: the caller's promise.
        unsafe { self.backend.free(stream.device, ptr) }.unwrap();
    }
}

#[test]
fn p01_a_new_pool_has_one_user_and_two_while_a_scope_is_open() {
    on_each(&of(200), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let outside = allocator.malloc(3 * MIB, home).unwrap();
        let pool = pool_of(&allocator, PoolOptions::default());
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
        for ptr in [outside, inside, after] {
            allocator.free(ptr).unwrap();
        }
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
        let id = pool_of(&allocator, PoolOptions::default()).id();
        assert!(id.0 == 0 && id.1 > other.1, "never used before: {id}");
        let refused = allocator.pools().create(DEVICE, PoolId::DEFAULT, None).unwrap_err();
        assert!(matches!(refused, AllocError::Pool { pool: PoolId::DEFAULT, .. }));
        let refused = allocator.pools().begin(DEVICE, PoolId::DEFAULT, Filter::Always).unwrap_err();
        assert!(matches!(refused, AllocError::Pool { pool: PoolId::DEFAULT, .. }));
    });
}

#[test]
fn p03_a_pools_own_functions_make_and_free_its_segments() {
    on_each(&of(200), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let source = Counting::over(&rig.backend);
        let options = PoolOptions { source: Some(source.clone()), ..PoolOptions::default() };
        let pool = pool_of(&allocator, options);
        let live = [KIB, 5 * MIB, 30 * MIB, 6 * MIB].map(|bytes| take(&allocator, &pool, bytes, home));
        assert_eq!(*source.taken.lock().unwrap(), [2 * MIB, 20 * MIB, 30 * MIB], "6 MiB fit beside 5");
        assert_eq!(rig.used(), 52 * MIB);
        let id = pool.id();
        drop(pool);
        assert_eq!(*source.returned.lock().unwrap(), [0; 0], "all segments have live blocks");
        // The program lets go of it before the pool does.
        let last = Arc::downgrade(&source);
        drop(source);
        allocator.free(live[1]).unwrap();
        allocator.empty_cache().unwrap();
        let returned = || last.upgrade().unwrap().returned.lock().unwrap().clone();
        assert_eq!(returned(), [0; 0], "6 MiB of the segment are live");
        allocator.free(live[2]).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(returned(), [30 * MIB]);
        let all = last.upgrade().unwrap();
        allocator.free(live[0]).unwrap();
        allocator.free(live[3]).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(*all.returned.lock().unwrap(), [30 * MIB, 2 * MIB, 20 * MIB], "small segments first");
        drop(all);
        assert!(last.upgrade().is_none(), "the pool's record held it, and is gone");
        assert!(is_unknown(&allocator, id));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn p04_a_block_outlives_its_pool() {
    on_each(&of(100), |rig| {
        for settings in both() {
            let (allocator, home) = (rig.allocator(settings), rig.stream());
            let pool = pool_of(&allocator, PoolOptions::default());
            let id = pool.id();
            let ptr = take(&allocator, &pool, 30 * MIB, home);
            drop(pool);
            allocator.empty_cache().unwrap();
            assert_eq!(allocator.block_size(ptr), Some(30 * MIB));
            rig.device.use_memory(device_stream(home, rig), ptr, 30 * MIB).unwrap();
            allocator.record_stream(ptr, rig.new_stream()).unwrap();
            allocator.free(ptr).unwrap();
            allocator.empty_cache().unwrap();
            assert!(is_unknown(&allocator, id));
            rig.nothing_is_left(&allocator);
        }
    });
}

/// The stream under the name of the machine below.
fn device_stream(stream: Stream, rig: &granule_tests::rig::Rig) -> Stream {
    Stream { backend: rig.device.id(), ..stream }
}

#[test]
fn p05_an_opted_in_pool_lends_to_a_request_that_nothing_else_can_serve() {
    on_each(&of(100), |rig| {
        for settings in both() {
            let (allocator, home) = (rig.allocator(settings), rig.stream());
            let options = PoolOptions { use_on_oom: true, ..PoolOptions::default() };
            let pool = pool_of(&allocator, options);
            let cached = take(&allocator, &pool, 60 * MIB, home);
            allocator.free(cached).unwrap();
            let fits = allocator.malloc(20 * MIB, home).unwrap();
            assert_ne!(fits, cached, "the device has room");
            let lent = allocator.malloc(60 * MIB, home).unwrap();
            assert_eq!(lent, cached);
            assert_eq!(pool.stats().unwrap().allocated_bytes, 60 * MIB, "it still is the pool's");
            assert_eq!(pool.use_count().unwrap(), 1);
            allocator.free(lent).unwrap();
            // Another stream gets none of it.
            assert!(allocator.malloc(60 * MIB, rig.new_stream()).unwrap_err().is_out_of_memory());
            allocator.pools().set_use_on_oom(DEVICE, pool.id(), false).unwrap();
            assert!(allocator.malloc(60 * MIB, home).unwrap_err().is_out_of_memory());
            allocator.pools().set_use_on_oom(DEVICE, pool.id(), true).unwrap();
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

#[test]
fn p05_pools_lend_before_the_cache_is_given_back() {
    on_each(&of(100), |rig| {
        for release in [PytorchRelease::V2_11, PytorchRelease::V2_15] {
            let settings = Settings { pytorch_release: Some(release), ..Settings::default() };
            let (allocator, home) = (rig.allocator(settings), rig.stream());
            let pool = pool_of(&allocator, PoolOptions { use_on_oom: true, ..PoolOptions::default() });
            let lendable = take(&allocator, &pool, 40 * MIB, home);
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

/// PyTorch switches growable segments off while it searches these pools, and refuses the same request.
#[test]
fn p13_an_opted_in_pool_lends_from_growable_segments_under_a_limit() {
    on_each(&of(200), |rig| {
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let (allocator, home) = (rig.allocator(settings), rig.stream());
        let pool = pool_of(&allocator, PoolOptions { use_on_oom: true, ..PoolOptions::default() });
        let cached = take(&allocator, &pool, 40 * MIB, home);
        allocator.free(cached).unwrap();
        allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(64 * MIB)), None).unwrap();
        let lent = allocator.malloc(35 * MIB, home).unwrap();
        assert_eq!(lent, cached, "{}", rig.name);
        allocator.free(lent).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn p05_a_pool_that_did_not_opt_in_lends_nothing() {
    on_each(&of(100), |rig| {
        for settings in both() {
            let (allocator, home) = (rig.allocator(settings), rig.stream());
            let pool = pool_of(&allocator, PoolOptions::default());
            let cached = take(&allocator, &pool, 60 * MIB, home);
            allocator.free(cached).unwrap();
            assert!(allocator.malloc(60 * MIB, home).unwrap_err().is_out_of_memory());
            drop(pool);
            let ptr = allocator.malloc(60 * MIB, home).expect("the pool's memory went with it");
            allocator.free(ptr).unwrap();
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn p06_a_no_split_pool_hands_out_whole_segments() {
    on_each(&of(200), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let pool = pool_of(&allocator, PoolOptions { no_split: true, ..PoolOptions::default() });
        let id = pool.id();
        let live = [KIB, KIB, 3 * MIB].map(|bytes| take(&allocator, &pool, bytes, home));
        assert_eq!(live.map(|ptr| allocator.block_size(ptr).unwrap()), [2 * MIB, 2 * MIB, 20 * MIB]);
        let blocks: Vec<_> = segments(&allocator, id).into_iter().map(|(_, bytes, n)| (bytes, n)).collect();
        let mut sorted = blocks.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [(2 * MIB, 1), (2 * MIB, 1), (20 * MIB, 1)]);
        allocator.free(live[2]).unwrap();
        assert_eq!(take(&allocator, &pool, 9 * MIB, home), live[2], "reused whole");
        allocator.free(live[2]).unwrap();
        let scope = pool.enter(Filter::this_thread()).unwrap();
        let inside = allocator.malloc_at(9 * MIB, live[2].add(10 * MIB), home);
        assert!(matches!(inside, Err(AllocError::ExactAddress { .. })), "{inside:?}");
        assert_eq!(allocator.malloc_at(9 * MIB, live[2], home).unwrap(), live[2]);
        drop(scope);
        assert_eq!(allocator.block_size(live[2]), Some(20 * MIB), "whole, at an address, too");
        for ptr in live {
            allocator.free(ptr).unwrap();
        }
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
        let (outer, inner) =
            (pool_of(&allocator, PoolOptions::default()), pool_of(&allocator, PoolOptions::default()));
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
            let pool = pool_of(&allocator, PoolOptions::default());
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
            let pool = pool_of(&allocator, PoolOptions::default());
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
        let pool = pool_of(&allocator, PoolOptions::default());
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

#[test]
fn p11_segments_of_a_pools_own_functions_do_not_grow() {
    on_each(&of(200), |rig| {
        let (allocator, home) = (rig.allocator(growable()), rig.stream());
        let source = Counting::over(&rig.backend);
        let own = pool_of(&allocator, PoolOptions { source: Some(source), ..PoolOptions::default() });
        let plain = pool_of(&allocator, PoolOptions::default());
        for (pool, grows) in [(&own, false), (&plain, true)] {
            let ptr = take(&allocator, pool, 30 * MIB, home);
            let found = pool.snapshot(false).segments;
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].is_expandable, grows);
            assert_eq!(found[0].total_size, if grows { 40 } else { 30 } * MIB, "whole granules, or as asked");
            allocator.free(ptr).unwrap();
        }
        drop((own, plain));
        rig.nothing_is_left(&allocator);
    });
}

/// PyTorch 2.15 counts mappings up once for each allocation and down once for each block: the pool's end aborts.
#[test]
fn p12_a_growable_pool_survives_partial_frees_and_its_end() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.allocator(growable()), rig.stream());
        let pool = pool_of(&allocator, PoolOptions::default());
        let id = pool.id();
        let whole = take(&allocator, &pool, 200 * MIB, home);
        allocator.free(whole).unwrap();
        let parts = [0; 4].map(|_| take(&allocator, &pool, 20 * MIB, home));
        assert_eq!(parts, [0, 20, 40, 60].map(|at| whole.add(at * MIB)));
        allocator.free(parts[0]).unwrap();
        allocator.free(parts[2]).unwrap();
        drop(pool);
        assert_eq!(rig.used(), 40 * MIB, "two live blocks keep a granule each");
        assert!(matches!(allocator.pools().create(DEVICE, id, None), Err(AllocError::DeadPool { .. })));
        rig.device.use_memory(device_stream(home, rig), parts[1], 20 * MIB).unwrap();
        rig.device.use_memory(device_stream(home, rig), parts[3], 20 * MIB).unwrap();
        allocator.free(parts[1]).unwrap();
        allocator.free(parts[3]).unwrap();
        rig.nothing_is_left(&allocator);
        assert!(is_unknown(&allocator, id), "the record is gone");
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!(stats.reserved_bytes_by_private_pools[&id].all.current, 0);
        assert_eq!(stats.reserved_bytes_by_private_pools[&id].all.peak.unsigned_abs(), 200 * MIB);
    });
}

/// PyTorch 2.15 counts two mappings and one unmapping here: the record is never erased.
#[test]
fn p12_mappings_that_become_one_block_leave_no_record() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.allocator(growable()), rig.stream());
        let pool = pool_of(&allocator, PoolOptions::default());
        let id = pool.id();
        let parts = [0; 3].map(|_| take(&allocator, &pool, 20 * MIB, home));
        assert_eq!(allocator.stats(DEVICE).unwrap().num_device_alloc, 3);
        parts.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        drop(pool);
        assert_eq!(allocator.stats(DEVICE).unwrap().num_device_free, 1, "one block is unmapped");
        assert!(is_unknown(&allocator, id));
        assert_eq!(rig.used(), 0);
    });
}
