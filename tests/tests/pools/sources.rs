//! Pools over the program's own memory: growable segments from its source, and code of it that uses the allocator.

use alloc_core::backend::{Backend, BackendError, ErrorKind, HandleType, Result as DriverResult};
use alloc_core::config::Settings;
use alloc_core::history::{HistoryOptions, RecordContext};
use alloc_core::pool::{Filter, MemoryPool, PhysicalSource, PoolOptions, SegmentSource};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, KIB, MIB, PhysicalHandle, PoolId, Stream};
use alloc_core::{AllocError, CachingAllocator};
use granule_tests::graphs::is_unknown;
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::pools::{Own, pool_over, take};
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{SOON, growable, of, one};
use granule_tests::{Allocator, with_policy};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};

/// A user's physical memory: so many bytes, of which some are out.
#[derive(Debug)]
struct Budget {
    backend: Arc<dyn Backend>,
    bytes: AtomicU64,
    out: Mutex<Vec<(PhysicalHandle, u64)>>,
    asked: AtomicU64,
}

impl Budget {
    fn new(backend: &Arc<dyn Backend>, bytes: u64) -> Arc<Self> {
        let (bytes, asked) = (AtomicU64::new(bytes), AtomicU64::new(0));
        Arc::new(Self { backend: Arc::clone(backend), bytes, out: Mutex::default(), asked })
    }

    fn bytes_out(&self) -> u64 {
        self.out.lock().unwrap().iter().map(|(_, bytes)| bytes).sum()
    }
}

// SAFETY: it hands no fixed segments out.
unsafe impl SegmentSource for Budget {
    fn alloc(&self, _: u64, _: Stream) -> Option<DevicePtr> {
        None
    }

    unsafe fn free(&self, ptr: DevicePtr, _: u64, _: Stream) {
        panic!("{ptr} was never given")
    }

    fn physical(&self) -> Option<&dyn PhysicalSource> {
        Some(self)
    }
}

// SAFETY: handles that the device has just made, each handed out once.
unsafe impl PhysicalSource for Budget {
    fn create(&self, device: DeviceIndex, bytes: u64) -> Option<PhysicalHandle> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.bytes_out() + bytes > self.bytes.load(Ordering::Relaxed) {
            return None;
        }
        let vm = self.backend.virtual_memory().unwrap();
        let handle = vm.create_physical(device, bytes, HandleType::None).ok()?;
        self.out.lock().unwrap().push((handle, bytes));
        Some(handle)
    }

    fn release(&self, handle: PhysicalHandle) -> alloc_core::backend::Result<()> {
        let mut out = self.out.lock().unwrap();
        let at = out.iter().position(|(known, _)| *known == handle).expect("it was given by this source");
        // SAFETY: rule 1: created by this source, released once.
        unsafe { self.backend.virtual_memory().unwrap().release_physical(handle) }?;
        out.swap_remove(at);
        Ok(())
    }
}

/// PyTorch issue 147851: a pool with its own allocator cannot grow its segments.
#[test]
fn a_pool_with_a_physical_source_grows_its_segments() {
    // Only this one: granules of 20 MiB are counted.
    type P = PytorchPolicy;
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.with_policy::<P>(growable()), rig.stream());
        let source = Budget::new(&rig.backend, 100 * MIB);
        let options = PoolOptions { source: Some(source.clone()), ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
        let id = pool.id();
        let first = take(&allocator, &pool, 15 * MIB, home).unwrap();
        let second = take(&allocator, &pool, 15 * MIB, home).unwrap();
        assert_eq!(second, first.add(15 * MIB), "one segment, of two granules");
        assert_eq!((source.bytes_out(), rig.used()), (40 * MIB, 40 * MIB));
        let segments = pool.snapshot(false).segments;
        assert_eq!((segments.len(), segments[0].is_expandable), (1, true));
        // Memory of other pools is not the source's.
        let outside = allocator.malloc(30 * MIB, home).unwrap();
        assert_eq!((source.bytes_out(), rig.used()), (40 * MIB, 80 * MIB));
        allocator.free(first).unwrap();
        drop(pool);
        assert_eq!(source.bytes_out(), 40 * MIB, "each granule has a part of the live block");
        allocator.free(second).unwrap();
        allocator.pools().empty(id).unwrap();
        assert_eq!((source.bytes_out(), rig.used()), (0, 40 * MIB));
        allocator.free(outside).unwrap();
        rig.nothing_is_left(&allocator);
        assert_eq!(Arc::strong_count(&source), 1, "the pool's record is gone");
    });
}

/// Every remedy that serves driver memory serves a source's.
#[test]
fn a_source_without_memory_has_all_remedies() {
    // Only this one: granules of 20 MiB are counted.
    type P = PytorchPolicy;
    on_each(&of(400), |rig| {
        let (allocator, home, other) = (rig.with_policy::<P>(growable()), rig.stream(), rig.new_stream());
        let source = Budget::new(&rig.backend, 40 * MIB);
        let options = PoolOptions { source: Some(source.clone()), ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
        let held = take(&allocator, &pool, 30 * MIB, home).unwrap();
        let before = allocator.stats(DEVICE).unwrap();
        let asked = source.asked.load(Ordering::Relaxed);
        let refused = take(&allocator, &pool, 30 * MIB, home).unwrap_err();
        let AllocError::OutOfMemory(report) = &refused else { panic!("{refused}") };
        let bound = (report.bound.available, report.bound.set_by.as_str());
        assert_eq!(bound, (0, "the pool's own source of memory"), "{report}");
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!(stats.num_alloc_retries - before.num_alloc_retries, 1);
        assert_eq!(stats.num_ooms - before.num_ooms, 1);
        assert!(
            source.asked.load(Ordering::Relaxed) >= asked + 2,
            "asked again after everything was given back"
        );
        assert_eq!((source.bytes_out(), rig.used()), (40 * MIB, 40 * MIB), "failed attempts keep nothing");
        // A block that waits for another stream is waited for.
        allocator.record_stream(held, other).unwrap();
        allocator.free(held).unwrap();
        assert_eq!(take(&allocator, &pool, 40 * MIB, home).unwrap(), held);
        // A callback that finds memory is heard.
        let generous = Arc::clone(&source);
        allocator.hooks().on_low_memory(Box::new(move || {
            generous.bytes.store(80 * MIB, Ordering::Relaxed);
            false
        }));
        let more = take(&allocator, &pool, 40 * MIB, home).unwrap();
        assert_eq!(more, held.add(40 * MIB), "the segment grew");
        allocator.free(held).unwrap();
        allocator.free(more).unwrap();
        drop(pool);
        assert_eq!(source.bytes_out(), 0);
        rig.nothing_is_left(&allocator);
    });
}

/// A source that can only give physical memory says no to fixed segments, and the message says whose fault it is.
#[test]
fn without_growable_segments_the_source_is_asked_for_fixed_ones() {
    // Only this one: the `granule` policy always grows.
    type P = PytorchPolicy;
    on_each(&of(400), |rig| {
        let (allocator, home) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let source = Budget::new(&rig.backend, 100 * MIB);
        let options = PoolOptions { source: Some(source.clone()), ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
        assert!(take(&allocator, &pool, 30 * MIB, home).unwrap_err().is_out_of_memory());
        assert_eq!((source.asked.load(Ordering::Relaxed), rig.used()), (0, 0));
    });
}

#[test]
fn p03_a_pools_own_functions_make_and_free_its_segments() {
    on_each(&of(200), |rig| {
        let (allocator, home) = (rig.allocator(Settings::default()), rig.stream());
        let source = Own::new(&rig.backend, false);
        let pool = pool_over(&allocator, Some(source.clone()));
        let live =
            [KIB, 5 * MIB, 30 * MIB, 6 * MIB].map(|bytes| take(&allocator, &pool, bytes, home).unwrap());
        assert_eq!(*source.asked.lock().unwrap(), [2 * MIB, 20 * MIB, 30 * MIB], "6 MiB fit beside 5");
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

/// Growable segments had to be switched off for the whole process where one pool had memory functions of its own.
#[test]
fn p11_pytorch_147851_segments_of_a_pools_own_functions_grow_where_these_offer_handles() {
    on_each(&of(1024), |rig| {
        for grows in [false, true] {
            let (allocator, home) = (rig.allocator(growable()), rig.stream());
            let source = Own::new(&rig.backend, grows);
            let pool = pool_over(&allocator, Some(source.clone()));
            let outside = allocator.malloc(30 * MIB, home).unwrap();
            let inside = take(&allocator, &pool, 30 * MIB, home).unwrap();
            let shown = |pool| -> Vec<_> {
                let segments = allocator.pools().snapshot(pool, false).segments;
                segments.iter().map(|segment| (segment.is_expandable, segment.total_size / MIB)).collect()
            };
            assert_eq!(shown(PoolId::DEFAULT), [(true, 40)], "the default pool grows");
            assert_eq!(shown(pool.id()), [if grows { (true, 40) } else { (false, 30) }]);
            assert_eq!(*source.asked.lock().unwrap(), if grows { vec![] } else { vec![30 * MIB] });
            assert_eq!(source.handles.load(Ordering::Relaxed), if grows { 2 } else { 0 }, "of 20 MiB");
            allocator.free(inside).unwrap();
            allocator.free(outside).unwrap();
            drop(pool);
            assert_eq!(*source.returned.lock().unwrap(), *source.asked.lock().unwrap());
            assert_eq!(source.handles.load(Ordering::Relaxed), 0);
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn a_small_block_between_large_ones_is_counted_with_those_when_it_is_parked() {
    let rig = Rig::openreg(of(1024));
    let (allocator, stream) = (rig.with_policy::<GranulePolicy>(Settings::default()), rig.stream());
    let pool = pool_over(&allocator, Some(Own::new(&rig.backend, false)));
    let _scope = pool.enter(Filter::Always).unwrap();
    let large = allocator.malloc(30 * MIB, stream).unwrap();
    allocator.free(large).unwrap();
    assert_eq!(allocator.malloc_at(512, large, stream).unwrap(), large);
    for _ in 0..2 {
        allocator.free(large).unwrap();
        assert_eq!(allocator.malloc(512, stream).unwrap(), large, "it was parked");
        let splits = allocator.stats(DEVICE).unwrap().inactive_split;
        assert_eq!((splits.small_pool.current, splits.large_pool.current), (0, 1), "the rest");
    }
    allocator.free(large).unwrap();
    allocator.check_invariants();
}

/// Foreign code that runs when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Uses the allocator in ways that take all kinds of locks, and counts that.
fn busybody(allocator: &Allocator, stream: Stream, count: &Arc<AtomicU64>) -> OnDrop<impl Fn() + use<>> {
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

        let pool = pool_over(&allocator, source());
        assert!(allocator.pools().create(DEVICE, pool.id(), source()).is_err());
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
        allocator.history().record(&HistoryOptions { contexts, recorder, ..options.clone() });
        allocator.history().record(&HistoryOptions { max_entries: 0, ..options });
        ran("a recorder that is replaced", 1);
        rig.nothing_is_left(&allocator);

        let other = rig.with_policy::<P>(Settings::default());
        let theirs = busybody(&other, home, &count);
        let filter = Filter::Custom(Arc::new(move |_| std::ptr::eq(&raw const theirs, &raw const theirs)));
        allocator.pools().begin(DEVICE, PoolId::fresh(), filter).unwrap();
        drop(allocator);
        ran("a scope that was open to the end", 1);
    });
}

/// A source of physical memory that does not take it back at first, and uses the allocator when it does.
#[derive(Debug)]
struct Reluctant {
    backend: Arc<dyn Backend>,
    engine: OnceLock<std::sync::Weak<alloc_core::CachingAllocator>>,
    elsewhere: Stream,
    refusals: AtomicU64,
}

// SAFETY: it hands no fixed segments out.
unsafe impl SegmentSource for Reluctant {
    fn alloc(&self, _: u64, _: Stream) -> Option<DevicePtr> {
        None
    }
    unsafe fn free(&self, _: DevicePtr, _: u64, _: Stream) {}
    fn physical(&self) -> Option<&dyn PhysicalSource> {
        Some(self)
    }
}

// SAFETY: handles that the device has just made, each handed out once.
unsafe impl PhysicalSource for Reluctant {
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
        let pool = pool_over(&allocator, Some(source));
        allocator.free(take(&allocator, &pool, 20 * MIB, home).unwrap()).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// Gets its memory from the allocator that asks for it, and fails where that fails.
#[derive(Debug)]
struct Circular {
    allocator: OnceLock<Weak<CachingAllocator>>,
    stream: Stream,
    refusals: AtomicU64,
}

// SAFETY: it gives memory that the allocator handed out and that nobody else has.
unsafe impl SegmentSource for Circular {
    fn alloc(&self, bytes: u64, _: Stream) -> Option<DevicePtr> {
        let allocator = self.allocator.get()?.upgrade()?;
        let given = allocator.malloc(bytes, self.stream);
        self.refusals.fetch_add(u64::from(given.is_err()), Ordering::Relaxed);
        given.ok()
    }
    unsafe fn free(&self, ptr: DevicePtr, _: u64, _: Stream) {
        let allocator = self.allocator.get().and_then(Weak::upgrade);
        allocator.unwrap().free(ptr).unwrap();
    }
}

/// A pool's source may use the allocator, also where there is not enough memory: it must not wait for the request
/// that it serves.
fn a_source_that_uses_the_allocator_is_refused_and_does_not_wait_for_itself<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(one().capacity(GIB), Settings::default());
    let other = device.create_stream(DEVICE, 0).unwrap();
    let source =
        Arc::new(Circular { allocator: OnceLock::new(), stream: other, refusals: AtomicU64::new(0) });
    source.allocator.set(Arc::downgrade(&allocator)).unwrap();
    let pool = PoolId::fresh();
    allocator.pools().create(DEVICE, pool, Some(source.clone())).unwrap();
    allocator.pools().begin(DEVICE, pool, Filter::Stream(home)).unwrap();
    let live = allocator.malloc(600 * MIB, other).unwrap();
    let (answered, answers) = mpsc::channel();
    let thread = {
        let allocator = Arc::clone(&allocator);
        std::thread::spawn(move || answered.send(allocator.malloc(500 * MIB, home)))
    };
    let answer = answers.recv_timeout(SOON).expect("no thread waits for itself");
    assert!(matches!(answer, Err(AllocError::OutOfMemory(_))), "{answer:?}");
    thread.join().unwrap().unwrap();
    assert!(source.refusals.load(Ordering::Relaxed) > 0);
    allocator.pools().end(DEVICE, pool).unwrap();
    allocator.pools().release(DEVICE, pool).unwrap();
    allocator.free(live).unwrap();
    allocator.check_invariants();
}

granule_tests::for_each_policy!(
    destructors_of_the_programs_objects_run_without_a_lock,
    a_source_takes_memory_back_later_without_a_lock,
    a_source_that_uses_the_allocator_is_refused_and_does_not_wait_for_itself,
);
