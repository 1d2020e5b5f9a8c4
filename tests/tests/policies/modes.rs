//! The `granule` policy beside what knows nothing of it: the figures and texts that say where memory is.

use alloc_core::AllocError;
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::oom::OomReport;
use alloc_core::types::{DevicePtr, MIB, Stream};
use backend_openreg::Call;
use granule_tests::Allocator;
use granule_tests::policy::GranulePolicy;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::mapped;
use granule_tests::views::pieces;

/// An allocator with free memory in three pieces of 12 MiB, and a block of 36 MiB that lies in a view of them.
fn with_a_view(rig: &Rig) -> (Allocator, Vec<DevicePtr>, DevicePtr) {
    let allocator = rig.with_policy::<GranulePolicy>(Settings::default());
    let live = pieces(&allocator, rig.stream(), 3, 12);
    let used = rig.used();
    let view = allocator.malloc(36 * MIB, rig.stream()).unwrap();
    assert_eq!(rig.used(), used, "{}: it was free in pieces", rig.name);
    (allocator, live, view)
}

fn device_free(rig: &Rig) -> u64 {
    rig.backend.memory_info(DEVICE).unwrap().free
}

fn end(rig: &Rig, allocator: &Allocator, blocks: impl IntoIterator<Item = DevicePtr>) {
    blocks.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    rig.nothing_is_left(allocator);
}

fn refused(allocator: &Allocator, mib: u64, stream: Stream) -> OomReport {
    match allocator.malloc(mib * MIB, stream) {
        Err(AllocError::OutOfMemory(report)) => *report,
        other => panic!("{mib} MiB: {other:?}"),
    }
}

#[test]
fn a_refusal_says_what_is_so_where_memory_lies_in_views() {
    on_each(&mapped(84), |rig| {
        let (allocator, live, view) = with_a_view(rig);
        let stream = rig.stream();
        let report = refused(&allocator, 16, stream);
        let stats = allocator.stats(DEVICE).unwrap();
        let figure = |stat: &alloc_core::stats::StatArray| stat.all.current.unsigned_abs();
        assert_eq!(
            (report.allocated, report.reserved),
            (figure(&stats.allocated_bytes), figure(&stats.reserved_bytes))
        );
        assert_eq!((report.allocated, report.device_free), (72 * MIB, device_free(rig)));
        assert_eq!(report.shortfall(), 4 * MIB, "{}: that much less, and it would fit", rig.name);
        let text = report.to_string();
        assert!(text.contains("live memory and the request need 4.00 MiB more than can be held"), "{text}");
        // In pieces: some at home, some in the view's own granules.
        allocator.free(view).unwrap();
        let part = allocator.malloc(14 * MIB, stream).unwrap();
        let report = refused(&allocator, 40, stream);
        if report.largest_fit > 0 {
            let calls = rig.device.calls();
            let fits = allocator.malloc(report.largest_fit, stream).expect("the text says that it is free");
            assert_eq!(rig.device.calls().since(&calls).get(Call::CreatePhysical), 0, "{}", rig.name);
            allocator.free(fits).unwrap();
        }
        for blocker in &report.blockers {
            assert!(
                allocator.block_size(blocker.ptr) == Some(blocker.size),
                "{}: a live block: {blocker:?}",
                rig.name
            );
        }
        allocator.check_invariants();
        end(rig, &allocator, live.into_iter().chain([part]));
    });
}

#[test]
fn a_remedy_that_is_enough_is_enough() {
    on_each(&mapped(160), |rig| {
        let (allocator, live, view) = with_a_view(rig);
        let stream = rig.stream();
        allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(76 * MIB)), None).unwrap();
        let report = refused(&allocator, 8, stream);
        let text = report.to_string();
        assert!(
            report.remedies.iter().any(|remedy| remedy.what.starts_with("raising") && remedy.enough),
            "{text}"
        );
        assert_eq!(report.device_free, device_free(rig));
        allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(80 * MIB)), None).unwrap();
        let block = allocator.malloc(8 * MIB, stream).expect("the limit was what refused it");
        end(rig, &allocator, live.into_iter().chain([view, block]));
    });
}

#[test]
fn the_largest_cached_piece_is_there_and_a_segments_base_is_not_told_where_it_moves() {
    on_each(&mapped(160), |rig| {
        let (allocator, live, view) = with_a_view(rig);
        let stream = rig.stream();
        for ptr in [view, live[0]] {
            assert!(
                matches!(allocator.base_allocation(ptr), Err(AllocError::Growable { always: true })),
                "{}",
                rig.name
            );
        }
        assert_eq!(
            allocator.statistics().cache_info(DEVICE).unwrap().largest_cached,
            0,
            "{}: all is in use",
            rig.name
        );
        allocator.free(view).unwrap();
        let info = allocator.statistics().cache_info(DEVICE).unwrap();
        assert_eq!(info.device_free, device_free(rig));
        assert!(info.largest_cached >= 12 * MIB, "{}", rig.name);
        let used = rig.used();
        let block = allocator.malloc(info.largest_cached, stream).unwrap();
        assert_eq!(rig.used(), used, "{}: it was cached", rig.name);
        end(rig, &allocator, live.into_iter().chain([block]));
    });
}

#[test]
fn a_block_that_stays_in_the_process_says_what_would_let_it_out() {
    on_each(&mapped(160), |rig| {
        let settings = Settings { segments_ipc: false, ..Settings::default() };
        let allocator = rig.with_policy::<GranulePolicy>(settings);
        let live = pieces(&allocator, rig.stream(), 3, 12);
        let view = allocator.malloc(36 * MIB, rig.stream()).unwrap();
        for ptr in [live[0], view] {
            let text = allocator.sharing().share(ptr).unwrap_err().to_string();
            assert!(text.contains("use policy:pytorch without expandable_segments"), "{}: {text}", rig.name);
        }
        end(rig, &allocator, live.into_iter().chain([view]));
    });
}
