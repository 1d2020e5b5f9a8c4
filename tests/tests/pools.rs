//! Private pools beyond PyTorch's: growable segments from a user's source, limits, priming, figures, dead pools.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::AllocError;
use alloc_core::backend::{Backend, CaptureMode, HandleType};
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::graph::GraphCapture;
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::pool::{Filter, MemoryPool, PhysicalSource, PoolOptions, PoolStats, SegmentSource};
use alloc_core::types::{DeviceIndex, DevicePtr, KIB, MIB, PhysicalHandle, PoolId, Stream};
use backend_openreg::{Call, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, on_each};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn of(mebibytes: u64) -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(mebibytes * MIB)
}

fn both() -> [Settings; 2] {
    [Settings::default(), growable()]
}

fn growable() -> Settings {
    Settings { expandable_segments: true, ..Settings::default() }
}

fn new_pool<P: Policy>(allocator: &Allocator<P>) -> MemoryPool<P> {
    MemoryPool::new(allocator, DEVICE, PoolOptions::default()).unwrap()
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
        allocator.empty_pool(id).unwrap();
        assert_eq!((source.bytes_out(), rig.used()), (0, 40 * MIB));
        allocator.free(outside).unwrap();
        rig.nothing_is_left(&allocator);
        assert_eq!(Arc::strong_count(&source), 1, "the pool's record is gone");
    });
}

/// Every rung of the ladder that serves driver memory serves a source's.
#[test]
fn a_source_without_memory_has_the_whole_ladder() {
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
        assert!(refused.is_out_of_memory(), "{refused}");
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
        allocator.add_free_memory_callback(Box::new(move || {
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

/// PyTorch issue 159674: cached memory of the default pool is no help to a request in a pool's scope.
fn a_request_in_a_scope_reclaims_the_default_pools_cache<P: Policy>() {
    on_each(&of(100), |rig| {
        for settings in both() {
            let (allocator, home, other) = (rig.with_policy::<P>(settings), rig.stream(), rig.new_stream());
            let cached =
                [(home, 40), (other, 40)].map(|(stream, n)| allocator.malloc(n * MIB, stream).unwrap());
            cached.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            let pool = new_pool(&allocator);
            let ptr = take(&allocator, &pool, 80 * MIB, home).expect("80 MiB are cached");
            let stats = allocator.pool_stats(DEVICE, PoolId::DEFAULT).unwrap();
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
            allocator.set_pool_limit(DEVICE, pool.id(), Some(MemoryLimit::Bytes(60 * MIB))).unwrap();
            let live = [40, 20].map(|n| take(&allocator, &pool, n * MIB, home).unwrap());
            let refused = take(&allocator, &pool, 20 * MIB, home).unwrap_err();
            assert!(refused.is_out_of_memory(), "{refused}");
            assert_eq!(rig.used(), 60 * MIB);
            // Others are not concerned, and what is cached within the limit is.
            let outside = take(&allocator, &free, 80 * MIB, home).unwrap();
            allocator.free(live[1]).unwrap();
            assert_eq!(take(&allocator, &pool, 20 * MIB, home).unwrap(), live[1]);
            allocator.set_pool_limit(DEVICE, pool.id(), Some(MemoryLimit::Fraction(0.25))).unwrap();
            let more = take(&allocator, &pool, 40 * MIB, home).expect("a quarter of the device is 100 MiB");
            assert!(take(&allocator, &pool, 20 * MIB, home).is_err());
            allocator.set_pool_limit(DEVICE, pool.id(), None).unwrap();
            let last = take(&allocator, &pool, 20 * MIB, home).unwrap();
            [live[0], live[1], outside, more, last].into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            let unknown = allocator.set_pool_limit(DEVICE, PoolId(0, u64::MAX), None);
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
            allocator.prime_pool(pool.id(), stream, &sizes).unwrap();
            assert_eq!(pool.stats().unwrap().allocation, 0, "nothing of it is handed out");
            assert!(pool.stats().unwrap().free_bytes > 48 * MIB);
            let capture =
                GraphCapture::begin(&allocator, stream, CaptureMode::Global, Some(pool.id())).unwrap();
            let calls = rig.device.calls();
            let live = sizes.map(|bytes| allocator.malloc(bytes, stream).unwrap());
            let calls = rig.device.calls().since(&calls);
            assert_eq!(calls.get(Call::Malloc) + calls.get(Call::CreatePhysical) + calls.get(Call::Map), 0);
            live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            drop(capture.end().unwrap());
            // What does not fit is an error; what was taken until then stays cached.
            let before = pool.stats().unwrap();
            let refused = allocator.prime_pool(pool.id(), stream, &[KIB, 1000 * MIB]).unwrap_err();
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
                allocator.begin_pool(DEVICE, pool, Filter::Always).unwrap();
            }
            let ptr = allocator.malloc(20 * MIB, home).unwrap();
            allocator.free(ptr).unwrap();
            if pool != PoolId::DEFAULT {
                allocator.end_pool(DEVICE, pool).unwrap();
            }
        }
        allocator.empty_pool(one).unwrap();
        assert_eq!(rig.used(), 60 * MIB, "it is in use");
        allocator.release_pool(DEVICE, one).unwrap();
        allocator.release_pool(DEVICE, other).unwrap();
        allocator.empty_pool(one).unwrap();
        assert_eq!(rig.used(), 40 * MIB);
        assert!(matches!(allocator.pool_stats(DEVICE, one), Err(AllocError::UnknownPool { .. })));
        allocator.empty_pool(one).expect("one that is gone is empty");
        allocator.empty_pool(PoolId::DEFAULT).unwrap();
        assert_eq!((rig.used(), allocator.pool_use_count(DEVICE, other).unwrap()), (20 * MIB, 0));
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
        let default = allocator.pool_stats(DEVICE, PoolId::DEFAULT).unwrap();
        assert_eq!((default.allocation, default.allocated_bytes, default.segments), (1, 30 * MIB, 1));
        [outside, small, large].into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn a_dead_pool_serves_nobody<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, home) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let id = PoolId::fresh();
        allocator.begin_pool(DEVICE, id, Filter::Always).unwrap();
        let live = allocator.malloc(3 * MIB, home).unwrap();
        allocator.release_pool(DEVICE, id).unwrap();
        let is_dead = |outcome: Result<(), AllocError>| {
            assert!(matches!(outcome, Err(AllocError::DeadPool { pool }) if pool == id), "{outcome:?}");
        };
        is_dead(allocator.malloc(KIB, home).map(drop));
        is_dead(allocator.release_pool(DEVICE, id));
        is_dead(allocator.create_pool(DEVICE, id, None));
        is_dead(allocator.set_use_on_oom(DEVICE, id, true));
        is_dead(allocator.set_no_split(DEVICE, id));
        is_dead(allocator.prime_pool(id, home, &[KIB]));
        allocator.end_pool(DEVICE, id).unwrap();
        is_dead(allocator.begin_pool(DEVICE, id, Filter::Always));
        assert_eq!(allocator.pool_use_count(DEVICE, id).unwrap(), 0);
        let outside = allocator.malloc(KIB, home).expect("its scope is closed");
        assert_eq!(allocator.pool_stats(DEVICE, id).unwrap().allocated_bytes, 3 * MIB, "what is live stays");
        allocator.free(live).unwrap();
        allocator.free(outside).unwrap();
        rig.nothing_is_left(&allocator);
        let unknown = |outcome: Result<(), AllocError>| {
            assert!(matches!(outcome, Err(AllocError::UnknownPool { pool }) if pool == id), "{outcome:?}");
        };
        unknown(allocator.release_pool(DEVICE, id));
        unknown(allocator.set_no_split(DEVICE, id));
        unknown(allocator.prime_pool(id, home, &[KIB]));
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
            allocator.end_pool(DEVICE, id).unwrap();
            allocator.release_pool(DEVICE, id).unwrap();
            allocator.empty_pool(id).unwrap();
            true
        };
        allocator.begin_pool(DEVICE, id, Filter::Custom(Arc::new(ends_it))).unwrap();
        let served = allocator.malloc(KIB, home).expect("the default pool serves it");
        assert_eq!(allocator.pool_stats(DEVICE, PoolId::DEFAULT).unwrap().allocation, 1);
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

granule_tests::for_each_policy!(
    a_request_in_a_scope_reclaims_the_default_pools_cache,
    a_pool_can_be_limited,
    a_primed_pool_serves_a_capture_without_the_device,
    emptying_a_pool_concerns_no_other,
    a_dead_pool_serves_nobody,
    a_pool_that_is_gone_before_a_request_arrives_does_not_fail_it,
    a_scope_serves_the_requests_that_its_filter_accepts,
);
