//! Defects that reviews found where the program looks on, in hardened mode, and at the edges of a process. Each test
//! failed once.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, CaptureMode, Result};
use alloc_core::config::Settings;
use alloc_core::graph::GraphCapture;
use alloc_core::history::HistoryOptions;
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::pool::{Filter, SegmentSource};
use alloc_core::snapshot::Action;
use alloc_core::types::{DeviceIndex, DeviceKind, DevicePtr, Event, MIB, PoolId, Stream};
use backend_openreg::{MemoryMode, OpenReg, OpenRegConfig};
use conformance::interpose::{Hook, Interposed};
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, on_each};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;

fn machine() -> OpenRegConfig {
    OpenRegConfig::default().devices(1).memory(MemoryMode::Mapped).capacity(64 * MIB)
}

fn hardened() -> Settings {
    Settings { hardened: true, ..Settings::default() }
}

/// An allocator over a machine whose driver calls go through a hook.
fn over<P: Policy>(hook: impl Hook, settings: Settings) -> (Arc<OpenReg>, Allocator<P>, Stream) {
    let machine = OpenReg::new(machine()).unwrap();
    let stream = machine.default_stream(DEVICE);
    let backend = Arc::new(Interposed::new(machine.clone(), hook));
    (machine, Arc::new(CachingAllocator::<P>::new(backend, settings).unwrap()), stream)
}

/// Something of the program's that uses the allocator when it is dropped.
#[derive(Debug)]
struct Foreign<P: Policy> {
    allocator: Weak<CachingAllocator<P>>,
    dropped: Arc<AtomicU64>,
}

impl<P: Policy> Foreign<P> {
    fn new(allocator: &Allocator<P>, dropped: &Arc<AtomicU64>) -> Self {
        Self { allocator: Arc::downgrade(allocator), dropped: Arc::clone(dropped) }
    }

    fn filter(self) -> Filter {
        Filter::Custom(Arc::new(move |_| self.allocator.strong_count() == 0))
    }
}

impl<P: Policy> Drop for Foreign<P> {
    fn drop(&mut self) {
        if let Some(allocator) = self.allocator.upgrade() {
            // Takes the lock of the pools, and that of every arena.
            assert!(allocator.pool_use_count(DEVICE, PoolId(0, u64::MAX)).is_err());
            allocator.stats(DEVICE).unwrap();
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: it hands nothing out.
unsafe impl<P: Policy> SegmentSource for Foreign<P> {
    fn alloc(&self, _: u64, _: Stream) -> Option<DevicePtr> {
        None
    }

    unsafe fn free(&self, _: DevicePtr, _: u64, _: Stream) {}
}

fn filters_and_sources_may_use_the_allocator_when_they_are_dropped<P: Policy>() {
    on_each(&machine(), |rig| {
        let (allocator, other) =
            (rig.with_policy::<P>(Settings::default()), rig.with_policy::<P>(Settings::default()));
        let dropped = Arc::new(AtomicU64::new(0));
        let so_far = || dropped.load(Ordering::Relaxed);
        let pool = PoolId::fresh();
        allocator.begin_pool(DEVICE, pool, Foreign::new(&allocator, &dropped).filter()).unwrap();
        assert!(allocator.begin_pool(DEVICE, pool, Foreign::new(&allocator, &dropped).filter()).is_err());
        assert_eq!(so_far(), 1, "that of the refused scope");
        let source =
            || -> Option<Arc<dyn SegmentSource>> { Some(Arc::new(Foreign::new(&allocator, &dropped))) };
        assert!(allocator.create_pool(DEVICE, pool, source()).is_err());
        assert_eq!(so_far(), 2, "the refused source");
        allocator.end_pool(DEVICE, pool).unwrap();
        assert_eq!(so_far(), 3, "that of the scope that ended");
        allocator.begin_pool(DEVICE, PoolId::fresh(), Foreign::new(&other, &dropped).filter()).unwrap();
        drop(allocator);
        assert_eq!(so_far(), 4, "that of a scope that was open to the end");
    });
}

/// As soon as memory has gone back to the driver, another thread takes it.
#[derive(Debug, Default)]
struct TakenAtOnce {
    by: OnceLock<(Weak<CachingAllocator>, Stream)>,
    taken: Mutex<Vec<DevicePtr>>,
}

#[derive(Debug)]
struct Watch(Arc<TakenAtOnce>);

impl Hook for Watch {
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rule 3 is the caller's promise, passed on.
        unsafe { inner.free(device, ptr) }?;
        if let Some((allocator, stream)) = self.0.by.get()
            && let Some(allocator) = allocator.upgrade()
        {
            let takes = || allocator.malloc(3 * MIB, *stream).unwrap();
            let taken = std::thread::scope(|scope| scope.spawn(takes).join().unwrap());
            self.0.taken.lock().unwrap().push(taken);
        }
        Ok(())
    }
}

/// The history said that the new segment came before the old one went: to who follows it, the memory was gone.
#[test]
fn a_segments_end_is_recorded_before_its_address_can_come_back() {
    let taken = Arc::new(TakenAtOnce::default());
    let (machine, allocator, stream) = over::<PytorchPolicy>(Watch(Arc::clone(&taken)), Settings::default());
    allocator.record_history(&HistoryOptions::newest(100).deterministic());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    taken.by.set((Arc::downgrade(&allocator), other)).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(*taken.taken.lock().unwrap(), [ptr], "the same address came back");
    let snapshot = allocator.snapshot(true);
    let about = snapshot.device_traces[0].iter().filter(|entry| entry.addr == ptr.0);
    let story: Vec<Action> = about.map(|entry| entry.action).collect();
    assert_eq!(
        story,
        [
            Action::SegmentAlloc,
            Action::Alloc,
            Action::FreeRequested,
            Action::FreeCompleted,
            Action::SegmentFree,
            Action::SegmentAlloc,
            Action::Alloc
        ]
    );
    allocator.check_invariants();
}

/// A free that the driver refuses: the segment stays, and the history says so.
#[test]
fn a_refused_release_leaves_the_history_with_the_segment() {
    #[derive(Debug)]
    struct Refuses;
    impl Hook for Refuses {
        unsafe fn free(&self, _: &dyn Backend, device: DeviceIndex, _: DevicePtr) -> Result<()> {
            let kind = alloc_core::backend::ErrorKind::Other;
            Err(alloc_core::backend::BackendError::new(kind, 0, "free", device, "not now"))
        }
    }
    let (_machine, allocator, stream) = over::<PytorchPolicy>(Refuses, Settings::default());
    allocator.record_history(&HistoryOptions::newest(100).deterministic());
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    assert!(allocator.empty_cache().is_err());
    let snapshot = allocator.snapshot(true);
    let segments = snapshot.device_traces[0].iter().map(|entry| entry.action);
    let of_segments = |action: &Action| matches!(action, Action::SegmentAlloc | Action::SegmentFree);
    let count = |wanted| segments.clone().filter(of_segments).filter(|action| *action == wanted).count();
    assert_eq!(count(Action::SegmentAlloc), count(Action::SegmentFree) + 1, "it is held");
    assert_eq!(snapshot.segments.len(), 1);
    assert_eq!(allocator.malloc(3 * MIB, stream).unwrap(), ptr, "and serves");
    allocator.check_invariants();
}

/// A driver whose handle 2 is the calling thread's default stream.
#[derive(Debug, Default)]
struct PerThread {
    named: Arc<Mutex<Vec<(u64, ThreadId)>>>,
}

impl PerThread {
    fn note(&self, stream: Stream) -> Stream {
        self.named.lock().unwrap().push((stream.raw, std::thread::current().id()));
        Stream { raw: 0, ..stream }
    }
}

impl Hook for PerThread {
    fn kind(&self, _: &dyn Backend) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        inner.record_event(event, self.note(stream))
    }

    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(self.note(stream), event)
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.synchronize_stream(self.note(stream))
    }

    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: rule 2 is the caller's promise, passed on.
        unsafe { inner.memset_async(dst, value, bytes, self.note(stream)) }
    }
}

/// The engine's own name of a thread's default stream went to the driver as a handle.
fn hardened_mode_names_a_threads_default_stream_as_the_driver_knows_it<P: Policy>() {
    let hook = PerThread::default();
    let named = Arc::clone(&hook.named);
    let (_machine, allocator, default) = over::<P>(hook, hardened());
    let mine = Stream { raw: 2, ..default };
    let me = std::thread::current().id();
    let ptr = allocator.malloc(1000, mine).unwrap();
    allocator.free(ptr).unwrap();
    allocator.synchronise(DEVICE).unwrap();
    assert_eq!(allocator.hardened_stats(DEVICE).unwrap().checked, 1);
    let ptr = allocator.malloc(1000, mine).unwrap();
    std::thread::scope(|scope| scope.spawn(|| allocator.free(ptr).unwrap()).join().unwrap());
    allocator.synchronise(DEVICE).unwrap();
    let stats = allocator.hardened_stats(DEVICE).unwrap();
    assert_eq!((stats.checked, stats.unchecked), (1, 1), "nobody else can poison on this thread's stream");
    let named = std::mem::take(&mut *named.lock().unwrap());
    assert!(named.len() >= 4, "canaries, poison, an event: {named:?}");
    assert!(named.iter().all(|call| *call == (2, me)), "{named:?}");
}

/// The observer ran under a lock that every change of settings takes.
fn a_corruption_observer_may_change_settings_also_when_the_mode_is_switched_off<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let seen = Arc::new(AtomicU64::new(0));
        let (count, weak) = (Arc::clone(&seen), Arc::downgrade(&allocator));
        allocator.add_corruption_observer(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            weak.upgrade().unwrap().record_history(&HistoryOptions::newest(10));
        });
        let completed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&completed);
        allocator.add_trace_tracker(move |entry, _| {
            count.fetch_add(u64::from(entry.action == Action::FreeCompleted), Ordering::Relaxed);
        });
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        // SAFETY: rule 2 is broken on purpose, within memory that the engine holds.
        unsafe { rig.backend.memset_async(ptr, 7, 1, rig.stream()) }.unwrap();
        rig.backend.synchronize_stream(rig.stream()).unwrap();
        allocator.configure(Settings::default()).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        assert_eq!(completed.load(Ordering::Relaxed), 1, "trackers know when the call returns");
        rig.nothing_is_left(&allocator);
    });
}

#[derive(Debug, Default)]
struct Counts(Arc<AtomicU64>);

impl Hook for Counts {
    fn enter(&self, _: &'static str) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn neither_settings_nor_graphs_call_an_abandoned_driver<P: Policy>() {
    let hook = Counts::default();
    let calls = Arc::clone(&hook.0);
    let (machine, allocator, stream) = over::<P>(hook, hardened());
    let captured = machine.create_stream(DEVICE, 0).unwrap();
    let capture = GraphCapture::begin(&allocator, captured, CaptureMode::Relaxed, None).unwrap();
    let mut graph = capture.end().unwrap();
    // SAFETY: the graph has no work.
    unsafe { graph.launch(stream) }.unwrap();
    let another = machine.create_stream(DEVICE, 0).unwrap();
    let open = GraphCapture::begin(&allocator, another, CaptureMode::Relaxed, None).unwrap();
    let ptr = allocator.malloc(1000, stream).unwrap();
    allocator.free(ptr).unwrap();
    allocator.abandon();
    let before = calls.load(Ordering::Relaxed);
    allocator.configure(Settings::default()).unwrap();
    allocator.configure(hardened()).unwrap();
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
    let (machine, allocator, stream) = over::<P>(hook, Settings::default());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let second = CachingAllocator::<P>::new(allocator.backend().clone(), Settings::default()).unwrap();
    allocator.abandon();
    drop(allocator);
    let ptr: DevicePtr = second.malloc(1000, stream).unwrap();
    second.record_stream(ptr, other).unwrap();
    second.free(ptr).unwrap();
    drop(second);
    assert_eq!(destroyed.load(Ordering::Relaxed), 1);
}

/// Blocks in quarantine are pending, and neither a checkpoint nor a request for their address knew how to get them out.
fn checkpoints_and_exact_addresses_find_what_is_in_quarantine<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let pool = PoolId::fresh();
        allocator.begin_pool(DEVICE, pool, Filter::Always).unwrap();
        let [kept, freed] = [1000, 1000].map(|bytes| allocator.malloc(bytes, rig.stream()).unwrap());
        allocator.free(freed).unwrap();
        let saved = allocator.checkpoint(DEVICE, pool).unwrap();
        assert_eq!(saved.live().into_iter().collect::<Vec<_>>(), [kept]);
        let later = allocator.malloc(1000, rig.stream()).unwrap();
        allocator.free(later).unwrap();
        let delta = allocator.restore_checkpoint(&saved, None).unwrap();
        assert_eq!((delta.freed, delta.allocated), (vec![kept], vec![kept]));
        allocator.free(kept).unwrap();
        assert_eq!(allocator.malloc_at(1000, kept, rig.stream()).unwrap(), kept);
        allocator.free(kept).unwrap();
        allocator.end_pool(DEVICE, pool).unwrap();
        allocator.release_pool(DEVICE, pool).unwrap();
        rig.nothing_is_left(&allocator);
        assert_eq!(allocator.hardened_stats(DEVICE).unwrap().corruptions, 0);
    });
}

/// Memory freed by a destructor of the thread's, when Rust has forgotten the thread already.
fn a_thread_may_free_memory_to_its_very_end<P: Policy>() {
    struct Last<P: Policy>(Allocator<P>, DevicePtr, Stream);

    extern "C" fn at_end<P: Policy>(last: *mut std::ffi::c_void) {
        // SAFETY: made by `Box::into_raw` below, and given to this function once.
        let Last(allocator, ptr, stream) = *unsafe { Box::from_raw(last.cast::<Last<P>>()) };
        allocator.free(ptr).unwrap();
        allocator.malloc(40 * MIB, stream).unwrap();
        allocator.mark_capture_begin(DEVICE).unwrap();
        allocator.mark_capture_end(DEVICE).unwrap();
    }

    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        let last = Last(Arc::clone(&allocator), ptr, rig.stream());
        std::thread::scope(|scope| {
            let ends = move || {
                let mut key = 0;
                // SAFETY: a function that takes what is set below.
                assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(at_end::<P>)) }, 0);
                let last = Box::into_raw(Box::new(last));
                // SAFETY: a key of this thread's making.
                assert_eq!(unsafe { libc::pthread_setspecific(key, last.cast()) }, 0);
            };
            scope.spawn(ends).join().unwrap();
        });
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(allocator.hardened_stats(DEVICE).unwrap().checked, 1);
        assert_eq!(allocator.stats(DEVICE).unwrap().allocation.all.current, 1);
    });
}

granule_tests::for_each_policy!(
    filters_and_sources_may_use_the_allocator_when_they_are_dropped,
    hardened_mode_names_a_threads_default_stream_as_the_driver_knows_it,
    a_corruption_observer_may_change_settings_also_when_the_mode_is_switched_off,
    neither_settings_nor_graphs_call_an_abandoned_driver,
    events_are_destroyed_again_once_the_abandoned_allocator_is_gone,
    checkpoints_and_exact_addresses_find_what_is_in_quarantine,
    a_thread_may_free_memory_to_its_very_end,
);
