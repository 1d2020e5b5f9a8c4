//! What a compaction gives, what becomes of the memory that it leaves, and what is counted.

use crate::programs::{BLOCK, Sparse, compact};
use alloc_core::config::Settings;
use alloc_core::policy::GranulePolicy;
use alloc_core::types::{DevicePtr, MIB};
use backend_openreg::{Call, OpenReg};
use granule_conformance::interpose::Interposed;
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::mapped;
use granule_tests::views::{Aliases, Numbers};
use std::sync::Arc;

/// New memory was mapped in two places for a moment (found by a night, seed 54).
#[test]
fn memory_is_compacted_where_none_is_mapped_twice() {
    let device = OpenReg::new(mapped(1000)).unwrap();
    let backend = Arc::new(Interposed::new(device.clone(), Aliases::default()));
    let rig = Rig { name: "no aliases", device, backend: backend.clone() };
    let program = Sparse::new(&rig, Settings::default());
    // From the beginning, it would have small granules, of which nothing is gained.
    backend.hook().refuse();
    assert!(compact(&program.allocator).unwrap().gained > 0);
    program.check(&rig, "on a device without aliases");
    program.end(&rig);
}

#[test]
fn what_is_free_between_live_blocks_goes_back_and_they_stay_as_they_are() {
    on_each(&mapped(1000), |rig| {
        let program = Sparse::new(rig, Settings::default());
        program.allocator.empty_cache().unwrap();
        let (before, addresses) = (rig.used(), program.live.clone());
        let report = compact(&program.allocator).unwrap();
        program.check(rig, "after a compaction");
        assert_eq!(program.live, addresses);
        assert_eq!(before - rig.used(), report.gained, "{}: that much is back: {report:?}", rig.name);
        // Each block of 3 MiB needs two units of 2 MiB at most three.
        let least = 128 * MIB + 8 * 4 * MIB;
        assert!((least..=least + 8 * 2 * MIB).contains(&rig.used()), "{}: {}", rig.name, rig.used());
        assert!(report.moved >= 8 * BLOCK && report.moved <= 8 * 6 * MIB, "{report:?}");
        let stats = program.allocator.stats(DEVICE).unwrap();
        assert_eq!(
            stats.reserved_bytes.all.current.unsigned_abs(),
            rig.used(),
            "{}: it is not reserved",
            rig.name
        );
        let counted = stats.granule;
        assert_eq!(counted.compactions, 1);
        assert_eq!(counted.compaction_bytes_gained.unsigned_abs(), report.gained);
        assert_eq!(counted.compaction_bytes_moved.unsigned_abs(), report.moved);
        assert_eq!(u128::from(counted.compaction_pause_ns.unsigned_abs()), report.pause.as_nanos());
        program.end(rig);
    });
}

/// The third piece of a granule was copied to where another's bytes were (planted from outside).
#[test]
fn many_pieces_of_several_sizes_stay_of_one_granule() {
    let rig = Rig::openreg(mapped(1000));
    let (allocator, stream) = (rig.with_policy::<GranulePolicy>(Settings::default()), rig.stream());
    let large = allocator.malloc(128 * MIB, stream).unwrap();
    // Of 16 MiB, 4, 2 and 2 stay, and 8 are free between them.
    let sizes = [4, 2, 2, 4, 2, 2].map(|mib| mib * MIB).repeat(4);
    let blocks: Vec<_> =
        sizes.iter().map(|bytes| (allocator.malloc(*bytes, stream).unwrap(), *bytes)).collect();
    let (live, free): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(n, _)| n % 2 == 0);
    for (n, (ptr, bytes)) in &live {
        Bytes(&*rig.backend).write(*ptr, &pattern(*n, *bytes));
    }
    free.into_iter().for_each(|(_, (ptr, _))| allocator.free(ptr).unwrap());
    let report = compact(&allocator).unwrap();
    assert!(report.gained >= 16 * MIB, "{report:?}");
    for (n, (ptr, bytes)) in live {
        assert!(Bytes(&*rig.backend).read(ptr, bytes) == pattern(n, bytes), "block {n} has its contents");
        allocator.free(ptr).unwrap();
    }
    allocator.free(large).unwrap();
    rig.nothing_is_left(&allocator);
}

#[test]
fn a_second_compaction_moves_nothing() {
    on_each(&mapped(1000), |rig| {
        let program = Sparse::new(rig, Settings::default());
        assert!(compact(&program.allocator).unwrap().gained > 0);
        let (used, made) = (rig.used(), rig.device.calls().get(Call::CreatePhysical));
        assert_eq!(compact(&program.allocator).unwrap().gained, 0, "{}", rig.name);
        assert_eq!((rig.used(), rig.device.calls().get(Call::CreatePhysical)), (used, made), "{}", rig.name);
        assert_eq!(program.allocator.stats(DEVICE).unwrap().granule.compactions, 1);
        program.end(rig);
    });
}

/// What is left of a granule is memory like any other: it serves, it can shrink again, and goes with its last block.
#[test]
fn what_is_left_serves_shrinks_again_and_goes() {
    on_each(&mapped(1000), |rig| {
        let mut program = Sparse::new(rig, Settings::default());
        compact(&program.allocator).unwrap();
        let used = rig.used();
        // The rest of the unit beside each block.
        let small: Vec<DevicePtr> = (0..4)
            .map(|_| {
                let ptr = program.allocator.malloc(MIB + 512, program.stream);
                ptr.unwrap()
            })
            .collect();
        for (n, ptr) in (100..).zip(&small) {
            Bytes(&*rig.backend).write(*ptr, &pattern(n, MIB + 512));
        }
        program.check(rig, "beside other blocks");
        for ptr in small {
            program.allocator.free(ptr).unwrap();
        }
        let half = program.live.split_off(4);
        half.into_iter().for_each(|ptr| program.allocator.free(ptr).unwrap());
        let report = compact(&program.allocator).unwrap();
        program.check(rig, "after a second compaction");
        assert!(rig.used() + 4 * 4 * MIB <= used, "{}: what four blocks had is back: {report:?}", rig.name);
        let first = program.live.remove(0);
        program.allocator.free(first).unwrap();
        program.allocator.empty_cache().unwrap();
        program.live.insert(0, program.allocator.malloc(BLOCK, program.stream).unwrap());
        Bytes(&*rig.backend).write(program.live[0], &pattern(0, BLOCK));
        program.check(rig, "with a new block");
        program.end(rig);
    });
}

/// Views show what is left of granules, too.
#[test]
fn all_that_came_back_serves() {
    on_each(&mapped(300), |rig| {
        let program = Sparse::new(rig, Settings::default());
        compact(&program.allocator).unwrap();
        let left = 300 * MIB - rig.used();
        let mut taken = Vec::new();
        for mib in [40, 20, 10, 6, 4, 3, 2] {
            while let Ok(ptr) = program.allocator.malloc(mib * MIB, program.stream) {
                Bytes(&*rig.backend).fill(program.stream, ptr, 0xee, mib * MIB);
                taken.push((ptr, mib * MIB));
                program.allocator.check_invariants();
            }
        }
        let sum: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
        assert!(sum >= left, "{}: all that came back serves: {sum} of {left}", rig.name);
        program.check(rig, "beside all that fits");
        taken.into_iter().for_each(|(ptr, _)| program.allocator.free(ptr).unwrap());
        program.end(rig);
    });
}

#[test]
fn snapshots_have_no_memory_where_there_is_none() {
    on_each(&mapped(1000), |rig| {
        let program = Sparse::new(rig, Settings::default());
        compact(&program.allocator).unwrap();
        let snapshot = program.allocator.snapshot(false);
        let sum: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
        assert_eq!(sum, rig.used(), "{}: segments are what is held", rig.name);
        program.end(rig);
    });
}

/// Nobody gives the device work, but others ask for memory and free it all the time.
#[test]
fn other_threads_request_and_free_meanwhile() {
    let rig = Rig::openreg(mapped(2000));
    let program = Sparse::new(&rig, Settings::default());
    std::thread::scope(|scope| {
        for seed in [7, 42] {
            let (allocator, stream) = (program.allocator.clone(), rig.new_stream());
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                let mut live = Vec::new();
                for _ in 0..4000 {
                    if numbers.below(2) == 0 && !live.is_empty() {
                        let place = usize::try_from(numbers.below(live.len() as u64)).unwrap();
                        allocator.free(live.swap_remove(place)).unwrap();
                    } else if live.len() < 30 {
                        live.push(allocator.malloc(MIB / 2 + numbers.below(8 * MIB), stream).unwrap());
                    }
                }
                live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            });
        }
        for _ in 0..40 {
            compact(&program.allocator).unwrap();
        }
    });
    program.check(&rig, "beside other threads");
    program.end(&rig);
}
