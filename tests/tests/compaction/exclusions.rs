//! What stays where it is.

use crate::programs::{BLOCK, Sparse, compact};
use alloc_core::backend::{Backend, CaptureMode};
use alloc_core::config::Settings;
use alloc_core::error::AllocError;
use alloc_core::policy::PytorchPolicy;
use alloc_core::sleep::{Backup, Retention, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, PhysicalHandle, PoolId};
use backend_openreg::{Call, Clock, Driver};
use granule_tests::bytes::{Bytes, first_other, pattern};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::mapped;
use std::sync::mpsc;
use std::time::Duration;

/// The physical memory behind a block's first byte.
fn memory_of(rig: &Rig, ptr: DevicePtr) -> PhysicalHandle {
    let vm = rig.device.virtual_memory().unwrap();
    let handle = Driver(&rig.device).retain_physical(ptr).unwrap();
    // SAFETY: rule 1: retained just now; the mapping keeps the memory.
    unsafe { vm.release_physical(handle) }.unwrap();
    handle
}

/// Nothing moves, for a reason that the error has.
fn refused(rig: &Rig, program: &Sparse, because: &str) {
    let (used, maps) = (rig.used(), rig.device.calls().get(Call::Map));
    let error = compact(&program.allocator).unwrap_err();
    assert!(matches!(error, AllocError::Limit(_)) && error.to_string().contains(because), "{error}");
    assert_eq!((rig.used(), rig.device.calls().get(Call::Map)), (used, maps), "nothing moves");
    program.check(rig, because);
}

#[test]
fn a_pinned_block_keeps_its_memory_until_it_is_freed() {
    on_each(&mapped(1000), |rig| {
        let program = Sparse::new(rig, Settings::default());
        let pinned = program.live[2];
        program.allocator.pin_physical(pinned).unwrap();
        let (mine, other) = (memory_of(rig, pinned), memory_of(rig, program.live[6]));
        assert!(compact(&program.allocator).unwrap().gained > 0);
        assert_eq!(memory_of(rig, pinned), mine, "{}: it is not moved", rig.name);
        assert_ne!(memory_of(rig, program.live[6]), other, "{}: and others are", rig.name);
        program.check(rig, "beside a pinned block");
        // Whoever gets its address next has promised nothing.
        program.allocator.free(pinned).unwrap();
        program.allocator.malloc_at(BLOCK, pinned, program.stream).unwrap();
        Bytes(&*rig.backend).write(pinned, &pattern(2, BLOCK));
        assert!(compact(&program.allocator).unwrap().gained > 0, "{}: it moves", rig.name);
        assert_ne!(memory_of(rig, pinned), mine, "{}", rig.name);
        program.check(rig, "after the pin is gone");
        let nowhere = program.allocator.pin_physical(DevicePtr(4096)).unwrap_err();
        assert!(matches!(nowhere, AllocError::InvalidPointer(_)), "{nowhere}");
        program.end(rig);
    });
}

/// Whoever has the address next has pinned nothing.
fn moves_again(rig: &Rig, program: &Sparse, ptr: DevicePtr, what: &str) {
    let before = memory_of(rig, ptr);
    assert!(compact(&program.allocator).unwrap().gained > 0, "{what}");
    assert_ne!(memory_of(rig, ptr), before, "{what}: the block is moved");
}

#[test]
fn a_pin_ends_with_a_block_that_is_freed_asleep() {
    let rig = Rig::openreg(mapped(1000));
    let program = Sparse::new(&rig, Settings::default());
    let (pinned, sleep) = (program.live[2], program.allocator.sleep_mode());
    program.allocator.pin_physical(pinned).unwrap();
    sleep.set_tag(DEVICE, PoolId::DEFAULT, Some(SleepTag::new("all"))).unwrap();
    program.allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Release)).unwrap();
    program.allocator.free(pinned).unwrap();
    sleep.wake(Tags::All).unwrap();
    sleep.set_tag(DEVICE, PoolId::DEFAULT, None).unwrap();
    program.allocator.malloc(48 * MIB, program.stream).and_then(|ptr| program.allocator.free(ptr)).unwrap();
    program.allocator.malloc_at(BLOCK, pinned, program.stream).unwrap();
    Bytes(&*rig.backend).write(pinned, &pattern(2, BLOCK));
    moves_again(&rig, &program, pinned, "freed asleep");
    program.check(&rig, "after the pin is gone");
    program.end(&rig);
}

#[test]
fn a_pin_ends_where_a_checkpoint_is_restored() {
    let rig = Rig::openreg(mapped(1000));
    let program = Sparse::new(&rig, Settings::default());
    let pinned = program.live[2];
    program.allocator.pin_physical(pinned).unwrap();
    let saved = program.allocator.pools().checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
    let restored = program.allocator.pools().restore(&saved, None).unwrap();
    assert!(restored.freed.contains(&pinned) && restored.allocated.contains(&pinned));
    moves_again(&rig, &program, pinned, "restored");
    program.check(&rig, "after the pin is gone");
    program.end(&rig);
}

#[test]
fn what_other_processes_have_keeps_its_memory() {
    let rig = Rig::openreg(mapped(1000));
    let mut program = Sparse::new(&rig, Settings::default());
    let shared = program.live[2];
    let before = memory_of(&rig, shared);
    let handle = program.allocator.sharing().share(shared).unwrap();
    assert!(compact(&program.allocator).unwrap().gained > 0);
    assert_eq!(memory_of(&rig, shared), before, "it is not moved");
    program.check(&rig, "beside a shared block");
    drop(handle);
    // What is left of another granule can be shared, and stays then.
    let left = program.live[6];
    let (handle, before) = (program.allocator.sharing().share(left).unwrap(), memory_of(&rig, left));
    program.allocator.free(program.live.pop().unwrap()).unwrap();
    compact(&program.allocator).unwrap();
    assert_eq!(memory_of(&rig, left), before, "it is not moved again");
    drop(handle);
    program.end(&rig);
}

#[test]
fn blocks_that_wait_for_a_stream_keep_their_memory() {
    let rig = Rig::openreg(mapped(1000).clock(Clock::Workers));
    let mut program = Sparse::new(&rig, Settings::default());
    compact(&program.allocator).unwrap();
    let other = rig.new_stream();
    let gate = rig.hold(other);
    let pending = program.live.remove(2);
    program.allocator.record_stream(pending, other).unwrap();
    rig.use_memory(other, pending, BLOCK);
    program.allocator.free(pending).unwrap();
    gate.open();
    compact(&program.allocator).unwrap();
    assert_eq!(rig.device.traps(), Vec::new(), "work on it ends first");
    program.live.insert(2, program.allocator.malloc(BLOCK, program.stream).unwrap());
    program.end(&rig);
}

#[test]
fn queued_work_is_waited_for() {
    let rig = Rig::openreg(mapped(1000).clock(Clock::Workers));
    let program = Sparse::new(&rig, Settings::default());
    let late = rig.new_stream();
    for ptr in &program.live {
        rig.use_memory(late, *ptr, BLOCK);
    }
    assert!(compact(&program.allocator).unwrap().gained > 0);
    assert_eq!(rig.device.traps(), Vec::new(), "no memory left while work used it");
    program.check(&rig, "behind work");
    program.end(&rig);
}

/// It runs on the other device's stream, and is in no list of uses.
#[test]
fn a_copy_between_devices_is_waited_for() {
    let rig = Rig::openreg(mapped(1000).devices(2).clock(Clock::Workers));
    let program = Sparse::new(&rig, Settings::default());
    let elsewhere = rig.backend.create_stream(DeviceIndex(1), 0).unwrap();
    let there = program.allocator.malloc(BLOCK, elsewhere).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let held_up = Box::new(move || {
        let _ = gate.recv_timeout(Duration::from_secs(10));
    });
    rig.backend.launch_host_function(elsewhere, held_up).unwrap();
    let (to, from) = ((DeviceIndex(1), there), (DEVICE, program.live[2]));
    // SAFETY: rule 2: both live until the end.
    unsafe { program.allocator.peers().copy_async(to, from, BLOCK, elsewhere) }.unwrap();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        open.send(()).unwrap();
    });
    assert!(compact(&program.allocator).unwrap().gained > 0);
    assert!(rig.backend.query_stream(elsewhere).unwrap().is_ready(), "the copy is over before memory moves");
    opener.join().unwrap();
    let copied = Bytes(&*rig.backend).read(there, BLOCK);
    assert!(copied == Bytes(&*rig.backend).read(program.live[2], BLOCK), "and has read what was there");
    assert_eq!(rig.device.traps(), Vec::new());
    program.allocator.free(there).unwrap();
    program.end(&rig);
}

#[test]
fn what_a_view_shows_keeps_its_memory() {
    on_each(&mapped(300), |rig| {
        let program = Sparse::new(rig, Settings::default());
        let wide = program.allocator.malloc(24 * MIB, program.stream).unwrap();
        Bytes(&*rig.backend).fill(program.stream, wide, 0xab, 24 * MIB);
        compact(&program.allocator).unwrap();
        program.check(rig, "beside a view");
        let is = first_other(&Bytes(&*rig.backend).read(wide, 24 * MIB), 0xab).is_none();
        assert!(is, "{}: what lies in the view has its contents", rig.name);
        program.allocator.free(wide).unwrap();
        program.end(rig);
    });
}

/// What is left of a granule is one like any other.
#[test]
fn what_is_left_of_granules_sleeps() {
    let rig = Rig::openreg(mapped(1000));
    let program = Sparse::new(&rig, Settings::default());
    let gained = compact(&program.allocator).unwrap().gained;
    let before = program.allocator.stats(DEVICE).unwrap().reserved_bytes.all.current.unsigned_abs();
    let sleep = program.allocator.sleep_mode();
    sleep.set_tag(DEVICE, PoolId::DEFAULT, Some(SleepTag::new("all"))).unwrap();
    let report = program.allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Release)).unwrap();
    let kept: u64 = report.kept.iter().map(|kept| kept.bytes).sum();
    assert!(gained > 0);
    assert_eq!((report.slept + report.uncached, kept), (before, 0), "{report:?}");
    sleep.wake(Tags::All).unwrap();
    program.check(&rig, "awake again");
    sleep.set_tag(DEVICE, PoolId::DEFAULT, None).unwrap();
    program.end(&rig);
}

#[test]
fn nothing_moves_while_somebody_may_know_physical_memory() {
    let rig = Rig::openreg(mapped(1000));
    let program = Sparse::new(&rig, Settings::default());
    program.allocator.hooks().on_segment(|_| ());
    refused(&rig, &program, "observes");
    let program = Sparse::new(&rig, Settings::default());
    program.allocator.hooks().on_trace(|_, _| ());
    refused(&rig, &program, "observes");
}

#[test]
fn nothing_moves_that_other_devices_reach() {
    let rig = Rig::openreg(mapped(1000).devices(2));
    let program = Sparse::new(&rig, Settings::default());
    program.allocator.peers().enable(DeviceIndex(1), DEVICE).unwrap();
    refused(&rig, &program, "other devices");
}

#[test]
fn nothing_moves_during_a_capture() {
    let rig = Rig::openreg(mapped(1000));
    let program = Sparse::new(&rig, Settings::default());
    let stream = rig.new_stream();
    program.allocator.pools().mark_capture_begin(DEVICE).unwrap();
    let capture = rig.backend.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    let calls = rig.device.calls().total();
    let error = compact(&program.allocator).unwrap_err();
    assert!(error.to_string().contains("capture"), "{error}");
    assert_eq!(rig.device.calls().total(), calls, "nothing is asked of the driver");
    capture.end(stream).expect("the capture is not broken");
}

#[test]
fn nothing_moves_in_hardened_mode() {
    let rig = Rig::openreg(mapped(1000));
    let program = Sparse::new(&rig, Settings { hardened: true, ..Settings::default() });
    refused(&rig, &program, "hardened");
}

#[test]
fn nothing_moves_but_under_the_policy_granule() {
    let rig = Rig::openreg(mapped(1000));
    let growable = Settings { expandable_segments: true, ..Settings::default() };
    let allocator = rig.with_policy::<PytorchPolicy>(growable);
    let blocks: Vec<_> = (0..16).map(|_| allocator.malloc(3 * MIB, rig.stream()).unwrap()).collect();
    for ptr in blocks.iter().skip(1) {
        allocator.free(*ptr).unwrap();
    }
    let error = compact(&allocator).unwrap_err();
    assert!(error.to_string().contains("policy:granule"), "{error}");
    allocator.free(blocks[0]).unwrap();
    rig.nothing_is_left(&allocator);
}
