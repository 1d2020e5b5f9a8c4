//! Drivers that go away while the allocator lives.

use crate::calls::{Driver, config, every_call, looks, releases, rig, unexpected};
use alloc_core::backend::{Backend, CaptureMode, ErrorKind, Result};
use alloc_core::config::Settings;
use alloc_core::graph::GraphCapture;
use alloc_core::types::{DevicePtr, Event, MIB, PoolId, Stream};
use alloc_core::{AllocError, CachingAllocator};
use granule_conformance::interpose::Hook;
use granule_tests::policy::Policy;
use granule_tests::rig::{DEVICE, behind};
use granule_tests::setup::mapped;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An allocator that has something cached, live and pending, whose driver is then gone by `goes`.
fn after<P: Policy>(
    goes: impl FnOnce(&Driver, &CachingAllocator, Stream),
    check: impl FnOnce(&Driver, CachingAllocator, DevicePtr, Stream),
) {
    let (machine, driver, allocator, stream) = rig::<P>(config());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    let shared = allocator.malloc(5 * MIB, stream).unwrap();
    let cached = allocator.malloc(7 * MIB, stream).unwrap();
    allocator.free(cached).unwrap();
    allocator.record_stream(shared, other).unwrap();
    goes(&driver, &allocator, stream);
    let before = driver.calls();
    assert!(allocator.free(shared).is_ok(), "a free that would need the driver");
    check(&driver, allocator, ptr, stream);
    assert_eq!(driver.calls(), before, "the driver is not called any more");
}

fn everything_is_defined_without_a_driver<P: Policy>(
    driver: &Driver,
    allocator: CachingAllocator,
    ptr: DevicePtr,
    stream: Stream,
) {
    let saved = checkpoint_of_another::<P>();
    let gone = |answer: &std::result::Result<(), AllocError>| matches!(answer, Err(AllocError::DriverGone));
    let mut wrong = unexpected(every_call(&allocator, ptr, stream, &saved), gone);
    wrong.extend(unexpected(looks(&allocator, ptr), |answer| !gone(answer)));
    assert_eq!(allocator.block_size(ptr), Some(3 * MIB));
    let held: Vec<u64> = allocator.snapshot(true).segments.iter().map(|s| s.allocated_size).collect();
    assert_eq!(held, [8 * MIB], "what is held can still be looked at, and no free has an effect");
    wrong.extend(unexpected(releases(&allocator, ptr, stream), std::result::Result::is_ok));
    allocator.check_invariants();
    let backend = Arc::downgrade(allocator.backend());
    drop(allocator);
    assert_eq!(wrong, Vec::<String>::new());
    assert!(backend.upgrade().is_some(), "the end of a backend calls the driver, too");
    assert!(driver.calls() > 0);
}

/// A checkpoint to be refused.
fn checkpoint_of_another<P: Policy>() -> alloc_core::device::PoolCheckpoint {
    let (_, _, allocator, _) = rig::<P>(config());
    allocator.pools().checkpoint(DEVICE, PoolId::DEFAULT).unwrap()
}

fn after_an_unload_that_a_request_notices_nothing_calls_the_driver<P: Policy>() {
    let notice = |driver: &Driver, allocator: &CachingAllocator, stream| {
        driver.unloaded.store(true, Ordering::Relaxed);
        let noticed = allocator.malloc(50 * MIB, stream).unwrap_err();
        assert!(matches!(noticed, AllocError::Backend(e) if e.kind == ErrorKind::Unusable));
    };
    after::<P>(notice, everything_is_defined_without_a_driver::<P>);
}

fn an_abandoned_driver_is_not_called<P: Policy>() {
    after::<P>(
        |_, allocator: &CachingAllocator, _| allocator.abandon(),
        everything_is_defined_without_a_driver::<P>,
    );
}

fn a_free_notices_an_unload_and_is_a_no_op_all_the_same<P: Policy>() {
    let (machine, driver, allocator, stream) = rig::<P>(config());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let [one, two] = [3, 5].map(|n| allocator.malloc(n * MIB, stream).unwrap());
    allocator.record_stream(one, other).unwrap();
    allocator.record_stream(two, other).unwrap();
    driver.unloaded.store(true, Ordering::Relaxed);
    allocator.free(one).unwrap();
    let before = driver.calls();
    allocator.free(two).unwrap();
    assert!(matches!(allocator.malloc(512, stream), Err(AllocError::DriverGone)));
    drop(allocator);
    assert_eq!(driver.calls(), before);
}

fn with_caching_off_frees_are_no_ops_after_an_unload_too<P: Policy>() {
    let (_, driver, allocator, stream) = rig::<P>(config());
    allocator.enable(false);
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    driver.unloaded.store(true, Ordering::Relaxed);
    allocator.free(ptr).unwrap();
    assert!(matches!(allocator.malloc(512, stream), Err(AllocError::DriverGone)));
}

/// Drivers answer the same kind about one stream, or one thread's context.
fn an_unusable_stream_is_not_an_unload<P: Policy>() {
    let (machine, driver, allocator, stream) = rig::<P>(config());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    allocator.record_stream(ptr, other).unwrap();
    driver.broken_streams.store(true, Ordering::Relaxed);
    allocator.free(ptr).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.unrecorded_frees, 1);
    allocator.synchronise(DEVICE).unwrap();
    assert_eq!(allocator.malloc(3 * MIB, stream).unwrap(), ptr);
}

#[derive(Debug, Default)]
struct Counts(Arc<AtomicU64>);

impl Hook for Counts {
    fn enter(&self, _: &'static str) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn graphs_do_not_call_an_abandoned_driver<P: Policy>() {
    let hook = Counts::default();
    let calls = Arc::clone(&hook.0);
    let (machine, _, allocator, stream) = behind::<_, P>(mapped(64), Settings::default(), hook);
    let captured = machine.create_stream(DEVICE, 0).unwrap();
    let capture = GraphCapture::begin(&allocator, captured, CaptureMode::Relaxed, None).unwrap();
    let mut graph = capture.end().unwrap();
    // SAFETY: the graph has no work.
    unsafe { graph.launch(stream) }.unwrap();
    let another = machine.create_stream(DEVICE, 0).unwrap();
    let open = GraphCapture::begin(&allocator, another, CaptureMode::Relaxed, None).unwrap();
    let third = machine.create_stream(DEVICE, 0).unwrap();
    let to_end = GraphCapture::begin(&allocator, third, CaptureMode::Relaxed, None).unwrap();
    let ptr = allocator.malloc(1000, stream).unwrap();
    allocator.free(ptr).unwrap();
    allocator.abandon();
    let before = calls.load(Ordering::Relaxed);
    // SAFETY: the graph has no work.
    let launched = unsafe { graph.launch(stream) };
    assert!(matches!(launched, Err(AllocError::DriverGone)), "{launched:?}");
    let ended = to_end.end().map(drop);
    assert!(matches!(ended, Err(AllocError::DriverGone)), "{ended:?}");
    drop(open);
    drop(graph);
    drop(allocator);
    assert_eq!(calls.load(Ordering::Relaxed), before);
}

/// An allocator that is told that its driver is gone, and has gone itself, is no reason for others to leak.
fn events_are_destroyed_again_once_the_abandoned_allocator_is_gone<P: Policy>() {
    #[derive(Debug, Default)]
    struct Events(Arc<AtomicU64>);
    impl Hook for Events {
        unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            // SAFETY: rule 1 is the caller's promise, passed on.
            unsafe { inner.destroy_event(event) }
        }
    }
    let hook = Events::default();
    let destroyed = Arc::clone(&hook.0);
    let (machine, _, allocator, stream) = behind::<_, P>(mapped(64), Settings::default(), hook);
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let second = granule_tests::made::<P>(allocator.backend().clone(), Settings::default()).unwrap();
    allocator.abandon();
    drop(allocator);
    let ptr: DevicePtr = second.malloc(1000, stream).unwrap();
    second.record_stream(ptr, other).unwrap();
    second.free(ptr).unwrap();
    drop(second);
    assert_eq!(destroyed.load(Ordering::Relaxed), 1);
}

granule_tests::for_each_policy!(
    after_an_unload_that_a_request_notices_nothing_calls_the_driver,
    an_abandoned_driver_is_not_called,
    a_free_notices_an_unload_and_is_a_no_op_all_the_same,
    with_caching_off_frees_are_no_ops_after_an_unload_too,
    an_unusable_stream_is_not_an_unload,
    graphs_do_not_call_an_abandoned_driver,
    events_are_destroyed_again_once_the_abandoned_allocator_is_gone,
);
