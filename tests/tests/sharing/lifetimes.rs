//! How long shared memory stays: beside threads, captures, sleep, drivers that go away, and forks.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::share::{ImportedMemory, SharedBlock};
use alloc_core::sleep::{Backup, KeptBecause, Retention, SleepTag, Tags};
use alloc_core::types::{DevicePtr, MIB, Stream};
use backend_openreg::{Call, FaultPlan, MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::alone::alone;
use granule_tests::bytes::Bytes;
use granule_tests::policy::Policy;
use granule_tests::quiet::Sleeps;
use granule_tests::rig::DEVICE;
use granule_tests::setup::both;
use granule_tests::{Allocator, with_policy};
use std::sync::{Arc, Barrier};

pub(crate) struct Side {
    pub(crate) machine: Arc<OpenReg>,
    pub(crate) allocator: Allocator,
    pub(crate) stream: Stream,
}

/// Two machines of this process stand for two processes.
pub(crate) fn sides<P: Policy>(settings: Settings) -> (Side, Side) {
    let side = || {
        let config = OpenRegConfig::default().devices(1).capacity(256 * MIB).memory(MemoryMode::Mapped);
        let (machine, allocator, stream) = with_policy::<P>(config, settings.clone());
        Side { machine, allocator, stream }
    };
    (side(), side())
}

impl Side {
    pub(crate) fn shared(&self, bytes: u64) -> (DevicePtr, SharedBlock) {
        let block = self.allocator.malloc(bytes, self.stream).unwrap();
        (block, self.allocator.sharing().share(block).unwrap())
    }

    pub(crate) fn open(&self, shared: &SharedBlock) -> Arc<ImportedMemory> {
        self.allocator.sharing().open(DEVICE, &shared.handle).unwrap()
    }

    /// Whether `block` is what the next request of its size gets.
    pub(crate) fn has_back(&self, block: DevicePtr, bytes: u64) -> bool {
        self.allocator.poll(DEVICE).unwrap();
        let next = self.allocator.malloc(bytes, self.stream).unwrap();
        self.allocator.free(next).unwrap();
        self.allocator.check_invariants();
        next == block
    }
}

fn threads_that_share_and_open_one_block_get_one_handle_and_one_mapping<P: Policy>() {
    const THREADS: usize = 8;
    for settings in both() {
        let (owner, user) = sides::<P>(settings);
        for _ in 0..30 {
            let block = owner.allocator.malloc(45 * MIB, owner.stream).unwrap();
            let barrier = Barrier::new(THREADS);
            let seen: Vec<_> = std::thread::scope(|scope| {
                let one = || {
                    barrier.wait();
                    let shared = owner.allocator.sharing().share(block).unwrap();
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
            assert_eq!(user.allocator.sharing().imported_bytes(DEVICE).unwrap(), 0);
            owner.allocator.free(block).unwrap();
            assert!(owner.has_back(block, 45 * MIB));
        }
        owner.allocator.empty_cache().unwrap();
        assert_eq!(owner.machine.used(DEVICE), 0);
    }
}

fn a_request_that_needs_the_memory_gets_it_as_soon_as_nobody_holds_it<P: Policy>() {
    for settings in both() {
        let (owner, user) = sides::<P>(settings);
        let (block, shared) = owner.shared(180 * MIB);
        let opened = user.open(&shared);
        owner.allocator.free(block).unwrap();
        let refused = owner.allocator.malloc(180 * MIB, owner.stream).unwrap_err();
        assert!(refused.is_out_of_memory());
        assert!(
            user.allocator.sharing().open(DEVICE, &shared.handle).is_ok(),
            "who has it open still has it"
        );
        drop(opened);
        owner.allocator.malloc(180 * MIB, owner.stream).unwrap();
    }
}

fn closing_waits_for_the_end_of_a_capture<P: Policy>() {
    for settings in both() {
        let (owner, user) = sides::<P>(settings);
        let (block, shared) = owner.shared(3 * MIB);
        let opened = user.open(&shared);
        user.allocator.pools().mark_capture_begin(DEVICE).unwrap();
        let calls = user.machine.calls();
        drop(opened);
        assert_eq!(user.machine.calls(), calls, "a wait would break the capture");
        owner.allocator.free(block).unwrap();
        assert!(!owner.has_back(block, 3 * MIB), "held until it is closed");
        user.allocator.pools().mark_capture_end(DEVICE).unwrap();
        user.allocator.poll(DEVICE).unwrap();
        assert_eq!(user.allocator.sharing().imported_bytes(DEVICE).unwrap(), 0);
        assert!(owner.has_back(block, 3 * MIB));
    }
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
    owner.allocator.sleep_mode().wake(Tags::All).unwrap();
    assert_eq!(Bytes(&*user.machine).read(opened.base().add(shared.offset), 64), [8; 64]);
    assert_eq!(owner.allocator.sharing().share(block).unwrap(), shared, "still the same");
    drop(opened);
    let report = owner.allocator.put_to_sleep(Tags::All, &backup).unwrap();
    assert_eq!((report.kept.len(), report.slept > 0), (0, true));
    owner.allocator.check_invariants();
    let asleep = owner.allocator.sharing().share(block).unwrap_err();
    assert!(matches!(asleep, AllocError::Asleep { .. }), "{asleep}");
    assert!(user.allocator.sharing().open(DEVICE, &shared.handle).is_err());
    owner.allocator.sleep_mode().wake(Tags::All).unwrap();
    let again = owner.allocator.sharing().share(block).unwrap();
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
    for settings in both() {
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
    }
}

/// What was let go of during a capture is closed at the latest with the allocator.
fn what_a_capture_kept_open_goes_with_the_allocator<P: Policy>() {
    for settings in both() {
        let (owner, user) = sides::<P>(settings);
        let (_, shared) = owner.shared(3 * MIB);
        let opened = user.open(&shared);
        user.allocator.pools().mark_capture_begin(DEVICE).unwrap();
        drop(opened);
        drop(user.allocator);
        let closed = [Call::CloseMemory, Call::ReleaseAddress].map(|call| user.machine.calls().get(call));
        assert_eq!(closed.iter().sum::<u64>(), 1, "the driver's mapping is gone");
    }
}

/// Work may still use what could not be waited for: its owner keeps it.
fn what_cannot_be_closed_stays_its_owners_burden<P: Policy>() {
    for settings in both() {
        let (owner, user) = sides::<P>(settings);
        let (block, shared) = owner.shared(3 * MIB);
        let opened = user.open(&shared);
        drop(user.allocator);
        user.machine.set_faults(FaultPlan::none().fail_all(Call::SynchronizeDevice, ErrorKind::Other));
        drop(opened);
        owner.allocator.free(block).unwrap();
        assert!(!owner.has_back(block, 3 * MIB));
    }
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

/// Seed 600980 of the nights.
fn what_came_straight_from_the_driver_goes_with_a_flush_also_where_that_refuses_at_first<P: Policy>() {
    let (owner, user) = sides::<P>(Settings::default());
    owner.allocator.enable(false);
    let (block, shared) = owner.shared(3 * MIB);
    owner.allocator.enable(true);
    let opened = user.open(&shared);
    owner.allocator.free(block).unwrap();
    drop(opened);
    owner.machine.set_faults(FaultPlan::none().fail_nth_of(Call::Free, 1, ErrorKind::Other));
    owner.allocator.empty_cache().unwrap();
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
    assert!(matches!(user.allocator.sharing().open(DEVICE, &shared.handle), Err(AllocError::DriverGone)));
    assert!(matches!(owner.allocator.sharing().share(DevicePtr(512)), Err(AllocError::DriverGone)));
    assert_eq!(user.machine.calls(), calls);
}

/// The allocator knows that the driver is gone, and what it opened has to know so after it.
fn what_outlives_an_abandoned_allocator_is_not_closed<P: Policy>() {
    for settings in both() {
        let (owner, user) = sides::<P>(settings);
        let (_block, shared) = owner.shared(3 * MIB);
        let opened = user.open(&shared);
        user.allocator.abandon();
        let calls = user.machine.calls();
        drop(user.allocator);
        drop(opened);
        assert_eq!(user.machine.calls(), calls);
    }
}

/// A forked child neither opens nor closes, and what it drops is still its parent's.
fn a_forked_child_holds_nothing_and_lets_go_of_nothing<P: Policy>() {
    alone(|| {
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
            let opens = user.allocator.sharing().open(DEVICE, &shared.handle);
            let shares = owner.allocator.sharing().share(block);
            let imported = user.allocator.sharing().imported_bytes(DEVICE);
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
    });
}

granule_tests::for_each_policy!(
    threads_that_share_and_open_one_block_get_one_handle_and_one_mapping,
    a_request_that_needs_the_memory_gets_it_as_soon_as_nobody_holds_it,
    closing_waits_for_the_end_of_a_capture,
    shared_memory_sleeps_once_nobody_has_it_open_and_is_shared_anew_when_it_is_awake,
    memory_outlives_both_allocators_while_it_is_open,
    what_a_capture_kept_open_goes_with_the_allocator,
    what_cannot_be_closed_stays_its_owners_burden,
    without_caching_a_request_gets_what_others_have_let_go_of,
    what_came_straight_from_the_driver_goes_with_a_flush_also_where_that_refuses_at_first,
    without_a_driver_nothing_is_closed_and_nothing_opened,
    what_outlives_an_abandoned_allocator_is_not_closed,
    a_forked_child_holds_nothing_and_lets_go_of_nothing,
);
