//! Sleep and wake: memory goes, addresses and contents stay.

use alloc_core::backend::{CaptureMode, ErrorKind};
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::graph::GraphCapture;
use alloc_core::pointer::Problem;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, KeptBecause, Retention, SleepReport, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, PoolId};
use alloc_core::{AllocError, DeviceBuffer};
use backend_openreg::{Call, Clock, FaultPlan, MemoryMode, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::graphs::begin_in;
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::{DEVICE, Gate, Rig, on_each};
use granule_tests::setup::{free_all, reserved};
use granule_tests::sleepers::{malloc_in, tagged};
use std::sync::{Arc, mpsc};
use std::time::Duration;

pub(crate) fn machine() -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(GIB).memory(MemoryMode::Mapped).clock(Clock::Workers)
}

pub(crate) fn small_granules() -> Settings {
    Settings { large_segment_size: 12 * MIB, ..Settings::default() }
}

/// Every kind of backup; files go to a directory of the test's.
pub(crate) fn backups(directory: &std::path::Path) -> [Backup; 3] {
    [
        Backup::HostPinned(Retention::Release),
        Backup::HostPinned(Retention::Keep),
        Backup::File(directory.to_owned()),
    ]
}

/// Blocks of many sizes with contents of their own.
struct Contents {
    blocks: Vec<(DevicePtr, u64, u64)>,
}

impl Contents {
    fn fill(rig: &Rig, allocator: &Allocator, pool: &MemoryPool) -> Self {
        let sizes = [700, 3 * MIB, 13 * MIB, 1, MIB, 64 * 1024];
        let blocks = (1..).zip(sizes).map(|(seed, bytes)| {
            let ptr = malloc_in(pool, allocator, bytes, rig.stream());
            Bytes(&*rig.backend).write(ptr, &pattern(seed, bytes));
            (ptr, bytes, seed)
        });
        Self { blocks: blocks.collect() }
    }

    fn check(&self, rig: &Rig) {
        for (ptr, bytes, seed) in &self.blocks {
            let same = Bytes(&*rig.backend).read(*ptr, *bytes) == pattern(*seed, *bytes);
            assert!(same, "{}: the contents of {bytes} bytes at {ptr}", rig.name);
        }
    }

    fn free(self, allocator: &Allocator) {
        for (ptr, ..) in self.blocks {
            allocator.free(ptr).unwrap();
        }
    }
}

fn contents_and_addresses_survive_a_hundred_cycles_and_memory_returns_to_the_byte<P: Policy>() {
    let directory = tempfile::tempdir().unwrap();
    on_each(&machine(), |rig| {
        for backup in backups(directory.path()) {
            let allocator = rig.with_policy::<P>(small_granules());
            let pool = tagged(&allocator, "weights");
            let contents = Contents::fill(rig, &allocator, &pool);
            let before = (reserved(&allocator), rig.used(), allocator.stats(DEVICE).unwrap().allocated_bytes);
            let cycles = if backup == Backup::HostPinned(Retention::Release) { 100 } else { 10 };
            for cycle in 0..cycles {
                let slept = allocator.put_to_sleep(Tags::Only(&["weights"]), &backup).unwrap();
                allocator.check_invariants();
                assert_eq!(slept.slept, before.1, "cycle {cycle}: all of it sleeps");
                assert_eq!((slept.kept.len(), slept.backed_up), (0, slept.slept));
                assert_eq!(slept.freed, slept.slept + slept.uncached);
                assert_eq!(slept.device_free_gained, slept.freed as i64, "the driver says so, too");
                assert_eq!((reserved(&allocator), rig.used()), (0, 0), "nothing is held");
                assert!(slept.backup_held >= slept.slept);
                let stats = allocator.stats(DEVICE).unwrap();
                assert_eq!(stats.granule.asleep_bytes, slept.slept as i64);
                assert_eq!(stats.allocated_bytes.all.current, before.2.all.current, "blocks stay live");
                let woken = allocator.sleep_mode().wake(Tags::All).unwrap();
                allocator.check_invariants();
                assert_eq!((woken.woken, woken.restored), (slept.slept, slept.slept));
                assert_eq!((reserved(&allocator), rig.used()), (before.0, before.1));
                if cycle % 33 == 0 {
                    contents.check(rig);
                }
            }
            contents.check(rig);
            let kept = allocator.sleep_mode().backup_bytes();
            assert_eq!(kept > 0, backup == Backup::HostPinned(Retention::Keep), "{backup:?} keeps {kept}");
            allocator.sleep_mode().drop_backups();
            assert_eq!(allocator.sleep_mode().backup_bytes(), 0);
            contents.free(&allocator);
            drop(pool);
            rig.nothing_is_left(&allocator);
        }
    });
}

fn discarded_contents_cost_no_host_memory_and_addresses_stay<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "cache");
        let ptr = malloc_in(&pool, &allocator, 40 * MIB, rig.stream());
        let slept = allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        assert_eq!((slept.slept, slept.backed_up, slept.backup_held), (40 * MIB, 0, 0));
        assert_eq!(allocator.sleep_mode().is_asleep(ptr), Some(true));
        let woken = allocator.sleep_mode().wake(Tags::All).unwrap();
        assert_eq!((woken.woken, woken.restored), (40 * MIB, 0));
        assert_eq!(allocator.sleep_mode().is_asleep(ptr), Some(false));
        Bytes(&*rig.backend).write(ptr, &pattern(1, 40 * MIB));
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn tags_sleep_apart_and_wake_in_the_order_of_their_priority<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pools = [("weights", 1), ("cache", -1), ("scratch", 7)].map(|(name, priority)| {
            let tag = SleepTag { name: name.into(), priority };
            let options = PoolOptions { sleep_tag: Some(tag), ..PoolOptions::default() };
            let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
            let ptr = malloc_in(&pool, &allocator, 20 * MIB, rig.stream());
            (pool, ptr)
        });
        let untagged = allocator.malloc(20 * MIB, rig.stream()).unwrap();
        allocator.put_to_sleep(Tags::Only(&["cache", "scratch"]), &Backup::Discard).unwrap();
        let asleep = || pools.each_ref().map(|(_, ptr)| allocator.sleep_mode().is_asleep(*ptr).unwrap());
        assert_eq!(asleep(), [false, true, true]);
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        assert_eq!((asleep(), allocator.sleep_mode().is_asleep(untagged)), ([true; 3], Some(false)));
        allocator.sleep_mode().wake(Tags::Only(&["cache"])).unwrap();
        assert_eq!(asleep(), [true, false, true]);
        // Memory for one pool only: the one of the highest priority gets it.
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        let limit = MemoryLimit::Bytes(reserved(&allocator) as u64 + 20 * MIB);
        allocator.set_memory_limits(DEVICE, Some(limit), None).unwrap();
        let refusal = allocator.sleep_mode().wake(Tags::All).unwrap_err();
        assert!(refusal.is_out_of_memory(), "{refusal}");
        assert_eq!(asleep(), [true, true, false]);
        allocator.set_memory_limits(DEVICE, None, None).unwrap();
        allocator.sleep_mode().wake(Tags::All).unwrap();
        assert_eq!(asleep(), [false; 3]);
        allocator.free(untagged).unwrap();
        for (pool, ptr) in pools {
            allocator.free(ptr).unwrap();
            drop(pool);
        }
        rig.nothing_is_left(&allocator);
    });
}

/// vllm 36651: a second sleep released handles again, and frees during sleep unmapped what was not mapped.
#[test]
fn vllm_36651_sleeping_twice_and_frees_during_sleep_release_nothing_twice() {
    // Only this one: granules of 20 MiB are counted.
    type P = PytorchPolicy;
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let [first, second, third] =
            [20 * MIB, 50 * MIB, 30 * MIB].map(|bytes| malloc_in(&pool, &allocator, bytes, rig.stream()));
        let contents = pattern(9, 30 * MIB);
        Bytes(&*rig.backend).write(third, &contents);
        let backup = Backup::HostPinned(Retention::Release);
        let slept = allocator.put_to_sleep(Tags::All, &backup).unwrap();
        assert_eq!(slept.slept, 100 * MIB);
        assert_eq!(allocator.put_to_sleep(Tags::All, &backup).unwrap().freed, 0, "nothing is left to sleep");
        let calls = rig.device.calls().total();
        allocator.free(second).unwrap();
        assert_eq!(rig.device.calls().total(), calls, "a free during sleep calls no driver");
        allocator.check_invariants();
        assert!(matches!(allocator.free(second), Err(AllocError::InvalidPointer(_))), "and only once");
        assert_eq!(allocator.stats(DEVICE).unwrap().allocated_bytes.all.current, 50 * MIB as i64);
        let woken = allocator.sleep_mode().wake(Tags::All).unwrap();
        // Its 50 MiB lie on granules of 20 MiB: two of them are all its own.
        assert_eq!((woken.dropped, woken.woken), (40 * MIB, 60 * MIB));
        assert_eq!(allocator.sleep_mode().wake(Tags::All).unwrap().woken, 0, "nothing is left to wake");
        assert!(Bytes(&*rig.backend).read(third, 30 * MIB) == contents);
        allocator.check_invariants();
        free_all(&allocator, [first, third]);
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// vllm 21336 and its like: memory was missing after some cycles, with allocations and frees in between.
fn vllm_21336_nothing_is_lost_over_cycles_with_work_in_between<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(small_granules());
        let (weights, cache) = (tagged(&allocator, "weights"), tagged(&allocator, "cache"));
        let contents = Contents::fill(rig, &allocator, &weights);
        let baseline = rig.used();
        for _ in 0..100 {
            let blocks: Vec<_> =
                (1..6).map(|n| malloc_in(&cache, &allocator, n * 7 * MIB, rig.stream())).collect();
            allocator
                .put_to_sleep(Tags::Only(&["weights"]), &Backup::HostPinned(Retention::Release))
                .unwrap();
            allocator.put_to_sleep(Tags::Only(&["cache"]), &Backup::Discard).unwrap();
            assert_eq!(rig.used(), 0);
            allocator.sleep_mode().wake(Tags::Only(&["weights"])).unwrap();
            assert_eq!(rig.used(), baseline, "the weights, and nothing else");
            free_all(&allocator, blocks);
            let woken = allocator.sleep_mode().wake(Tags::All).unwrap().woken;
            assert_eq!(woken, 0, "what was freed is not woken");
            allocator.check_invariants();
        }
        contents.check(rig);
        contents.free(&allocator);
        drop((weights, cache));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn requests_during_sleep_get_memory_that_is_awake() {
    // Only this one: granules of 20 MiB are counted.
    type P = PytorchPolicy;
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let old = malloc_in(&pool, &allocator, 5 * MIB, rig.stream());
        Bytes(&*rig.backend).write(old, &pattern(1, 5 * MIB));
        allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Release)).unwrap();
        let new = malloc_in(&pool, &allocator, 5 * MIB, rig.stream());
        assert_eq!(allocator.sleep_mode().is_asleep(new), Some(false));
        Bytes(&*rig.backend).write(new, &pattern(2, 5 * MIB));
        allocator.check_invariants();
        assert_eq!(
            allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap().slept,
            20 * MIB,
            "the new ones, too"
        );
        allocator.sleep_mode().wake(Tags::All).unwrap();
        assert!(Bytes(&*rig.backend).read(old, 5 * MIB) == pattern(1, 5 * MIB), "its backup was kept");
        free_all(&allocator, [old, new]);
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn what_sleeps_is_refused_where_it_would_be_used<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let ptr = malloc_in(&pool, &allocator, 5 * MIB, rig.stream());
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        let side = rig.new_stream();
        for at in [ptr, ptr.add(4096)] {
            let refusal = allocator.record_stream(at, side).unwrap_err();
            assert!(refusal.to_string().contains("wake its tag first"), "{refusal}");
        }
        let saved = allocator.pools().checkpoint(DEVICE, pool.id());
        assert!(matches!(saved, Err(AllocError::Checkpoint { .. })));
        assert_eq!(allocator.block_size(ptr), Some(5 * MIB), "it is known as before");
        assert!(allocator.pools().has_live(DEVICE, pool.id(), &[ptr].into()).unwrap());
        let segments = allocator.pools().snapshot(pool.id(), false).segments;
        assert_eq!(segments[0].blocks[0].extra[0].0.as_ref(), "asleep");
        let refusal = allocator.put_to_sleep(Tags::Only(&["wieghts"]), &Backup::Discard).unwrap_err();
        assert!(refusal.to_string().contains("(tags: weights)"), "{refusal}");
        allocator.sleep_mode().wake(Tags::All).unwrap();
        allocator.record_stream(ptr, side).unwrap();
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn the_out_of_memory_report_does_not_count_what_sleeps_and_a_tag_stays_until_its_pool_wakes<P: Policy>() {
    on_each(&machine().capacity(256 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let ptr = malloc_in(&pool, &allocator, 200 * MIB, rig.stream());
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        let refusal = allocator.malloc(300 * MIB, rig.stream()).unwrap_err();
        let AllocError::OutOfMemory(report) = &refusal else { panic!("{refusal}") };
        assert_eq!((report.asleep, report.shortfall()), (200 * MIB, 44 * MIB));
        assert!(refusal.to_string().contains("200.00 MiB of what is allocated sleep"), "{refusal}");
        let refusal = allocator.sleep_mode().set_tag(DEVICE, pool.id(), None).unwrap_err();
        assert!(refusal.to_string().contains("wake it first"), "{refusal}");
        allocator.sleep_mode().wake(Tags::All).unwrap();
        allocator.sleep_mode().set_tag(DEVICE, pool.id(), None).unwrap();
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings { caching: false, ..Settings::default() });
        let options = PoolOptions { sleep_tag: Some(SleepTag::new("weights")), ..PoolOptions::default() };
        let refusal = MemoryPool::new(&allocator, DEVICE, options).unwrap_err();
        assert!(refusal.to_string().contains("turn caching on"), "{refusal}");
    });
}

fn a_pool_that_goes_while_it_sleeps_leaves_nothing<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let [kept, freed] = [30 * MIB, 5 * MIB].map(|n| malloc_in(&pool, &allocator, n, rig.stream()));
        let backup = Backup::HostPinned(Retention::Release);
        allocator.put_to_sleep(Tags::All, &backup).unwrap();
        allocator.free(freed).unwrap();
        drop(pool);
        assert!(allocator.sleep_mode().backup_bytes() > 0, "one block lives on");
        allocator.free(kept).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.sleep_mode().backup_bytes(), 0);
        assert!(
            allocator.put_to_sleep(Tags::Only(&["weights"]), &backup).is_err(),
            "the tag went with the pool"
        );
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_machine_without_virtual_memory_refuses_and_fixed_segments_stay_awake() {
    // Only this one: fixed segments of given sizes stay awake.
    type P = PytorchPolicy;
    on_each(&machine().without_virtual_memory(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let options = PoolOptions { sleep_tag: Some(SleepTag::new("weights")), ..PoolOptions::default() };
        let refusal = MemoryPool::new(&allocator, DEVICE, options).unwrap_err();
        assert!(refusal.to_string().contains("virtual memory"), "{refusal}");
        rig.nothing_is_left(&allocator);
    });
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let fixed = malloc_in(&pool, &allocator, 5 * MIB, rig.stream());
        allocator.sleep_mode().set_tag(DEVICE, pool.id(), Some(SleepTag::new("late"))).unwrap();
        let growable = malloc_in(&pool, &allocator, 40 * MIB, rig.stream());
        let report = allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        assert_eq!(report.slept, 40 * MIB);
        assert_eq!((report.kept[0].bytes, report.kept[0].because), (20 * MIB, KeptBecause::Fixed));
        assert_eq!(allocator.sleep_mode().is_asleep(fixed), Some(false));
        allocator.sleep_mode().wake(Tags::All).unwrap();
        free_all(&allocator, [fixed, growable]);
        let refusal =
            allocator.sleep_mode().set_tag(DEVICE, PoolId::DEFAULT, Some(SleepTag::new("all"))).unwrap_err();
        assert!(refusal.to_string().contains("expandable_segments:True"), "{refusal}");
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// Puts all to sleep on another thread, and opens the gate once it is seen to wait.
fn sleep_behind(allocator: &Allocator, gate: Gate) -> SleepReport {
    let (done, finished) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| done.send(allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap()).unwrap());
        assert!(finished.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
        gate.open();
        finished.recv().unwrap()
    })
}

/// Memory is not unmapped under work, of any stream, and sleeping waits for it.
fn sleeping_waits_for_work_of_streams_that_were_never_recorded<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let (stream, side) = (rig.new_stream(), rig.new_stream());
        let ptr = malloc_in(&pool, &allocator, 20 * MIB, stream);
        let gate = rig.hold(side);
        rig.use_memory(side, ptr, 20 * MIB);
        assert_eq!(sleep_behind(&allocator, gate).slept, 20 * MIB);
        assert_eq!(rig.device.traps(), Vec::new());
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn sleeping_waits_for_frees_that_wait_for_streams<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let (stream, side) = (rig.new_stream(), rig.new_stream());
        let [live, pending] = [(); 2].map(|()| malloc_in(&pool, &allocator, 20 * MIB, stream));
        let gate = rig.hold(side);
        rig.use_memory(side, pending, 20 * MIB);
        allocator.record_stream(pending, side).unwrap();
        allocator.free(pending).unwrap();
        let slept = sleep_behind(&allocator, gate);
        assert_eq!((slept.slept, slept.uncached), (20 * MIB, 20 * MIB));
        allocator.free(live).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn a_block_that_is_half_asleep_is_freed_to_the_byte<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let ptr = malloc_in(&pool, &allocator, 80 * MIB, rig.stream());
        rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::Unmap, 3, ErrorKind::Other));
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap_err();
        rig.device.set_faults(FaultPlan::none());
        assert_eq!(allocator.sleep_mode().is_asleep(ptr), Some(true));
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn invariants_hold_while_memory_falls_asleep_and_wakes<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let ptr = malloc_in(&pool, &allocator, 80 * MIB, rig.stream());
        let weak = Arc::downgrade(&allocator);
        let (looked, looks) = mpsc::channel();
        allocator.hooks().on_segment(move |event| {
            if let Some(allocator) = weak.upgrade() {
                allocator.check_invariants();
                looked.send(event.change).unwrap();
            }
        });
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        allocator.sleep_mode().wake(Tags::All).unwrap();
        assert!(looks.try_iter().count() >= 2, "it was looked at in between");
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// To wait for a device would break its captures, also where only its work may use the memory.
fn captures_on_a_device_that_reaches_the_memory_are_not_broken<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let other = DeviceIndex(1);
        allocator.peers().enable(other, DEVICE).unwrap();
        let pool = tagged(&allocator, "weights");
        let ptr = malloc_in(&pool, &allocator, 80 * MIB, rig.stream());
        let stream = rig.backend.create_stream(other, 0).unwrap();
        let capture = GraphCapture::begin(&allocator, stream, CaptureMode::Relaxed, None).unwrap();
        let refusal = allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap_err();
        assert!(refusal.to_string().contains("a capture is under way on device 1"), "{refusal}");
        drop(capture.end().unwrap());
        assert_eq!(allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap().slept, 80 * MIB);
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn frees_during_sleep_keep_no_events<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let side = rig.new_stream();
        let cycle = || {
            let ptr = malloc_in(&pool, &allocator, 30 * MIB, rig.stream());
            allocator.record_stream(ptr, side).unwrap();
            allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
            allocator.free(ptr).unwrap();
            rig.device.calls().get(Call::CreateEvent)
        };
        let made = cycle();
        assert!((0..10).all(|_| cycle() == made), "what one block needed does for the next");
    });
}

fn graphs_replay_after_their_pool_has_slept<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let bytes = Bytes(&*rig.backend);
        let stream = rig.new_stream();
        let pool = tagged(&allocator, "graph");
        let capture = begin_in(&allocator, stream, Some(pool.id()));
        let scratch = allocator.malloc(20 * MIB, stream).unwrap();
        bytes.fill(stream, scratch, 5, 20 * MIB);
        allocator.free(scratch).unwrap();
        let result = allocator.malloc(4 * MIB, stream).unwrap();
        bytes.fill(stream, result, 7, 4 * MIB);
        let refusal = allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap_err();
        assert!(refusal.to_string().contains("a capture is under way"), "{refusal}");
        let mut graph = capture.end().unwrap();
        for round in 0..3 {
            // SAFETY: all its memory is its pool's.
            unsafe { graph.launch(stream) }.unwrap();
            let held = rig.used();
            let refusal = allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap_err();
            assert!(refusal.to_string().contains("serves captured graphs"), "{refusal}");
            let slept = allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Release)).unwrap();
            assert_eq!(allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap().slept, 0);
            assert_eq!(slept.slept, held, "round {round}: free memory that the graph knows sleeps, too");
            // SAFETY: as above.
            let refusal = unsafe { graph.launch(stream) }.unwrap_err();
            assert!(matches!(refusal, AllocError::Asleep { .. }), "{refusal}");
            assert_eq!(allocator.sleep_mode().wake(Tags::All).unwrap().woken, held, "and wakes");
            let read = bytes.read(result, 4 * MIB);
            assert!(read == vec![7; 4 * MIB as usize], "{}: round {round}", rig.name);
            bytes.write(result, &pattern(3, 4 * MIB));
        }
        // SAFETY: as above.
        unsafe { graph.launch(stream) }.unwrap();
        rig.backend.synchronize_stream(stream).unwrap();
        assert!(bytes.read(result, 4 * MIB) == vec![7; 4 * MIB as usize]);
        drop(graph);
        allocator.free(result).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

fn waking_gives_cached_memory_of_others_back_and_asks_callbacks<P: Policy>() {
    on_each(&machine().capacity(128 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let ptr = malloc_in(&pool, &allocator, 60 * MIB, rig.stream());
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        let other = allocator.malloc(100 * MIB, rig.stream()).unwrap();
        let refusal = allocator.sleep_mode().wake(Tags::All).unwrap_err();
        assert!(
            refusal.is_out_of_memory() && refusal.to_string().contains("keeps its contents"),
            "{refusal}"
        );
        allocator.check_invariants();
        allocator.free(other).unwrap();
        assert_eq!(
            allocator.sleep_mode().wake(Tags::All).unwrap().woken,
            60 * MIB,
            "its cached memory was in the way"
        );
        allocator.free(ptr).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// A buffer whose memory sleeps, slept and woke is still the one that frees it.
fn a_buffer_keeps_its_memory_over_sleep_and_wake<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(small_granules());
        let pool = tagged(&allocator, "weights");
        let buffers = [3 << 20, 13 << 20].map(|bytes| {
            let _scope = pool.enter(Filter::Always).unwrap();
            DeviceBuffer::<u8>::new(&allocator, bytes, rig.stream()).unwrap()
        });
        let refused = |ptr| {
            let Err(AllocError::InvalidPointer(wrong)) = allocator.free(ptr) else {
                panic!("{ptr} was freed")
            };
            assert_eq!(wrong.problem, Problem::Owned);
        };
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        buffers.iter().for_each(|buffer| refused(buffer.ptr()));
        let [drops_asleep, wakes] = buffers;
        drop(drops_asleep);
        allocator.sleep_mode().wake(Tags::All).unwrap();
        refused(wakes.ptr());
        drop(wakes);
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

granule_tests::for_each_policy!(
    a_buffer_keeps_its_memory_over_sleep_and_wake,
    contents_and_addresses_survive_a_hundred_cycles_and_memory_returns_to_the_byte,
    discarded_contents_cost_no_host_memory_and_addresses_stay,
    tags_sleep_apart_and_wake_in_the_order_of_their_priority,
    vllm_21336_nothing_is_lost_over_cycles_with_work_in_between,
    what_sleeps_is_refused_where_it_would_be_used,
    the_out_of_memory_report_does_not_count_what_sleeps_and_a_tag_stays_until_its_pool_wakes,
    a_pool_that_goes_while_it_sleeps_leaves_nothing,
    sleeping_waits_for_work_of_streams_that_were_never_recorded,
    sleeping_waits_for_frees_that_wait_for_streams,
    a_block_that_is_half_asleep_is_freed_to_the_byte,
    invariants_hold_while_memory_falls_asleep_and_wakes,
    captures_on_a_device_that_reaches_the_memory_are_not_broken,
    frees_during_sleep_keep_no_events,
    graphs_replay_after_their_pool_has_slept,
    waking_gives_cached_memory_of_others_back_and_asks_callbacks,
);
