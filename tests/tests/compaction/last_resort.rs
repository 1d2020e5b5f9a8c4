//! Requests that would be refused, and programs that promise that the device is quiet.

use crate::programs::{Sparse, compact, last_resort};
use alloc_core::AllocError;
use alloc_core::compaction::Quiesce;
use alloc_core::config::{Compact, Launches, Settings};
use alloc_core::oom::Remedy;
use alloc_core::policy::GranulePolicy;
use alloc_core::types::{DevicePtr, MIB};
use granule_tests::bytes::{Bytes, first_other};
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::mapped;
use granule_tests::views::Numbers;
use std::sync::{Arc, Mutex};

/// So little is left of the device that this fits only where memory between live blocks goes back.
const WIDE: u64 = 60 * MIB;

#[test]
fn a_request_that_was_refused_fits_after_a_compaction() {
    on_each(&mapped(244), |rig| {
        let program = Sparse::new(rig, Settings::default());
        let refused = program.allocator.malloc(WIDE, program.stream).unwrap_err();
        assert!(refused.is_out_of_memory(), "{refused}");
        assert!(compact(&program.allocator).unwrap().gained > 0);
        let wide = program.allocator.malloc(WIDE, program.stream).expect("it fits now");
        program.check(rig, "beside the request");
        program.allocator.free(wide).unwrap();
        program.end(rig);
    });
}

#[test]
fn a_request_compacts_before_it_is_refused() {
    on_each(&mapped(244), |rig| {
        let program = Sparse::new(rig, last_resort());
        let wide = program.allocator.malloc(WIDE, program.stream).expect("room is made");
        program.check(rig, "beside the request");
        let stats = program.allocator.stats(DEVICE).unwrap();
        assert!(stats.granule.compactions > 0 && stats.num_ooms == 0, "{}: {stats:?}", rig.name);
        program.allocator.free(wide).unwrap();
        // What no compaction could serve moves nothing.
        let compactions = stats.granule.compactions;
        let refused = program.allocator.malloc(240 * MIB, program.stream).unwrap_err();
        assert!(refused.is_out_of_memory(), "{refused}");
        assert_eq!(program.allocator.stats(DEVICE).unwrap().granule.compactions, compactions);
        program.end(rig);
    });
}

#[test]
fn nothing_is_compacted_by_itself_without_a_promise() {
    let rig = Rig::openreg(mapped(244));
    for settings in [
        Settings { launches: Launches::Any, ..last_resort() },
        Settings { compaction: Compact::Never, ..last_resort() },
    ] {
        let program = Sparse::new(&rig, settings);
        let refused = program.allocator.malloc(WIDE, program.stream).unwrap_err();
        assert!(refused.is_out_of_memory(), "{refused}");
        assert_eq!(program.allocator.stats(DEVICE).unwrap().granule.compactions, 0);
        program.end(&rig);
    }
}

/// What a refusal says that a compaction would give, and how it names it.
fn advice(refused: AllocError) -> Option<(u64, String)> {
    let AllocError::OutOfMemory(report) = refused else { panic!("{refused}") };
    let of_compaction = |remedy: &Remedy| remedy.what.contains("compact");
    let found = report.remedies.iter().find(|remedy| of_compaction(remedy))?;
    assert!(found.enough, "else it is not named");
    Some((found.bytes, found.what.clone()))
}

#[test]
fn a_refusal_names_the_compaction_that_would_have_been_enough() {
    on_each(&mapped(244), |rig| {
        let program = Sparse::new(rig, Settings::default());
        let ask = |bytes| program.allocator.malloc(bytes, program.stream);
        let (bytes, what) = advice(ask(WIDE).unwrap_err()).expect("it would have been");
        assert!(what.contains("compaction:last_resort"), "{what}");
        assert_eq!(
            advice(ask(240 * MIB).unwrap_err()),
            None,
            "{}: that is more than it would give",
            rig.name
        );
        // What it says comes true.
        assert!(compact(&program.allocator).unwrap().gained >= bytes, "{}", rig.name);
        let wide = ask(WIDE).expect("it fits now");
        assert_eq!(advice(ask(WIDE).unwrap_err()), None, "{}: nothing is left between live blocks", rig.name);
        program.allocator.free(wide).unwrap();
        program.end(rig);
    });
}

#[test]
fn a_refusal_names_the_promise_that_is_missing_and_no_compaction_that_is_impossible() {
    let rig = Rig::openreg(mapped(244));
    let program = Sparse::new(&rig, Settings { launches: Launches::Any, ..last_resort() });
    let ask = || program.allocator.malloc(WIDE, program.stream).unwrap_err();
    let (_, what) = advice(ask()).expect("it would have been enough");
    assert!(what.contains("launches:allocating_thread"), "{what}");
    program.allocator.hooks().on_segment(|_| {});
    assert_eq!(advice(ask()), None, "somebody may have registered the memory");
    program.end(&rig);
}

#[test]
fn a_hook_that_stops_the_others_is_a_promise() {
    let rig = Rig::openreg(mapped(244));
    let program = Sparse::new(&rig, Settings { launches: Launches::Any, ..last_resort() });
    let told = Arc::new(Mutex::new(Vec::new()));
    let stops = Arc::new(Mutex::new(false));
    for _ in 0..2 {
        let (told, stops, weak) = (told.clone(), stops.clone(), Arc::downgrade(&program.allocator));
        let hook = move |what| {
            // It may use the allocator, which compacts nothing for it.
            if let (Some(allocator), Quiesce::Stop(_)) = (weak.upgrade(), what) {
                let refused = allocator.malloc(WIDE, allocator.backend().default_stream(DEVICE));
                assert!(refused.is_err());
            }
            told.lock().unwrap().push(what);
            *stops.lock().unwrap() || told.lock().unwrap().len() % 2 == 1
        };
        // SAFETY: these tests give the device no work on other threads.
        unsafe { program.allocator.hooks().on_quiesce(hook) };
    }
    let (stop, resume) = (Quiesce::Stop(DEVICE), Quiesce::Resume(DEVICE));
    let refused = program.allocator.malloc(WIDE, program.stream).unwrap_err();
    assert!(refused.is_out_of_memory(), "the second hook has not stopped anything: {refused}");
    assert_eq!(
        std::mem::take(&mut *told.lock().unwrap()),
        [stop, stop, resume],
        "and only the first is told to go on"
    );
    *stops.lock().unwrap() = true;
    let wide = program.allocator.malloc(WIDE, program.stream).expect("room is made");
    assert_eq!(*told.lock().unwrap(), [stop, stop, resume, resume]);
    program.check(&rig, "beside the request");
    program.allocator.free(wide).unwrap();
    program.end(&rig);
}

#[test]
fn a_hook_that_panics_stops_nothing() {
    let rig = Rig::openreg(mapped(244));
    let program = Sparse::new(&rig, last_resort());
    // SAFETY: as above.
    unsafe { program.allocator.hooks().on_quiesce(|_| panic!("no")) };
    let malloc = std::panic::AssertUnwindSafe(|| program.allocator.malloc(WIDE, program.stream));
    assert!(std::panic::catch_unwind(malloc).is_err(), "the request panics");
    program.check(&rig, "after the panic");
    assert_eq!(program.allocator.stats(DEVICE).unwrap().granule.compactions, 0);
    program.end(&rig);
}

/// The request was served before the hook was told: nobody got the block.
#[test]
fn a_hook_that_panics_when_all_may_go_on_loses_no_block() {
    let rig = Rig::openreg(mapped(244));
    let program = Sparse::new(&rig, last_resort());
    let live = |what: &str| {
        let stats = program.allocator.stats(DEVICE).unwrap();
        assert_eq!(stats.allocation.all.current, program.live.len() as i64 + 1, "{what}");
    };
    // SAFETY: as above.
    unsafe { program.allocator.hooks().on_quiesce(|what| matches!(what, Quiesce::Stop(_)) || panic!("no")) };
    live("before");
    let malloc = std::panic::AssertUnwindSafe(|| program.allocator.malloc(WIDE, program.stream));
    assert!(std::panic::catch_unwind(malloc).is_err(), "the request panics");
    live("after the panic");
    program.check(&rig, "after the panic");
    let wide = program.allocator.malloc(WIDE, program.stream).expect("room was made, and is there");
    program.allocator.free(wide).unwrap();
    program.end(&rig);
}

/// A random program on little memory, compacted now and then. Each block is full of a byte of its own, and read as a whole when it is freed. Returns how
/// often memory was compacted.
fn random(seed: u64, steps: usize) -> i64 {
    let rig = Rig::openreg(mapped(260));
    let allocator = rig.with_policy::<GranulePolicy>(last_resort());
    let (streams, bytes) = ([rig.new_stream(), rig.new_stream()], Bytes(&*rig.backend));
    let mut numbers = Numbers(seed);
    // So that granules are large.
    let large = allocator.malloc(128 * MIB, streams[0]).unwrap();
    let mut live: Vec<(DevicePtr, u64, u8)> = Vec::new();
    let end = |(ptr, size, with): (DevicePtr, u64, u8)| {
        streams.iter().for_each(|stream| rig.backend.synchronize_stream(*stream).unwrap());
        let wrong = first_other(&bytes.read(ptr, size), with);
        assert_eq!(wrong, None, "seed {seed}: somebody wrote into the block at {ptr}, or moved it");
        allocator.free(ptr).unwrap();
    };
    for step in 0..steps {
        if numbers.below(2) == 0 && !live.is_empty() {
            let place = usize::try_from(numbers.below(live.len() as u64)).unwrap();
            end(live.swap_remove(place));
        } else {
            let size = [MIB, 4 * MIB, 12 * MIB, 48 * MIB][usize::try_from(numbers.below(4)).unwrap()];
            let size = size / 4 + numbers.below(size);
            let stream = streams[usize::from(numbers.below(5) == 0)];
            match allocator.malloc(size, stream) {
                Ok(ptr) => {
                    let with = u8::try_from(step % 251).unwrap();
                    bytes.fill(stream, ptr, with, size);
                    live.push((ptr, size, with));
                }
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            }
        }
        if step % 25 == 0 {
            compact(&allocator).unwrap();
        }
        allocator.check_invariants();
    }
    live.drain(..).for_each(end);
    allocator.free(large).unwrap();
    let compactions = allocator.stats(DEVICE).unwrap().granule.compactions;
    rig.nothing_is_left(&allocator);
    compactions
}

#[test]
fn contents_survive_random_programs() {
    let compactions = random(2027, 600);
    println!("memory was compacted {compactions} times");
    assert!(compactions > 10, "compactions are common: {compactions}");
}
