//! What is saved: all of it, and read without a wake.

use crate::contents::{backups, machine, small_granules};
use alloc_core::backend::ErrorKind;
use alloc_core::config::{PolicyName, Settings};
use alloc_core::history::{HistoryOptions, RecordContext};
use alloc_core::sleep::{Backup, Retention, Tags};
use alloc_core::types::MIB;
use backend_openreg::{Call, Effect, Fault, FaultPlan, Held};
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::pinned::{host, nothing_is_pinned};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::{Rig, on_each};
use granule_tests::sleepers::{malloc_in, tagged};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn what_was_saved_can_be_read_while_it_sleeps<P: Policy>() {
    let directory = tempfile::tempdir().unwrap();
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(small_granules());
        let pool = tagged(&allocator, "weights");
        let bytes = 7 * MIB + 100;
        let (ptr, contents) = (malloc_in(&pool, &allocator, bytes, rig.stream()), pattern(9, bytes));
        Bytes(&*rig.backend).write(ptr, &contents);
        let read = |from: u64, length: usize| {
            let mut into = vec![0; length];
            let found = allocator.sleep_mode().read_backup(ptr.add(from), &mut into).unwrap();
            found.then_some(into)
        };
        for backup in backups(directory.path()) {
            assert_eq!(read(0, 10), None, "it is awake");
            allocator.put_to_sleep(Tags::All, &backup).unwrap();
            assert!(read(0, bytes as usize).unwrap() == contents, "{backup:?}");
            let (from, length) = (3 * MIB - 5, 2 * MIB as usize);
            assert!(read(from, length).unwrap() == contents[from as usize..][..length], "across granules");
            assert_eq!(read(0, 1 << 30), None, "more than there is");
            allocator.sleep_mode().wake(Tags::All).unwrap();
        }
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        assert_eq!(read(0, 10), None, "nothing was saved");
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// Page-locked memory that the driver did not take back was lost (found by a night, seed 20314).
fn what_the_driver_keeps_of_a_backup_is_given_back_later<P: Policy>() {
    let directory = tempfile::tempdir().unwrap();
    for backup in backups(directory.path()) {
        let rig = Rig::openreg(machine());
        let before = Held::of(&rig.device);
        let allocator = rig.with_policy::<P>(small_granules());
        let pool = tagged(&allocator, "weights");
        let blocks: Vec<_> = (0..3).map(|_| malloc_in(&pool, &allocator, 3 * MIB, rig.stream())).collect();
        for failing in [1, 3] {
            let refused =
                (1..=failing).map(|n| Fault::at(n, Effect::Fail(ErrorKind::Other)).of(Call::HostFree));
            rig.device.set_faults(refused.fold(FaultPlan::none(), FaultPlan::with));
            allocator.put_to_sleep(Tags::All, &backup).unwrap();
            allocator.sleep_mode().wake(Tags::All).unwrap();
            rig.device.set_faults(FaultPlan::none());
        }
        blocks.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        drop(pool);
        rig.nothing_is_left(&allocator);
        drop(allocator);
        assert_eq!(Held::of(&rig.device), before, "{backup:?}");
    }
}

/// A ring's slot was used again while its bytes were on their way to the file (planted from outside).
fn a_file_gets_more_pieces_than_the_ring_has_slots<P: Policy>() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::openreg(machine());
    let allocator = rig.with_policy::<P>(small_granules());
    let pool = tagged(&allocator, "weights");
    let (bytes, contents) = (75 * MIB, pattern(1, 75 * MIB));
    let ptr = malloc_in(&pool, &allocator, bytes, rig.stream());
    Bytes(&*rig.backend).write(ptr, &contents);
    allocator.put_to_sleep(Tags::All, &Backup::File(directory.path().to_owned())).unwrap();
    allocator.sleep_mode().wake(Tags::All).unwrap();
    assert!(Bytes(&*rig.backend).read(ptr, bytes) == contents, "they are as they were");
    allocator.free(ptr).unwrap();
    drop(pool);
    rig.nothing_is_left(&allocator);
}

/// They are in the books of the program's own pinned memory, as large as they are, and leave what it caches alone.
fn backups_come_from_the_allocator_of_pinned_memory<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(small_granules());
        let host = host(rig, &Settings::default());
        let cached = host.allocate(MIB).unwrap();
        host.free(cached.id).unwrap();
        let pool = tagged(&allocator, "weights");
        let (bytes, contents) = (5 * MIB + 100, pattern(9, 5 * MIB + 100));
        let ptr = malloc_in(&pool, &allocator, bytes, rig.stream());
        Bytes(&*rig.backend).write(ptr, &contents);
        let figures = || {
            let stats = host.stats();
            (stats.allocated_bytes.current - MIB as i64, stats.granule.active_bytes.current)
        };
        for retention in [Retention::Release, Retention::Keep] {
            let slept = allocator.put_to_sleep(Tags::All, &Backup::HostPinned(retention)).unwrap();
            let held = slept.backup_held as i64;
            assert!(slept.backup_held == slept.backed_up && held > bytes as i64, "{held}");
            assert_eq!(figures(), (held, held), "{}", rig.name);
            allocator.sleep_mode().wake(Tags::All).unwrap();
            assert!(Bytes(&*rig.backend).read(ptr, bytes) == contents, "they are as they were");
            let kept = if retention == Retention::Keep { held } else { 0 };
            assert_eq!(figures(), (kept, kept), "{}", rig.name);
        }
        allocator.sleep_mode().drop_backups();
        assert_eq!(figures(), (0, 0));
        // It ends before them.
        allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Release)).unwrap();
        drop(host);
        allocator.sleep_mode().wake(Tags::All).unwrap();
        assert!(Bytes(&*rig.backend).read(ptr, bytes) == contents, "they are as they were");
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
        nothing_is_pinned(&rig.device);
    });
}

/// A reserve is given back as a whole, with the allocator, which may go before the backup.
#[test]
fn a_backup_is_no_part_of_the_reserve() {
    let rig = Rig::openreg(machine());
    let allocator = rig.with_policy::<PytorchPolicy>(small_granules());
    let host = host(&rig, &Settings { pinned_reserve_segment_size: 64 * MIB, ..Settings::default() });
    let pool = tagged(&allocator, "weights");
    let ptr = malloc_in(&pool, &allocator, 5 * MIB, rig.stream());
    allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Release)).unwrap();
    drop(host);
    allocator.sleep_mode().wake(Tags::All).unwrap();
    allocator.free(ptr).unwrap();
    nothing_is_pinned(&rig.device);
}

/// The ring through which files are copied is not the program's, nor is anything given up for it.
#[test]
fn a_file_takes_nothing_from_the_allocator_of_pinned_memory() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::openreg(machine());
    let allocator = rig.with_policy::<PytorchPolicy>(small_granules());
    let host = host(&rig, &Settings::default());
    let pool = tagged(&allocator, "weights");
    let ptr = malloc_in(&pool, &allocator, 5 * MIB, rig.stream());
    allocator.put_to_sleep(Tags::All, &Backup::File(directory.path().to_owned())).unwrap();
    allocator.sleep_mode().wake(Tags::All).unwrap();
    assert_eq!(host.stats().allocated_bytes.peak, 0);
    allocator.free(ptr).unwrap();
}

/// Recorders may wait for other threads, which may wait for memory that sleeps or wakes.
#[test]
fn no_recorder_of_pinned_memory_runs_for_a_backup() {
    let rig = Rig::openreg(machine());
    let allocator = rig.with_policy::<PytorchPolicy>(small_granules());
    let host = host(&rig, &Settings::default());
    let gathered = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&gathered);
    let recorder = move || {
        counts.fetch_add(1, Ordering::Relaxed);
        None
    };
    host.record_history(&HistoryOptions::newest(8).with_contexts(RecordContext::All, recorder)).unwrap();
    let cached = host.allocate(MIB).unwrap();
    host.free(cached.id).unwrap();
    assert_eq!(gathered.swap(0, Ordering::Relaxed), 2, "it runs for the program's own");
    let pool = tagged(&allocator, "weights");
    let ptr = malloc_in(&pool, &allocator, 5 * MIB, rig.stream());
    allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Release)).unwrap();
    allocator.sleep_mode().wake(Tags::All).unwrap();
    assert_eq!(gathered.load(Ordering::Relaxed), 0);
    allocator.free(ptr).unwrap();
}

/// While a backup is there, the spare of pages is reckoned without it.
#[test]
fn a_backup_makes_no_room_for_what_is_cached() {
    let rig = Rig::openreg(machine());
    let allocator = rig.with_policy::<PytorchPolicy>(small_granules());
    let settings = Settings { pinned_sizes: Some(PolicyName::Granule), ..Settings::default() };
    let host = host(&rig, &settings);
    let pool = tagged(&allocator, "weights");
    let ptr = malloc_in(&pool, &allocator, 40 * MIB, rig.stream());
    allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Release)).unwrap();
    let cycle = |bytes: u64| {
        let block = host.allocate(bytes).unwrap();
        host.free(block.id).unwrap();
        block
    };
    let large = cycle(8 * MIB);
    assert_eq!(cycle(8 * MIB).ptr, large.ptr, "it is cached, backup or not");
    allocator.sleep_mode().wake(Tags::All).unwrap();
    for mib in 9..12 {
        cycle(mib * MIB);
    }
    let held = host.stats().allocated_bytes.current;
    assert!(held <= 12 * MIB as i64, "{held} are held where 11 MiB were wanted at most");
    allocator.free(ptr).unwrap();
}

granule_tests::for_each_policy!(
    backups_come_from_the_allocator_of_pinned_memory,
    a_file_gets_more_pieces_than_the_ring_has_slots,
    what_the_driver_keeps_of_a_backup_is_given_back_later,
    what_was_saved_can_be_read_while_it_sleeps,
);
