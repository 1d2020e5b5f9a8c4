//! Histories as nights print them, and that the rules they are judged by can be broken.

use alloc_core::backend::Backend;
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
fn what_is_left_is_found() {
    let world = World::new(3);
    let leaked = world.machine(0).malloc(alloc_core::types::DeviceIndex(0), 4096).unwrap();
    let verdict = world.verdict.clone();
    night::oracle::close(night::oracle::end(world));
    assert_eq!(verdict.found().map(|found| found.oracle), Some("end"), "{leaked} was not given back");
}
