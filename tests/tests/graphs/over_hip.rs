//! Pools, captures and checkpoints over the backend `hip` on its lookalike driver, seen as CUDA: what the other tests show
//! on the simulated machine itself goes through the driver's C functions here.

use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, CaptureStatus, CopyKind};
use alloc_core::config::Settings;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::types::{DeviceKind, DevicePtr, KIB, MIB, Stream};
use backend_hip::Hip;
use granule_masquerade::{Masquerade, Policy};
use granule_tests::Allocator;
use granule_tests::alone::over_lookalikes;
use granule_tests::bytes::first_other;
use granule_tests::graphs::{begin, is_unknown, join};
use granule_tests::lookalike::{Controls, hip_library};
use granule_tests::rig::DEVICE;
use std::collections::BTreeSet;
use std::sync::Arc;

#[test]
fn pools_graphs_and_checkpoints_work_over_hip_as_cuda() {
    over_lookalikes("devices=1,capacity=256MiB,memory=mapped,clock=virtual:2", || {
        let library = hip_library();
        let backend: Arc<dyn Backend> = Masquerade::new(Hip::load().unwrap(), Policy::Flip).unwrap();
        assert_eq!(backend.kind(), DeviceKind::Cuda);
        let controls = Controls::of(&library);
        for (expandable_segments, graph_capture_record_stream_reuse) in [(false, false), (true, true)] {
            let settings =
                Settings { expandable_segments, graph_capture_record_stream_reuse, ..Settings::default() };
            let allocator: Allocator =
                Arc::new(CachingAllocator::new(Arc::clone(&backend), settings.clone()).unwrap());
            let stream = backend.create_stream(DEVICE, 0).unwrap();
            a_pool_comes_and_goes(&allocator, stream);
            a_graph_is_replayed(&*backend, &allocator, stream, &settings);
            captures_that_fail_leak_nothing(&*backend, &allocator, stream);
            a_checkpoint_is_brought_back(&allocator, stream);
            allocator.check_invariants();
            allocator.empty_cache().unwrap();
            assert_eq!((controls.used(0), controls.traps()), (0, 0), "{settings:?}");
        }
    });
}

fn a_pool_comes_and_goes(allocator: &Allocator, stream: Stream) {
    let pool = MemoryPool::new(allocator, DEVICE, PoolOptions::default()).unwrap();
    let id = pool.id();
    let scope = pool.enter(Filter::this_thread()).unwrap();
    let parts = [0; 4].map(|_| allocator.malloc(20 * MIB, stream).unwrap());
    assert_eq!((pool.use_count().unwrap(), pool.stats().unwrap().allocated_bytes), (2, 80 * MIB));
    drop(scope);
    allocator.free(parts[0]).unwrap();
    allocator.free(parts[2]).unwrap();
    drop(pool);
    assert_eq!(allocator.stats(DEVICE).unwrap().reserved_bytes.all.current.unsigned_abs(), 40 * MIB);
    allocator.free(parts[1]).unwrap();
    allocator.free(parts[3]).unwrap();
    allocator.empty_cache().unwrap();
    assert!(is_unknown(allocator, id));
}

fn a_graph_is_replayed(backend: &dyn Backend, allocator: &Allocator, stream: Stream, settings: &Settings) {
    const BYTES: u64 = 64 * KIB;
    let side = backend.create_stream(DEVICE, 0).unwrap();
    let capture = begin(allocator, stream);
    let pool = capture.pool();
    let [first, result] = [0; 2].map(|_| allocator.malloc(BYTES, stream).unwrap());
    // SAFETY: rule 2: live blocks, which the graph's pool keeps.
    unsafe { backend.memset_async(first, 7, BYTES, stream) }.unwrap();
    join(backend, stream, side);
    // SAFETY: as above.
    unsafe { backend.copy_async(result, first, BYTES, CopyKind::DeviceToDevice, side) }.unwrap();
    allocator.record_stream(first, side).unwrap();
    allocator.free(first).unwrap();
    let early = allocator.malloc(BYTES, stream).unwrap();
    assert_ne!(early, first, "the side stream reads it");
    join(backend, side, stream);
    let late = allocator.malloc(BYTES, stream).unwrap();
    assert_eq!(late == first, settings.graph_capture_record_stream_reuse);
    // SAFETY: rule 2: a live block.
    unsafe { backend.memset_async(late, 9, BYTES, stream) }.unwrap();
    let mut graph = capture.end().unwrap();
    assert_eq!(allocator.pools().stats(DEVICE, pool).unwrap().allocation, 3);
    let territory = allocator.pools().snapshot(pool, false).segments;
    for round in 0..5 {
        let others = [BYTES, MIB + 1].map(|bytes| allocator.malloc(bytes, stream).unwrap());
        for other in others {
            let inside = |at: DevicePtr| {
                territory.iter().any(|s| (s.address..s.address + s.total_size).contains(&at.0))
            };
            assert!(!inside(other), "round {round}: {other} is the graph's");
            // SAFETY: rule 2: a live block.
            unsafe { backend.memset_async(other, 1, BYTES, stream) }.unwrap();
        }
        // SAFETY: the graph uses its own pool's memory only.
        unsafe { graph.launch(stream) }.unwrap();
        backend.synchronize_stream(stream).unwrap();
        for (ptr, value) in [(result, 7), (late, 9)] {
            let mut contents = vec![0_u8; BYTES as usize];
            let to = DevicePtr(contents.as_mut_ptr() as u64);
            // SAFETY: rule 2: a live block and a vector of this size.
            unsafe { backend.copy(to, ptr, BYTES, CopyKind::DeviceToHost) }.unwrap();
            assert!(first_other(&contents, value).is_none(), "round {round}");
            // SAFETY: as above: wiped for the next round.
            unsafe { backend.memset_async(ptr, 0, BYTES, stream) }.unwrap();
        }
        others.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    }
    [result, early, late].into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    drop(graph);
    allocator.empty_cache().unwrap();
    assert!(is_unknown(allocator, pool));
}

fn captures_that_fail_leak_nothing(backend: &dyn Backend, allocator: &Allocator, stream: Stream) {
    for breaks in [false, true] {
        let capture = begin(allocator, stream);
        let pool = capture.pool();
        let ptr = allocator.malloc(30 * MIB, stream).unwrap();
        allocator.free(ptr).unwrap();
        if breaks {
            backend.synchronize_stream(stream).unwrap_err();
            capture.end().unwrap_err();
        } else {
            drop(capture);
        }
        assert_eq!(backend.capture().unwrap().status(stream), Ok(CaptureStatus::None));
        allocator.empty_cache().unwrap();
        assert!(is_unknown(allocator, pool));
    }
}

fn a_checkpoint_is_brought_back(allocator: &Allocator, stream: Stream) {
    let pool = MemoryPool::new(allocator, DEVICE, PoolOptions::default()).unwrap();
    let scope = pool.enter(Filter::Always).unwrap();
    let blocks = [0; 4].map(|_| allocator.malloc(3 * MIB, stream).unwrap());
    allocator.free(blocks[1]).unwrap();
    let saved = allocator.pools().checkpoint(DEVICE, pool.id()).unwrap();
    allocator.free(blocks[2]).unwrap();
    let more = allocator.malloc(5 * MIB, stream).unwrap();
    let delta = allocator.pools().restore(&saved, None).unwrap();
    assert!(delta.freed.contains(&more));
    let kept = BTreeSet::from([blocks[0], blocks[2], blocks[3]]);
    assert_eq!(delta.allocated.into_iter().collect::<BTreeSet<_>>(), kept);
    assert!(allocator.pools().has_live(DEVICE, pool.id(), &kept).unwrap());
    kept.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    drop((scope, pool));
}
