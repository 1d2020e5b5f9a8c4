//! The fault loop over the backend `hip` on its lookalike driver: each C entry point fails in turn.
//!
//! One test, because the driver is the process's own.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::ErrorKind;
use alloc_core::config::Settings;
use backend_hip::Hip;
use granule_tests::fault_loop::{self, Machine, OverLookalike};
use granule_tests::lookalike::{Controls, hip_library};
use granule_tests::recorded;
use snapshot::trace::Event;

/// The driver's code for a kind.
fn code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::OutOfMemory => 2,
        ErrorKind::InvalidValue => 1,
        _ => 999,
    }
}

#[test]
fn every_failing_entry_point_is_survived() {
    let library = hip_library();
    // SAFETY: this process has one test, and no other thread yet.
    unsafe {
        std::env::set_var("GRANULE_LOOKALIKE", "devices=1,capacity=80GiB,memory=reserved,clock=virtual:3")
    };
    // SAFETY: as above.
    unsafe { std::env::set_var("GRANULE_HIP_LIBRARY", &library) };
    let backend = Hip::load().unwrap();
    let machine = OverLookalike { backend, controls: Controls::of(&library), code };
    let growable = Settings { expandable_segments: true, ..Settings::default() };
    let long = std::env::var_os("GRANULE_LONG").is_some();
    for (name, settings, events) in [
        ("resnet_train", Settings::default(), 3000),
        ("resnet_train", growable, 1500),
        ("dlrm_prefetch", Settings::default(), 1500),
    ] {
        let Some(mut trace) = recorded(name) else { continue };
        if !long {
            trace.events.truncate(events);
        }
        trace.events.insert(trace.events.len() / 2, Event::EmptyCache);
        // What is made at the first use is there for good.
        fault_loop::run(&machine, &trace.events, &settings, 0, ErrorKind::Other);
        let calls = fault_loop::run(&machine, &trace.events, &settings, 0, ErrorKind::Other).calls;
        let (last, mut struck) = (calls.min(if long { 2000 } else { 400 }), 0);
        for k in 1..=last {
            struck += u64::from(
                fault_loop::run(&machine, &trace.events, &settings, k, fault_loop::kind_of(k)).struck,
            );
        }
        println!("{name}: {last} of {calls} entry points failed in turn; {struck} operations noticed");
        assert!(last > 50 && struck > last / 50, "failures reach the program");
    }
    assert_eq!(machine.traps(), 0);
}
