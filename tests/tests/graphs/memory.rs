//! Whose memory a capture gets, what is reused within it, and how long a graph keeps it.

use alloc_core::AllocError;
use alloc_core::backend::CaptureStatus;
use alloc_core::config::Settings;
use alloc_core::graph::CapturedGraph;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::types::{MIB, PoolId};
use backend_openreg::{Call, Clock};
use granule_tests::graphs::{begin, begin_in, fill, is_unknown, join};
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::of;
use std::sync::mpsc;

fn reusing() -> Settings {
    Settings { graph_capture_record_stream_reuse: true, ..Settings::default() }
}

fn own_pool(graph: &CapturedGraph) -> PoolId {
    graph.pools().next().unwrap()
}

/// Three blocks live at a time, two of them freed in the capture: size, segments, bytes held by the pool, bytes that the
/// live one keeps once the graph is gone.
const CASES: [(u64, u64, u64, u64); 5] = [
    (512, 1, 2 * MIB, 2 * MIB),
    (MIB, 2, 4 * MIB, 2 * MIB),
    (MIB + 512, 1, 20 * MIB, 20 * MIB),
    (10 * MIB - 512, 2, 40 * MIB, 20 * MIB),
    (10 * MIB + 512, 3, 36 * MIB, 12 * MIB),
];

#[test]
fn g01_g05_a_capture_allocates_from_its_pool_alone_of_which_live_blocks_stay() {
    on_each(&of(400), |rig| {
        for (bytes, segments, held, kept) in CASES {
            let (allocator, stream) = (rig.allocator(Settings::default()), rig.new_stream());
            let outside = allocator.malloc(3 * MIB, stream).unwrap();
            let before = allocator.stats(DEVICE).unwrap();
            let default = allocator.pools().stats(DEVICE, PoolId::DEFAULT).unwrap();
            let capture = begin(&allocator, stream);
            let live = [0; 3].map(|_| allocator.malloc(bytes, stream).unwrap());
            let pool = allocator.pools().stats(DEVICE, capture.pool()).unwrap();
            assert_eq!((pool.segments, pool.reserved_bytes.all.current.unsigned_abs()), (segments, held));
            // A rest of a segment that is too small to be cut off goes with the block.
            let sizes = live.map(|ptr| allocator.block_size(ptr).unwrap());
            let rest = if bytes == 10 * MIB - 512 { 1024 } else { 0 };
            assert_eq!(sizes, [bytes, bytes + rest, bytes]);
            assert_eq!((pool.allocation, pool.allocated_bytes), (3, 3 * bytes + rest));
            assert_eq!(pool.requested_bytes, 3 * bytes);
            allocator.free(live[0]).unwrap();
            allocator.free(live[1]).unwrap();
            let graph = capture.end().unwrap();
            let pool = allocator.pools().stats(DEVICE, own_pool(&graph)).unwrap();
            assert_eq!((pool.allocation, pool.allocated_bytes, pool.use_count), (1, bytes, 1));
            assert_eq!((pool.active_bytes, pool.free_bytes), (bytes, held - bytes));
            let after = allocator.stats(DEVICE).unwrap();
            let delta = |after: i64, before: i64| (after - before).unsigned_abs();
            assert_eq!(delta(after.reserved_bytes.all.current, before.reserved_bytes.all.current), held);
            assert_eq!(delta(after.segment.all.current, before.segment.all.current), segments);
            assert_eq!(delta(after.num_device_alloc, before.num_device_alloc), segments);
            assert_eq!(delta(after.allocation.all.allocated, before.allocation.all.allocated), 3);
            assert_eq!(allocator.pools().stats(DEVICE, PoolId::DEFAULT).unwrap(), default, "{bytes} bytes");
            allocator.free(outside).unwrap();
            allocator.empty_cache().unwrap();
            assert_eq!(rig.used(), held, "the graph may be launched again");
            let pool = own_pool(&graph);
            drop(graph);
            assert_eq!(rig.used(), held, "nothing goes before the cache is emptied");
            allocator.empty_cache().unwrap();
            assert_eq!(rig.used(), kept);
            assert_eq!(allocator.block_size(live[2]), Some(bytes));
            allocator.free(live[2]).unwrap();
            rig.nothing_is_left(&allocator);
            assert!(is_unknown(&allocator, pool));
        }
    });
}

#[test]
fn g02_memory_freed_in_a_capture_is_reused_within_it() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.allocator(Settings::default()), rig.new_stream());
        let capture = begin(&allocator, stream);
        let first = allocator.malloc(30 * MIB, stream).unwrap();
        let calls = rig.device.calls();
        for _ in 0..5 {
            allocator.free(first).unwrap();
            assert_eq!(allocator.malloc(30 * MIB, stream).unwrap(), first);
        }
        assert_eq!(rig.device.calls().since(&calls).get(Call::Malloc), 0);
        allocator.free(first).unwrap();
        drop(capture.end().unwrap());
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn g03_a_block_used_across_streams_is_free_after_the_capture() {
    on_each(&of(400), |rig| {
        for looks_between in [true, false] {
            let (allocator, stream, side) =
                (rig.allocator(Settings::default()), rig.new_stream(), rig.new_stream());
            let capture = begin(&allocator, stream);
            let pool = capture.pool();
            let shared = allocator.malloc(30 * MIB, stream).unwrap();
            join(&*rig.backend, stream, side);
            fill(rig, side, shared, 512);
            allocator.record_stream(shared, side).unwrap();
            allocator.free(shared).unwrap();
            join(&*rig.backend, side, stream);
            let other = allocator.malloc(30 * MIB, stream).unwrap();
            assert_ne!(other, shared, "joined, but without the option only the end of the capture frees it");
            assert_eq!(allocator.pools().stats(DEVICE, pool).unwrap().active_bytes, 60 * MIB);
            let calls = rig.device.calls();
            let graph = capture.end().unwrap();
            let calls = rig.device.calls().since(&calls);
            assert_eq!(
                (calls.get(Call::RecordEvent), calls.get(Call::QueryEvent)),
                (0, 0),
                "the graph orders it"
            );
            let active = || allocator.pools().stats(DEVICE, pool).unwrap().active_bytes;
            assert_eq!(active(), 60 * MIB, "PyTorch looks at the next request");
            if looks_between {
                let next = allocator.malloc(512, stream).unwrap();
                assert_eq!(active(), 30 * MIB, "free from then on");
                allocator.free(next).unwrap();
            }
            let second = begin_in(&allocator, stream, Some(pool));
            assert_eq!(allocator.malloc(30 * MIB, stream).unwrap(), shared, "the next capture gets it");
            drop(second.end().unwrap());
            allocator.free(shared).unwrap();
            allocator.free(other).unwrap();
            drop(graph);
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn g04_two_streams_reuse_a_block_exactly_where_they_have_joined() {
    on_each(&of(400), |rig| {
        let (allocator, stream, side) = (rig.allocator(reusing()), rig.new_stream(), rig.new_stream());
        let capture = begin(&allocator, stream);
        let shared = allocator.malloc(30 * MIB, stream).unwrap();
        fill(rig, stream, shared, 512);
        join(&*rig.backend, stream, side);
        fill(rig, side, shared, 512);
        allocator.record_stream(shared, side).unwrap();
        allocator.free(shared).unwrap();
        fill(rig, stream, shared, 512);
        let early = allocator.malloc(30 * MIB, stream).unwrap();
        assert_ne!(early, shared, "the side stream has not been joined");
        // The side stream's own requests get it in no case.
        let others = allocator.malloc(30 * MIB, side).unwrap();
        assert_ne!(others, shared);
        let pool = allocator.pools().stats(DEVICE, capture.pool()).unwrap();
        assert_eq!(pool.allocation, 2, "both streams are served by the capture's pool");
        join(&*rig.backend, side, stream);
        assert_eq!(allocator.malloc(30 * MIB, stream).unwrap(), shared);
        let graph = capture.end().unwrap();
        [early, others, shared].into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        drop(graph);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn g04_four_streams_reuse_a_block_once_the_last_has_joined() {
    on_each(&of(800), |rig| {
        let (allocator, stream) = (rig.allocator(reusing()), rig.new_stream());
        let sides = [0; 3].map(|_| rig.new_stream());
        let capture = begin(&allocator, stream);
        let shared = allocator.malloc(30 * MIB, stream).unwrap();
        for side in sides {
            join(&*rig.backend, stream, side);
            fill(rig, side, shared, 512);
            allocator.record_stream(shared, side).unwrap();
        }
        allocator.free(shared).unwrap();
        // The second joins through the first, the third on its own.
        join(&*rig.backend, sides[1], sides[0]);
        let mut live = Vec::new();
        for side in [sides[0], sides[2]] {
            let ptr = allocator.malloc(30 * MIB, stream).unwrap();
            assert_ne!(ptr, shared, "a stream is missing");
            live.push(ptr);
            join(&*rig.backend, side, stream);
        }
        let reused = allocator.malloc(30 * MIB, stream).unwrap();
        assert_eq!(reused, shared);
        live.push(reused);
        drop(capture.end().unwrap());
        live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn g04_a_shared_pool_is_free_for_the_next_graph_at_the_end_of_the_scope() {
    on_each(&of(400), |rig| {
        let (allocator, stream, side) = (rig.allocator(reusing()), rig.new_stream(), rig.new_stream());
        let mut graphs = Vec::new();
        let mut addresses = Vec::new();
        for _ in 0..3 {
            let pool = graphs.first().map(own_pool);
            let capture = begin_in(&allocator, stream, pool);
            let shared = allocator.malloc(30 * MIB, stream).unwrap();
            join(&*rig.backend, stream, side);
            fill(rig, side, shared, 512);
            allocator.record_stream(shared, side).unwrap();
            allocator.free(shared).unwrap();
            join(&*rig.backend, side, stream);
            addresses.push(shared);
            graphs.push(capture.end().unwrap());
        }
        assert_eq!(addresses, [addresses[0]; 3]);
        assert_eq!(allocator.pools().use_count(DEVICE, own_pool(&graphs[0])).unwrap(), 3);
        graphs.clear();
        rig.nothing_is_left(&allocator);
    });
}

/// A use from before the capture, of a stream that is idle or still at work: the end of the capture is not enough.
#[test]
fn g04_a_use_from_before_the_capture_is_waited_for() {
    on_each(&of(400).clock(Clock::Workers), |rig| {
        for settings in [Settings::default(), reusing()] {
            let (allocator, stream, side) = (rig.allocator(settings), rig.new_stream(), rig.new_stream());
            let id = PoolId::fresh();
            allocator.pools().begin(DEVICE, id, Filter::Always).unwrap();
            let shared = allocator.malloc(30 * MIB, stream).unwrap();
            allocator.pools().end(DEVICE, id).unwrap();
            let gate = rig.hold(side);
            fill(rig, side, shared, 512);
            allocator.record_stream(shared, side).unwrap();
            let capture = begin_in(&allocator, stream, Some(id));
            allocator.free(shared).unwrap();
            let other = allocator.malloc(30 * MIB, stream).unwrap();
            assert_ne!(other, shared);
            let graph = capture.end().unwrap();
            allocator.poll(DEVICE).unwrap();
            assert_eq!(allocator.pools().stats(DEVICE, id).unwrap().active_bytes, 60 * MIB, "still at work");
            gate.open();
            rig.backend.synchronize_stream(side).unwrap();
            allocator.poll(DEVICE).unwrap();
            assert_eq!(allocator.pools().stats(DEVICE, id).unwrap().active_bytes, 30 * MIB);
            allocator.free(other).unwrap();
            allocator.pools().release(DEVICE, id).unwrap();
            drop(graph);
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn g06_a_pool_of_two_graphs_stays_until_both_are_gone() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.allocator(Settings::default()), rig.new_stream());
        let capture_one = |pool| {
            let capture = begin_in(&allocator, stream, pool);
            let ptr = allocator.malloc(30 * MIB, stream).unwrap();
            allocator.free(ptr).unwrap();
            (capture.end().unwrap(), ptr)
        };
        let (first, one) = capture_one(None);
        let pool = own_pool(&first);
        assert_eq!(allocator.pools().use_count(DEVICE, pool).unwrap(), 1);
        let (second, other) = capture_one(Some(pool));
        assert_eq!(one, other, "the second graph works in the first one's memory");
        assert_eq!(allocator.pools().use_count(DEVICE, pool).unwrap(), 2);
        drop(first);
        allocator.empty_cache().unwrap();
        assert_eq!((rig.used(), allocator.pools().use_count(DEVICE, pool).unwrap()), (30 * MIB, 1));
        drop(second);
        assert_eq!(allocator.pools().use_count(DEVICE, pool).unwrap(), 0);
        rig.nothing_is_left(&allocator);
        assert!(is_unknown(&allocator, pool));
    });
}

#[test]
fn g07_a_pool_used_in_a_capture_is_held_by_its_graph() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.allocator(Settings::default()), rig.new_stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let id = pool.id();
        let mut capture = begin(&allocator, stream);
        let own = capture.pool();
        let scope = pool.enter(Filter::this_thread()).unwrap();
        capture.retain_pool(id).unwrap();
        capture.retain_pool(id).unwrap();
        assert!(matches!(capture.retain_pool(PoolId(0, u64::MAX)), Err(AllocError::UnknownPool { .. })));
        let inside = allocator.malloc(30 * MIB, stream).unwrap();
        allocator.free(inside).unwrap();
        drop(scope);
        let graph = capture.end().unwrap();
        assert_eq!(graph.pools().collect::<Vec<_>>(), [own, id]);
        assert_eq!(pool.use_count().unwrap(), 2);
        drop(pool);
        allocator.empty_cache().unwrap();
        assert_eq!((rig.used(), allocator.pools().use_count(DEVICE, id).unwrap()), (30 * MIB, 1));
        drop(graph);
        rig.nothing_is_left(&allocator);
        assert!(is_unknown(&allocator, id) && is_unknown(&allocator, own));
    });
}

#[test]
fn g08_other_threads_allocate_from_the_default_pool_meanwhile() {
    on_each(&of(800), |rig| {
        let (allocator, stream, other) =
            (rig.allocator(Settings::default()), rig.new_stream(), rig.new_stream());
        let user = rig.new_stream();
        // Something to drain, whose events a thread would ask for if it did not know of the capture.
        let pending = allocator.malloc(5 * MIB, other).unwrap();
        allocator.record_stream(pending, user).unwrap();
        let capture = begin(&allocator, stream);
        let captured = allocator.malloc(30 * MIB, stream).unwrap();
        std::thread::scope(|scope| {
            let (done, finished) = mpsc::channel();
            let (allocator, done) = (&allocator, done);
            scope.spawn(move || {
                allocator.free(pending).unwrap();
                let blocks: Vec<_> = (1..20).map(|n| allocator.malloc(n * MIB, other).unwrap()).collect();
                let shared = allocator.malloc(30 * MIB, other).unwrap();
                allocator.record_stream(shared, user).unwrap();
                allocator.free(shared).unwrap();
                blocks.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
                allocator.empty_cache().unwrap();
                done.send(()).unwrap();
            });
            finished.recv().unwrap();
        });
        let status = rig.backend.capture().unwrap().status(stream).unwrap();
        assert!(matches!(status, CaptureStatus::Active(_)), "the capture is whole: {status:?}");
        assert_eq!(
            allocator.pools().stats(DEVICE, capture.pool()).unwrap().allocation,
            1,
            "it got none of theirs"
        );
        assert_eq!(rig.used(), 30 * MIB, "they could empty the default pool's cache");
        allocator.free(captured).unwrap();
        drop(capture.end().unwrap());
        rig.nothing_is_left(&allocator);
    });
}
