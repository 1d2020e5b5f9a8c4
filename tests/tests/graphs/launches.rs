//! Graphs at work: memory stays until their launches are done.

use crate::captures::nothing_remains;
use alloc_core::AllocError;
use alloc_core::backend::ErrorKind;
use alloc_core::config::Settings;
use alloc_core::graph::CapturedGraph;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::types::{MIB, Stream};
use backend_openreg::{Call, Clock, FaultPlan};
use granule_tests::graphs::{begin, begin_in, fill};
use granule_tests::policy::Policy;
use granule_tests::pools::{new_pool, take};
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{both, of};
use std::time::Duration;

/// A graph is gone while its last launch waits in a stream that is not its own: its memory waits for it.
fn memory_of_a_graph_stays_until_its_launches_are_done<P: Policy>() {
    on_each(&of(100).clock(Clock::Workers), |rig| {
        for settings in both() {
            let (allocator, stream, elsewhere) =
                (rig.with_policy::<P>(settings), rig.new_stream(), rig.new_stream());
            let capture = begin(&allocator, stream);
            let ptr = allocator.malloc(30 * MIB, stream).unwrap();
            fill(rig, stream, ptr, 30 * MIB);
            allocator.free(ptr).unwrap();
            let mut graph: CapturedGraph = capture.end().unwrap();
            let gate = rig.hold(elsewhere);
            // SAFETY: the graph uses its own pool's memory only.
            unsafe { graph.launch(elsewhere) }.unwrap();
            drop(graph);
            let held = rig.used();
            std::thread::scope(|scope| {
                let flush = scope.spawn(|| allocator.empty_cache());
                std::thread::sleep(Duration::from_millis(50));
                assert!(!flush.is_finished(), "it waits for the launch");
                assert_eq!(rig.used(), held);
                gate.open();
                flush.join().unwrap().unwrap();
            });
            rig.nothing_is_left(&allocator);
        }
    });
}

/// The same, with a pool that the graph retained, and in a capture, where nothing can be waited for.
fn memory_of_a_retained_pool_stays_until_its_launches_are_done<P: Policy>() {
    on_each(&of(100).clock(Clock::Workers), |rig| {
        let (allocator, stream, elsewhere) =
            (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.new_stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let mut capture = begin(&allocator, stream);
        capture.retain_pool(pool.id()).unwrap();
        let scope = pool.enter(Filter::Always).unwrap();
        let ptr = allocator.malloc(60 * MIB, stream).unwrap();
        drop(scope);
        fill(rig, stream, ptr, 60 * MIB);
        allocator.free(ptr).unwrap();
        let mut graph = capture.end().unwrap();
        drop(pool);
        let gate = rig.hold(elsewhere);
        // SAFETY: the graph uses memory of pools that it holds.
        unsafe { graph.launch(elsewhere) }.unwrap();
        drop(graph);
        let capture = begin(&allocator, stream);
        assert!(
            allocator.malloc(60 * MIB, stream).unwrap_err().is_out_of_memory(),
            "the launch still uses it"
        );
        assert_eq!((rig.used(), rig.device.traps().len()), (60 * MIB, 0));
        drop(capture);
        gate.open();
        let after = allocator.malloc(60 * MIB, stream).expect("a remedy waits for the launch");
        allocator.free(after).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// Free memory of a pool that graphs write to is lent to nobody.
fn a_pool_of_graphs_lends_nothing<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        let options = PoolOptions { use_on_oom: true, ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
        let capture = begin_in(&allocator, stream, Some(pool.id()));
        let ptr = allocator.malloc(60 * MIB, stream).unwrap();
        allocator.free(ptr).unwrap();
        let graph = capture.end().unwrap();
        assert!(allocator.malloc(60 * MIB, stream).unwrap_err().is_out_of_memory());
        drop((graph, pool));
        rig.nothing_is_left(&allocator);
    });
}

/// What a graph, its capture and a pool hold goes with these values: whoever knows the pool's id takes none of it.
fn a_values_references_are_not_released_by_id<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        let stays = |answer: Result<(), AllocError>| {
            let error = answer.unwrap_err();
            assert!(matches!(error, AllocError::Pool { .. } | AllocError::NoCapture { .. }), "{error}");
        };
        let capture = begin(&allocator, stream);
        let pool = capture.pool();
        let ptr = allocator.malloc(30 * MIB, stream).unwrap();
        stays(allocator.pools().mark_capture_end(DEVICE));
        stays(allocator.pools().end(DEVICE, pool));
        stays(allocator.pools().release(DEVICE, pool));
        let graph = capture.end().unwrap();
        stays(allocator.pools().release(DEVICE, pool));
        allocator.pools().create(DEVICE, pool, None).unwrap();
        allocator.pools().release(DEVICE, pool).expect("the program's own reference");
        allocator.free(ptr).unwrap();
        allocator.empty_cache().unwrap();
        assert!(
            allocator.pools().stats(DEVICE, pool).unwrap().free_bytes >= 30 * MIB,
            "the graph keeps its memory"
        );
        drop(graph);
        nothing_remains(rig, &allocator, pool, stream);
        let kept = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        stays(allocator.pools().release(DEVICE, kept.id()));
        let scope = kept.enter(Filter::Always).unwrap();
        stays(allocator.pools().end(DEVICE, kept.id()));
        drop((scope, kept));
        rig.nothing_is_left(&allocator);
    });
}

/// The block was used in a graph, which is at work when the block is freed: another capture, on whatever stream, is no
/// reason not to wait for that.
fn a_use_in_a_graph_that_was_launched_is_waited_for<P: Policy>() {
    on_each(&of(400).clock(Clock::Workers), |rig| {
        for on_the_same in [false, true] {
            let allocator = rig.with_policy::<P>(Settings::default());
            let (home, side, other) = (rig.new_stream(), rig.new_stream(), rig.new_stream());
            let ptr = allocator.malloc(30 * MIB, home).unwrap();
            let capture = begin(&allocator, side);
            fill(rig, side, ptr, 30 * MIB);
            allocator.record_stream(ptr, side).unwrap();
            let mut graph = capture.end().unwrap();
            let gate = rig.hold(side);
            // SAFETY: what the graph uses is allocated.
            unsafe { graph.launch(side) }.unwrap();
            let unrelated = begin(&allocator, if on_the_same { side } else { other });
            allocator.free(ptr).unwrap();
            drop(unrelated);
            let next = allocator.malloc(30 * MIB, home).unwrap();
            assert_ne!(next, ptr, "{}: the launch still writes to it", rig.name);
            gate.open();
            allocator.free(next).unwrap();
            drop(graph);
            rig.nothing_is_left(&allocator);
        }
    });
}

/// Memory that was allocated before the capture began, in a pool that the graph retains.
fn a_retained_pool_keeps_its_memory_for_the_graph<P: Policy>() {
    on_each(&of(200), |rig| {
        let settings = Settings { max_split_size: 30 * MIB, ..Settings::default() };
        let (allocator, stream) = (rig.with_policy::<P>(settings), rig.new_stream());
        let pool = new_pool(&allocator);
        let ptr = take(&allocator, &pool, 100 * MIB, stream).unwrap();
        let mut capture = begin(&allocator, stream);
        capture.retain_pool(pool.id()).unwrap();
        fill(rig, stream, ptr, 100 * MIB);
        let mut graph = capture.end().unwrap();
        allocator.free(ptr).unwrap();
        assert!(take(&allocator, &pool, 250 * MIB, stream).unwrap_err().is_out_of_memory());
        allocator.pools().set_use_on_oom(DEVICE, pool.id(), true).unwrap();
        assert!(allocator.malloc(110 * MIB, stream).unwrap_err().is_out_of_memory());
        assert!(allocator.malloc(100 * MIB, stream).unwrap().0 != ptr.0, "it is lent to nobody");
        // SAFETY: the graph's pools keep its memory.
        unsafe { graph.launch(stream) }.unwrap();
    });
}

/// The work is queued, and then neither an event nor a wait works: it is over when the device has been waited for.
fn a_launch_whose_end_cannot_be_recorded_keeps_its_memory<P: Policy>() {
    on_each(&of(100).clock(Clock::Workers), |rig| {
        let (allocator, stream, elsewhere) =
            (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.new_stream());
        let capture = begin(&allocator, stream);
        let ptr = allocator.malloc(30 * MIB, stream).unwrap();
        fill(rig, stream, ptr, 30 * MIB);
        allocator.free(ptr).unwrap();
        let mut graph = capture.end().unwrap();
        let gate = rig.hold(elsewhere);
        let broken = [Call::RecordEvent, Call::SynchronizeStream, Call::SynchronizeDevice];
        let broken =
            broken.iter().fold(FaultPlan::none(), |plan, call| plan.fail_all(*call, ErrorKind::Other));
        rig.device.set_faults(broken);
        // SAFETY: the graph uses its own pool's memory only.
        unsafe { graph.launch(elsewhere) }.expect("its work is queued");
        rig.device.set_faults(FaultPlan::none());
        drop(graph);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| allocator.empty_cache());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!flush.is_finished(), "it waits for the launch");
            gate.open();
            flush.join().unwrap().unwrap();
        });
        rig.nothing_is_left(&allocator);
    });
}

fn a_graph_is_not_launched_where_its_end_could_not_be_told<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        let mut graph = begin(&allocator, stream).end().unwrap();
        let capture = begin(&allocator, stream);
        let calls = rig.device.calls();
        // SAFETY: the graph is empty.
        let refused = unsafe { graph.launch(stream) }.unwrap_err();
        let AllocError::Backend(error) = refused else { panic!("{refused}") };
        assert_eq!(error.kind, ErrorKind::CaptureViolation);
        assert_eq!(rig.device.calls().since(&calls).get(Call::LaunchGraph), 0);
        drop(capture);
        let foreign = Stream { backend: alloc_core::types::BackendId(u16::MAX), ..stream };
        // SAFETY: as above.
        assert!(matches!(unsafe { graph.launch(foreign) }, Err(AllocError::ForeignStream)));
    });
}

granule_tests::for_each_policy!(
    memory_of_a_graph_stays_until_its_launches_are_done,
    memory_of_a_retained_pool_stays_until_its_launches_are_done,
    a_pool_of_graphs_lends_nothing,
    a_values_references_are_not_released_by_id,
    a_use_in_a_graph_that_was_launched_is_waited_for,
    a_retained_pool_keeps_its_memory_for_the_graph,
    a_launch_whose_end_cannot_be_recorded_keeps_its_memory,
    a_graph_is_not_launched_where_its_end_could_not_be_told,
);
