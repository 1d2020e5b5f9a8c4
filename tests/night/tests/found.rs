//! Histories as nights print them, and that the rules they are judged by can be broken.

use alloc_core::backend::{Backend, ErrorKind, EventFlags};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB};
use backend_openreg::{Call, FaultPlan};
use night::history;
use night::op::Op;
use night::setup::Setup;
use night::world::fit::Wanted;
use night::world::{World, memory};

/// A run of a seed is the same each time, and another seed's is another.
#[test]
fn a_seed_is_one_history() {
    let run = |seed| {
        let ops = night::history::of_seed(seed, 300);
        night::history::run(seed, ops.into_iter().enumerate(), false)
    };
    let [one, again, other] = [1, 1, 2].map(run);
    assert_eq!((one.hash, one.met, one.ops), (again.hash, again.met, again.ops));
    assert_ne!(one.hash, other.hash);
    assert_eq!(one.finding, None);
}

/// The blocks of a pool that is gone sleep with its tag.
#[test]
fn seed_4_order() {
    use night::op::Op::*;
    night::history::replay(
        4,
        &[
            Alloc { at: 120, stream: 1, bytes: 681_314 },
            Pool { at: 15, device: 79, kind: 4 },
            AllocIn { pool: 98, stream: 6, bytes: 1205 },
            Alloc { at: 137, stream: 104, bytes: 855_892 },
            AllocIn { pool: 174, stream: 135, bytes: 3103 },
            EndPool { pool: 157 },
            Free { nth: 54285 },
            Sleep { at: 218, tag: 2, backup: 1 },
            Free { nth: 48251 },
            Free { nth: 16466 },
            Use { nth: 61963, stream: 171, told: true },
        ],
    );
}

/// The streams on which contents are copied away have the handle of one that the program destroyed.
#[test]
fn seed_7039_dead_stream() {
    use night::op::Op::*;
    night::history::replay(
        7039,
        &[
            Pool { at: 114, device: 120, kind: 5 },
            Stream { process: 33, device: 120, lag: 1 },
            EndStream { stream: 203 },
            AllocIn { pool: 88, stream: 103, bytes: 614 },
            Sleep { at: 132, tag: 1, backup: 2 },
        ],
    );
}

/// A pool serves a capture, then ordinary requests: a launch writes what the capture freed.
#[test]
fn seed_9141_bytes() {
    use night::op::Op::*;
    night::history::replay(
        9141,
        &[
            Stream { process: 90, device: 131, lag: 8 },
            Pool { at: 58, device: 59, kind: 2 },
            Capture { at: 91, stream: 173, mode: 0, pool: 54 },
            CaptureAlloc { bytes: 387_789 },
            CaptureFree { nth: 125 },
            EndCapture { well: true },
            AllocIn { pool: 53, stream: 76, bytes: 352 },
            Launch { graph: 62, stream: 226 },
        ],
    );
}

/// A pool sleeps beside a capture on another device.
#[test]
fn seed_10104_capture() {
    use night::op::Op::*;
    night::history::replay(
        10104,
        &[
            Stream { process: 61, device: 149, lag: 2000 },
            Capture { at: 58, stream: 72, mode: 2, pool: 47 },
            Pool { at: 126, device: 37, kind: 4 },
            AllocIn { pool: 108, stream: 127, bytes: 858_283 },
            Sleep { at: 60, tag: 0, backup: 3 },
        ],
    );
}

#[test]
fn a_stream_is_dead_whoever_destroyed_it() {
    for by_engine in [false, true] {
        let world = World::new(3);
        let process = &world.processes[0];
        let driver = process.wire.to(process.machine.clone());
        let stream = driver.create_stream(alloc_core::types::DeviceIndex(0), 0).unwrap();
        driver.query_stream(stream).unwrap();
        assert_eq!(world.verdict.found(), None, "it is alive");
        if by_engine {
            // SAFETY: rule 1: made above, and asked about by nobody but the line below.
            unsafe { driver.destroy_stream(stream) }.unwrap();
        } else {
            process.wire.set_dead(stream, true);
        }
        let _ = driver.query_stream(stream);
        assert_eq!(world.verdict.found().map(|found| found.oracle), Some("dead stream"));
    }
}

/// The driver did not take the page-locked memory of a backup back, once.
#[test]
fn seed_20314_end() {
    use night::op::Op::*;
    night::history::replay(
        20314,
        &[
            Pool { at: 238, device: 100, kind: 4 },
            Pool { at: 134, device: 39, kind: 1 },
            AllocIn { pool: 158, stream: 149, bytes: 616 },
            Pool { at: 196, device: 209, kind: 7 },
            Fault { process: 216, call: 142, nth: 4, effect: 1 },
            AllocIn { pool: 242, stream: 13, bytes: 3187 },
            EndPool { pool: 76 },
            AllocIn { pool: 150, stream: 140, bytes: 603_014 },
            AllocIn { pool: 73, stream: 141, bytes: 2439 },
            AllocIn { pool: 151, stream: 27, bytes: 493 },
            Free { nth: 53921 },
            AllocIn { pool: 1, stream: 63, bytes: 1_851_525 },
            Sleep { at: 130, tag: 2, backup: 3 },
        ],
    );
}

#[test]
fn a_byte_that_another_one_wrote_is_found() {
    let world = World::new(3);
    world.state().begin(0);
    memory::alloc(&world, 0, 0, 4096);
    let (ptr, stream) = {
        let state = world.state();
        (state.blocks[0].ptr, state.lanes[state.blocks[0].home].stream)
    };
    // SAFETY: rule 2: a live block of 4096 bytes, in the order of its stream.
    unsafe { world.machine(0).memset_async(ptr, 7, 1, stream) }.unwrap();
    memory::free(&world, 0);
    world.machine(0).synchronize_stream(stream).unwrap();
    assert_eq!(world.verdict.found().map(|found| found.oracle), Some("bytes"));
}

#[test]
fn what_is_free_for_a_refused_request_is_found() {
    let suits = |seed: &u64| {
        let setup = Setup::of(*seed);
        let settings = &setup.settings[0][0];
        !setup.reuse && settings.max_split_size == u64::MAX && !settings.throw_on_oom
    };
    let world = World::new((1..).find(suits).unwrap());
    world.state().begin(0);
    memory::alloc(&world, 0, 0, 3 * MIB);
    memory::alloc(&world, 0, 0, 3 * MIB);
    let stream = {
        let state = world.state();
        state.lanes[state.blocks[0].home].stream
    };
    let wanted = |rounded| Wanted { site: 0, stream, rounded, needed: rounded };
    assert_eq!(wanted(1 << 40).found(&world), None);
    memory::free(&world, 0);
    world.sites[0].allocator.synchronise(stream.device).unwrap();
    assert!(wanted(3 * MIB).found(&world).is_some(), "the block is free");
    assert_eq!(wanted(1 << 40).found(&world), None);
}

#[test]
fn steps_without_a_reason_are_found() {
    let world = World::new(3);
    night::oracle::always(&world, 0, 900);
    assert_eq!(world.verdict.found(), None);
    night::oracle::always(&world, 0, 100_000);
    assert_eq!(world.verdict.found().map(|found| found.oracle), Some("steps"));
}

#[test]
fn what_is_left_is_found() {
    // Nothing is held when the program ends, as far as figures say; the machine knows better.
    let world = night::oracle::end(World::new(3));
    let leaked = world.machine(0).malloc(DeviceIndex(0), 4096).unwrap();
    let verdict = world.verdict.clone();
    night::oracle::close(world);
    assert_eq!(verdict.found().map(|found| found.oracle), Some("end"), "{leaked} was not given back");
}

#[test]
fn two_places_of_a_block_that_are_the_same_are_written_once() {
    history::replay(
        179,
        &[
            Op::Configure { at: 203, what: 3 },
            Op::Configure { at: 70, what: 3 },
            Op::Alloc { at: 15, stream: 27, bytes: 8_728_634 },
            Op::Use { nth: 24640, stream: 229, told: true },
        ],
    );
}

#[test]
fn an_event_that_failed_and_is_recorded_again_is_found() {
    let world = World::new(1);
    let driver = world.processes[0].wire.to(world.processes[0].machine.clone());
    let stream = driver.default_stream(DeviceIndex(0));
    let event = driver.create_event(DeviceIndex(0), EventFlags::empty()).unwrap();
    let fails = || FaultPlan::none().fail_nth_of(Call::SynchronizeEvent, 1, ErrorKind::Other);
    driver.record_event(event, stream).unwrap();
    world.processes[0].machine.set_faults(fails());
    driver.synchronize_event(event).unwrap_err();
    // It has passed, all the same.
    driver.synchronize_event(event).unwrap();
    driver.record_event(event, stream).unwrap();
    assert_eq!(world.verdict.found(), None);
    world.processes[0].machine.set_faults(fails());
    driver.synchronize_event(event).unwrap_err();
    driver.record_event(event, stream).unwrap();
    assert_eq!(world.verdict.found().map(|found| found.oracle), Some("broken event"));
}

#[test]
fn what_a_flush_leaves_behind_is_found() {
    let alone = |seed: &u64| Setup::of(*seed).settings.iter().all(|sites| sites.len() == 1);
    let world = World::new((1..).find(alone).unwrap());
    memory::empty(&world, 0);
    assert_eq!(world.verdict.found(), None);
    world.machine(0).malloc(DeviceIndex(0), 4096).unwrap();
    memory::empty(&world, 0);
    assert_eq!(world.verdict.found().map(|found| found.oracle), Some("flush"));
}

#[test]
fn memory_that_went_back_is_known() {
    let world = World::new(1);
    let wire = &world.processes[0].wire;
    let driver = wire.to(world.processes[0].machine.clone());
    let [one, other] = [4096, 8192].map(|bytes| driver.malloc(DeviceIndex(0), bytes).unwrap());
    // SAFETY: rule 3: handed out just now and not used.
    unsafe { driver.free(DeviceIndex(0), one) }.unwrap();
    assert_eq!((wire.pieces(), wire.pieces_back()), (2, 1));
    assert!(wire.went_back(one, 0) && !wire.went_back(one, 1) && !wire.went_back(other, 0));
}

#[test]
fn memory_that_a_launch_writes_and_that_goes_back_is_found() {
    let fixed = |seed: &u64| {
        let setup = Setup::of(*seed);
        !setup.growable && setup.devices == 1
    };
    let world = World::new((1..).find(fixed).unwrap());
    for op in [
        Op::Stream { process: 0, device: 0, lag: 0 },
        Op::Capture { at: 0, stream: 0, mode: 0, pool: 1 },
        Op::CaptureAlloc { bytes: 24 * MIB },
        Op::CaptureFree { nth: 0 },
        Op::EndCapture { well: true },
    ] {
        world.apply(&op);
    }
    world.graphs.borrow_mut().expect_memory(&world);
    assert_eq!(world.verdict.found(), None);
    let segments = world.sites[0].allocator.snapshot(false).segments;
    let driver = world.processes[0].wire.to(world.processes[0].machine.clone());
    driver.synchronize_device(DeviceIndex(0)).unwrap();
    // SAFETY: rule 3: the capture's own segment, whose work is done; the engine never gets to give it back.
    unsafe { driver.free(DeviceIndex(0), DevicePtr(segments[0].address)) }.unwrap();
    world.graphs.borrow_mut().expect_memory(&world);
    assert_eq!(world.verdict.found().map(|found| found.oracle), Some("graph"));
    std::mem::forget(world);
}
