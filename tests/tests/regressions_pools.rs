//! Defects of pools, captures and graphs that were found and must not come back.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::AllocError;
use alloc_core::backend::{
    Backend, BackendError, CaptureMode, ErrorKind, EventFlags, HandleType, Result as DriverResult,
};
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::device::{SegmentChange, SegmentEvent};
use alloc_core::graph::GraphCapture;
use alloc_core::history::{HistoryOptions, RecordContext};
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::pool::{Filter, MemoryPool, PhysicalSource, PoolOptions, SegmentSource};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, PhysicalHandle, PoolId, Stream};
use backend_openreg::{Call, Clock, FaultPlan, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::quiet::Retires;
use granule_tests::rig::{DEVICE, Rig, on_each};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

fn of(mebibytes: u64) -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(mebibytes * MIB)
}

fn growable() -> Settings {
    Settings { expandable_segments: true, ..Settings::default() }
}

fn new_pool<P: Policy>(allocator: &Allocator<P>, source: Option<Arc<dyn SegmentSource>>) -> MemoryPool<P> {
    MemoryPool::new(allocator, DEVICE, PoolOptions { source, ..PoolOptions::default() }).unwrap()
}

fn take<P: Policy>(
    allocator: &Allocator<P>,
    pool: &MemoryPool<P>,
    bytes: u64,
    stream: Stream,
) -> Result<DevicePtr, AllocError> {
    let _scope = pool.enter(Filter::this_thread()).unwrap();
    allocator.malloc(bytes, stream)
}

fn begin<P: Policy>(allocator: &Allocator<P>, stream: Stream) -> GraphCapture<P> {
    GraphCapture::begin(allocator, stream, CaptureMode::Global, None).unwrap()
}

fn fill(rig: &Rig, stream: Stream, ptr: DevicePtr, bytes: u64) {
    // SAFETY: rule 2: a live block, or one that a graph owns.
    unsafe { rig.backend.memset_async(ptr, 1, bytes, stream) }.unwrap();
}

/// A thread that flushes knows which arenas to flush; one of them becomes another pool's meanwhile.
fn a_flush_spares_the_pool_that_got_an_arena_of_a_dead_one<P: Policy>() {
    on_each(&of(400), |rig| {
        for settings in [Settings::default(), growable()] {
            let (allocator, home, side) = (rig.with_policy::<P>(settings), rig.stream(), rig.new_stream());
            let outside = allocator.malloc(30 * MIB, home).unwrap();
            let old = new_pool(&allocator, None);
            allocator.free(take(&allocator, &old, 30 * MIB, side).unwrap()).unwrap();
            drop(old);
            let (engine, young) = (Arc::downgrade(&allocator), Arc::new(OnceLock::new()));
            let made = Arc::clone(&young);
            allocator.add_segment_observer(move |event: &SegmentEvent| {
                let Some(allocator) = engine.upgrade() else { return };
                if event.change == SegmentChange::Detaching && made.get().is_none() {
                    let pool = new_pool(&allocator, None);
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
        let saved = former.checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
        former.free(ptr).unwrap();
        drop(former);
        let allocator = rig.with_policy::<P>(Settings::default());
        let short = allocator.malloc(12 * MIB, home).unwrap();
        assert_eq!(short, ptr, "another segment, at the same place");
        allocator.free(short).unwrap();
        let refused = allocator.restore_checkpoint(&saved, None).unwrap_err();
        assert!(matches!(refused, AllocError::Checkpoint { .. }), "{refused}");
        rig.nothing_is_left(&allocator);
    });
}

fn a_capture_that_could_not_begin_can_be_begun_again_with_its_pool<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        let pool = PoolId::fresh_for_capture();
        let begin = || GraphCapture::begin(&allocator, stream, CaptureMode::Global, Some(pool));
        rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::BeginCapture, 1, ErrorKind::Other));
        assert!(matches!(begin(), Err(AllocError::Backend(_))));
        rig.device.set_faults(FaultPlan::none());
        assert!(matches!(allocator.pool_use_count(DEVICE, pool), Err(AllocError::UnknownPool { .. })));
        drop(begin().expect("nothing had changed"));
        rig.nothing_is_left(&allocator);
    });
}

/// Foreign code that runs when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Uses the allocator in ways that take all kinds of locks, and counts that.
fn busybody<P: Policy>(
    allocator: &Allocator<P>,
    stream: Stream,
    count: &Arc<AtomicU64>,
) -> OnDrop<impl Fn() + use<P>> {
    let (engine, count) = (Arc::downgrade(allocator), Arc::clone(count));
    OnDrop(move || {
        if let Some(allocator) = engine.upgrade() {
            allocator.free(allocator.malloc(MIB, stream).unwrap()).unwrap();
            allocator.empty_cache().unwrap();
            allocator.set_memory_fraction(1.0, DEVICE).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// A source that is the driver, and has a destructor.
struct Attached<D> {
    backend: Arc<dyn Backend>,
    _destructor: D,
}

impl<D> std::fmt::Debug for Attached<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attached")
    }
}

// SAFETY: the driver's memory is disjoint, large enough and aligned (I1), and nothing else frees it.
unsafe impl<D: Send + Sync> SegmentSource for Attached<D> {
    fn alloc(&self, bytes: u64, stream: Stream) -> Option<DevicePtr> {
        self.backend.malloc(stream.device, bytes).ok()
    }
    unsafe fn free(&self, ptr: DevicePtr, _: u64, stream: Stream) {
        // SAFETY: rule 3, by this function's contract.
        unsafe { self.backend.free(stream.device, ptr) }.unwrap();
    }
}

fn destructors_of_the_programs_objects_run_without_a_lock<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, home, count) =
            (rig.with_policy::<P>(Settings::default()), rig.stream(), Arc::default());
        // The first request of a new stream needs an arena, too.
        let destructor = || busybody(&allocator, rig.new_stream(), &count);
        let source = || {
            let source = Attached { backend: Arc::clone(&rig.backend), _destructor: destructor() };
            Some(Arc::new(source) as Arc<dyn SegmentSource>)
        };
        let filter = || {
            let destructor = destructor();
            Filter::Custom(Arc::new(move |_| std::ptr::eq(&raw const destructor, &raw const destructor)))
        };
        let ran = |what, times| assert_eq!(count.swap(0, Ordering::Relaxed), times, "{}: {what}", rig.name);

        let pool = new_pool(&allocator, source());
        assert!(allocator.create_pool(DEVICE, pool.id(), source()).is_err());
        ran("a source that is refused", 1);
        let scope = pool.enter(filter()).unwrap();
        assert!(pool.enter(filter()).is_err());
        ran("a filter that is refused", 1);
        allocator.free(allocator.malloc(MIB, home).unwrap()).unwrap();
        drop(scope);
        ran("a scope that ends", 1);
        drop(pool);
        ran("a pool that goes", 1);

        let observer = destructor();
        let gather = move || (std::ptr::eq(&raw const observer, &raw const observer)).then(|| None).flatten();
        let options = HistoryOptions::newest(10);
        let recorder = Some(Arc::new(gather) as _);
        let contexts = RecordContext::All;
        allocator.record_history(&HistoryOptions { contexts, recorder, ..options.clone() });
        allocator.record_history(&HistoryOptions { max_entries: 0, ..options });
        ran("a recorder that is replaced", 1);
        rig.nothing_is_left(&allocator);
    });
}

/// A source of physical memory that does not take it back at first, and uses the allocator when it does.
#[derive(Debug)]
struct Reluctant<P: Policy> {
    backend: Arc<dyn Backend>,
    engine: OnceLock<std::sync::Weak<alloc_core::CachingAllocator<P>>>,
    elsewhere: Stream,
    refusals: AtomicU64,
}

// SAFETY: it hands no fixed segments out.
unsafe impl<P: Policy> SegmentSource for Reluctant<P> {
    fn alloc(&self, _: u64, _: Stream) -> Option<DevicePtr> {
        None
    }
    unsafe fn free(&self, _: DevicePtr, _: u64, _: Stream) {}
    fn physical(&self) -> Option<&dyn PhysicalSource> {
        Some(self)
    }
}

// SAFETY: handles that the device has just made, each handed out once.
unsafe impl<P: Policy> PhysicalSource for Reluctant<P> {
    fn create(&self, device: DeviceIndex, bytes: u64) -> Option<PhysicalHandle> {
        self.backend.virtual_memory().unwrap().create_physical(device, bytes, HandleType::None).ok()
    }
    fn release(&self, handle: PhysicalHandle) -> DriverResult<()> {
        let left = self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if left.is_ok() {
            return Err(BackendError::new(ErrorKind::Other, 0, "release", DEVICE, "not now"));
        }
        let allocator = self.engine.get().unwrap().upgrade().unwrap();
        allocator.free(allocator.malloc(20 * MIB, self.elsewhere).unwrap()).unwrap();
        // SAFETY: rule 1: made by `create`, released once.
        unsafe { self.backend.virtual_memory().unwrap().release_physical(handle) }
    }
}

fn a_source_takes_memory_back_later_without_a_lock<P: Policy>() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.with_policy::<P>(growable()), rig.stream());
        let source = Arc::new(Reluctant {
            backend: Arc::clone(&rig.backend),
            engine: OnceLock::from(Arc::downgrade(&allocator)),
            elsewhere: rig.new_stream(),
            refusals: AtomicU64::new(3),
        });
        let pool = new_pool(&allocator, Some(source));
        allocator.free(take(&allocator, &pool, 20 * MIB, home).unwrap()).unwrap();
        drop(pool);
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
        let pool = new_pool(&allocator, None);
        let ptr = take(&allocator, &pool, 100 * MIB, stream).unwrap();
        let mut capture = begin(&allocator, stream);
        capture.retain_pool(pool.id()).unwrap();
        fill(rig, stream, ptr, 100 * MIB);
        let mut graph = capture.end().unwrap();
        allocator.free(ptr).unwrap();
        assert!(take(&allocator, &pool, 250 * MIB, stream).unwrap_err().is_out_of_memory());
        allocator.set_use_on_oom(DEVICE, pool.id(), true).unwrap();
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

/// Whatever question about a capture the driver does not answer: the request fails, or the graph's pool serves it.
fn a_captured_request_never_goes_astray<P: Policy>() {
    on_each(&of(100), |rig| {
        for k in 1..=5 {
            let (allocator, stream, side) =
                (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.new_stream());
            let capture = begin(&allocator, stream);
            let fork = rig.backend.create_event(DEVICE, EventFlags::empty()).unwrap();
            rig.backend.record_event(fork, stream).unwrap();
            rig.backend.wait_event(side, fork).unwrap();
            for stream in [stream, side] {
                rig.device.set_faults(FaultPlan::none().fail_nth_of(
                    Call::CaptureStatus,
                    k,
                    ErrorKind::Other,
                ));
                let outcome = allocator.malloc(MIB, stream);
                rig.device.set_faults(FaultPlan::none());
                let astray = allocator.pool_stats(DEVICE, PoolId::DEFAULT).unwrap().allocation;
                assert_eq!(astray, 0, "{}: question {k}: {outcome:?}", rig.name);
                allocator.malloc(MIB, stream).expect("the call can be made again");
            }
            drop(capture);
            // SAFETY: rule 1: made above, and not used again.
            unsafe { rig.backend.destroy_event(fork) }.unwrap();
        }
    });
}

fn a_pools_limit_goes_with_the_pool<P: Policy>() {
    on_each(&of(400), |rig| {
        let (allocator, home, id) =
            (rig.with_policy::<P>(Settings::default()), rig.stream(), PoolId::fresh());
        let once = || {
            allocator.begin_pool(DEVICE, id, Filter::Always).unwrap();
            let outcome = allocator.malloc(40 * MIB, home).map(|ptr| allocator.free(ptr).unwrap());
            allocator.end_pool(DEVICE, id).unwrap();
            outcome
        };
        allocator.create_pool(DEVICE, id, None).unwrap();
        allocator.set_pool_limit(DEVICE, id, Some(MemoryLimit::Bytes(20 * MIB))).unwrap();
        assert!(once().unwrap_err().is_out_of_memory());
        for _ in 0..2 {
            allocator.release_pool(DEVICE, id).unwrap();
        }
        once().expect("a new pool with the same name");
    });
}

/// The free end of a segment becomes part of the block: only the rest is new, and fits under the limit.
#[test]
fn a_limit_counts_what_is_taken_and_not_what_is_there() {
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.with_policy::<PytorchPolicy>(growable()), rig.stream());
        let pool = new_pool(&allocator, None);
        allocator.set_pool_limit(DEVICE, pool.id(), Some(MemoryLimit::Bytes(100 * MIB))).unwrap();
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

/// The program captures without saying so: a wait for another stream's work would be part of the graph.
fn early_reuse_waits_for_nothing_in_a_capture_it_was_not_told_of<P: Policy>() {
    on_each(&of(100).clock(Clock::Workers), |rig| {
        let settings = Settings { early_reuse: true, ..Settings::default() };
        let (allocator, stream, user) = (rig.with_policy::<P>(settings), rig.new_stream(), rig.new_stream());
        let ptr = allocator.malloc(30 * MIB, stream).unwrap();
        allocator.record_stream(ptr, user).unwrap();
        let gate = rig.hold(user);
        allocator.free(ptr).unwrap();
        let capture = rig.backend.capture().unwrap();
        capture.begin(stream, CaptureMode::Relaxed).unwrap();
        let next = allocator.malloc(30 * MIB, stream).unwrap();
        assert_ne!(next, ptr, "{}: the other stream still uses it", rig.name);
        gate.open();
        let graph = capture.end(stream).expect("the capture is whole");
        // SAFETY: rule 1: it was never launched, and is not used again.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        allocator.free(next).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// A later stream with the same handle is another one, also to the scopes of pools; and the handle is never named again.
fn a_scope_of_a_retired_stream_serves_no_successor<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream, other) =
            (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.new_stream());
        for filter in [Filter::Stream(stream), Filter::CaptureOf(stream)] {
            let pool = new_pool(&allocator, None);
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

granule_tests::for_each_policy!(
    a_flush_spares_the_pool_that_got_an_arena_of_a_dead_one,
    a_checkpoint_of_another_allocator_is_refused,
    a_capture_that_could_not_begin_can_be_begun_again_with_its_pool,
    destructors_of_the_programs_objects_run_without_a_lock,
    a_source_takes_memory_back_later_without_a_lock,
    a_use_in_a_graph_that_was_launched_is_waited_for,
    a_retained_pool_keeps_its_memory_for_the_graph,
    a_launch_whose_end_cannot_be_recorded_keeps_its_memory,
    a_graph_is_not_launched_where_its_end_could_not_be_told,
    a_captured_request_never_goes_astray,
    a_pools_limit_goes_with_the_pool,
    early_reuse_waits_for_nothing_in_a_capture_it_was_not_told_of,
    a_scope_of_a_retired_stream_serves_no_successor,
);
