//! Memory in two places is tried before the first view: once, by contents, with nothing left behind. Where a device lies, the
//! policy does without.

use alloc_core::aliases;
use alloc_core::backend::{
    Backend, CaptureMode, CopyKind, ErrorKind, HandleType, Result as Answer, VirtualMemory,
};
use alloc_core::config::Settings;
use alloc_core::graph::GraphCapture;
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, PhysicalHandle, Stream};
use backend_openreg::{Call, Clock, FaultPlan, OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::Allocator;
use granule_tests::log::Log;
use granule_tests::policy::GranulePolicy;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{free_all, mapped, of};
use granule_tests::views::{Aliases, allocator, contents_survive_over, pieces};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Streams that trials made: each has one of its own.
fn trials(device: &OpenReg) -> u64 {
    device.calls().get(Call::CreateStream)
}

/// Whether a block of 36 MiB is served from what [`pieces`] leaves, which takes a view.
fn has_views(rig: &Rig, allocator: &Allocator, stream: Stream) -> bool {
    let live = pieces(allocator, stream, 3, 12);
    let used = rig.used();
    let block = allocator.malloc(36 * MIB, stream).unwrap();
    let shown = rig.used() == used;
    allocator.check_invariants();
    free_all(allocator, live.into_iter().chain([block]));
    shown
}

fn swapped(config: OpenRegConfig) -> (Rig, Arc<Interposed<Aliases>>) {
    let device = OpenReg::new(config).unwrap();
    let backend = Arc::new(Interposed::new(device.clone(), Aliases::swapped()));
    (Rig { name: "swapped", device, backend: backend.clone() }, backend)
}

/// Blocks in views wrote into others.
#[test]
fn contents_survive_where_the_second_place_shows_other_memory() {
    for granularity in [2 * MIB, 64 << 10] {
        let machine = OpenReg::new(mapped(48).granularity(granularity)).unwrap();
        let tried = contents_survive_over::<GranulePolicy>(
            machine.clone(),
            Aliases::swapped(),
            Settings::default(),
            (3, 400),
        );
        assert_eq!(tried, 2, "two granules are tried, and no view is made");
        assert_eq!((machine.used(DEVICE), machine.traps()), (0, Vec::new()));
    }
}

#[test]
fn a_device_that_lies_takes_more_memory_instead_and_it_is_told_once() {
    let (rig, backend) = swapped(mapped(120));
    let (allocator, stream, log) = (allocator(&rig), rig.stream(), Log::default());
    tracing::subscriber::with_default(log.clone(), || {
        assert!(!has_views(&rig, &allocator, stream));
        allocator.empty_cache().unwrap();
        assert!(!has_views(&rig, &allocator, stream));
    });
    let told =
        log.take("memory in two places was refused, so policy:granule serves no request from free memory");
    let [(level, text)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*level, tracing::Level::WARN);
    assert!(text.contains("does not show what was written") && text.ends_with("device=0"), "{text}");
    assert_eq!((backend.hook().count(), trials(&rig.device)), (2, 1), "it is tried once");
    rig.nothing_is_left(&allocator);
    let listed = aliases::dropped(&*rig.backend, DEVICE).expect("whoever asks is told");
    assert_eq!(listed.property, "memory in two places");
    assert_eq!(rig.used(), 0);
}

#[test]
fn an_honest_device_is_tried_once_by_each_allocator_and_gets_all_back() {
    on_each(&mapped(200), |rig| {
        let stream = rig.stream();
        let small = allocator(rig);
        free_all(&small, [small.malloc(MIB, stream).unwrap()]);
        assert_eq!(trials(&rig.device), 0, "{}: small requests need no views", rig.name);
        drop(small);
        for number in 1..=2 {
            let allocator = allocator(rig);
            let before = rig.device.calls();
            let block = allocator.malloc(2 * MIB, stream).unwrap();
            let calls = rig.device.calls().since(&before);
            assert_eq!(rig.used(), 2 * MIB, "{}: what was tried went back", rig.name);
            let stats = allocator.stats(DEVICE).unwrap();
            assert_eq!((stats.num_device_alloc, stats.reserved_bytes.all.peak), (1, 2 << 20), "{}", rig.name);
            let [create, map, unmap, copies] =
                [Call::CreatePhysical, Call::Map, Call::Unmap, Call::CopyAsync].map(|call| calls.get(call));
            assert_eq!((create, map, unmap, copies), (3, 5, 1, 30), "{}: with the block's own", rig.name);
            free_all(&allocator, [block]);
            assert!(has_views(rig, &allocator, stream), "{}", rig.name);
            assert_eq!(trials(&rig.device), number, "{}", rig.name);
            rig.nothing_is_left(&allocator);
        }
        assert_eq!(aliases::dropped(&*rig.backend, DEVICE), None, "{}", rig.name);
    });
}

/// A device whose copies move no bytes loses none.
#[test]
fn memory_without_contents_is_shown_in_two_places() {
    on_each(&of(120), |rig| {
        let allocator = allocator(rig);
        assert!(has_views(rig, &allocator, rig.stream()), "{}", rig.name);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn it_is_not_tried_beside_a_capture_and_no_view_is_made_until_it_was() {
    on_each(&mapped(300), |rig| {
        let (allocator, stream, captured) = (allocator(rig), rig.stream(), rig.new_stream());
        let before = trials(&rig.device);
        let capture = GraphCapture::begin(&allocator, captured, CaptureMode::ThreadLocal, None).unwrap();
        let inside = allocator.malloc(3 * MIB, captured).unwrap();
        assert!(!has_views(rig, &allocator, stream), "{}", rig.name);
        assert_eq!(trials(&rig.device), before, "{}", rig.name);
        allocator.free(inside).unwrap();
        drop(capture.end().expect("nothing broke it"));
        allocator.empty_cache().unwrap();
        assert!(has_views(rig, &allocator, stream), "{}", rig.name);
        assert_eq!(trials(&rig.device), before + 1, "{}", rig.name);
        rig.nothing_is_left(&allocator);
    });
}

/// The program's own stream may be busy for long.
#[test]
fn a_trial_waits_for_no_work_of_the_program() {
    let rig = Rig::openreg(mapped(120).clock(Clock::Workers));
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let gate = rig.hold(stream);
    let block = allocator.malloc(4 * MIB, stream).unwrap();
    assert_eq!(trials(&rig.device), 1);
    gate.open();
    free_all(&allocator, [block]);
    rig.backend.synchronize_stream(stream).unwrap();
    rig.nothing_is_left(&allocator);
}

#[test]
fn where_memory_is_short_it_is_tried_again_at_the_next_growth() {
    let rig = Rig::openreg(mapped(120));
    let (first, second, stream) = (allocator(&rig), allocator(&rig), rig.stream());
    let most = first.malloc(118 * MIB, stream).unwrap();
    let last = second.malloc(2 * MIB, stream).expect("a trial that has no room is no reason to refuse");
    assert_eq!((rig.used(), trials(&rig.device)), (120 * MIB, 1), "only the first had room");
    free_all(&first, [most]);
    free_all(&second, [last]);
    [&first, &second].into_iter().for_each(|allocator| allocator.empty_cache().unwrap());
    assert!(has_views(&rig, &second, stream));
    assert_eq!(trials(&rig.device), 2);
    rig.nothing_is_left(&second);
}

/// Writes through a second place get lost: it shows what is written in the first, and not the other way round.
#[derive(Debug, Default)]
struct OneWay {
    firsts: Mutex<BTreeSet<u64>>,
    seconds: Mutex<Vec<Range<u64>>>,
}

impl Hook for OneWay {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Answer<()> {
        if !self.firsts.lock().unwrap().insert(handle.raw) {
            self.seconds.lock().unwrap().push(at.0..at.0 + bytes);
        }
        // SAFETY: the caller's promise, passed on; so below.
        unsafe { inner.map(at, bytes, handle) }
    }
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Answer<()> {
        if self.seconds.lock().unwrap().iter().any(|second| second.contains(&dst.0)) {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }
}

#[test]
fn a_lie_in_one_direction_is_found() {
    let backend = Interposed::new(OpenReg::new(mapped(16)).unwrap(), OneWay::default());
    let found = aliases::dropped(&backend, DEVICE).expect("what is written in the second place is lost");
    assert!(found.reason.contains("the first place does not show what was written in the second"), "{found}");
}

/// What is made and not ended.
#[derive(Debug, Default)]
struct Open([AtomicI64; 4]);

impl Open {
    fn count(&self, kind: usize, more: i64) {
        self.0[kind].fetch_add(more, Ordering::Relaxed);
    }

    fn all(&self) -> [i64; 4] {
        [0, 1, 2, 3].map(|kind| self.0[kind].load(Ordering::Relaxed))
    }
}

impl Hook for Open {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Answer<Stream> {
        inner.create_stream(device, priority).inspect(|_| self.count(0, 1))
    }
    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Answer<()> {
        // SAFETY: the caller's promise, passed on; so below.
        unsafe { inner.destroy_stream(stream) }.inspect(|()| self.count(0, -1))
    }
    fn reserve_address(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Answer<DevicePtr> {
        inner.reserve_address(device, bytes, alignment, hint).inspect(|_| self.count(1, 1))
    }
    unsafe fn release_address(&self, inner: &dyn VirtualMemory, base: DevicePtr, bytes: u64) -> Answer<()> {
        // SAFETY: as above.
        unsafe { inner.release_address(base, bytes) }.inspect(|()| self.count(1, -1))
    }
    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Answer<PhysicalHandle> {
        inner.create_physical(device, bytes, handle_type).inspect(|_| self.count(2, 1))
    }
    unsafe fn release_physical(&self, inner: &dyn VirtualMemory, handle: PhysicalHandle) -> Answer<()> {
        // SAFETY: as above.
        unsafe { inner.release_physical(handle) }.inspect(|()| self.count(2, -1))
    }
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Answer<()> {
        // SAFETY: as above.
        unsafe { inner.map(at, bytes, handle) }
            .inspect(|()| self.count(3, i64::try_from(bytes).unwrap_or(i64::MAX)))
    }
    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Answer<()> {
        // SAFETY: as above.
        unsafe { inner.unmap(at, bytes) }
            .inspect(|()| self.count(3, -i64::try_from(bytes).unwrap_or(i64::MAX)))
    }
}

/// Runs a program on a machine of its own with these faults at its first growth; returns how many driver calls that made.
fn with_faults(faults: FaultPlan) -> u64 {
    let device = OpenReg::new(mapped(120)).unwrap();
    let backend = Arc::new(Interposed::new(device.clone(), Open::default()));
    let rig = Rig { name: "faults", device, backend: backend.clone() };
    let (allocator, stream) = (allocator(&rig), rig.stream());
    let before = rig.device.calls();
    rig.device.set_faults(faults.clone());
    let first = allocator.malloc(4 * MIB, stream);
    let calls = rig.device.calls().since(&before).total();
    rig.device.set_faults(FaultPlan::none());
    let first = first.or_else(|_| allocator.malloc(4 * MIB, stream)).unwrap();
    assert!(rig.used() <= 16 * MIB, "{faults:?}: {}", rig.used());
    free_all(&allocator, [first]);
    assert!(has_views(&rig, &allocator, stream), "{faults:?}: a driver that fails once is survived");
    rig.nothing_is_left(&allocator);
    drop(allocator);
    assert_eq!(backend.hook().all(), [0; 4], "{faults:?}: nothing is left open");
    calls
}

#[test]
fn every_driver_call_of_a_trial_fails_in_turn_and_nothing_is_left() {
    let calls = with_faults(FaultPlan::none());
    assert!((50..80).contains(&calls), "a trial makes few calls: {calls}");
    for k in 1..=calls {
        for kind in [ErrorKind::Other, ErrorKind::OutOfMemory] {
            with_faults(FaultPlan::none().fail_nth(k, kind));
        }
    }
}

/// What a driver refuses to undo again and again is undone later.
#[test]
fn what_cannot_be_undone_at_once_is_left_over_and_goes_later() {
    for call in [Call::Unmap, Call::ReleasePhysical, Call::ReleaseAddress] {
        with_faults(FaultPlan::none().fail_all(call, ErrorKind::Other));
    }
}
