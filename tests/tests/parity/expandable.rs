//! Growable segments: E01, E02 and E07 of the checklist, on each rig.

use alloc_core::AllocError;
use alloc_core::config::{ReserveSize, Settings};
use alloc_core::types::MIB;
use backend_openreg::Call;
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{growable, one};
use std::sync::{Arc, Mutex};

/// Segments as the snapshot shows them: address, mapped MiB, number of blocks.
fn shown(allocator: &Allocator) -> Vec<(u64, u64, usize)> {
    let segments = allocator.snapshot(false).segments;
    assert!(segments.iter().all(|segment| segment.is_expandable));
    segments.iter().map(|s| (s.address, s.total_size / MIB, s.blocks.len())).collect()
}

#[test]
fn e01_rising_sizes_stay_in_one_segment() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let stream = rig.stream();
        let mut base = None;
        let mut mapped = 0;
        for size in (10..200).step_by(10).map(|mebibytes| mebibytes * MIB) {
            let ptr = allocator.malloc(size, stream).unwrap();
            assert_eq!(*base.get_or_insert(ptr), ptr, "the same place, with more of it mapped");
            mapped = size.next_multiple_of(20 * MIB) / MIB;
            let with_rest = mapped * MIB > size;
            assert_eq!(shown(&allocator), [(ptr.0, mapped, 1 + usize::from(with_rest))]);
            allocator.free(ptr).unwrap();
        }
        assert_eq!(mapped, 200);
        assert_eq!(rig.device.calls().get(Call::ReserveAddress), 1);
        assert_eq!(rig.device.calls().get(Call::Malloc), 0);
        // Another size class and another stream have segments of their own.
        let small = allocator.malloc(1000, stream).unwrap();
        let other = allocator.malloc(10 * MIB, rig.new_stream()).unwrap();
        assert_eq!(rig.device.calls().get(Call::ReserveAddress), 3);
        let mut expected = [(base.unwrap().0, 200, 1), (small.0, 2, 2), (other.0, 20, 2)];
        expected.sort_unstable();
        assert_eq!(shown(&allocator), expected);
        allocator.free(small).unwrap();
        allocator.free(other).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn e01_each_mapped_range_has_an_entry() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let blocks = [40 * MIB; 5].map(|size| allocator.malloc(size, rig.stream()).unwrap());
        let base = blocks[0].0;
        assert_eq!(shown(&allocator), [(base, 200, 5)]);
        allocator.free(blocks[1]).unwrap();
        allocator.free(blocks[3]).unwrap();
        assert_eq!(shown(&allocator), [(base, 200, 5)]);
        allocator.empty_cache().unwrap();
        let at = |mebibytes: u64| base + mebibytes * MIB;
        assert_eq!(shown(&allocator), [(base, 40, 1), (at(80), 40, 1), (at(160), 40, 1)]);
        // The first hole is filled before the segment grows at its end.
        assert_eq!(allocator.malloc(30 * MIB, rig.stream()).unwrap(), blocks[1]);
        assert_eq!(shown(&allocator), [(base, 120, 4), (at(160), 40, 1)]);
        assert_eq!(rig.used(), 160 * MIB);
        allocator.check_invariants();
    });
}

#[test]
fn e02_whole_free_granules_go_and_the_range_when_all_are_free() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let stream = rig.stream();
        let [a, b, c] = [30 * MIB, 30 * MIB, 15 * MIB].map(|size| allocator.malloc(size, stream).unwrap());
        let reserved = || allocator.stats(DEVICE).unwrap().reserved_bytes.all.current;
        assert_eq!((shown(&allocator), reserved()), (vec![(a.0, 80, 4)], 80 * 1024 * 1024));
        allocator.free(b).unwrap();
        allocator.empty_cache().unwrap();
        // Of 30 to 60 MiB the granule from 40 is whole; the 5 MiB behind `c` are no whole one.
        assert_eq!(shown(&allocator), [(a.0, 40, 2), (a.0 + 60 * MIB, 20, 2)]);
        assert_eq!((reserved(), rig.used()), (60 * 1024 * 1024, 60 * MIB));
        assert_eq!(rig.device.calls().get(Call::ReleaseAddress), 0);
        allocator.free(c).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(shown(&allocator), [(a.0, 40, 2)]);
        assert_eq!(rig.device.calls().get(Call::ReleaseAddress), 0);
        allocator.free(a).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(shown(&allocator), []);
        assert_eq!((reserved(), rig.used()), (0, 0));
        assert_eq!(rig.device.calls().get(Call::ReleaseAddress), 1);
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!((stats.num_device_alloc, stats.num_device_free), (3, 3), "a block is one call each");
        assert_eq!(stats.segment.all.allocated, 0, "growable segments are not counted");
        rig.nothing_is_left(&allocator);
    });
}

/// The figures are PyTorch's own: it makes new blocks of what stays beside memory that goes, and the block that lost its memory
/// lends its own figure to what is mapped there again.
#[test]
fn e08_free_blocks_show_the_requests_that_pytorch_shows() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let stream = rig.stream();
        let sizes = [30 * MIB, 70 * MIB, 15 * MIB];
        let [_, between, _] = sizes.map(|size| allocator.malloc(size, stream).unwrap());
        allocator.free(between).unwrap();
        let requested = || {
            let segments = allocator.snapshot(false).segments;
            segments.iter().flat_map(|s| s.blocks.iter().map(|b| b.requested_size)).collect::<Vec<_>>()
        };
        assert_eq!(requested(), [30, 70, 15, 0].map(|n| n * MIB));
        allocator.empty_cache().unwrap();
        // 10 MiB before the granules that went, 15 live behind them and 5 that nobody ever had.
        assert_eq!(requested(), [30, 0, 15, 0].map(|n| n * MIB));
        let low = allocator.malloc(12 * MIB, stream).unwrap();
        assert_eq!(requested(), [30, 12, 70, 15, 0].map(|n| n * MIB));
        let high = allocator.malloc(33 * MIB, stream).unwrap();
        assert_eq!(requested(), [30, 12, 33, 0, 15, 0].map(|n| n * MIB));
        allocator.free(low).unwrap();
        allocator.free(high).unwrap();
        assert_eq!(requested(), [30, 33, 15, 0].map(|n| n * MIB));
        allocator.empty_cache().unwrap();
        assert_eq!(requested(), [30, 0, 15, 0].map(|n| n * MIB));
    });
}

#[test]
fn e07_beyond_the_reserve_is_out_of_memory_with_a_hint() {
    on_each(&one(), |rig| {
        let reserve = Some(ReserveSize::Bytes(100 * MIB));
        let allocator = rig.allocator(Settings { expandable_segments_reserve: reserve, ..growable() });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&seen);
        allocator.hooks().on_out_of_memory(move |report| {
            heard.lock().unwrap().push((report.requested, report.reserve_too_small));
        });
        let live = allocator.malloc(60 * MIB, rig.stream()).unwrap();
        let error = allocator.malloc(100 * MIB + 1, rig.stream()).unwrap_err();
        let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
        assert_eq!(report.reserve_too_small, Some(100 * MIB));
        let text = report.pytorch_message();
        let hint = "This allocation exceeds the expandable-segment reserve of 100.00 MiB";
        assert!(text.contains(hint) && text.contains("expandable_segments_reserve"), "{text}");
        assert_eq!(*seen.lock().unwrap(), [(100 * MIB + 1, Some(100 * MIB))]);
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!((stats.num_ooms, stats.num_alloc_retries), (1, 1));
        // Up to the reserve there is a second segment; memory on the device is no matter here.
        let full = allocator.malloc(100 * MIB, rig.stream()).unwrap();
        assert_eq!(rig.used(), 160 * MIB);
        allocator.free(live).unwrap();
        allocator.free(full).unwrap();
        rig.nothing_is_left(&allocator);
    });
}
