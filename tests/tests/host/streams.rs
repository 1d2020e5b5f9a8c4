//! Pinned blocks and streams that retire or are captured while blocks are freed.

use crate::machines::{calls, plain, slow};
use crate::watched::{over, world};
use alloc_core::backend::{Backend, CaptureMode, CaptureStatus};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::pool::Filter;
use alloc_core::snapshot::Snapshot;
use alloc_core::types::{KIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock};
use granule_tests::quiet::Retires;
use granule_tests::rig::DEVICE;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn a_block_freed_in_a_capture_of_its_stream_waits_for_what_was_queued_before() {
    let machine = slow(1000);
    let host = plain(&machine);
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let block = host.allocate(MIB).unwrap();
    assert!(host.record_event(block.ptr, block.id, stream).unwrap());
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    host.free(block.id).unwrap();
    assert_ne!(host.allocate(MIB).unwrap().ptr, block.ptr);
    let graph = capture.end(stream).unwrap();
    // Its event is recorded now, and what was queued is not done.
    assert_ne!(host.allocate(MIB).unwrap().ptr, block.ptr);
    machine.synchronize_stream(stream).unwrap();
    assert_eq!(host.allocate(MIB).unwrap().ptr, block.ptr, "no graph uses it");
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
}

#[test]
fn a_retired_stream_is_not_named_again() {
    let machine = slow(1000);
    let host = plain(&machine);
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let (freed, live) = (host.allocate(MIB).unwrap(), host.allocate(2 * MIB).unwrap());
    for block in [&freed, &live] {
        assert!(host.record_event(block.ptr, block.id, stream).unwrap());
    }
    host.free(freed.id).unwrap();
    let never_used = machine.create_stream(DEVICE, 0).unwrap();
    for stream in [stream, never_used] {
        host.retire(stream).unwrap();
        // SAFETY: rule 1: it was retired.
        unsafe { machine.destroy_stream(stream) }.unwrap();
    }
    let records = calls(&machine, Call::RecordEvent);
    host.free(live.id).unwrap();
    assert_eq!(calls(&machine, Call::RecordEvent), records, "its last work is known");
    assert_ne!(host.allocate(2 * MIB).unwrap().ptr, live.ptr, "and not done");
    assert_eq!(host.stats().granule.unrecorded_frees, 0);
    machine.advance(2000);
    assert_eq!(host.allocate(2 * MIB).unwrap().ptr, live.ptr);
    assert_eq!(host.allocate(MIB).unwrap().ptr, freed.ptr);
}

/// A free takes its block's streams with it, one after the other; who retires the last of many comes in between.
#[test]
fn a_stream_does_not_retire_under_a_free_that_names_it() {
    let (machine, driver, watch) = world(Clock::Virtual { lag: 0 });
    let host = over(&driver, &Settings::default());
    let streams: Vec<Stream> = (0..64).map(|_| machine.create_stream(DEVICE, 0).unwrap()).collect();
    let last = streams[streams.len() - 1];
    let named = || watch.recorded.lock().unwrap().iter().filter(|stream| **stream == last).count();
    for round in 0..500u32 {
        let block = host.allocate(KIB).unwrap();
        for stream in &streams {
            assert!(host.record_event(block.ptr, block.id, *stream).unwrap());
        }
        let begun = AtomicBool::new(false);
        let before = thread::scope(|scope| {
            scope.spawn(|| {
                begun.store(true, Ordering::Release);
                host.free(block.id).unwrap();
            });
            while !begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            (0..round % 50 * 40).for_each(|_| std::hint::spin_loop());
            host.retire(last).unwrap();
            named()
        });
        assert_eq!(named(), before, "round {round}: a free named a stream that had retired");
    }
}

/// A stream that cannot retire yet is as it was.
#[test]
fn a_stream_that_could_not_retire_keeps_its_pool() {
    let (machine, driver, _) = world(Clock::Virtual { lag: 0 });
    let host = over(&driver, &Settings::default());
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let pool = PoolId::fresh_for_capture();
    let used = host.allocate(KIB).unwrap();
    assert!(host.record_event(used.ptr, used.id, stream).unwrap());
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Relaxed).unwrap();
    host.begin_pool(pool, &Filter::CaptureOf(stream)).unwrap();
    host.retire(stream).unwrap_err();
    let inside = host.allocate_for(MIB, stream).unwrap();
    host.record_history(&HistoryOptions::newest(1)).unwrap();
    let mut seen = Snapshot::default();
    host.add_to_snapshot(&mut seen, false);
    let segment = seen.host_segments.iter().find(|segment| segment.address == inside.ptr.0).unwrap();
    assert_eq!(segment.pool_id, pool, "the capture goes on");
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
}

/// Giving memory back is what a capture forbids: whatever a free or the end gives back, the capture is whole.
#[test]
fn large_blocks_and_the_reserve_go_back_without_breaking_a_capture() {
    let (machine, driver, _) = world(Clock::Virtual { lag: 0 });
    let settings =
        Settings { pinned_max_cached_size: MIB, pinned_reserve_segment_size: MIB, ..Settings::default() };
    let host = over(&driver, &settings);
    let large = host.allocate(2 * MIB).unwrap();
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    host.free(large.id).unwrap();
    assert_eq!(host.stats().num_host_free(), 1);
    drop(host);
    assert_eq!(machine.calls().get(Call::HostMalloc), machine.calls().get(Call::HostFree));
    assert!(matches!(capture.status(stream).unwrap(), CaptureStatus::Active(_)), "the capture is whole");
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
}
