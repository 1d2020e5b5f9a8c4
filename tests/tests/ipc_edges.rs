//! Shared memory beside everything else: threads, captures, hardened mode, checkpoints of devices without a driver, forks.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::policy::{GranulePolicy, Policy};
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::share::{ImportedMemory, SharedBlock};
use alloc_core::sleep::{Backup, KeptBecause, Retention, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, Stream};
use backend_openreg::{Call, FaultPlan, MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::quiet::Sleeps;
use granule_tests::views::{is_no_load, pieces};
use granule_tests::{Allocator, with_policy};
use std::sync::{Arc, Barrier};

const DEVICE: DeviceIndex = DeviceIndex(0);

struct Side<P: Policy> {
    machine: Arc<OpenReg>,
    allocator: Allocator<P>,
    stream: Stream,
}

/// Two machines of this process stand for two processes.
fn sides<P: Policy>(settings: Settings) -> (Side<P>, Side<P>) {
    let side = || {
        let config = OpenRegConfig::default().devices(1).capacity(256 * MIB).memory(MemoryMode::Mapped);
        let (machine, allocator, stream) = with_policy(config, settings.clone());
        Side { machine, allocator, stream }
    };
    (side(), side())
}

impl<P: Policy> Side<P> {
    fn shared(&self, bytes: u64) -> (DevicePtr, SharedBlock) {
        let block = self.allocator.malloc(bytes, self.stream).unwrap();
        (block, self.allocator.share(block).unwrap())
    }

    fn open(&self, shared: &SharedBlock) -> Arc<ImportedMemory> {
        self.allocator.open_shared(DEVICE, &shared.handle).unwrap()
    }

    /// Whether `block` is what the next request of its size gets.
    fn has_back(&self, block: DevicePtr, bytes: u64) -> bool {
        self.allocator.poll(DEVICE).unwrap();
        let next = self.allocator.malloc(bytes, self.stream).unwrap();
        self.allocator.free(next).unwrap();
        self.allocator.check_invariants();
        next == block
    }
}

fn both_kinds(behaviour: impl Fn(Settings)) {
    for expandable_segments in [false, true] {
        behaviour(Settings { expandable_segments, ..Settings::default() });
    }
}

fn threads_that_share_and_open_one_block_get_one_handle_and_one_mapping<P: Policy>() {
    const THREADS: usize = 8;
    both_kinds(|settings| {
        let (owner, user) = sides::<P>(settings);
        for _ in 0..30 {
            let block = owner.allocator.malloc(45 * MIB, owner.stream).unwrap();
            let barrier = Barrier::new(THREADS);
            let seen: Vec<_> = std::thread::scope(|scope| {
                let one = || {
                    barrier.wait();
                    let shared = owner.allocator.share(block).unwrap();
                    let opened = user.open(&shared);
                    barrier.wait();
                    let seen = (shared, opened.base());
                    drop(opened);
                    let _again = user.open(&seen.0);
                    seen
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
            assert_eq!(user.allocator.imported_bytes(DEVICE).unwrap(), 0);
            owner.allocator.free(block).unwrap();
            assert!(owner.has_back(block, 45 * MIB));
        }
        owner.allocator.empty_cache().unwrap();
        assert_eq!(owner.machine.used(DEVICE), 0);
    });
}

fn a_request_that_needs_the_memory_gets_it_as_soon_as_nobody_holds_it<P: Policy>() {
    both_kinds(|settings| {
        let (owner, user) = sides::<P>(settings);
        let (block, shared) = owner.shared(180 * MIB);
        let opened = user.open(&shared);
        owner.allocator.free(block).unwrap();
        let refused = owner.allocator.malloc(180 * MIB, owner.stream).unwrap_err();
        assert!(refused.is_out_of_memory());
        assert!(user.allocator.open_shared(DEVICE, &shared.handle).is_ok(), "who has it open still has it");
        drop(opened);
        owner.allocator.malloc(180 * MIB, owner.stream).unwrap();
    });
}

fn closing_waits_for_the_end_of_a_capture<P: Policy>() {
    both_kinds(|settings| {
        let (owner, user) = sides::<P>(settings);
        let (block, shared) = owner.shared(3 * MIB);
        let opened = user.open(&shared);
        user.allocator.mark_capture_begin(DEVICE).unwrap();
        let calls = user.machine.calls();
        drop(opened);
        assert_eq!(user.machine.calls(), calls, "a wait would break the capture");
        owner.allocator.free(block).unwrap();
        assert!(!owner.has_back(block, 3 * MIB), "held until it is closed");
        user.allocator.mark_capture_end(DEVICE).unwrap();
        user.allocator.poll(DEVICE).unwrap();
        assert_eq!(user.allocator.imported_bytes(DEVICE).unwrap(), 0);
        assert!(owner.has_back(block, 3 * MIB));
    });
}

fn hardened_mode_does_not_poison_what_others_read<P: Policy>() {
    let (owner, user) = sides::<P>(Settings { hardened: true, ..Settings::default() });
    let (block, shared) = owner.shared(3 * MIB);
    Bytes(&*owner.machine).write(block, &[1; 64]);
    let opened = user.open(&shared);
    owner.allocator.free(block).unwrap();
    owner.allocator.empty_cache().unwrap();
    assert_eq!(Bytes(&*user.machine).read(opened.base().add(shared.offset), 64), [1; 64]);
    drop(opened);
    owner.allocator.empty_cache().unwrap();
    assert_eq!(owner.machine.used(DEVICE), 0);
}

fn shared_memory_sleeps_once_nobody_has_it_open_and_is_shared_anew_when_it_is_awake<P: Policy>() {
    let (owner, user) = sides::<P>(Settings { expandable_segments: true, ..Settings::default() });
    let options = PoolOptions { sleep_tag: Some(SleepTag::new("weights")), ..PoolOptions::default() };
    let pool = MemoryPool::new(&owner.allocator, DEVICE, options).unwrap();
    let (block, shared) = {
        let _scope = pool.enter(Filter::Always).unwrap();
        owner.shared(45 * MIB)
    };
    let bytes = Bytes(&*owner.machine);
    bytes.write(block, &[8; 64]);
    let opened = user.open(&shared);
    let backup = Backup::HostPinned(Retention::Release);
    let report = owner.allocator.put_to_sleep(Tags::All, &backup).unwrap();
    let because: Vec<_> = report.kept.iter().map(|kept| kept.because).collect();
    assert_eq!((report.slept, because), (0, vec![KeptBecause::Shared]));
    owner.allocator.wake(Tags::All).unwrap();
    assert_eq!(Bytes(&*user.machine).read(opened.base().add(shared.offset), 64), [8; 64]);
    assert_eq!(owner.allocator.share(block).unwrap(), shared, "still the same");
    drop(opened);
    let report = owner.allocator.put_to_sleep(Tags::All, &backup).unwrap();
    assert_eq!((report.kept.len(), report.slept > 0), (0, true));
    owner.allocator.check_invariants();
    let asleep = owner.allocator.share(block).unwrap_err();
    assert!(matches!(asleep, AllocError::Asleep { .. }), "{asleep}");
    assert!(user.allocator.open_shared(DEVICE, &shared.handle).is_err());
    owner.allocator.wake(Tags::All).unwrap();
    let again = owner.allocator.share(block).unwrap();
    assert_ne!(again.handle, shared.handle);
    let opened = user.open(&again);
    assert_eq!(Bytes(&*user.machine).read(opened.base().add(again.offset), 64), [8; 64]);
    owner.allocator.free(block).unwrap();
    drop(opened);
    drop(pool);
    owner.allocator.empty_cache().unwrap();
    owner.allocator.check_invariants();
    assert_eq!(owner.machine.used(DEVICE), 0);
}

fn memory_outlives_both_allocators_while_it_is_open<P: Policy>() {
    both_kinds(|settings| {
        let (owner, user) = sides::<P>(settings);
        let (block, shared) = owner.shared(3 * MIB);
        Bytes(&*owner.machine).write(block, &[4; 64]);
        let opened = user.open(&shared);
        owner.allocator.free(block).unwrap();
        drop(owner.allocator);
        drop(user.allocator);
        assert_eq!(Bytes(&*user.machine).read(opened.base().add(shared.offset), 64), [4; 64]);
        drop(opened);
        assert_eq!(user.machine.traps(), Vec::new());
    });
}

/// What was let go of during a capture is closed at the latest with the allocator.
fn what_a_capture_kept_open_goes_with_the_allocator<P: Policy>() {
    both_kinds(|settings| {
        let (owner, user) = sides::<P>(settings);
        let (_, shared) = owner.shared(3 * MIB);
        let opened = user.open(&shared);
        user.allocator.mark_capture_begin(DEVICE).unwrap();
        drop(opened);
        drop(user.allocator);
        let closed = [Call::CloseMemory, Call::ReleaseAddress].map(|call| user.machine.calls().get(call));
        assert_eq!(closed.iter().sum::<u64>(), 1, "the driver's mapping is gone");
    });
}

/// Work may still use what could not be waited for: its owner keeps it.
fn what_cannot_be_closed_stays_its_owners_burden<P: Policy>() {
    both_kinds(|settings| {
        let (owner, user) = sides::<P>(settings);
        let (block, shared) = owner.shared(3 * MIB);
        let opened = user.open(&shared);
        drop(user.allocator);
        user.machine.set_faults(FaultPlan::none().fail_all(Call::SynchronizeDevice, ErrorKind::Other));
        drop(opened);
        owner.allocator.free(block).unwrap();
        assert!(!owner.has_back(block, 3 * MIB));
    });
}

fn without_caching_a_request_gets_what_others_have_let_go_of<P: Policy>() {
    let (owner, user) = sides::<P>(Settings { caching: false, ..Settings::default() });
    let (block, shared) = owner.shared(200 * MIB);
    let opened = user.open(&shared);
    owner.allocator.free(block).unwrap();
    assert!(owner.allocator.malloc(200 * MIB, owner.stream).is_err(), "somebody has it");
    drop(opened);
    let next = owner.allocator.malloc(200 * MIB, owner.stream).unwrap();
    owner.allocator.free(next).unwrap();
    assert_eq!(owner.machine.used(DEVICE), 0);
}

fn without_a_driver_nothing_is_closed_and_nothing_opened<P: Policy>() {
    let (owner, user) = sides::<P>(Settings::default());
    let (_block, shared) = owner.shared(3 * MIB);
    let opened = user.open(&shared);
    user.allocator.abandon();
    owner.allocator.abandon();
    let calls = user.machine.calls();
    drop(opened);
    assert!(matches!(user.allocator.open_shared(DEVICE, &shared.handle), Err(AllocError::DriverGone)));
    assert!(matches!(owner.allocator.share(DevicePtr(512)), Err(AllocError::DriverGone)));
    assert_eq!(user.machine.calls(), calls);
}

/// A forked child neither opens nor closes, and what it drops is still its parent's.
fn a_forked_child_holds_nothing_and_lets_go_of_nothing<P: Policy>() {
    let (owner, user) = sides::<P>(Settings::default());
    let (block, shared) = owner.shared(3 * MIB);
    let opened = user.open(&shared);
    let only = Arc::into_inner(opened).unwrap();
    // SAFETY: the child makes the calls this test is about and ends without running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "the process can be forked");
    if child == 0 {
        // SAFETY: no handler is there: the alarm ends a child that hangs.
        unsafe { libc::alarm(30) };
        let opens = user.allocator.open_shared(DEVICE, &shared.handle);
        let shares = owner.allocator.share(block);
        let imported = user.allocator.imported_bytes(DEVICE);
        drop(only);
        let refused = matches!(opens, Err(AllocError::Forked))
            && matches!(shares, Err(AllocError::Forked))
            && matches!(imported, Err(AllocError::Forked));
        // SAFETY: ends the child, and runs nothing else.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: the child of this process, waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was refused and ended by itself");
    owner.allocator.free(block).unwrap();
    assert!(!owner.has_back(block, 3 * MIB), "the parent still has it");
    drop(only);
    assert!(owner.has_back(block, 3 * MIB));
    assert!(owner.machine.default_stream(DEVICE) == owner.stream);
}

/// Shared blocks that lie in views of free memory.
mod in_views {
    use super::*;

    type Both = (Side<GranulePolicy>, Side<GranulePolicy>);

    /// The owner shares a block of `mib` MiB that was free in pieces; also what keeps the pieces apart.
    fn shown(mib: u64) -> (Both, DevicePtr, SharedBlock, Vec<DevicePtr>) {
        let (owner, user) = sides(Settings::default());
        let live = pieces(&owner.allocator, owner.stream, 3, 12);
        let used = owner.machine.used(DEVICE);
        let (block, shared) = owner.shared(mib * MIB);
        assert_eq!(owner.machine.used(DEVICE), used, "it lies in a view");
        ((owner, user), block, shared, live)
    }

    fn nothing_is_left(owner: &Side<GranulePolicy>, live: Vec<DevicePtr>) {
        live.into_iter().for_each(|ptr| owner.allocator.free(ptr).unwrap());
        owner.allocator.empty_cache().unwrap();
        owner.allocator.check_invariants();
        assert_eq!((owner.machine.used(DEVICE), owner.machine.traps()), (0, Vec::new()));
    }

    #[test]
    fn all_of_a_block_is_seen_and_what_it_does_not_touch_is_not_mapped() {
        let ((owner, user), block, shared, live) = shown(30);
        let bytes = Bytes(&*owner.machine);
        bytes.write(block, &pattern(5, 30 * MIB));
        let opened = user.open(&shared);
        assert!(opened.bytes() < 40 * MIB, "only its granules: {}", opened.bytes());
        let there = opened.base().add(shared.offset);
        assert_eq!(Bytes(&*user.machine).read(there, 30 * MIB), pattern(5, 30 * MIB));
        Bytes(&*user.machine).write(there, &pattern(6, 30 * MIB));
        assert_eq!(bytes.read(block, 30 * MIB), pattern(6, 30 * MIB));
        assert_eq!(owner.allocator.share(block).unwrap(), shared, "the same bytes on every call");
        drop(opened);
        assert_eq!(user.machine.traps(), Vec::new());
        nothing_is_left(&owner, live.into_iter().chain([block]).collect());
    }

    #[test]
    fn what_others_have_open_stays_out_of_use_at_home_and_in_every_other_view() {
        let ((owner, user), block, shared, live) = shown(36);
        Bytes(&*owner.machine).write(block, &pattern(5, 36 * MIB));
        let opened = user.open(&shared);
        owner.allocator.free(block).unwrap();
        let other = owner.machine.create_stream(DEVICE, 0).unwrap();
        let mut taken = Vec::new();
        // On its own stream, on another one, and until nothing is left.
        for (mib, stream) in [(36, owner.stream), (30, other), (4, owner.stream), (12, other)] {
            let ptr = owner.allocator.malloc(mib * MIB, stream).unwrap();
            Bytes(&*owner.machine).fill(stream, ptr, 99, mib * MIB);
            taken.push(ptr);
            owner.allocator.check_invariants();
        }
        while let Ok(ptr) = owner.allocator.malloc(10 * MIB, other) {
            Bytes(&*owner.machine).fill(other, ptr, 98, 10 * MIB);
            taken.push(ptr);
        }
        owner.allocator.empty_cache().unwrap();
        owner.allocator.check_invariants();
        for stream in [owner.stream, other] {
            owner.machine.synchronize_stream(stream).unwrap();
        }
        let there = opened.base().add(shared.offset);
        assert_eq!(Bytes(&*user.machine).read(there, 36 * MIB), pattern(5, 36 * MIB));
        assert!(owner.allocator.malloc(36 * MIB, owner.stream).unwrap_err().is_out_of_memory());
        drop(opened);
        let again = owner.allocator.malloc(36 * MIB, owner.stream).expect("nobody has it open any more");
        nothing_is_left(&owner, live.into_iter().chain(taken).chain([again]).collect());
    }

    #[test]
    fn a_granule_is_shared_by_blocks_at_home_and_in_views_at_the_same_time() {
        let (owner, user) = sides::<GranulePolicy>(Settings::default());
        let live = pieces(&owner.allocator, owner.stream, 3, 6);
        // The granules at the ends of holes are their neighbours', too.
        let views: Vec<_> = [9, 8].map(|mib| owner.shared(mib * MIB)).into_iter().collect();
        let homes: Vec<_> = live.iter().map(|ptr| (*ptr, owner.allocator.share(*ptr).unwrap())).collect();
        let all: Vec<_> = views.into_iter().chain(homes).collect();
        let bytes = Bytes(&*owner.machine);
        let mut opened: Vec<_> = (1..)
            .zip(&all)
            .map(|(value, (ptr, shared))| {
                bytes.write(*ptr, &[value; 512]);
                (user.open(shared), shared.offset, value)
            })
            .collect();
        owner.allocator.check_invariants();
        let half = all.len() / 2;
        for (ptr, _) in &all[..half] {
            owner.allocator.free(*ptr).unwrap();
        }
        for _ in 0..half {
            opened.remove(0);
            owner.allocator.poll(DEVICE).unwrap();
            owner.allocator.check_invariants();
            for (import, offset, value) in &opened {
                let found = Bytes(&*user.machine).read(import.base().add(*offset), 512);
                assert_eq!(found, [*value; 512]);
            }
        }
        opened.clear();
        nothing_is_left(&owner, all[half..].iter().map(|(ptr, _)| *ptr).collect());
    }

    #[test]
    fn granules_of_several_sizes_are_shared_side_by_side() {
        let (owner, user) = sides::<GranulePolicy>(Settings::default());
        // What is loaded has larger granules than what comes after.
        let loaded: Vec<_> =
            (0..12).map(|_| owner.allocator.malloc(12 * MIB, owner.stream).unwrap()).collect();
        is_no_load(&owner.allocator, owner.stream);
        let later = pieces(&owner.allocator, owner.stream, 2, 12);
        let (gone, mut live): (Vec<_>, Vec<_>) =
            loaded.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
        gone.into_iter().for_each(|(_, ptr)| owner.allocator.free(ptr).unwrap());
        let shared = (0..6).find_map(|_| {
            let (block, shared) = owner.shared(40 * MIB);
            if shared.handle[1] == b'v' {
                return Some((block, shared));
            }
            live.push((0, block));
            None
        });
        let (block, shared) = shared.expect("some view has granules of several sizes");
        Bytes(&*owner.machine).write(block, &pattern(8, 40 * MIB));
        let opened = user.open(&shared);
        let there = opened.base().add(shared.offset);
        assert_eq!(Bytes(&*user.machine).read(there, 40 * MIB), pattern(8, 40 * MIB));
        assert!(Arc::ptr_eq(&opened, &user.open(&owner.allocator.share(block).unwrap())));
        owner.allocator.free(block).unwrap();
        drop(opened);
        let live = live.into_iter().map(|(_, ptr)| ptr).chain(later).collect();
        nothing_is_left(&owner, live);
    }

    #[test]
    fn memory_outlives_the_allocator_and_its_views_while_it_is_open() {
        let ((owner, user), block, shared, live) = shown(36);
        Bytes(&*owner.machine).write(block, &pattern(4, 36 * MIB));
        let opened = user.open(&shared);
        live.into_iter().chain([block]).for_each(|ptr| owner.allocator.free(ptr).unwrap());
        drop(owner.allocator);
        let there = opened.base().add(shared.offset);
        assert_eq!(Bytes(&*user.machine).read(there, 36 * MIB), pattern(4, 36 * MIB));
    }
}

granule_tests::for_each_policy!(
    threads_that_share_and_open_one_block_get_one_handle_and_one_mapping,
    a_request_that_needs_the_memory_gets_it_as_soon_as_nobody_holds_it,
    closing_waits_for_the_end_of_a_capture,
    hardened_mode_does_not_poison_what_others_read,
    shared_memory_sleeps_once_nobody_has_it_open_and_is_shared_anew_when_it_is_awake,
    memory_outlives_both_allocators_while_it_is_open,
    what_a_capture_kept_open_goes_with_the_allocator,
    what_cannot_be_closed_stays_its_owners_burden,
    without_caching_a_request_gets_what_others_have_let_go_of,
    without_a_driver_nothing_is_closed_and_nothing_opened,
    a_forked_child_holds_nothing_and_lets_go_of_nothing,
);
