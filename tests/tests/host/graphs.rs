//! Pinned host memory in graph captures.

use crate::machines::idle;
use alloc_core::backend::{Backend, CaptureMode, CaptureStatus, CopyKind, ErrorKind, Result};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::host::{HostAllocator, HostBlock, HostOptions};
use alloc_core::pool::Filter;
use alloc_core::snapshot::Snapshot;
use alloc_core::types::{DevicePtr, KIB, MIB, PoolId};
use alloc_core::{AllocError, CachingAllocator};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::pinned::{host, machine, working};
use granule_tests::rig::{DEVICE, on_each};
use std::sync::{Arc, Mutex};

/// Under the strictest mode, so that one wrong call would break the capture.
#[test]
fn n08_blocks_used_in_a_capture_are_never_handed_out_again_and_unused_ones_are() {
    on_each(&working(), |rig| {
        let (devices, host) = (rig.allocator(Settings::default()), host(rig, &Settings::default()));
        let (stream, other) = (rig.new_stream(), rig.new_stream());
        let device = devices.malloc(MIB, stream).unwrap();
        // Something that waits, for requests to ask about.
        let gate = rig.hold(other);
        let waits = host.allocate(8 * MIB).unwrap();
        assert!(host.record_event(waits.ptr, waits.id, other).unwrap());
        host.free(waits.id).unwrap();
        let before = host.allocate(4 * MIB).unwrap();

        let capture = rig.backend.capture().unwrap();
        capture.begin(stream, CaptureMode::Global).unwrap();
        let used = host.allocate_for(MIB, stream).unwrap();
        let elsewhere = host.allocate_for(MIB, stream).unwrap();
        let unused = host.allocate_for(2 * MIB, stream).unwrap();
        for block in [&used, &before] {
            // SAFETY: rule 2: the blocks are never given back, as this test shows, and the graph is destroyed before
            // their allocator is.
            unsafe { host.copy_async(device, block.ptr, MIB, CopyKind::HostToDevice, stream) }.unwrap();
        }
        assert!(host.record_event(elsewhere.ptr, elsewhere.id, other).unwrap());
        [used, elsewhere, unused, before].into_iter().for_each(|block| host.free(block.id).unwrap());
        host.empty_cache().unwrap();
        let status = capture.status(stream).unwrap();
        assert!(matches!(status, CaptureStatus::Active(_)), "{}: the capture is whole: {status:?}", rig.name);
        let graph = capture.end(stream).unwrap();
        assert_eq!(host.stats().granule.kept_bytes, 6 * MIB as i64, "{}", rig.name);
        gate.open();

        // SAFETY: rule 2: the device's block is live, and so are those that the graph reads.
        unsafe { capture.launch(graph, stream) }.unwrap();
        rig.backend.synchronize_device(DEVICE).unwrap();
        host.poll().unwrap();
        host.empty_cache().unwrap();
        let again: Vec<DevicePtr> = [MIB, MIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB]
            .map(|bytes| host.allocate(bytes).unwrap().ptr)
            .into_iter()
            .collect();
        for kept in [used, elsewhere, before] {
            assert!(!again.contains(&kept.ptr), "{}: a graph may read it", rig.name);
        }
        // SAFETY: as above, once more: what the graph reads is still pinned.
        unsafe { capture.launch(graph, stream) }.unwrap();
        rig.backend.synchronize_device(DEVICE).unwrap();
        assert_eq!(rig.device.traps(), Vec::new());
        assert_eq!(host.stats().active_requests.current, 6 + 3);
        // SAFETY: rule 1: no launch is queued any more.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        devices.free(device).unwrap();
    });
}

#[test]
fn n08_an_unused_block_of_a_capture_serves_the_next_request() {
    on_each(&machine(), |rig| {
        let host = host(rig, &Settings::default());
        let stream = rig.new_stream();
        let capture = rig.backend.capture().unwrap();
        capture.begin(stream, CaptureMode::Global).unwrap();
        let unused = host.allocate_for(MIB, stream).unwrap();
        host.free(unused.id).unwrap();
        let again = host.allocate_for(MIB, stream).unwrap();
        assert_eq!(again.ptr, unused.ptr);
        host.free(again.id).unwrap();
        let graph = capture.end(stream).unwrap();
        // The capture is over, and so is its claim: used from here on, the block waits and comes back.
        let after = host.allocate_for(MIB, stream).unwrap();
        assert_eq!(after.ptr, unused.ptr);
        assert!(host.record_event(after.ptr, after.id, stream).unwrap());
        host.free(after.id).unwrap();
        assert_eq!(host.allocate_for(MIB, stream).unwrap().ptr, unused.ptr);
        // SAFETY: rule 1: it was never launched.
        unsafe { capture.destroy_graph(graph) }.unwrap();
    });
}

#[test]
fn n08_a_copy_from_memory_that_is_not_pinned_is_refused_in_a_capture() {
    on_each(&machine(), |rig| {
        let (devices, host) = (rig.allocator(Settings::default()), host(rig, &Settings::default()));
        let stream = rig.new_stream();
        let device = devices.malloc(KIB, stream).unwrap();
        let mut pageable = vec![3u8; KIB as usize];
        let at = DevicePtr(pageable.as_mut_ptr().expose_provenance() as u64);
        let copy = |to, from, kind| {
            // SAFETY: rule 2: the stream is waited for, or nothing is queued.
            unsafe { host.copy_async(to, from, KIB, kind, stream) }
        };
        copy(device, at, CopyKind::HostToDevice).unwrap();
        rig.backend.synchronize_stream(stream).unwrap();
        let capture = rig.backend.capture().unwrap();
        capture.begin(stream, CaptureMode::Global).unwrap();
        for (to, from, kind) in [(device, at, CopyKind::HostToDevice), (at, device, CopyKind::DeviceToHost)] {
            let AllocError::Backend(refused) = copy(to, from, kind).unwrap_err() else {
                panic!("the wrong kind")
            };
            assert_eq!(refused.kind, ErrorKind::CaptureViolation);
            assert!(refused.detail.contains("not pinned"), "{refused}");
        }
        assert!(matches!(capture.status(stream).unwrap(), CaptureStatus::Active(_)), "{}", rig.name);
        let graph = capture.end(stream).unwrap();
        // SAFETY: rule 1: it was never launched.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        devices.free(device).unwrap();
    });
}

#[test]
fn n08_a_captures_pool_serves_its_requests_alone_and_its_memory_goes_after_its_release() {
    on_each(&machine(), |rig| {
        let host = host(rig, &Settings::default());
        let (stream, other) = (rig.new_stream(), rig.new_stream());
        let (pool, late) = (PoolId::fresh_for_capture(), PoolId::fresh_for_capture());
        host.begin_pool(pool, &Filter::CaptureOf(stream)).unwrap();
        host.begin_pool(late, &Filter::CaptureOf(stream)).unwrap();
        let twice = host.begin_pool(pool, &Filter::Always).unwrap_err();
        assert!(
            twice.to_string().contains("beginAllocateToPool: already recording to mempool_id"),
            "{twice}"
        );
        let before = host.allocate_for(MIB, stream).unwrap();
        let capture = rig.backend.capture().unwrap();
        capture.begin(stream, CaptureMode::Global).unwrap();
        let inside = host.allocate_for(MIB, stream).unwrap();
        let outside = host.allocate_for(MIB, other).unwrap();
        let plain = host.allocate(MIB).unwrap();
        let graph = capture.end(stream).unwrap();
        // SAFETY: rule 1: it was never launched.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        [pool, late].into_iter().for_each(|pool| host.end_pool(pool).unwrap());
        assert!(
            host.end_pool(pool).unwrap_err().to_string().contains("not currently recording to mempool_id")
        );
        [before, inside, outside, plain].into_iter().for_each(|block| host.free(block.id).unwrap());
        host.record_history(&HistoryOptions::newest(1)).unwrap();
        let mut seen = Snapshot::default();
        host.add_to_snapshot(&mut seen, false);
        let pool_of = |block: &HostBlock| {
            seen.host_segments.iter().find(|segment| segment.address == block.ptr.0).unwrap().pool_id
        };
        assert_eq!(
            [&before, &inside, &outside, &plain].map(pool_of),
            [PoolId::DEFAULT, pool, PoolId::DEFAULT, PoolId::DEFAULT],
            "{}: of two scopes the oldest counts",
            rig.name
        );
        // In use, it keeps what it has; its cache is its own.
        host.empty_cache().unwrap();
        assert_eq!(host.stats().allocations.current, 1);
        assert_ne!(host.allocate(MIB).unwrap().ptr, inside.ptr);
        host.release_pool(pool).unwrap();
        assert!(matches!(host.release_pool(pool).unwrap_err(), AllocError::DeadPool { .. }));
        let figures = host.stats().active_bytes;
        host.empty_cache().unwrap();
        assert_eq!(host.stats().allocations.current, 1);
        assert_eq!(host.stats().active_bytes, figures, "its figures are the default pool's now");
        assert!(matches!(host.release_pool(pool).unwrap_err(), AllocError::UnknownPool { .. }));
    });
}

/// Notes which calls ask about captures, or allow what they forbid.
#[derive(Debug, Default, Clone)]
struct Asked(Arc<Mutex<Vec<&'static str>>>);

impl Hook for Asked {
    fn enter(&self, method: &'static str) -> Result<()> {
        if method.starts_with("Capture::") {
            self.0.lock().unwrap().push(method);
        }
        Ok(())
    }
}

#[test]
fn requests_of_who_tells_of_captures_ask_about_them_only_while_there_is_one() {
    let (machine, asked) = (idle(), Asked::default());
    let driver: Arc<dyn Backend> = Arc::new(Interposed::new(machine.clone(), asked.clone()));
    let devices = CachingAllocator::new(Arc::clone(&driver), Settings::default()).unwrap();
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let used = |captures_are_told| {
        let options = HostOptions { captures_are_told, ..HostOptions::default() };
        let host = HostAllocator::new(Arc::clone(&driver), &Settings::default(), options).unwrap();
        let once = || {
            asked.0.lock().unwrap().clear();
            let block = host.allocate_for(MIB, stream).unwrap();
            assert!(host.record_event(block.ptr, block.id, stream).unwrap());
            host.free(block.id).unwrap();
            (block.ptr, asked.0.lock().unwrap().len())
        };
        let capture = machine.capture().unwrap();
        // Libraries capture without a word, too.
        for is_marked in [true, false] {
            let again = once().0;
            if is_marked {
                devices.pools().mark_capture_begin(DEVICE).unwrap();
            }
            capture.begin(stream, CaptureMode::Global).unwrap();
            let captured = once().0;
            let graph = capture.end(stream).unwrap();
            if is_marked {
                devices.pools().mark_capture_end(DEVICE).unwrap();
            }
            assert_eq!(captured, again);
            assert_ne!(once().0, captured, "a graph may use it");
            // SAFETY: rule 1: it was never launched.
            unsafe { capture.destroy_graph(graph) }.unwrap();
        }
        // What waits for the stream is noticed.
        host.poll().unwrap();
        asked.0.lock().unwrap().clear();
        let block = host.allocate_for(MIB, stream).unwrap();
        host.free(block.id).unwrap();
        let calls = asked.0.lock().unwrap();
        calls.len()
    };
    let (told, untold) = (used(true), used(false));
    assert!(told == 0 && untold > 0, "{told} {untold}");
}
