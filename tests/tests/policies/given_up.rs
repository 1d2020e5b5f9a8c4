//! Memory that views show and no block uses is as free as any other: it leaves granule by granule, and granules of the
//! usual size are never why a request is refused.

use alloc_core::backend::{BackendError, CaptureMode, ErrorKind, Result, VirtualMemory};
use alloc_core::config::MemoryLimit;
use alloc_core::device::SegmentChange;
use alloc_core::error::AllocError;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, SleepTag, Tags};
use alloc_core::types::{DevicePtr, MIB, PhysicalHandle, PoolId, Stream};
use backend_openreg::{Call, FaultPlan, MemoryMode, OpenReg};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::Allocator;
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{free_all, of};
use granule_tests::views::{Aliases, Numbers, allocator, pieces};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A view of 36 MiB of free granules in which one block of 1 MiB lives; also the blocks beside those granules.
fn nearly_blank(rig: &Rig, allocator: &Allocator, stream: Stream) -> (DevicePtr, DevicePtr, Vec<DevicePtr>) {
    let live = pieces(allocator, stream, 3, 12);
    let view = allocator.malloc(36 * MIB, stream).unwrap();
    assert_eq!(rig.used(), 72 * MIB, "{}: nothing was taken for the view", rig.name);
    allocator.free(view).unwrap();
    let small = allocator.malloc_at(MIB, view.add(13 * MIB), stream).unwrap();
    allocator.check_invariants();
    (view, small, live)
}

#[test]
fn one_small_block_in_a_view_keeps_one_granule() {
    on_each(&of(100).memory(MemoryMode::Mapped), |rig| {
        let (allocator, stream, bytes) = (allocator(rig), rig.stream(), Bytes(&*rig.backend));
        let (view, small, live) = nearly_blank(rig, &allocator, stream);
        bytes.write(small, &pattern(5, MIB));
        allocator.empty_cache().unwrap();
        allocator.check_invariants();
        assert_eq!(rig.used(), 38 * MIB, "{}: all but one granule left", rig.name);
        assert_eq!(bytes.read(small, MIB), pattern(5, MIB), "{}: where the block lives", rig.name);
        for offset in [0, 15, 30] {
            let gone = allocator.malloc_at(MIB, view.add(offset * MIB), stream).unwrap_err();
            assert!(matches!(gone, AllocError::ExactAddress { .. }), "{}: {gone}", rig.name);
        }
        let beside = allocator.malloc_at(MIB / 2, view.add(12 * MIB), stream).unwrap();
        allocator.check_invariants();
        free_all(&allocator, live.into_iter().chain([small, beside]));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn what_a_view_shows_is_there_for_other_streams_while_a_block_lives_in_it() {
    on_each(&of(72), |rig| {
        let (allocator, stream) = (allocator(rig), rig.stream());
        let (_, small, live) = nearly_blank(rig, &allocator, stream);
        let other = allocator.malloc(34 * MIB, rig.new_stream()).expect("what is cached makes room");
        allocator.check_invariants();
        free_all(&allocator, live.into_iter().chain([small, other]));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn what_cannot_be_unmapped_stays_in_the_view_and_serves() {
    let rig = Rig::openreg(of(100));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let (view, small, live) = nearly_blank(&rig, &allocator, stream);
    rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::Unmap, 1, ErrorKind::Other));
    let _ = allocator.empty_cache();
    rig.device.set_faults(FaultPlan::none());
    allocator.check_invariants();
    let again = allocator.malloc_at(MIB, view.add(2 * MIB), stream);
    let later = allocator.malloc_at(MIB, view.add(20 * MIB), stream);
    assert!(again.is_ok() && later.is_err(), "the first run of mappings stayed: {again:?} {later:?}");
    allocator.check_invariants();
    free_all(&allocator, live.into_iter().chain([small, again.unwrap()]));
    rig.nothing_is_left(&allocator);
}

#[test]
fn a_private_pool_takes_what_the_device_has_left() {
    on_each(&of(600), |rig| {
        let (allocator, stream) = (allocator(rig), rig.stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let scope = pool.enter(Filter::Always).unwrap();
        let mut take = |mib| allocator.malloc(mib * MIB, stream).expect("the device has that left");
        let blocks = [512, 60, 24, 4].map(&mut take);
        assert_eq!(rig.used(), 600 * MIB, "{}: to the last byte", rig.name);
        drop(scope);
        allocator.check_invariants();
        blocks.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_device_that_maps_nothing_twice_gives_what_it_has_left() {
    let device = OpenReg::new(of(600)).unwrap();
    let backend = Arc::new(Interposed::new(device.clone(), Aliases::refused()));
    let rig = Rig { name: "no aliases", device, backend };
    let (allocator, stream) = (allocator(&rig), rig.stream());
    // So that the driver has said it.
    let live = pieces(&allocator, stream, 3, 4);
    let larger = allocator.malloc(12 * MIB, stream).unwrap();
    free_all(&allocator, live.into_iter().chain([larger]));
    allocator.empty_cache().unwrap();
    let most = allocator.malloc(560 * MIB, stream).unwrap();
    let left = (600 * MIB - rig.used()) / (2 * MIB) * 2 * MIB;
    assert!(left >= 4 * MIB, "there is something left: {left}");
    let last = allocator.malloc(left, stream).expect("it is there");
    allocator.check_invariants();
    free_all(&allocator, [most, last]);
    rig.nothing_is_left(&allocator);
}

/// Limits are kept to the byte, and what is below them is there.
#[test]
fn a_pool_takes_what_its_limit_leaves() {
    let rig = Rig::openreg(of(1000));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
    allocator.pools().set_hard_limit(DEVICE, pool.id(), Some(MemoryLimit::Bytes(100 * MIB))).unwrap();
    let _scope = pool.enter(Filter::Always).unwrap();
    let _first = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.malloc(60 * MIB, stream).expect("the limit leaves 60 MiB");
    assert!(allocator.malloc(2 * MIB, stream).unwrap_err().is_out_of_memory(), "and no more");
}

#[test]
fn granules_that_moved_are_counted() {
    let rig = Rig::openreg(of(100));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let moved = || allocator.stats(DEVICE).unwrap().granule.granules_moved;
    let live = pieces(&allocator, stream, 3, 12);
    assert_eq!(moved(), 0, "nothing has another address yet");
    let view = allocator.malloc(36 * MIB, stream).unwrap();
    assert_eq!(moved(), 18, "a view of 36 MiB shows 18 granules");
    free_all(&allocator, live.into_iter().chain([view]));
    rig.nothing_is_left(&allocator);
}

/// The first mapping of lifted memory is refused for lack of memory.
#[derive(Debug, Default)]
struct NoPageTables {
    unmapped: AtomicU64,
    refused: AtomicU64,
}

impl Hook for NoPageTables {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        if self.unmapped.load(Ordering::Relaxed) > 0 && self.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(BackendError::new(ErrorKind::OutOfMemory, 2, "map", DEVICE, "no page tables"));
        }
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.map(at, bytes, handle) }
    }

    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        self.unmapped.fetch_add(1, Ordering::Relaxed);
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.unmap(at, bytes) }
    }
}

#[test]
fn a_lack_of_memory_while_granules_move_is_a_lack_of_memory() {
    let device = OpenReg::new(of(72)).unwrap();
    let backend = Arc::new(Interposed::new(device.clone(), NoPageTables::default()));
    let rig = Rig { name: "no page tables", device, backend };
    let (allocator, first, second) = (allocator(&rig), rig.new_stream(), rig.new_stream());
    let _live = pieces(&allocator, first, 3, 12);
    let outcome = allocator.malloc(24 * MIB, second);
    allocator.check_invariants();
    outcome.expect("36 MiB are free: there are other remedies");
}

/// A capture that the program did not speak of.
#[test]
fn another_streams_capture_survives_a_miss() {
    let rig = Rig::openreg(of(200));
    let (allocator, first, second) = (allocator(&rig), rig.new_stream(), rig.new_stream());
    let _live = pieces(&allocator, first, 3, 12);
    let capture = rig.backend.capture().unwrap();
    capture.begin(first, CaptureMode::Relaxed).unwrap();
    allocator.malloc(40 * MIB, second).unwrap();
    capture.end(first).expect("nobody disturbed the capture");
}

/// The default pool's memory sleeps as a whole: with a tag it is in one place.
#[test]
fn the_default_pool_sleeps_with_all_its_blocks() {
    let rig = Rig::openreg(of(140));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    allocator.sleep_mode().set_tag(DEVICE, PoolId::DEFAULT, Some(SleepTag::new("all"))).unwrap();
    let live = pieces(&allocator, stream, 3, 12);
    let wide = allocator.malloc(36 * MIB, stream).unwrap();
    allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
    assert_eq!(rig.used(), 0, "all of it sleeps");
    allocator.sleep_mode().wake(Tags::All).unwrap();
    free_all(&allocator, live.into_iter().chain([wide]));
    rig.nothing_is_left(&allocator);
}

#[test]
fn granules_handed_over_are_counted() {
    let rig = Rig::openreg(of(72));
    let (allocator, first, second) = (allocator(&rig), rig.new_stream(), rig.new_stream());
    let _live = pieces(&allocator, first, 3, 12);
    let made = rig.device.calls().get(Call::CreatePhysical);
    allocator.malloc(24 * MIB, second).unwrap();
    assert_eq!(rig.device.calls().get(Call::CreatePhysical), made, "nothing is made");
    assert!(allocator.stats(DEVICE).unwrap().granule.granules_moved >= 12, "24 MiB moved");
}

/// The address of a block, or nothing where there is no memory for it.
fn served(allocator: &Allocator, bytes: u64, stream: Stream) -> Option<DevicePtr> {
    match allocator.malloc(bytes, stream) {
        Ok(ptr) => Some(ptr),
        Err(error) => {
            assert!(error.is_out_of_memory(), "{error}");
            None
        }
    }
}

/// A program whose sizes never repeat: it needs new views for ever. Returns the most that was mapped at a time.
fn unlike(rig: &Rig, allocator: &Allocator, steps: usize, ask: impl Fn(u64) -> Option<DevicePtr>) -> u64 {
    let mut numbers = Numbers(88_172_645_463_325_252);
    let mut live: Vec<(DevicePtr, u64)> = Vec::new();
    let (mut sum, mut most) = (0, 0);
    for _ in 0..steps {
        while sum > 6000 * MIB {
            let (ptr, bytes) = live.swap_remove(numbers.below(live.len() as u64) as usize);
            allocator.free(ptr).unwrap();
            sum -= bytes;
        }
        let bytes = MIB + numbers.below(300 * MIB);
        if let Some(ptr) = ask(bytes) {
            live.push((ptr, bytes));
            sum += bytes;
        }
        let usage = rig.device.usage();
        most = most.max(usage.bytes(Call::Map) - usage.bytes(Call::Unmap));
    }
    let calls = rig.device.calls();
    assert!(calls.get(Call::Map) > calls.get(Call::CreatePhysical) + 1_000, "views were made all the time");
    allocator.check_invariants();
    live.into_iter().for_each(|(ptr, _)| allocator.free(ptr).unwrap());
    most
}

/// What views show stays within a multiple of what is held.
#[test]
fn what_views_show_is_bounded() {
    let rig = Rig::openreg(of(8192));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let most = unlike(&rig, &allocator, 6_000, |bytes| served(&allocator, bytes, stream));
    // At home, in views, and the one that is being made.
    assert!(most <= 6 * 8192 * MIB, "{} MiB were mapped at a time", most / MIB);
    rig.nothing_is_left(&allocator);
}

/// Where to wait would break a capture that nobody told of, the bound is not kept, and no request is refused for it.
#[test]
fn a_bound_that_cannot_be_kept_refuses_nothing() {
    let rig = Rig::openreg(of(8192));
    let (allocator, stream) = (allocator(&rig), rig.new_stream());
    // Memory in two places is not tried in a capture.
    allocator.free(allocator.malloc(2 * MIB, stream).unwrap()).unwrap();
    let capture = rig.backend.capture().unwrap();
    capture.begin(stream, CaptureMode::Relaxed).unwrap();
    let most = unlike(&rig, &allocator, 2_500, |bytes| served(&allocator, bytes, stream));
    capture.end(stream).expect("nobody disturbed the capture");
    assert!(most > 5 * 8192 * MIB, "{} MiB: the bound was passed", most / MIB);
    rig.nothing_is_left(&allocator);
}

/// Views that are over the bound leave while a request has taken what its own view is to show. An observer that panics when it
/// hears of that keeps none of it.
#[test]
fn a_panic_while_views_leave_for_a_new_one_loses_nothing() {
    let rig = Rig::openreg(of(8192));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let (heard, panics) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let told = Arc::clone(&panics);
    allocator.hooks().on_segment(move |event| {
        if event.change == SegmentChange::Detaching && heard.fetch_add(1, Ordering::Relaxed) % 5 == 4 {
            told.fetch_add(1, Ordering::Relaxed);
            // Without a word on the terminal.
            resume_unwind(Box::new("the observer has a bug"));
        }
    });
    unlike(&rig, &allocator, 3_000, |bytes| {
        catch_unwind(AssertUnwindSafe(|| served(&allocator, bytes, stream))).unwrap_or_default()
    });
    assert!(panics.load(Ordering::Relaxed) > 5, "views left beside requests");
    while catch_unwind(AssertUnwindSafe(|| allocator.empty_cache().unwrap())).is_err() {}
    rig.nothing_is_left(&allocator);
}

#[test]
fn a_checkpoint_of_blocks_in_views_is_refused_and_one_of_blank_views_is_not() {
    let rig = Rig::openreg(of(140));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let live = pieces(&allocator, stream, 3, 12);
    let wide = allocator.malloc(36 * MIB, stream).unwrap();
    let refused = allocator.pools().checkpoint(DEVICE, PoolId::DEFAULT).unwrap_err();
    assert!(matches!(refused, AllocError::Checkpoint { .. }), "{refused}");
    allocator.free(wide).unwrap();
    let saved = allocator.pools().checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
    let _wide_again = allocator.malloc(36 * MIB, stream).unwrap();
    allocator.empty_cache().unwrap();
    allocator.pools().restore(&saved, None).unwrap();
    allocator.check_invariants();
    live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    rig.nothing_is_left(&allocator);
}

/// A program that repeats is not served from views after the default pool got a sleep tag.
#[test]
fn a_tag_closes_the_views_that_are_there() {
    let rig = Rig::openreg(of(200));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let live = pieces(&allocator, stream, 3, 12);
    let wide = allocator.malloc(36 * MIB, stream).unwrap();
    allocator.free(wide).unwrap();
    allocator.sleep_mode().set_tag(DEVICE, PoolId::DEFAULT, Some(SleepTag::new("all"))).unwrap();
    assert!(allocator.malloc_at(MIB, wide.add(MIB), stream).is_err(), "not even by name");
    allocator.sleep_mode().set_tag(DEVICE, PoolId::DEFAULT, None).unwrap();
    let named = allocator.malloc_at(MIB, wide.add(MIB), stream).unwrap();
    free_all(&allocator, live.into_iter().chain([named]));
    rig.nothing_is_left(&allocator);
}
