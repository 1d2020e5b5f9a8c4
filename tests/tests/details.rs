//! Details that the larger tests do not notice: counts, orders, leaks. Each was written because a deliberately broken
//! engine passed without it.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::snapshot::Action;
use alloc_core::types::{DeviceIndex, GIB, MIB};
use alloc_core::{AllocError, DeviceBuffer};
use backend_openreg::{Call, Clock, FaultPlan, OpenRegConfig};
use granule::history::HistoryOptions;
use granule_tests::with_policy;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const DEVICE: DeviceIndex = DeviceIndex(0);

fn one(capacity: u64) -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(capacity)
}
fn growable() -> Settings {
    Settings { expandable_segments: true, ..Settings::default() }
}

#[test]
fn c08_oversize_counts_rise_and_fall() {
    let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(one(8 * GIB), settings);
    let counts = || {
        let stats = allocator.stats(DEVICE).unwrap();
        let (a, s) = (stats.oversize_allocations, stats.oversize_segments);
        ([a.current, a.peak, a.freed], [s.current, s.peak, s.freed])
    };
    let big = allocator.malloc(100 * MIB, stream).unwrap();
    assert_eq!(counts(), ([1, 1, 0], [1, 1, 0]));
    allocator.free(big).unwrap();
    assert_eq!(counts(), ([0, 1, 1], [1, 1, 0]), "the segment stays cached");
    allocator.empty_cache().unwrap();
    assert_eq!(counts(), ([0, 1, 1], [0, 1, 1]));
    allocator.reset_peak_stats(DEVICE).unwrap();
    allocator.reset_accumulated_stats(DEVICE).unwrap();
    assert_eq!(counts(), ([0, 0, 0], [0, 0, 0]));
}

fn a_merged_block_shows_what_was_freed_last<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(one(GIB), Settings::default());
    let blocks: Vec<_> = [1000, 2000, 3000].map(|n| allocator.malloc(n, stream).unwrap()).into();
    allocator.free(blocks[0]).unwrap();
    allocator.free(blocks[1]).unwrap();
    let merged = allocator.snapshot(false).segments[0].blocks[0].clone();
    assert_eq!((merged.size, merged.requested_size), (1024 + 2048, 2000));
}

#[test]
fn a_growing_request_joins_the_mapped_block_above() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(one(GIB), growable());
    let _low = allocator.malloc(20 * MIB, stream).unwrap();
    let hole = allocator.malloc(40 * MIB, stream).unwrap();
    let above = allocator.malloc(20 * MIB, stream).unwrap();
    let _top = allocator.malloc(20 * MIB, stream).unwrap();
    allocator.free(hole).unwrap();
    allocator.empty_cache().unwrap();
    allocator.free(above).unwrap();
    assert_eq!(allocator.malloc(30 * MIB, stream).unwrap(), hole);
    allocator.check_invariants();
    assert_eq!(allocator.cache_info(DEVICE).unwrap().largest_cached, 30 * MIB);
}

fn finished_frees_complete_in_the_order_in_which_streams_were_recorded<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(one(GIB).clock(Clock::Virtual { lag: 50 }), Settings::default());
    allocator.record_history(&HistoryOptions::newest(100).deterministic());
    let sides = [0; 2].map(|_| device.create_stream(DEVICE, 0).unwrap());
    let both = allocator.malloc(40 * MIB, home).unwrap();
    let each = [0; 2].map(|_| allocator.malloc(40 * MIB, home).unwrap());
    for n in 0..2 {
        device.use_memory(sides[n], both, MIB).unwrap();
        device.use_memory(sides[n], each[n], MIB).unwrap();
        allocator.record_stream(both, sides[n]).unwrap();
        allocator.record_stream(each[n], sides[n]).unwrap();
    }
    allocator.free(both).unwrap();
    allocator.free(each[0]).unwrap();
    allocator.free(each[1]).unwrap();
    device.advance(1000);
    allocator.poll(DEVICE).unwrap();
    let entries = allocator.snapshot(true).device_traces.remove(0);
    let done: Vec<_> = entries.iter().filter(|e| e.action == Action::FreeCompleted).map(|e| e.addr).collect();
    assert_eq!(done, [each[0].0, both.0, each[1].0]);
}

fn one_event_for_each_other_stream<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(one(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, home).unwrap();
    for stream in [home, side, side, home] {
        allocator.record_stream(ptr, stream).unwrap();
    }
    allocator.free(ptr).unwrap();
    assert_eq!(device.calls().get(Call::RecordEvent), 1);
}

fn s09_a_fraction_is_rounded_to_bytes<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(one(999 * MIB), Settings::default());
    #[allow(clippy::cast_precision_loss)]
    allocator.set_memory_fraction((126 * MIB) as f64 / (999 * MIB) as f64, DEVICE).unwrap();
    allocator.malloc(126 * MIB, stream).expect("the product is a bit below 126 MiB");
}

#[test]
fn c09_only_the_old_block_is_collected_however_the_threshold_was_set() {
    for by_configure in [false, true] {
        let gc = Settings { garbage_collection_threshold: 0.5, ..Settings::default() };
        let first = if by_configure { Settings::default() } else { gc.clone() };
        let (_device, allocator, stream) = with_policy::<PytorchPolicy>(one(1000 * MIB), first);
        allocator.set_memory_fraction(0.4, DEVICE).unwrap();
        if by_configure {
            allocator.configure(gc).unwrap();
        }
        allocator.record_history(&HistoryOptions::newest(1000).deterministic());
        let old = allocator.malloc(100 * MIB, stream).unwrap();
        let busy = allocator.malloc(20 * MIB, stream).unwrap();
        let young = allocator.malloc(60 * MIB, stream).unwrap();
        allocator.free(old).unwrap();
        for _ in 0..20 {
            let ptr = allocator.malloc(100 * MIB + 1, stream);
            allocator.free(ptr.unwrap()).unwrap();
        }
        allocator.free(young).unwrap();
        let more = allocator.malloc(130 * MIB, stream).unwrap();
        let entries = allocator.snapshot(true).device_traces.remove(0);
        let gone: Vec<_> =
            entries.iter().filter(|e| e.action == Action::SegmentFree).map(|e| e.addr).collect();
        assert_eq!(gone, [old.0], "by configure: {by_configure}");
        let _ = (busy, more);
    }
}

fn h01_a_history_begun_late_says_so<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(one(GIB), Settings::default());
    allocator.malloc(1000, stream).unwrap();
    allocator.record_history(&HistoryOptions::newest(100).deterministic());
    let history = allocator.snapshot(true).history.unwrap();
    assert_eq!((history.complete, history.before_recording), (false, 1));
}

fn c07_streams_made_after_configure_follow_it<P: Policy>() {
    let (device, allocator, _) = with_policy::<P>(one(GIB), Settings::default());
    allocator.configure(growable()).unwrap();
    let side = device.create_stream(DEVICE, 0).unwrap();
    allocator.malloc(40 * MIB, side).unwrap();
    assert_eq!((device.calls().get(Call::Malloc), device.calls().get(Call::ReserveAddress)), (0, 1));
}

fn all_callbacks_run<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(one(64 * MIB), Settings::default());
    let runs = Arc::new(AtomicU32::new(0));
    for _ in 0..2 {
        let runs = Arc::clone(&runs);
        allocator.add_free_memory_callback(move || {
            runs.fetch_add(1, Ordering::SeqCst);
            true
        });
    }
    allocator.malloc(40 * MIB, stream).unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[test]
fn a_block_that_came_back_is_used_before_the_device_is_asked_again() {
    let config = one(64 * MIB).clock(Clock::Virtual { lag: 1_000_000 });
    let (device, allocator, home) = with_policy::<PytorchPolicy>(config, Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let cached = allocator.malloc(30 * MIB, side).unwrap();
    allocator.free(cached).unwrap();
    let whole = allocator.malloc(34 * MIB, home).unwrap();
    allocator.free(whole).unwrap();
    let _part = allocator.malloc(16 * MIB, home).unwrap();
    let waiting = allocator.malloc(18 * MIB, home).unwrap();
    allocator.record_stream(waiting, side).unwrap();
    device.use_memory(side, waiting, MIB).unwrap();
    allocator.free(waiting).unwrap();
    assert_eq!(allocator.malloc(18 * MIB, home).unwrap(), waiting);
}

fn s11_the_limit_itself_is_not_rejected<P: Policy>() {
    let settings = Settings { throw_on_oom: true, per_process_memory_fraction: 0.5, ..Settings::default() };
    let (_device, allocator, stream) = with_policy::<P>(one(1000 * MIB), settings);
    allocator.set_memory_fraction(1.0, DEVICE).unwrap();
    allocator.malloc(500 * MIB, stream).unwrap();
    assert!(matches!(allocator.malloc(1, stream), Err(AllocError::Rejected { .. })));
}

fn a_failed_request_leaves_nothing_counted_as_held<P: Policy>() {
    for settings in [Settings::default(), growable()] {
        let (device, allocator, stream) = with_policy::<P>(one(1000 * MIB), settings.clone());
        allocator.set_memory_fraction(0.5, DEVICE).unwrap();
        let grows = settings.expandable_segments || P::NAME == "granule";
        let call = if grows { Call::CreatePhysical } else { Call::Malloc };
        device.set_faults(FaultPlan::none().fail_nth_of(call, 1, ErrorKind::Other));
        assert!(matches!(allocator.malloc(400 * MIB, stream), Err(AllocError::Backend(_))));
        allocator.malloc(400 * MIB, stream).expect("the fraction has room for it once");
    }
}

fn memory_that_cannot_be_released_is_kept_and_released_later<P: Policy>() {
    for while_growing in [true, false] {
        let (device, allocator, stream) = with_policy::<P>(one(GIB), growable());
        let plan = FaultPlan::none().fail_all(Call::ReleasePhysical, ErrorKind::Other);
        if while_growing {
            device.set_faults(plan.fail_nth_of(Call::Map, 1, ErrorKind::Other));
            assert!(allocator.malloc(40 * MIB, stream).is_err());
        } else {
            let ptr = allocator.malloc(40 * MIB, stream).unwrap();
            allocator.free(ptr).unwrap();
            device.set_faults(plan);
            let _ = allocator.empty_cache();
        }
        assert!(device.used(DEVICE) > 0, "the driver refused");
        device.set_faults(FaultPlan::none());
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0, "while growing: {while_growing}");
    }
}

#[test]
fn emptying_gives_large_segments_back_first() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(one(GIB), Settings::default());
    allocator.record_history(&HistoryOptions::newest(100).deterministic());
    for ptr in [1000, 40 * MIB].map(|bytes| allocator.malloc(bytes, stream).unwrap()) {
        allocator.free(ptr).unwrap();
    }
    allocator.empty_cache().unwrap();
    let entries = allocator.snapshot(true).device_traces.remove(0);
    let gone: Vec<_> = entries.iter().filter(|e| e.action == Action::SegmentFree).map(|e| e.size).collect();
    assert_eq!(gone, [40 * MIB, 2 * MIB]);
}

fn emptying_waits_once_for_what_was_freed_before<P: Policy>() {
    let (device, allocator, stream) = with_policy::<P>(one(GIB), Settings::default());
    for ptr in [1000, 40 * MIB].map(|bytes| allocator.malloc(bytes, stream).unwrap()) {
        allocator.free(ptr).unwrap();
    }
    allocator.empty_cache().unwrap();
    assert_eq!(device.calls().get(Call::SynchronizeStream), 1);
}

fn s04_event_counts_are_reset<P: Policy>() {
    let settings = Settings { throw_on_oom: true, per_process_memory_fraction: 0.5, ..Settings::default() };
    let (_device, allocator, stream) = with_policy::<P>(one(64 * MIB), settings);
    allocator.set_memory_fraction(1.0, DEVICE).unwrap();
    assert!(allocator.malloc(60 * MIB, stream).is_err());
    allocator.configure(Settings::default()).unwrap();
    assert!(allocator.malloc(100 * MIB, stream).is_err());
    let counts = || {
        let s = allocator.stats(DEVICE).unwrap();
        [s.num_alloc_retries, s.num_ooms, s.num_oom_rejections, s.num_sync_all_streams]
    };
    assert!(counts().iter().all(|n| *n > 0), "{:?}", counts());
    allocator.reset_accumulated_stats(DEVICE).unwrap();
    assert_eq!(counts(), [0; 4]);
}

fn the_report_names_the_fraction_as_a_remedy<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(one(100 * MIB).clock(Clock::Virtual { lag: 1000 }), Settings::default());
    allocator.set_memory_fraction(0.6, DEVICE).unwrap();
    let _held = allocator.malloc(50 * MIB, home).unwrap();
    let error = allocator.malloc(20 * MIB, home).unwrap_err();
    let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
    assert_eq!(report.blockers, [], "nothing free lies beside it");
    let remedies: Vec<_> = report.remedies.iter().map(|r| (r.what.as_str(), r.bytes)).collect();
    assert_eq!(remedies, [("raising the memory fraction", 40 * MIB)]);
    let _ = device;
}

fn dropping_the_allocator_destroys_events_still_queued<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(one(GIB).clock(Clock::Virtual { lag: 1000 }), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, home).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    device.use_memory(side, ptr, MIB).unwrap();
    allocator.free(ptr).unwrap();
    // The wait fails, so the event is still queued when the allocator goes.
    device.set_faults(FaultPlan::none().fail_all(Call::SynchronizeEvent, ErrorKind::Other));
    drop(allocator);
    assert_eq!(device.calls().get(Call::CreateEvent), device.calls().get(Call::DestroyEvent));
}

fn events_are_reused<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(one(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    device.set_faults(FaultPlan::none().fail_nth_of(Call::RecordEvent, 1, ErrorKind::Other));
    for _ in 0..5 {
        let ptr = allocator.malloc(40 * MIB, home).unwrap();
        allocator.record_stream(ptr, side).unwrap();
        allocator.free(ptr).unwrap();
        allocator.synchronise(DEVICE).unwrap();
        let ptr = allocator.malloc(40 * MIB, home).unwrap();
        allocator.record_stream(ptr, side).unwrap();
        allocator.free(ptr).unwrap();
        allocator.poll(DEVICE).unwrap();
    }
    // The event whose record failed may be broken: it is destroyed, and one other serves all the rest.
    assert_eq!((device.calls().get(Call::CreateEvent), device.calls().get(Call::DestroyEvent)), (2, 1));
}

fn nothing_is_asked_once_nothing_is_pending<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(one(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, home).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    allocator.free(ptr).unwrap();
    allocator.poll(DEVICE).unwrap();
    device.reset_calls();
    allocator.malloc(40 * MIB, home).unwrap();
    assert_eq!(device.calls().total(), 0);
}

#[test]
fn release_enough_releases_at_least_max_split() {
    let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(one(200 * MIB), settings);
    let side = [60 * MIB, 120 * MIB].map(|n| allocator.malloc(n, stream).unwrap());
    for ptr in side {
        allocator.free(ptr).unwrap();
    }
    allocator.malloc(30 * MIB, stream).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.reserved_bytes.all.current, stats.num_alloc_retries), (150 << 20, 0));
}

fn a_buffer_waits_for_the_streams_it_was_used_on<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(one(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let buffer = DeviceBuffer::new(&allocator, MIB, home).unwrap();
    buffer.record_stream(side).unwrap();
    drop(buffer);
    assert_eq!(device.calls().get(Call::RecordEvent), 1);
}

fn figures_derived_from_statistics<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(one(GIB), Settings::default());
    allocator.malloc(15 * MIB, stream).unwrap();
    allocator.malloc(MIB, stream).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    assert!((stats.efficiency() - 16.0 / 18.0).abs() < 1e-9, "{}", stats.efficiency());
    let flat = stats.flatten();
    assert_eq!(flat["reserved_bytes.small_pool.current"], 2 << 20);
    assert_eq!(flat["reserved_bytes.large_pool.current"], 16 << 20);
    assert_eq!(flat["reserved_bytes.all.peak"], 18 << 20);
}

fn a_free_without_an_event_comes_back_at_a_synchronisation<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(one(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(40 * MIB, home).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    device.set_faults(FaultPlan::none().fail_nth_of(Call::RecordEvent, 1, ErrorKind::Other));
    allocator.free(ptr).unwrap();
    allocator.synchronise(DEVICE).unwrap();
    assert_eq!(allocator.malloc(40 * MIB, home).unwrap(), ptr);
}

fn events_stay_with_their_device<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(OpenRegConfig::default().devices(2), Settings::default());
    let other = DeviceIndex(1);
    for (home, side) in [
        (home, device.create_stream(DEVICE, 0).unwrap()),
        (device.default_stream(DEVICE), device.create_stream(other, 0).unwrap()),
    ] {
        let ptr = allocator.malloc(40 * MIB, home).unwrap();
        allocator.record_stream(ptr, side).unwrap();
        allocator.free(ptr).unwrap();
        allocator.poll(DEVICE).unwrap();
    }
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.unrecorded_frees, 0);
}

fn a_reservation_that_cannot_be_given_back_is_given_back_later<P: Policy>() {
    let (device, allocator, stream) = with_policy::<P>(one(GIB), growable());
    let ptr = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    device.set_faults(FaultPlan::none().fail_nth_of(Call::ReleaseAddress, 1, ErrorKind::Other));
    assert!(allocator.empty_cache().is_err());
    assert_eq!(allocator.malloc(40 * MIB, stream).unwrap(), ptr, "and used until then");
    assert_eq!(device.calls().get(Call::ReserveAddress), 1);
    allocator.free(ptr).unwrap();
    device.set_faults(FaultPlan::none().fail_nth_of(Call::ReleaseAddress, 1, ErrorKind::Other));
    assert!(allocator.empty_cache().is_err());
    allocator.empty_cache().unwrap();
    assert_eq!(
        device.calls().get(Call::ReleaseAddress),
        3,
        "nothing mapped, so the next flush gives it back"
    );
}

fn undoing_a_mapping_is_tried_again<P: Policy>() {
    let (device, allocator, stream) = with_policy::<P>(one(GIB), growable());
    let plan = FaultPlan::none().fail_nth_of(Call::Map, 2, ErrorKind::Other);
    device.set_faults(plan.fail_nth_of(Call::Unmap, 1, ErrorKind::Other));
    assert!(allocator.malloc(40 * MIB, stream).is_err());
    assert_eq!(device.used(DEVICE), 0, "at once, where the second try works");
    let ptr = allocator.malloc(40 * MIB, stream).expect("nothing was left mapped there");
    allocator.free(ptr).unwrap();
}

#[test]
fn segments_of_several_streams_are_listed_by_address() {
    let (device, allocator, home) = with_policy::<PytorchPolicy>(one(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    for stream in [home, side, home, side, home] {
        allocator.malloc(40 * MIB, stream).unwrap();
    }
    let at: Vec<_> = allocator.snapshot(false).segments.iter().map(|s| s.address).collect();
    assert!(at.len() == 5 && at.is_sorted(), "{at:x?}");
}

granule_tests::for_each_policy!(
    a_merged_block_shows_what_was_freed_last,
    finished_frees_complete_in_the_order_in_which_streams_were_recorded,
    one_event_for_each_other_stream,
    s09_a_fraction_is_rounded_to_bytes,
    h01_a_history_begun_late_says_so,
    c07_streams_made_after_configure_follow_it,
    all_callbacks_run,
    s11_the_limit_itself_is_not_rejected,
    a_failed_request_leaves_nothing_counted_as_held,
    memory_that_cannot_be_released_is_kept_and_released_later,
    emptying_waits_once_for_what_was_freed_before,
    s04_event_counts_are_reset,
    the_report_names_the_fraction_as_a_remedy,
    dropping_the_allocator_destroys_events_still_queued,
    events_are_reused,
    nothing_is_asked_once_nothing_is_pending,
    a_buffer_waits_for_the_streams_it_was_used_on,
    figures_derived_from_statistics,
    a_free_without_an_event_comes_back_at_a_synchronisation,
    events_stay_with_their_device,
    a_reservation_that_cannot_be_given_back_is_given_back_later,
    undoing_a_mapping_is_tried_again,
);
