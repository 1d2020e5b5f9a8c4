//! Behaviours of PyTorch's allocator, one test each, named after the reference's checklist where it has an id.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::{Backend, PointerKind};
use alloc_core::config::{PolicyName, ReserveSize, Settings};
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::snapshot::{Action, BlockState};
use alloc_core::types::{BackendId, DeviceIndex, DevicePtr, GIB, KIB, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator, DeviceBuffer};
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig};
use granule::history::HistoryOptions;
use granule_tests::{Allocator, with_policy};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const DEVICE: DeviceIndex = DeviceIndex(0);

fn setup<P: Policy>(settings: Settings) -> (Arc<OpenReg>, Allocator<P>, Stream) {
    with_policy::<P>(OpenRegConfig::default().devices(1).capacity(8 * GIB), settings)
}

fn growable() -> Settings {
    Settings { expandable_segments: true, ..Settings::default() }
}

#[test]
fn a04_a06_memory_stays_with_its_stream_and_its_own_stream_does_not_delay() {
    let (device, allocator, home) = setup::<PytorchPolicy>(Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, side).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    allocator.free(ptr).unwrap();
    assert_ne!(allocator.malloc(40 * MIB, home).unwrap(), ptr, "another stream does not get it");
    assert_eq!(allocator.malloc(40 * MIB, side).unwrap(), ptr, "its own gets it at once");
}

fn a05_record_stream_delays_reuse_until_that_streams_work_is_done<P: Policy>() {
    let config = OpenRegConfig::default().devices(1).clock(Clock::Virtual { lag: 50 });
    let (device, allocator, home) = with_policy::<P>(config, Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, home).unwrap();
    device.use_memory(side, ptr, 40 * MIB).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    allocator.free(ptr).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 40 * 1024 * 1024);
    let other = allocator.malloc(40 * MIB, home).unwrap();
    assert_ne!(other, ptr, "still in use");
    device.advance(100);
    assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), ptr, "free again");
}

/// A slow stream does not hold up blocks that only a fast one used.
fn streams_do_not_wait_for_each_other<P: Policy>() {
    let config = OpenRegConfig::default().devices(1).clock(Clock::Virtual { lag: 1000 });
    let (device, allocator, home) = with_policy::<P>(config, Settings::default());
    let (slow, fast) = (device.create_stream(DEVICE, 0).unwrap(), device.create_stream(DEVICE, 0).unwrap());
    let held = allocator.malloc(30 * MIB, home).unwrap();
    let quick = allocator.malloc(40 * MIB, home).unwrap();
    allocator.record_stream(held, slow).unwrap();
    device.use_memory(slow, held, MIB).unwrap();
    allocator.free(held).unwrap();
    allocator.record_stream(quick, fast).unwrap();
    device.use_memory(fast, quick, MIB).unwrap();
    allocator.free(quick).unwrap();
    device.synchronize_stream(fast).unwrap();
    assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), quick);
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 30 * 1024 * 1024);
}

/// pytorch 189504: a request is not refused while a block that fits only waits for an event.
fn pytorch_189504_pending_blocks_count_before_an_out_of_memory<P: Policy>() {
    let config =
        OpenRegConfig::default().devices(1).capacity(64 * MIB).clock(Clock::Virtual { lag: 1_000_000 });
    let (device, allocator, home) = with_policy::<P>(config, Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    // One segment, half of it live: after the wait the rest can only be found in the cache.
    let keep = allocator.malloc(30 * MIB, home).unwrap();
    let whole = allocator.malloc(34 * MIB, home).unwrap();
    allocator.free(whole).unwrap();
    let part = allocator.malloc(16 * MIB, home).unwrap();
    let waiting = allocator.malloc(18 * MIB, home).unwrap();
    allocator.record_stream(waiting, side).unwrap();
    device.use_memory(side, waiting, MIB).unwrap();
    allocator.free(waiting).unwrap();
    assert_eq!(allocator.malloc(18 * MIB, home).unwrap(), waiting);
    assert_eq!(allocator.stats(DEVICE).unwrap().num_ooms, 0);
    for ptr in [keep, part, waiting] {
        allocator.free(ptr).unwrap();
    }
}

#[test]
fn a10_equal_blocks_are_reused_in_segment_creation_order() {
    let (_device, allocator, stream) = setup::<PytorchPolicy>(Settings::default());
    let blocks: Vec<_> = (0..4).map(|_| allocator.malloc(40 * MIB, stream).unwrap()).collect();
    for ptr in [2, 0, 3, 1].map(|n: usize| blocks[n]) {
        allocator.free(ptr).unwrap();
    }
    let again: Vec<_> = (0..4).map(|_| allocator.malloc(40 * MIB, stream).unwrap()).collect();
    assert_eq!(again, blocks);
}

fn wrong_pointers_are_typed_errors<P: Policy>() {
    let (_device, allocator, stream) = setup::<P>(Settings::default());
    let ptr = allocator.malloc(4096, stream).unwrap();
    for wrong in [1, ptr.0 + 512, ptr.0 + 1, u64::MAX, 1 << 56, ptr.0 ^ (1 << 63)] {
        assert!(
            matches!(allocator.free(DevicePtr(wrong)), Err(AllocError::InvalidPointer { .. })),
            "{wrong:#x}"
        );
        // A use of a part is a use of the block.
        let inside = (ptr.0..ptr.0 + 4096).contains(&wrong);
        assert_eq!(allocator.record_stream(DevicePtr(wrong), stream).is_ok(), inside, "{wrong:#x}");
        assert!(allocator.base_allocation(DevicePtr(wrong)).is_err());
    }
    allocator.free(DevicePtr::NULL).unwrap();
    allocator.free(ptr).unwrap();
    assert!(allocator.free(ptr).is_err(), "a second free");
    allocator.check_invariants();
}

fn foreign_streams_and_absent_devices_are_refused<P: Policy>() {
    let (device, allocator, stream) = setup::<P>(Settings::default());
    let foreign = Stream { backend: BackendId::fresh(), ..stream };
    assert!(matches!(allocator.malloc(1, foreign), Err(AllocError::ForeignStream)));
    let absent = Stream { device: DeviceIndex(7), ..stream };
    assert!(matches!(allocator.malloc(1, absent), Err(AllocError::InvalidDevice { .. })));
    assert_eq!(allocator.malloc(0, stream).unwrap(), DevicePtr::NULL);
    assert_eq!(device.calls().get(Call::Malloc), 0);
}

/// max_split 50 MiB: what the reference saw.
#[test]
fn c08_oversize_rules() {
    let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
    let (_device, allocator, stream) = setup::<PytorchPolicy>(settings);
    let reserved = || allocator.stats(DEVICE).unwrap().reserved_bytes.all.current / (1 << 20);
    let big = allocator.malloc(100 * MIB, stream).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().oversize_allocations.current, 1);
    allocator.free(big).unwrap();
    let small = allocator.malloc(30 * MIB, stream).unwrap();
    assert_eq!(reserved(), 130, "a normal request does not cut an oversize block");
    assert_eq!(allocator.malloc(90 * MIB, stream).unwrap(), big, "a close one takes it whole");
    allocator.free(big).unwrap();
    let middle = allocator.malloc(79 * MIB, stream).unwrap();
    assert_eq!(reserved(), 210, "one that would waste more than 20 MiB does not");
    for ptr in [small, middle] {
        allocator.free(ptr).unwrap();
    }
}

#[test]
fn c09_garbage_collection_frees_the_oldest_above_the_threshold() {
    let settings = Settings { garbage_collection_threshold: 0.5, ..Settings::default() };
    let (device, allocator, stream) =
        with_policy::<PytorchPolicy>(OpenRegConfig::default().devices(1).capacity(1000 * MIB), settings);
    allocator.set_memory_fraction(0.4, DEVICE).unwrap();
    let old = allocator.malloc(100 * MIB, stream).unwrap();
    allocator.free(old).unwrap();
    let young = allocator.malloc(120 * MIB, stream).unwrap();
    // The old block ages while searches pass it by.
    for _ in 0..20 {
        let ptr = allocator.malloc(150 * MIB, stream);
        ptr.map(|ptr| allocator.free(ptr)).unwrap().unwrap();
    }
    allocator.free(young).unwrap();
    let more = allocator.malloc(180 * MIB, stream).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert!(stats.num_device_free >= 1, "something was collected");
    assert_eq!(stats.num_alloc_retries, 0, "without a flush");
    allocator.free(more).unwrap();
    drop(device);
}

#[test]
fn c07_growable_segments_can_be_toggled_between_requests() {
    let (_device, allocator, stream) = setup::<PytorchPolicy>(Settings::default());
    let fixed = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.configure(growable()).unwrap();
    let grown = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.free(grown).unwrap();
    allocator.configure(Settings::default()).unwrap();
    let third = allocator.malloc(30 * MIB, stream).unwrap();
    assert_ne!(third, grown, "growable blocks are reused only while the option is on");
    allocator.free(fixed).unwrap();
    allocator.free(third).unwrap();
    allocator.check_invariants();
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().reserved_bytes.all.current, 0);
}

#[test]
fn e02_only_whole_free_granules_go_back_and_the_address_space_with_the_last() {
    let (device, allocator, stream) = setup::<PytorchPolicy>(growable());
    let front = allocator.malloc(15 * MIB, stream).unwrap();
    let tail = allocator.malloc(5 * MIB, stream).unwrap();
    allocator.free(tail).unwrap();
    allocator.empty_cache().unwrap();
    let reserved = || allocator.stats(DEVICE).unwrap().reserved_bytes.all.current.unsigned_abs();
    assert_eq!(reserved(), 20 * MIB, "5 MiB at the tail of a 20 MiB granule stay");
    allocator.free(front).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(), 0);
    assert_eq!(device.calls().get(Call::ReserveAddress), device.calls().get(Call::ReleaseAddress));
}

#[test]
fn a_growing_request_maps_in_one_step_up_to_a_granule() {
    let (_device, allocator, stream) = setup::<PytorchPolicy>(growable());
    allocator.record_history(&HistoryOptions::newest(100).deterministic());
    let ptr = allocator.malloc(30 * MIB, stream).unwrap();
    let small = allocator.malloc(700, stream).unwrap();
    allocator.free(ptr).unwrap();
    allocator.empty_cache().unwrap();
    let snapshot = allocator.snapshot(true);
    let actions: Vec<_> = snapshot.device_traces[0].iter().map(|e| (e.action, e.size)).collect();
    assert_eq!(
        actions,
        [
            (Action::SegmentMap, 41_943_040),
            (Action::Alloc, 31_457_280),
            (Action::SegmentMap, 2_097_152),
            (Action::Alloc, 700),
            (Action::FreeRequested, 31_457_280),
            (Action::FreeCompleted, 31_457_280),
            (Action::SegmentUnmap, 41_943_040),
        ]
    );
    allocator.free(small).unwrap();
}

/// The reference's example stream.
#[test]
fn h01_history_is_in_order_and_says_whether_it_is_complete() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(
        OpenRegConfig::default().devices(1).capacity(64 * MIB),
        Settings::default(),
    );
    allocator.record_history(&HistoryOptions::newest(100).deterministic());
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
    allocator.record_history(&HistoryOptions { clear: true, ..HistoryOptions::newest(2).deterministic() });
    for _ in 0..2 {
        allocator.free(allocator.malloc(1000, stream).unwrap()).unwrap();
    }
    let cut = allocator.snapshot(true);
    assert_eq!(cut.device_traces[0].len(), 2);
    assert!(!cut.history.unwrap().complete, "a ring that lost entries says so");
}

fn h10_annotations_are_entries_with_text_and_go_with_the_ring<P: Policy>() {
    let (_device, allocator, stream) = setup::<P>(Settings::default());
    allocator.record_history(&HistoryOptions::newest(4).deterministic());
    let ptr = allocator.malloc(1000, stream).unwrap();
    allocator.annotate(ptr, "weights").unwrap();
    assert!(allocator.annotate(DevicePtr(12345), "nothing").is_err());
    let entries = allocator.snapshot(true).device_traces.remove(0);
    let note = entries.last().unwrap();
    assert_eq!((note.action, note.addr, note.size), (Action::Annotate, ptr.0, 1000));
    assert_eq!(note.labels.user_metadata.as_deref(), Some("weights"));
    for _ in 0..3 {
        allocator.annotate(ptr, "later").unwrap();
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

#[test]
fn o01_the_message_has_pytorchs_words_and_figures() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(
        OpenRegConfig::default().devices(1).capacity(64 * MIB),
        Settings::default(),
    );
    let held = allocator.malloc(30 * MIB, stream).unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let observer = Arc::clone(&seen);
    allocator.add_out_of_memory_observer(move |report| {
        assert_eq!(report.tried, 50 * MIB);
        observer.fetch_add(1, Ordering::SeqCst);
    });
    let error = allocator.malloc(50 * MIB, stream).unwrap_err();
    let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
    assert_eq!(
        report.pytorch_message(),
        "PrivateUse1 out of memory. Tried to allocate 50.00 MiB. GPU 0 has a total capacity of 64.00 MiB of which \
         34.00 MiB is free. Of the allocated memory 30.00 MiB is allocated by PyTorch, and 0 bytes is reserved by \
         PyTorch but unallocated. If reserved but unallocated memory is large try setting \
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
         Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    );
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.num_ooms, stats.num_alloc_retries), (1, 1));
    assert!(allocator.malloc(1 << 60, stream).unwrap_err().to_string().contains("more than 1EB"));
    allocator.malloc(1000, stream).expect("the next request works");
    allocator.free(held).unwrap();
}

/// Promise 1: the report names the largest fit, what keeps free memory apart, and what would help.
#[test]
fn the_report_names_blockers_and_remedies() {
    let (device, allocator, stream) = with_policy::<PytorchPolicy>(
        OpenRegConfig::default().devices(1).capacity(64 * MIB),
        Settings::default(),
    );
    let side = device.create_stream(DEVICE, 0).unwrap();
    let base = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.free(base).unwrap();
    let parts: Vec<_> = (0..4).map(|_| allocator.malloc(10 * MIB, stream).unwrap()).collect();
    let _others = allocator.malloc(4 * MIB, side).unwrap();
    allocator.free(parts[0]).unwrap();
    allocator.free(parts[2]).unwrap();
    let error = allocator.malloc(24 * MIB, stream).unwrap_err();
    let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
    assert_eq!(report.largest_fit, 10 * MIB);
    let worst = report.blockers[0];
    assert_eq!((worst.ptr, worst.beside, worst.would_free()), (parts[1], 20 * MIB, 30 * MIB));
    let remedies: Vec<_> = report.remedies.iter().map(|r| (r.bytes, r.enough)).collect();
    assert_eq!(
        remedies,
        [(24 * MIB, true), (16 * MIB, false)],
        "joining the pieces; the other stream's cache"
    );
    let text = error.to_string();
    assert!(text.contains("30.00 MiB would be free in one piece"), "{text}");
    assert!(text.contains("expandable_segments:True") && text.contains(": enough"), "{text}");
    assert_eq!(report.shortfall(), 0);
    let too_much = allocator.malloc(100 * MIB, stream).unwrap_err();
    assert!(too_much.to_string().contains("need 60.00 MiB more than can be held"), "{too_much}");
}

fn s09_a_fraction_limits_what_is_held<P: Policy>() {
    let (_device, allocator, stream) =
        with_policy::<P>(OpenRegConfig::default().devices(1).capacity(1000 * MIB), Settings::default());
    for bad in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(
            allocator.set_memory_fraction(bad, DEVICE),
            Err(AllocError::InvalidFraction { .. })
        ));
    }
    allocator.set_memory_fraction(0.5, DEVICE).unwrap();
    assert!((allocator.memory_fraction(DEVICE).unwrap() - 0.5).abs() < 1e-9);
    let half = allocator.malloc(499 * MIB, stream).unwrap();
    let error = allocator.malloc(500 * MIB, stream).unwrap_err();
    assert!(error.to_string().contains("500.00 MiB may be held. "), "{error}");
    allocator.set_memory_fraction(1.0, DEVICE).unwrap();
    let rest = allocator.malloc(500 * MIB, stream).unwrap();
    for ptr in [half, rest] {
        allocator.free(ptr).unwrap();
    }
}

fn s11_rejections_come_before_the_driver_and_leave_the_rest_working<P: Policy>() {
    let settings = Settings { throw_on_oom: true, per_process_memory_fraction: 0.5, ..Settings::default() };
    let (device, allocator, stream) =
        with_policy::<P>(OpenRegConfig::default().devices(1).capacity(1000 * MIB), settings);
    allocator.set_memory_fraction(1.0, DEVICE).unwrap();
    let error = allocator.malloc(600 * MIB, stream).unwrap_err();
    assert_eq!(
        error.to_string(),
        "PrivateUse1 out of memory. Allocation was preemptively rejected because it would exceed \
         per_process_memory_fraction limit. Requested size: 600.00 MiB"
    );
    assert_eq!(device.calls().get(Call::Malloc), 0);
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.num_oom_rejections, stats.num_ooms), (1, 0));
    let ptr = allocator.malloc(100 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
}

#[test]
fn e07_a_request_above_the_reserve_fails_with_its_hint() {
    let settings =
        Settings { expandable_segments_reserve: Some(ReserveSize::Bytes(100 * MIB)), ..growable() };
    let (_device, allocator, stream) = setup::<PytorchPolicy>(settings);
    let error = allocator.malloc(200 * MIB, stream).unwrap_err();
    assert!(error.is_out_of_memory());
    let own = "A growable segment of this stream reserves 100.00 MiB of address space";
    assert!(error.to_string().contains(own), "{error}");
    let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
    let text = report.pytorch_message();
    assert!(text.contains("exceeds the expandable-segment reserve of 100.00 MiB"), "{text}");
    let ptr = allocator.malloc(90 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
}

fn callbacks_run_before_the_device_is_asked<P: Policy>() {
    let (device, allocator, stream) =
        with_policy::<P>(OpenRegConfig::default().devices(1).capacity(64 * MIB), Settings::default());
    let kept = Arc::new(std::sync::Mutex::new(Some(allocator.malloc(40 * MIB, stream).unwrap())));
    let (weak, store) = (Arc::downgrade(&allocator), Arc::clone(&kept));
    allocator.add_free_memory_callback(move || {
        let Some(ptr) = store.lock().unwrap().take() else { return false };
        weak.upgrade().is_some_and(|allocator| allocator.free(ptr).is_ok())
    });
    let before = device.calls().get(Call::Malloc);
    let ptr = allocator.malloc(40 * MIB, stream).unwrap();
    assert_eq!(device.calls().get(Call::Malloc), before, "the callback's memory served it");
    allocator.free(ptr).unwrap();
}

#[test]
fn base_allocation_and_cache_info_see_the_segment() {
    let (device, allocator, stream) = setup::<PytorchPolicy>(Settings::default());
    let first = allocator.malloc(3 * MIB, stream).unwrap();
    let second = allocator.malloc(3 * MIB, stream).unwrap();
    let base = allocator.base_allocation(second).unwrap();
    assert_eq!((base.base, base.bytes), (first, 20 * MIB));
    assert_eq!(device.pointer_info(second).unwrap().kind, PointerKind::Device);
    let info = allocator.cache_info(DEVICE).unwrap();
    assert_eq!((info.largest_cached, info.device_free), (14 * MIB, 8 * GIB - 20 * MIB));
    assert_eq!(info.largest(), 8 * GIB - 20 * MIB);
    let grown = {
        allocator.configure(growable()).unwrap();
        allocator.malloc(30 * MIB, stream).unwrap()
    };
    let refused = allocator.base_allocation(grown).unwrap_err();
    assert!(refused.to_string().contains("growable memory"), "{refused}");
    assert!(refused.pytorch_message().contains("expandable_segments:True"), "{refused}");
    for ptr in [first, second, grown] {
        allocator.free(ptr).unwrap();
    }
}

#[test]
fn s04_resets_touch_their_part_only() {
    let (_device, allocator, stream) = setup::<PytorchPolicy>(Settings::default());
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    allocator.reset_peak_stats(DEVICE).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.allocated_bytes.all.peak, stats.allocated_bytes.all.allocated), (0, 3 * 1024 * 1024));
    allocator.reset_accumulated_stats(DEVICE).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.allocated_bytes.all.allocated, stats.allocated_bytes.all.freed), (0, 0));
    assert_eq!((stats.num_device_alloc, stats.reserved_bytes.all.current), (0, 20 * 1024 * 1024));
}

fn a_buffer_frees_itself_and_can_be_given_up<P: Policy>() {
    let (_device, allocator, stream) = setup::<P>(Settings::default());
    let live = || allocator.stats(DEVICE).unwrap().allocation.all.current;
    let buffer = DeviceBuffer::new(&allocator, 10 * KIB, stream).unwrap();
    assert_eq!((live(), buffer.len(), buffer.is_empty()), (1, 10 * KIB, false));
    drop(buffer);
    assert_eq!(live(), 0);
    let references = Arc::strong_count(&allocator);
    let raw = DeviceBuffer::new(&allocator, 10 * KIB, stream).unwrap().into_raw();
    assert_eq!((live(), Arc::strong_count(&allocator)), (1, references));
    allocator.free(raw).unwrap();
    assert!(DeviceBuffer::new(&allocator, 0, stream).unwrap().is_empty());
}

fn dropping_the_allocator_gives_the_cache_back<P: Policy>() {
    let (device, allocator, stream) = setup::<P>(growable());
    let ptr = allocator.malloc(100 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    drop(allocator);
    assert_eq!(device.used(DEVICE), 0);
    assert_eq!(device.calls().get(Call::CreateEvent), device.calls().get(Call::DestroyEvent));
}

fn driver_pools_are_refused_clearly<P: Policy>() {
    let device = OpenReg::new(OpenRegConfig::default()).unwrap();
    let settings =
        Settings { backend: alloc_core::config::AllocatorBackend::DriverPools, ..Settings::default() };
    let error = CachingAllocator::<P>::new(device, settings).unwrap_err();
    assert!(error.to_string().contains("backend:native"), "{error}");
}

/// The policy is the allocator's type: settings that name another are refused, from code and from text, at first and later.
fn another_policy_than_that_of_the_type_is_refused<P: Policy>() {
    let (device, allocator, _) = setup::<P>(Settings::default());
    let of_type = |policy: &PolicyName| policy.name() == P::NAME;
    let (own, others): (Vec<_>, Vec<_>) = PolicyName::ALL.iter().copied().partition(of_type);
    for other in others {
        let read: Settings = format!("policy:{other}").parse().unwrap();
        let written = Settings { policy: Some(other), ..Settings::default() };
        for settings in [read, written] {
            let refused = [
                CachingAllocator::<P>::new(device.clone(), settings.clone()).map(drop),
                allocator.configure(settings),
            ];
            for refused in refused {
                let text = refused.unwrap_err().to_string();
                for part in
                    [format!("policy:{other}"), format!("policy:{}", P::NAME), "leave policy out".into()]
                {
                    assert!(text.contains(&part), "{text}");
                }
            }
        }
    }
    assert_eq!(allocator.settings(), Settings::default(), "nothing has changed");
    allocator.configure(Settings { policy: Some(own[0]), ..Settings::default() }).unwrap();
    assert_eq!(allocator.settings().policy_name().name(), allocator.policy_name());
}

granule_tests::for_each_policy!(
    another_policy_than_that_of_the_type_is_refused,
    a05_record_stream_delays_reuse_until_that_streams_work_is_done,
    streams_do_not_wait_for_each_other,
    pytorch_189504_pending_blocks_count_before_an_out_of_memory,
    wrong_pointers_are_typed_errors,
    foreign_streams_and_absent_devices_are_refused,
    h10_annotations_are_entries_with_text_and_go_with_the_ring,
    a_snapshot_lists_blocks_by_address_with_their_states,
    s09_a_fraction_limits_what_is_held,
    s11_rejections_come_before_the_driver_and_leave_the_rest_working,
    callbacks_run_before_the_device_is_asked,
    a_buffer_frees_itself_and_can_be_given_up,
    dropping_the_allocator_gives_the_cache_back,
    driver_pools_are_refused_clearly,
);
