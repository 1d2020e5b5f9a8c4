//! Defects of other allocators that this one claims not to have: each is set up as its report tells, on the simulated
//! device. The names are those of the reports.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind, HandleType, Result as DriverResult};
use alloc_core::config::{Settings, pytorch};
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::pool::{Filter, PhysicalSource, SegmentSource};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, PhysicalHandle, PoolId, Stream};
use backend_openreg::{Call, Clock, FaultPlan, MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::quiet::Retires;
use granule_tests::with_policy;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DEVICE: DeviceIndex = DeviceIndex(0);

fn machine(mebibytes: u64) -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(mebibytes * MIB)
}

fn growable() -> Settings {
    Settings { expandable_segments: true, ..Settings::default() }
}

fn parsed(text: &str) -> Settings {
    pytorch::parse(text, &Settings::default(), alloc_core::config::Flavour::Cuda).unwrap().settings
}

/// Out of memory was reported while a block that fits had just come back from other streams: it lies in a segment that
/// is still partly used, so giving the cache back to the driver does not help, only searching again does.
fn pytorch_189504_a_pending_block_that_fits_is_found_before_giving_up<P: Policy>() {
    for settings in [Settings::default(), growable()] {
        let (device, allocator, stream) =
            with_policy::<P>(machine(100).clock(Clock::Virtual { lag: 50 }), settings);
        let side = device.create_stream(DEVICE, 0).unwrap();
        let whole = allocator.malloc(80 * MIB, stream).unwrap();
        allocator.free(whole).unwrap();
        let kept = allocator.malloc(20 * MIB, stream).unwrap();
        let pending = allocator.malloc(60 * MIB, stream).unwrap();
        device.use_memory(side, pending, MIB).unwrap();
        allocator.record_stream(pending, side).unwrap();
        allocator.free(pending).unwrap();
        let again = allocator.malloc(60 * MIB, stream).unwrap();
        assert_eq!(again, pending, "the very block that waited");
        assert_eq!(allocator.stats(DEVICE).unwrap().num_ooms, 0);
        allocator.free(again).unwrap();
        allocator.free(kept).unwrap();
        assert!(device.traps().is_empty());
    }
}

/// Memory was unmapped under queued work, because the device that was waited for was the calling thread's, not the
/// memory's.
fn pytorch_196258_unmapping_waits_for_the_device_that_has_the_memory<P: Policy>() {
    let other = DeviceIndex(1);
    for current in [DEVICE, other] {
        let config = OpenRegConfig::default().devices(2).capacity(GIB).clock(Clock::Virtual { lag: 100 });
        let (device, allocator, stream) = with_policy::<P>(config, growable());
        let ptr = allocator.malloc(40 * MIB, stream).unwrap();
        device.use_memory(stream, ptr, 40 * MIB).unwrap();
        allocator.free(ptr).unwrap();
        device.set_device(current).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.traps(), Vec::new(), "current device {current}");
        assert_eq!(device.used(DEVICE), 0);
        assert_eq!(device.current_device().unwrap(), current, "the thread's device is left as it was");
    }
}

/// A user's own memory functions, which count what they hold.
#[derive(Debug)]
struct Counting {
    backend: Arc<OpenReg>,
    held: AtomicU64,
    handles: AtomicU64,
    grows: bool,
}

impl Counting {
    fn new(backend: &Arc<OpenReg>, grows: bool) -> Arc<Self> {
        Arc::new(Self {
            backend: backend.clone(),
            held: AtomicU64::new(0),
            handles: AtomicU64::new(0),
            grows,
        })
    }
}

// SAFETY: the machine's memory is disjoint, large enough and aligned (I1), and nothing else frees it.
unsafe impl SegmentSource for Counting {
    fn alloc(&self, bytes: u64, stream: Stream) -> Option<DevicePtr> {
        let ptr = self.backend.malloc(stream.device, bytes).ok()?;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Some(ptr)
    }
    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, stream: Stream) {
        // SAFETY: rule 3, by this function's contract.
        unsafe { self.backend.free(stream.device, ptr) }.unwrap();
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
    fn physical(&self) -> Option<&dyn PhysicalSource> {
        self.grows.then_some(self)
    }
}

// SAFETY: handles that the device has just made, each handed out once.
unsafe impl PhysicalSource for Counting {
    fn create(&self, device: DeviceIndex, bytes: u64) -> Option<PhysicalHandle> {
        let vm = self.backend.virtual_memory().unwrap();
        let handle = vm.create_physical(device, bytes, HandleType::None).ok()?;
        self.handles.fetch_add(1, Ordering::Relaxed);
        Some(handle)
    }
    fn release(&self, handle: PhysicalHandle) -> DriverResult<()> {
        // SAFETY: rule 1: made by `create`, released once.
        unsafe { self.backend.virtual_memory().unwrap().release_physical(handle) }?;
        self.handles.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Growable segments had to be switched off for the whole process where one pool had memory functions of its own.
#[test]
fn pytorch_147851_growable_segments_and_a_pools_own_functions_go_together() {
    for grows in [false, true] {
        let (device, allocator, stream) = with_policy::<PytorchPolicy>(machine(1024), growable());
        let source = Counting::new(&device, grows);
        let pool = PoolId::fresh();
        allocator.create_pool(DEVICE, pool, Some(source.clone())).unwrap();
        let outside = allocator.malloc(30 * MIB, stream).unwrap();
        allocator.begin_pool(DEVICE, pool, Filter::Always).unwrap();
        let inside = allocator.malloc(30 * MIB, stream).unwrap();
        allocator.end_pool(DEVICE, pool).unwrap();
        let snapshot = allocator.snapshot(false);
        let expandable =
            |id| snapshot.segments.iter().filter(move |s| s.pool_id == id).map(|s| s.is_expandable);
        assert!(expandable(PoolId::DEFAULT).eq([true]), "the default pool grows");
        assert!(expandable(pool).eq([grows]), "the pool grows where its functions offer handles");
        assert_eq!(source.held.load(Ordering::Relaxed), if grows { 0 } else { 30 * MIB });
        assert_eq!(source.handles.load(Ordering::Relaxed), if grows { 2 } else { 0 }, "granules of 20 MiB");
        allocator.free(inside).unwrap();
        allocator.free(outside).unwrap();
        allocator.release_pool(DEVICE, pool).unwrap();
        allocator.release_pool(DEVICE, pool).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!((source.held.load(Ordering::Relaxed), source.handles.load(Ordering::Relaxed)), (0, 0));
        assert_eq!(device.used(DEVICE), 0);
        allocator.check_invariants();
    }
}

/// A pool's counter of driver allocations went below zero, because it counted requests going up and blocks going down.
#[test]
fn pytorch_168956_a_pools_figures_stay_right_when_its_memory_goes_in_pieces() {
    let (device, allocator, stream) = with_policy::<PytorchPolicy>(machine(1024), growable());
    let pool = PoolId::fresh();
    allocator.begin_pool(DEVICE, pool, Filter::Always).unwrap();
    let large = allocator.malloc(200 * MIB, stream).unwrap();
    allocator.free(large).unwrap();
    let pieces: Vec<_> = (0..4).map(|_| allocator.malloc(20 * MIB, stream).unwrap()).collect();
    allocator.free(pieces[0]).unwrap();
    allocator.free(pieces[2]).unwrap();
    allocator.end_pool(DEVICE, pool).unwrap();
    allocator.release_pool(DEVICE, pool).unwrap();
    let held = |allocator: &granule_tests::Allocator<PytorchPolicy>| {
        allocator.stats(DEVICE).unwrap().reserved_bytes_by_private_pools[&pool].all.current
    };
    assert_eq!(held(&allocator), 200 << 20);
    allocator.empty_cache().unwrap();
    assert_eq!(held(&allocator), 40 << 20, "what is live stays, the pieces between go");
    allocator.free(pieces[1]).unwrap();
    allocator.free(pieces[3]).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(held(&allocator), 0);
    assert!(matches!(allocator.pool_use_count(DEVICE, pool), Err(AllocError::UnknownPool { .. })));
    assert_eq!(device.used(DEVICE), 0);
    allocator.check_invariants();
}

/// With both options on, mapped memory was given to the driver's `free` when memory ran short (also 123548).
fn pytorch_119452_growable_segments_and_a_split_limit_go_together<P: Policy>() {
    let (device, allocator, stream) =
        with_policy::<P>(machine(512), parsed("max_split_size_mb:64,expandable_segments:True"));
    let first = allocator.malloc(200 * MIB, stream).unwrap();
    allocator.free(first).unwrap();
    let mut live = Vec::new();
    let refusal = loop {
        match allocator.malloc(50 * MIB, stream) {
            Ok(ptr) => live.push(ptr),
            Err(error) => break error,
        }
    };
    assert!(refusal.is_out_of_memory(), "{refusal}");
    assert_eq!(live.len(), 10, "the device is used to the last granule: {refusal}");
    allocator.check_invariants();
    let calls = device.calls();
    assert_eq!((calls.get(Call::Malloc), calls.get(Call::Free)), (0, 0), "nothing but mappings was touched");
    live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    allocator.empty_cache().unwrap();
    assert_eq!(device.used(DEVICE), 0);
}

/// Each short-lived stream left what it had cached behind, where nobody else could use it: 20 GiB in a training run.
fn megatron_6885_the_memory_of_one_shot_streams_is_used_again<P: Policy>() {
    for settings in [Settings::default(), growable()] {
        let config = machine(64 * 1024).memory(MemoryMode::Reserved).clock(Clock::Virtual { lag: 20 });
        let (device, allocator, _) = with_policy::<P>(config, settings);
        for _ in 0..20 {
            let stream = device.create_stream(DEVICE, 0).unwrap();
            let ptr = allocator.malloc(GIB, stream).unwrap();
            device.use_memory(stream, ptr, GIB).unwrap();
            allocator.free(ptr).unwrap();
            allocator.retire(stream).unwrap();
            // SAFETY: rule 1: made above, and not used again.
            unsafe { device.destroy_stream(stream) }.unwrap();
        }
        let stats = allocator.stats(DEVICE).unwrap();
        assert!(
            stats.reserved_bytes.all.peak <= (GIB + 20 * MIB) as i64,
            "{}",
            stats.reserved_bytes.all.peak
        );
        assert!(device.traps().is_empty());
    }
}

/// A mapping that failed half way left the process unable to allocate, or ended it.
fn pytorch_188008_a_mapping_that_fails_half_way_is_undone<P: Policy>() {
    for call in [Call::Map, Call::SetAccess] {
        let (device, allocator, stream) = with_policy::<P>(machine(512), growable());
        device.set_faults(FaultPlan::none().fail_nth_of(call, 1, ErrorKind::Other));
        assert!(matches!(allocator.malloc(100 * MIB, stream), Err(AllocError::Backend(_))));
        allocator.check_invariants();
        assert_eq!(device.used(DEVICE), 0, "{call:?}: nothing is left mapped");
        let ptr = allocator.malloc(100 * MIB, stream).unwrap();
        allocator.free(ptr).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0);
    }
}

/// What the default pool has cached was of no use to a request inside a pool's scope.
fn pytorch_159674_a_pool_in_need_gets_what_the_default_pool_has_cached<P: Policy>() {
    for settings in [Settings::default(), growable()] {
        let (device, allocator, stream) = with_policy::<P>(machine(100), settings);
        let cached = allocator.malloc(80 * MIB, stream).unwrap();
        allocator.free(cached).unwrap();
        let pool = PoolId::fresh();
        allocator.begin_pool(DEVICE, pool, Filter::Always).unwrap();
        let ptr = allocator.malloc(80 * MIB, stream).unwrap();
        allocator.end_pool(DEVICE, pool).unwrap();
        assert_eq!(allocator.pool_stats(DEVICE, pool).unwrap().allocated_bytes, 80 * MIB);
        assert!(device.used(DEVICE) <= 100 * MIB);
        allocator.free(ptr).unwrap();
    }
}

granule_tests::for_each_policy!(
    pytorch_189504_a_pending_block_that_fits_is_found_before_giving_up,
    pytorch_196258_unmapping_waits_for_the_device_that_has_the_memory,
    pytorch_119452_growable_segments_and_a_split_limit_go_together,
    megatron_6885_the_memory_of_one_shot_streams_is_used_again,
    pytorch_188008_a_mapping_that_fails_half_way_is_undone,
    pytorch_159674_a_pool_in_need_gets_what_the_default_pool_has_cached,
);
