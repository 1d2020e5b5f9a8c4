//! The history and the snapshot: what is recorded, in which order, and whether it is complete.

use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, Result};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::snapshot::{Action, BlockState};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, Stream};
use backend_openreg::{Clock, OpenRegConfig};
use granule_conformance::interpose::Hook;
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::quiet::Retires;
use granule_tests::rig::{DEVICE, behind};
use granule_tests::setup::{mapped, of, of_bytes, one, roomy};
use granule_tests::with_policy;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// The reference's example stream.
#[test]
fn h01_history_is_in_order_and_says_whether_it_is_complete() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(
        OpenRegConfig::default().devices(1).capacity(64 * MIB),
        Settings::default(),
    );
    allocator.history().record(&HistoryOptions::newest(100).deterministic());
    let a = allocator.malloc(1000, stream).unwrap();
    let b = allocator.malloc(3 * MIB, stream).unwrap();
    allocator.free(a).unwrap();
    assert!(allocator.malloc(GIB, stream).unwrap_err().is_out_of_memory());
    allocator.free(b).unwrap();
    allocator.empty_cache().unwrap();
    let snapshot = allocator.snapshot(true);
    let actions: Vec<_> = snapshot.device_traces[0].iter().map(|e| (e.action.name(), e.size)).collect();
    assert_eq!(
        actions,
        [
            ("segment_alloc", 2_097_152),
            ("alloc", 1000),
            ("segment_alloc", 20_971_520),
            ("alloc", 3_145_728),
            ("free_requested", 1000),
            ("free_completed", 1000),
            ("segment_free", 2_097_152),
            ("oom", GIB),
            ("free_requested", 3_145_728),
            ("free_completed", 3_145_728),
            ("segment_free", 20_971_520),
        ]
    );
    let history = snapshot.history.unwrap();
    assert!(history.complete && history.recorded);
    allocator.history().record(&HistoryOptions { clear: true, ..HistoryOptions::newest(2).deterministic() });
    for _ in 0..2 {
        allocator.free(allocator.malloc(1000, stream).unwrap()).unwrap();
    }
    let cut = allocator.snapshot(true);
    assert_eq!(cut.device_traces[0].len(), 2);
    assert!(!cut.history.unwrap().complete, "a ring that lost entries says so");
}

fn h10_annotations_are_entries_with_text_and_go_with_the_ring<P: Policy>() {
    let (_device, allocator, stream) = roomy::<P>(Settings::default());
    allocator.history().record(&HistoryOptions::newest(4).deterministic());
    let ptr = allocator.malloc(1000, stream).unwrap();
    allocator.history().annotate(ptr, "weights").unwrap();
    assert!(allocator.history().annotate(DevicePtr(12345), "nothing").is_err());
    let entries = allocator.snapshot(true).device_traces.remove(0);
    let note = entries.last().unwrap();
    assert_eq!((note.action, note.addr, note.size), (Action::Annotate, ptr.0, 1000));
    assert_eq!(note.labels.user_metadata.as_deref(), Some("weights"));
    for _ in 0..3 {
        allocator.history().annotate(ptr, "later").unwrap();
    }
    let newest = allocator.snapshot(true).device_traces.remove(0);
    let texts: Vec<_> = newest.iter().filter_map(|e| e.labels.user_metadata.as_deref()).collect();
    assert_eq!(texts, ["", "later", "later", "later"], "the snapshot's own entry, then the newest notes");
    allocator.free(ptr).unwrap();
}

fn a_snapshot_lists_blocks_by_address_with_their_states<P: Policy>() {
    let config = OpenRegConfig::default().devices(1).clock(Clock::Virtual { lag: 1000 });
    let (device, allocator, stream) = with_policy::<P>(config, Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let blocks: Vec<_> = (0..3).map(|_| allocator.malloc(1000, stream).unwrap()).collect();
    allocator.record_stream(blocks[1], side).unwrap();
    device.use_memory(side, blocks[1], 512).unwrap();
    allocator.free(blocks[1]).unwrap();
    let snapshot = allocator.snapshot(false);
    let segment = &snapshot.segments[0];
    assert_eq!(segment.total_size, 2 * MIB);
    assert_eq!((segment.allocated_size, segment.active_size, segment.requested_size), (2048, 3072, 3000));
    let states: Vec<_> = segment.blocks.iter().map(|b| b.state).collect();
    assert_eq!(
        states,
        [
            BlockState::ActiveAllocated,
            BlockState::ActivePendingFree,
            BlockState::ActiveAllocated,
            BlockState::Inactive
        ]
    );
}

fn h01_a_history_begun_late_says_so<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(of_bytes(GIB), Settings::default());
    allocator.malloc(1000, stream).unwrap();
    allocator.history().record(&HistoryOptions::newest(100).deterministic());
    let history = allocator.snapshot(true).history.unwrap();
    assert_eq!((history.complete, history.before_recording), (false, 1));
}

/// A snapshot after a change of the history's clock mixed two numberings and panicked.
fn the_history_clock_can_be_changed<P: Policy>() {
    let (_device, allocator, home) = with_policy::<P>(of(100), Settings::default());
    for deterministic in [true, false, true] {
        allocator.history().record(&HistoryOptions { deterministic, ..HistoryOptions::newest(100) });
        for _ in 0..5 {
            let ptr = allocator.malloc(100, home).unwrap();
            allocator.free(ptr).unwrap();
        }
        let snapshot = allocator.snapshot(true);
        assert!(snapshot.device_traces[0].len() >= 15);
        assert_eq!(snapshot.history.unwrap().overwritten, 0);
    }
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
    let (machine, _, allocator, stream) =
        behind::<_, PytorchPolicy>(mapped(64), Settings::default(), Watch(Arc::clone(&taken)));
    allocator.history().record(&HistoryOptions::newest(100).deterministic());
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
    let (_machine, _, allocator, stream) =
        behind::<_, PytorchPolicy>(mapped(64), Settings::default(), Refuses);
    allocator.history().record(&HistoryOptions::newest(100).deterministic());
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

/// A long history of many short-lived streams is read in one pass, because everything is locked meanwhile.
fn a_history_of_many_streams_is_read_quickly<P: Policy>() {
    const STREAMS: usize = 30_000;
    let (device, allocator, _) = with_policy::<P>(one(), Settings::default());
    allocator.history().record(&HistoryOptions::newest(1_000_000).deterministic());
    let mut raws = Vec::new();
    let begun = std::time::Instant::now();
    for _ in 0..STREAMS {
        let stream = device.create_stream(DEVICE, 0).unwrap();
        for _ in 0..4 {
            allocator.free(allocator.malloc(MIB, stream).unwrap()).unwrap();
        }
        allocator.retire(stream).unwrap();
        raws.push(stream.raw);
    }
    let lives = begun.elapsed();
    println!("lives: {lives:?}");
    let begun = std::time::Instant::now();
    let trace = allocator.snapshot(true).device_traces.swap_remove(0);
    let took = begun.elapsed();
    println!("snapshot: {took:?}");
    let mut streams: Vec<u64> = trace.iter().map(|entry| entry.stream).collect();
    streams.dedup();
    assert_eq!(streams, raws, "each stream's records carry its handle");
    // Against its own run: a busy machine is slow at both.
    assert!(took < 4 * lives + Duration::from_secs(1), "{took:?} after {lives:?}");
}

granule_tests::for_each_policy!(
    h10_annotations_are_entries_with_text_and_go_with_the_ring,
    a_snapshot_lists_blocks_by_address_with_their_states,
    h01_a_history_begun_late_says_so,
    the_history_clock_can_be_changed,
    a_history_of_many_streams_is_read_quickly,
);
