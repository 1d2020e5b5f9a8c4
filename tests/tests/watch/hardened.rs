//! Hardened mode: writes out of bounds and after a free are reported, and nothing else changes.

use alloc_core::backend::{Backend, CaptureMode, CopyKind, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::hardened::{Corruption, HardenedStats};
use alloc_core::history::HistoryOptions;
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::pool::Filter;
use alloc_core::snapshot::Action;
use alloc_core::types::{DevicePtr, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, FaultPlan, MemoryMode};
use granule_tests::Allocator;
use granule_tests::bytes::first_other;
use granule_tests::hardened::{hardened, reports};
use granule_tests::quiet::Retires;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::mapped;

pub(crate) fn growable() -> Settings {
    Settings { expandable_segments: true, ..hardened() }
}

pub(crate) fn holding(bytes: u64) -> Settings {
    Settings { hardened_quarantine: bytes, ..hardened() }
}

pub(crate) fn stats(allocator: &Allocator) -> HardenedStats {
    allocator.statistics().hardened(DEVICE).unwrap()
}

/// Writes on the device, whosever memory it is.
pub(crate) fn write(rig: &Rig, stream: Stream, ptr: DevicePtr, value: u8, bytes: u64) {
    // SAFETY: rule 2 is what these tests break on purpose, within memory that the engine holds.
    unsafe { rig.backend.memset_async(ptr, value, bytes, stream) }.unwrap();
}

/// What the device has at `ptr`.
fn read(rig: &Rig, ptr: DevicePtr, bytes: usize) -> Vec<u8> {
    let mut found = vec![0; bytes];
    let host = DevicePtr(found.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: memory that the engine holds, and a buffer of this length.
    unsafe { rig.backend.copy(host, ptr, bytes as u64, CopyKind::DeviceToHost) }.unwrap();
    found
}

/// Nothing was found, nothing was overlooked, and everything is given back.
pub(crate) fn all_is_well(rig: &Rig, allocator: &Allocator, frees: u64) {
    rig.nothing_is_left(allocator);
    assert_eq!(stats(allocator), HardenedStats { checked: frees, ..HardenedStats::default() });
}

fn a_well_behaved_program_is_not_accused<P: Policy>() {
    for settings in [hardened(), growable(), holding(0), holding(4096), holding(u64::MAX)] {
        on_each(&mapped(64), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let other = rig.new_stream();
            let mut live: Vec<(DevicePtr, u64, u8)> = Vec::new();
            let mut frees = 0;
            for step in 0..200_u64 {
                let bytes = 1 + step * 7919 % 9000 + if step % 17 == 0 { 2 * MIB } else { 0 };
                let ptr = allocator.malloc(bytes, rig.stream()).unwrap();
                write(rig, rig.stream(), ptr, step as u8, bytes);
                live.push((ptr, bytes, step as u8));
                if live.len() > 6 {
                    let (ptr, bytes, value) = live.remove((step % 6) as usize);
                    assert!(first_other(&read(rig, ptr, bytes as usize), value).is_none(), "its own bytes");
                    if step % 3 == 0 {
                        allocator.record_stream(ptr, other).unwrap();
                        write(rig, other, ptr, 0, bytes);
                    }
                    allocator.free(ptr).unwrap();
                    frees += 1;
                }
            }
            frees += live.len() as u64;
            live.into_iter().for_each(|(ptr, ..)| allocator.free(ptr).unwrap());
            all_is_well(rig, &allocator, frees);
        });
    }
}

fn a_write_past_the_end_is_reported<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let reports = reports(&allocator);
        allocator.history().record(&HistoryOptions::newest(100).deterministic());
        let sizes = [1, 496, 497, 511, 512, 513, 5000, MIB, 2 * MIB, 3 * MIB + 7];
        for (found, requested) in (1..).zip(sizes) {
            let ptr = allocator.malloc(requested, rig.stream()).unwrap();
            assert!(allocator.block_size(ptr).unwrap() >= requested + 16, "room for a canary");
            write(rig, rig.stream(), ptr, 1, requested + 3);
            allocator.free(ptr).unwrap();
            assert_eq!(reports.lock().unwrap().len(), 0, "it is in quarantine");
            allocator.synchronise(DEVICE).unwrap();
            let report = reports.lock().unwrap().pop().expect("a report");
            assert_eq!((report.corruption, report.device), (Corruption::Overflow, DEVICE));
            assert_eq!((report.ptr, report.requested), (ptr, requested));
            assert_eq!((report.at, report.bytes, report.found), (ptr.add(requested), 3, 1));
            let last = report.history.last().unwrap();
            assert_eq!((last.action, last.size), (Action::FreeRequested, requested), "{report}");
            let text = format!(
                "memory corruption on device 0: 3 bytes written past the end of a block, {ptr} of {requested} bytes; \
                 the first at {} (offset {requested}) is now 0x01",
                ptr.add(requested)
            );
            assert!(report.to_string().starts_with(&text), "{report}");
            assert_eq!(stats(&allocator).corruptions, found);
        }
        assert!(reports.lock().unwrap().is_empty(), "one report for each");
        rig.nothing_is_left(&allocator);
    });
}

fn a_write_to_the_last_byte_of_a_canary_is_reported<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let reports = reports(&allocator);
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        assert_eq!(allocator.block_size(ptr), Some(1024));
        write(rig, rig.stream(), ptr.add(1023), 9, 1);
        allocator.free(ptr).unwrap();
        allocator.empty_cache().unwrap();
        let report = reports.lock().unwrap().pop().unwrap();
        assert_eq!((report.corruption, report.at, report.bytes), (Corruption::Overflow, ptr.add(1023), 1));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_write_after_the_free_is_reported() {
    // Only this one: with the `granule` policy large blocks lose their access, and the machine refuses the write.
    type P = PytorchPolicy;
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let reports = reports(&allocator);
        for (requested, offset, bytes) in
            [(1, 0, 1), (700, 100, 3), (2 * MIB, 2 * MIB - 1, 1), (2 * MIB, 0, MIB)]
        {
            let ptr = allocator.malloc(requested, rig.stream()).unwrap();
            allocator.free(ptr).unwrap();
            write(rig, rig.stream(), ptr.add(offset), 7, bytes);
            allocator.synchronise(DEVICE).unwrap();
            let report = reports.lock().unwrap().pop().expect("a report");
            assert_eq!((report.corruption, report.ptr), (Corruption::UseAfterFree, ptr));
            assert_eq!((report.at, report.bytes, report.found), (ptr.add(offset), bytes, 7));
            assert!(report.to_string().contains("written to a block after its free"), "{report}");
            assert!(reports.lock().unwrap().is_empty(), "one report for each");
        }
        rig.nothing_is_left(&allocator);
    });
}

fn a_freed_block_is_poisoned_after_the_work_of_every_stream_that_uses_it<P: Policy>() {
    on_each(&mapped(64).clock(Clock::Workers), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let ptr = allocator.malloc(100, rig.stream()).unwrap();
        let other = rig.new_stream();
        let gate = rig.hold(other);
        write(rig, other, ptr, 1, 100);
        allocator.record_stream(ptr, other).unwrap();
        allocator.free(ptr).unwrap();
        assert_ne!(allocator.malloc(100, rig.stream()).unwrap(), ptr, "the free did not wait");
        gate.open();
        rig.backend.synchronize_stream(rig.stream()).unwrap();
        let found = read(rig, ptr, 100);
        assert!(found.iter().all(|byte| *byte == found[0] && *byte != 1), "the poison came last: {found:?}");
        assert_eq!(stats(&allocator).corruptions, 0);
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(stats(&allocator), HardenedStats { checked: 1, ..HardenedStats::default() });
    });
}

fn during_a_capture_nothing_is_waited_for_and_graphs_are_left_alone<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(holding(1024));
        let [early, later] = [0; 2].map(|_| allocator.malloc(1000, rig.stream()).unwrap());
        let stream = rig.new_stream();
        let pool = PoolId(1, 0);
        let capture = rig.backend.capture().unwrap();
        allocator.pools().begin(DEVICE, pool, Filter::Stream(stream)).unwrap();
        allocator.pools().mark_capture_begin(DEVICE).unwrap();
        capture.begin(stream, CaptureMode::Global).unwrap();
        let of_graph = allocator.malloc(1000, stream).unwrap();
        write(rig, stream, of_graph, 3, 1000);
        rig.device.reset_calls();
        allocator.free(of_graph).unwrap();
        allocator.free(early).unwrap();
        allocator.free(later).unwrap();
        let calls = rig.device.calls();
        for waiting in [Call::Copy, Call::SynchronizeEvent, Call::SynchronizeStream, Call::SynchronizeDevice]
        {
            assert_eq!(calls.get(waiting), 0, "{waiting}");
        }
        assert_eq!(
            (stats(&allocator).quarantined, stats(&allocator).unchecked),
            (2, 1),
            "the graph's is not held back"
        );
        let graph = capture.end(stream).unwrap();
        allocator.pools().mark_capture_end(DEVICE).unwrap();
        allocator.pools().end(DEVICE, pool).unwrap();
        // The graph's block may be the pool's next, and a replay writes to it: both are right.
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        assert_eq!(
            (stats(&allocator).quarantined, stats(&allocator).checked),
            (1, 2),
            "the bound holds again"
        );
        // SAFETY: rule 2: the pool keeps the graph's memory.
        unsafe { capture.launch(graph, stream) }.unwrap();
        rig.backend.synchronize_stream(stream).unwrap();
        // SAFETY: rule 1: not used again.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        allocator.pools().release(DEVICE, pool).unwrap();
        rig.nothing_is_left(&allocator);
        assert_eq!(stats(&allocator).corruptions, 0);
    });
}

fn the_mode_can_be_switched_at_any_time<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let reports = reports(&allocator);
        let before = allocator.malloc(100, rig.stream()).unwrap();
        write(rig, rig.stream(), before, 1, 512);
        allocator.configure(hardened()).unwrap();
        let [during, kept] = [0; 2].map(|_| allocator.malloc(100, rig.stream()).unwrap());
        allocator.free(before).unwrap();
        allocator.free(during).unwrap();
        assert_eq!(stats(&allocator).quarantined, 2);
        write(rig, rig.stream(), during, 1, 1);
        allocator.configure(Settings::default()).unwrap();
        assert_eq!(stats(&allocator).quarantined, 0, "nothing is held back any more");
        assert_eq!(reports.lock().unwrap().len(), 1);
        assert_eq!(reports.lock().unwrap()[0].ptr, during, "a block without a canary is not accused");
        // Without the mode, what lies behind the request is the program's.
        write(rig, rig.stream(), kept, 1, 512);
        allocator.free(kept).unwrap();
        let again = allocator.malloc(500, rig.stream()).unwrap();
        allocator.configure(hardened()).unwrap();
        write(rig, rig.stream(), again, 1, 512);
        allocator.free(again).unwrap();
        rig.nothing_is_left(&allocator);
        assert_eq!(reports.lock().unwrap().len(), 1);
    });
}

fn a_retired_streams_blocks_go_unchecked_and_come_back<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let stream = rig.new_stream();
        let [held, live] = [0; 2].map(|_| allocator.malloc(1000, stream).unwrap());
        allocator.free(held).unwrap();
        allocator.retire(stream).unwrap();
        // SAFETY: rule 1: retired, and not used again.
        unsafe { rig.backend.destroy_stream(stream) }.unwrap();
        allocator.free(live).unwrap();
        assert_eq!((stats(&allocator).quarantined, stats(&allocator).unchecked), (1, 1));
        rig.nothing_is_left(&allocator);
        assert_eq!((stats(&allocator).checked, stats(&allocator).corruptions), (1, 0));
    });
}

fn memory_without_bytes_is_neither_accused_nor_acquitted<P: Policy>() {
    for (mode, checked) in [(MemoryMode::Mapped, 3), (MemoryMode::Reserved, 0)] {
        on_each(&mapped(64).memory(mode), |rig| {
            let allocator = rig.with_policy::<P>(growable());
            for bytes in [1, 5000, 4 * MIB] {
                let ptr = allocator.malloc(bytes, rig.stream()).unwrap();
                allocator.free(ptr).unwrap();
            }
            rig.nothing_is_left(&allocator);
            let HardenedStats { checked: done, unchecked, corruptions, .. } = stats(&allocator);
            assert_eq!((done, unchecked, corruptions), (checked, 3 - checked, 0), "{mode:?}");
        });
    }
}

/// Whatever call fails: no block is lost, none is accused, and none is handed out without access.
fn driver_errors_cost_a_check_at_most<P: Policy>() {
    for settings in [growable(), holding(1024)] {
        on_each(&mapped(64), |rig| {
            let machine_stream = Stream { backend: rig.device.id(), ..rig.stream() };
            let mut k = 1;
            loop {
                let allocator = rig.with_policy::<P>(settings.clone());
                let other = rig.new_stream();
                let warm = allocator.malloc(2 * MIB, rig.stream()).unwrap();
                allocator.record_stream(warm, other).unwrap();
                rig.device.reset_calls();
                rig.device.set_faults(FaultPlan::none().fail_nth(k, ErrorKind::Other));
                let mut live = Vec::new();
                allocator.free(warm).unwrap();
                for bytes in [2 * MIB, 700, 700] {
                    let answer = allocator.malloc(bytes, rig.stream());
                    live.extend(answer.as_ref().ok().map(|ptr| (*ptr, bytes)));
                    if live.len() == 2 {
                        allocator.free(live.remove(0).0).unwrap();
                    }
                }
                let _ = allocator.synchronise(DEVICE);
                let made = rig.device.calls().total();
                rig.device.set_faults(FaultPlan::none());
                for _ in 0..3 {
                    let ptr = allocator.malloc(2 * MIB, rig.stream()).unwrap();
                    live.push((ptr, 2 * MIB));
                }
                for (ptr, bytes) in live {
                    rig.device.use_memory(machine_stream, ptr, bytes).unwrap();
                    allocator.free(ptr).unwrap();
                }
                rig.nothing_is_left(&allocator);
                assert_eq!(stats(&allocator).corruptions, 0, "call {k}");
                assert_eq!(stats(&allocator).quarantined, 0, "call {k}");
                if made < k {
                    assert!(k > 20, "the story makes calls: {k}");
                    break;
                }
                k += 1;
            }
        });
    }
}

fn several_threads_may_use_it<P: Policy>() {
    on_each(&mapped(64).clock(Clock::Workers), |rig| {
        let allocator = rig.with_policy::<P>(holding(MIB));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (allocator, rig) = (&allocator, &rig);
                scope.spawn(move || {
                    let stream = rig.new_stream();
                    for step in 0..60 {
                        let bytes = 1 + (thread * 977 + step * 131) % 70_000;
                        let ptr = allocator.malloc(bytes, stream).unwrap();
                        write(rig, stream, ptr, step as u8, bytes);
                        allocator.free(ptr).unwrap();
                    }
                });
            }
        });
        all_is_well(rig, &allocator, 240);
    });
}

granule_tests::for_each_policy!(
    a_well_behaved_program_is_not_accused,
    a_write_past_the_end_is_reported,
    a_write_to_the_last_byte_of_a_canary_is_reported,
    a_freed_block_is_poisoned_after_the_work_of_every_stream_that_uses_it,
    during_a_capture_nothing_is_waited_for_and_graphs_are_left_alone,
    the_mode_can_be_switched_at_any_time,
    a_retired_streams_blocks_go_unchecked_and_come_back,
    memory_without_bytes_is_neither_accused_nor_acquitted,
    driver_errors_cost_a_check_at_most,
    several_threads_may_use_it,
);
