//! Free memory of private pools in pieces, under `policy:granule`: it serves a request as one where nobody counts on its place.

use alloc_core::config::MemoryLimit;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, Retention, SleepTag, Tags};
use alloc_core::types::{DevicePtr, MIB, PoolId, Stream};
use granule_tests::Allocator;
use granule_tests::bytes::{Bytes, first_other};
use granule_tests::graphs::{begin, begin_in, fill};
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{free_all, mapped, of};
use granule_tests::views::{allocator, pieces};

/// Whether 32 MiB come of eight pieces of 4 MiB without memory from the device.
fn is_served(rig: &Rig, allocator: &Allocator, stream: Stream) -> Option<DevicePtr> {
    let used = rig.used();
    let ptr = allocator.malloc(32 * MIB, stream).unwrap();
    allocator.check_invariants();
    if rig.used() == used {
        return Some(ptr);
    }
    allocator.free(ptr).unwrap();
    None
}

/// A pool whose pieces serve a block in a view.
struct Shown {
    allocator: Allocator,
    stream: Stream,
    pool: MemoryPool,
    /// Between the pieces.
    live: Vec<DevicePtr>,
    block: DevicePtr,
}

impl Shown {
    fn of(rig: &Rig) -> Self {
        let (allocator, stream) = (allocator(rig), rig.new_stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let _scope = pool.enter(Filter::Always).unwrap();
        let live = pieces(&allocator, stream, 8, 4);
        let block = is_served(rig, &allocator, stream).expect("a view shows them");
        Self { allocator, stream, pool, live, block }
    }
}

#[test]
fn pieces_of_a_pool_serve_a_larger_request_of_its_own() {
    on_each(&of(400), |rig| {
        let (allocator, stream) = (allocator(rig), rig.new_stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let scope = pool.enter(Filter::Always).unwrap();
        let live = pieces(&allocator, stream, 8, 4);
        let held = pool.stats().unwrap();
        let block = is_served(rig, &allocator, stream).expect("a view shows them");
        let stats = pool.stats().unwrap();
        assert_eq!(stats.reserved_bytes.all.current, held.reserved_bytes.all.current);
        assert_eq!(stats.allocated_bytes, held.allocated_bytes + 32 * MIB);
        let snapshot = allocator.snapshot(false);
        let at = snapshot
            .segments
            .iter()
            .find(|segment| (segment.address..segment.address + segment.total_size).contains(&block.0));
        assert_eq!(at.unwrap().pool_id, pool.id(), "a view is its pool's");
        drop(scope);
        // The default pool has none of it.
        let used = rig.used();
        let other = allocator.malloc(8 * MIB, stream).unwrap();
        assert!(rig.used() > used);
        free_all(&allocator, live.into_iter().chain([block, other]));
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn what_somebody_counts_on_stays_where_it_is() {
    on_each(&of(400), |rig| {
        let (allocator, stream) = (allocator(rig), rig.new_stream());
        let whole = PoolOptions { no_split: true, ..PoolOptions::default() };
        let asleep = PoolOptions { sleep_tag: Some(SleepTag::new("kv")), ..PoolOptions::default() };
        for options in [whole, asleep] {
            let what = format!("{options:?}");
            let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
            let _scope = pool.enter(Filter::Always).unwrap();
            let live = pieces(&allocator, stream, 8, 4);
            assert_eq!(is_served(rig, &allocator, stream), None, "{}: {what}", rig.name);
            free_all(&allocator, live);
        }
        // One that came with a scope may be a graph's, before it is captured.
        let id = PoolId::fresh();
        allocator.pools().begin(DEVICE, id, Filter::Always).unwrap();
        let live = pieces(&allocator, stream, 8, 4);
        assert_eq!(is_served(rig, &allocator, stream), None, "{}: a scope's", rig.name);
        free_all(&allocator, live);
        allocator.pools().end(DEVICE, id).unwrap();
        allocator.pools().release(DEVICE, id).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_capture_gets_nothing_from_views_and_leaves_them_alone() {
    on_each(&of(400), |rig| {
        let Shown { allocator, stream, pool, live, block } = Shown::of(rig);
        allocator.free(block).unwrap();

        let capture = begin_in(&allocator, stream, Some(pool.id()));
        // It was served there a moment ago, and all of it is free.
        let captured = allocator.malloc(32 * MIB, stream).unwrap();
        assert_ne!(captured, block, "{}: a graph would write to addresses that may go", rig.name);
        allocator.free(captured).unwrap();
        let graph = capture.end().unwrap();

        let scope = pool.enter(Filter::Always).unwrap();
        let again = allocator.malloc(32 * MIB, stream).unwrap();
        assert_ne!(again, block, "{}: nor does a graph know of what is shown elsewhere", rig.name);
        allocator.check_invariants();
        free_all(&allocator, live.into_iter().chain([again]));
        drop((scope, graph, pool));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_pool_that_is_told_to_stay_makes_no_more_views() {
    on_each(&of(400), |rig| {
        let Shown { allocator, stream, pool, live, block } = Shown::of(rig);
        let _scope = pool.enter(Filter::Always).unwrap();
        allocator.free(block).unwrap();
        allocator.pools().set_no_split(DEVICE, pool.id()).unwrap();
        assert_eq!(is_served(rig, &allocator, stream), None, "{}: not from the one that is there", rig.name);
        free_all(&allocator, live);
    });
}

#[test]
fn a_pool_with_views_sleeps_but_for_what_lives_in_them() {
    on_each(&mapped(400), |rig| {
        let Shown { allocator, stream, pool, live, block } = Shown::of(rig);
        let _scope = pool.enter(Filter::Always).unwrap();
        let bytes = Bytes(&*rig.backend);
        for (n, ptr) in (1..).zip(live.iter().chain([&block])) {
            bytes.fill(stream, *ptr, n, 4 * MIB);
        }
        allocator.sleep_mode().set_tag(DEVICE, pool.id(), Some(SleepTag::new("kv"))).unwrap();
        let modes = allocator.sleep_mode();
        // SAFETY: nothing uses the pool's memory until it is awake.
        unsafe { modes.sleep(Tags::Only(&["kv"]), &Backup::HostPinned(Retention::Release)) }.unwrap();
        assert_eq!(modes.is_asleep(live[0]), Some(true), "{}", rig.name);
        assert_eq!(modes.is_asleep(block), Some(false), "{}: its granules are not its own", rig.name);
        modes.wake(Tags::Only(&["kv"])).unwrap();
        for (n, ptr) in (1..).zip(live.iter().chain([&block])) {
            assert_eq!(first_other(&bytes.read(*ptr, 4 * MIB), n), None, "{}: {n}", rig.name);
        }
        allocator.check_invariants();
        free_all(&allocator, live.into_iter().chain([block]));
    });
}

#[test]
fn a_pool_ends_with_its_views() {
    on_each(&of(400), |rig| {
        let Shown { allocator, pool, live, block, .. } = Shown::of(rig);
        drop(pool);
        free_all(&allocator, live.into_iter().chain([block]));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_pool_at_its_limit_is_served_from_its_pieces() {
    on_each(&of(800), |rig| {
        let (allocator, stream) = (allocator(rig), rig.new_stream());
        // Much was needed once, so that the device could take more for whoever asks.
        let much = allocator.malloc(400 * MIB, stream).unwrap();
        allocator.free(much).unwrap();
        allocator.empty_cache().unwrap();
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let _scope = pool.enter(Filter::Always).unwrap();
        let live = pieces(&allocator, stream, 8, 4);
        let held = pool.stats().unwrap().reserved_bytes.all.current.unsigned_abs();
        pool.set_limits(Some(MemoryLimit::Bytes(held)), None).unwrap();
        let block = is_served(rig, &allocator, stream).expect("a view shows them");
        let refused = allocator.malloc(4 * MIB, stream).unwrap_err();
        assert!(refused.is_out_of_memory(), "{}: {refused}", rig.name);
        free_all(&allocator, live.into_iter().chain([block]));
    });
}

#[test]
fn a_pool_that_was_primed_serves_a_capture_from_what_it_has() {
    on_each(&of(400), |rig| {
        let (allocator, stream) = (allocator(rig), rig.new_stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let scope = pool.enter(Filter::Always).unwrap();
        let live = pieces(&allocator, stream, 8, 4);
        drop(scope);
        allocator.pools().prime(pool.id(), stream, &[32 * MIB]).unwrap();
        let used = rig.used();
        let capture = begin_in(&allocator, stream, Some(pool.id()));
        let captured = allocator.malloc(32 * MIB, stream).unwrap();
        assert_eq!(rig.used(), used, "{}: it was taken ahead", rig.name);
        allocator.free(captured).unwrap();
        drop(capture.end().unwrap());
        free_all(&allocator, live);
    });
}

/// A graph that knows a block in a view, which is free by now, writes there at each launch.
#[test]
fn sleep_leaves_views_that_a_graph_knows() {
    on_each(&mapped(400), |rig| {
        let Shown { allocator, stream, pool, live, block } = Shown::of(rig);
        let mut capture = begin(&allocator, stream);
        capture.retain_pool(pool.id()).unwrap();
        fill(rig, stream, block, 32 * MIB);
        let mut graph = capture.end().unwrap();
        allocator.free(block).unwrap();
        let modes = allocator.sleep_mode();
        modes.set_tag(DEVICE, pool.id(), Some(SleepTag::new("kv"))).unwrap();
        // SAFETY: nothing uses the pool's memory until it is awake.
        unsafe { modes.sleep(Tags::Only(&["kv"]), &Backup::HostPinned(Retention::Release)) }.unwrap();
        modes.wake(Tags::Only(&["kv"])).unwrap();
        // SAFETY: what the graph writes to is the pool's, which is there and awake.
        unsafe { graph.launch(stream) }.unwrap();
        rig.backend.synchronize_stream(stream).unwrap();
        assert_eq!(rig.device.take_traps(), [], "{}: it is mapped where the graph writes", rig.name);
        allocator.check_invariants();
        free_all(&allocator, live);
        drop((graph, pool));
    });
}
