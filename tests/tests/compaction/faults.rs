//! One driver call fails, or all of a kind: each block has its contents at its address, or the device is lost.

use crate::programs::{Sparse, compact, last_resort};
use alloc_core::backend::ErrorKind;
use alloc_core::config::Settings;
use alloc_core::error::AllocError;
use alloc_core::types::MIB;
use backend_openreg::{Call, Effect, Fault, FaultPlan};
use granule_tests::fault_loop::kind_of;
use granule_tests::rig::Rig;
use granule_tests::setup::mapped;

/// Compacts with call `k` failing (0: none), twice. Returns the calls of the first, and whether it noticed.
fn run(k: u64) -> (u64, bool) {
    let rig = Rig::openreg(mapped(1000));
    let mut program = Sparse::new(&rig, Settings::default());
    let before = rig.device.calls().total();
    if k > 0 {
        rig.device.set_faults(FaultPlan::none().fail_nth(k, kind_of(k)));
    }
    let struck = match compact(&program.allocator) {
        Ok(_) => false,
        Err(AllocError::Backend(error)) => error.kind != ErrorKind::DeviceLost,
        Err(error) => panic!("call {k}: {error}"),
    };
    let calls = rig.device.calls().total() - before;
    rig.device.set_faults(FaultPlan::none());
    program.check(&rig, &format!("call {k} failed"));
    compact(&program.allocator).unwrap();
    program.check(&rig, &format!("after call {k} failed"));
    assert!(
        rig.used() <= 128 * MIB + 8 * 6 * MIB,
        "call {k}: what was left is compacted now: {}",
        rig.used()
    );
    // What is left of some granules goes back under failures, too.
    let freed = program.live.split_off(4);
    if k > 0 {
        rig.device.set_faults(FaultPlan::none().fail_nth(k, kind_of(k)));
    }
    freed.into_iter().for_each(|ptr| program.allocator.free(ptr).unwrap());
    let _ = program.allocator.empty_cache();
    rig.device.set_faults(FaultPlan::none());
    program.check(&rig, &format!("call {k} failed when the cache was emptied"));
    program.end(&rig);
    (calls, struck)
}

#[test]
fn contents_survive_every_driver_call_failing() {
    let (calls, _) = run(0);
    let struck = (1..=calls).filter(|k| run(*k).1).count() as u64;
    println!("{calls} calls, {struck} failures reached the program");
    assert!(calls > 60 && struck > calls / 4, "the loop reaches the driver: {calls} calls, {struck} struck");
}

/// The same for a request that compacts before it is refused.
#[test]
fn requests_and_contents_survive_every_driver_call_failing() {
    let run = |k: u64| {
        let rig = Rig::openreg(mapped(244));
        let program = Sparse::new(&rig, last_resort());
        let before = rig.device.calls().total();
        if k > 0 {
            rig.device.set_faults(FaultPlan::none().fail_nth(k, kind_of(k)));
        }
        let first = program.allocator.malloc(60 * MIB, program.stream);
        let calls = rig.device.calls().total() - before;
        rig.device.set_faults(FaultPlan::none());
        program.check(&rig, &format!("call {k} failed"));
        let struck = first.is_err();
        let served = first.or_else(|_| program.allocator.malloc(60 * MIB, program.stream));
        let served = served.unwrap_or_else(|error| panic!("call {k}: the next request is served: {error}"));
        program.check(&rig, &format!("after call {k} failed"));
        program.allocator.free(served).unwrap();
        program.end(&rig);
        (calls, struck)
    };
    let (calls, struck) = run(0);
    assert!(!struck, "without a failure it is served");
    let struck = (1..=calls).filter(|k| run(*k).1).count() as u64;
    println!("{calls} calls, {struck} failures reached the program");
    assert!(calls > 60, "the loop reaches the driver: {calls}");
}

/// From call `n` of a kind on, each of them fails. Whether the device is lost by that.
fn run_from(call: Call, n: u64) -> bool {
    let rig = Rig::openreg(mapped(1000));
    let program = Sparse::new(&rig, Settings::default());
    program.allocator.empty_cache().unwrap();
    rig.device.set_faults(FaultPlan::none().with(Fault::from(n, Effect::Fail(ErrorKind::Other)).of(call)));
    let outcome = compact(&program.allocator);
    rig.device.set_faults(FaultPlan::none());
    if !matches!(&outcome, Err(AllocError::Backend(error)) if error.kind == ErrorKind::DeviceLost) {
        program.check(&rig, &format!("{call:?} fails from {n} on: {outcome:?}"));
        program.end(&rig);
        return false;
    }
    let calls = rig.device.calls().total();
    let refused = program.allocator.malloc(MIB, program.stream).unwrap_err();
    assert!(!refused.is_out_of_memory(), "{refused}");
    assert!(compact(&program.allocator).is_err());
    program.live.iter().for_each(|ptr| program.allocator.free(*ptr).unwrap());
    assert_eq!(rig.device.calls().total(), calls, "the driver is not called any more");
    true
}

#[test]
fn where_undoing_fails_too_the_device_is_lost_and_said_to_be() {
    let lost = |call| (1..12).filter(|n| run_from(call, *n)).count();
    assert!(lost(Call::Map) > 0, "neither the new memory nor the old could be mapped");
    assert!(lost(Call::SetAccess) > 0, "or used");
    for call in [
        Call::CreatePhysical,
        Call::ReleasePhysical,
        Call::ReserveAddress,
        Call::ReleaseAddress,
        Call::Copy,
        Call::SynchronizeDevice,
        Call::Unmap,
    ] {
        assert_eq!(lost(call), 0, "{call:?} is no loss");
    }
}
