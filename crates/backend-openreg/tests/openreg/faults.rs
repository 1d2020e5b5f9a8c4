//! The fault plan, the counters and the cost model.

use crate::support::{D0, D1};
use backend_api::types::{GIB, MIB};
use backend_api::*;
use backend_openreg::{Call, Clock, CostModel, Effect, Fault, FaultPlan, OpenReg, OpenRegConfig};
use std::time::{Duration, Instant};

#[test]
fn the_kth_call_fails_and_changes_nothing() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    machine.malloc(D0, MIB).unwrap();
    machine.set_faults(FaultPlan::none().fail_nth(3, ErrorKind::Other).fail_nth_of(
        Call::Free,
        1,
        ErrorKind::Timeout,
    ));
    let first = machine.malloc(D0, MIB).unwrap();
    machine.memory_info(D0).unwrap();
    let used = machine.used(D0);
    let error = machine.malloc(D0, MIB).unwrap_err();
    assert_eq!((error.kind, error.call), (ErrorKind::Other, "orMalloc"));
    assert_eq!(machine.used(D0), used);
    machine.malloc(D0, MIB).unwrap();
    // SAFETY: rule 3; the first call fails by plan and changes nothing, so that the second is the first.
    assert_eq!(unsafe { machine.free(D0, first) }.unwrap_err().kind, ErrorKind::Timeout);
    // SAFETY: as above.
    unsafe { machine.free(D0, first) }.unwrap();
    machine.set_faults(FaultPlan::none().fail_all(Call::RecordEvent, ErrorKind::Other));
    let event = machine.create_event(D0, EventFlags::empty()).unwrap();
    for _ in 0..3 {
        assert!(machine.record_event(event, machine.default_stream(D0)).is_err());
    }
    machine.set_faults(FaultPlan::none());
    machine.record_event(event, machine.default_stream(D0)).unwrap();
}

#[test]
fn every_single_failing_call_of_a_program_can_be_retried() {
    let program = |machine: &OpenReg| -> u64 {
        let mut failures = 0;
        let mut insist = |call: &mut dyn FnMut() -> Result<u64>| loop {
            match call() {
                Ok(value) => return value,
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Other, "{error}");
                    failures += 1;
                }
            }
        };
        let vm = machine.virtual_memory().unwrap();
        let ptr = insist(&mut || machine.malloc(D0, 3 * MIB).map(|ptr| ptr.0));
        let base = insist(&mut || {
            vm.reserve_address(D0, 4 * MIB, 0, backend_api::types::DevicePtr::NULL).map(|ptr| ptr.0)
        });
        let mut handle = None;
        insist(&mut || {
            handle = Some(vm.create_physical(D0, 2 * MIB, HandleType::None)?);
            Ok(0)
        });
        let (handle, at) = (handle.unwrap(), backend_api::types::DevicePtr(base));
        // SAFETY: inside the reservation; the size is the handle's.
        insist(&mut || unsafe { vm.map(at, 2 * MIB, handle) }.map(|()| 0));
        // SAFETY: mapped.
        insist(&mut || unsafe { vm.set_access(at, 2 * MIB, &[D0], Access::ReadWrite) }.map(|()| 0));
        insist(&mut || machine.use_memory(machine.default_stream(D0), at, 5).map(|()| 0));
        insist(&mut || machine.synchronize_device(D0).map(|()| 0));
        // SAFETY: rule 3 for all of these.
        insist(&mut || unsafe { vm.unmap(at, 2 * MIB) }.map(|()| 0));
        // SAFETY: as above.
        insist(&mut || unsafe { vm.release_physical(handle) }.map(|()| 0));
        // SAFETY: as above.
        insist(&mut || unsafe { vm.release_address(at, 4 * MIB) }.map(|()| 0));
        // SAFETY: as above.
        insist(&mut || unsafe { machine.free(D0, backend_api::types::DevicePtr(ptr)) }.map(|()| 0));
        failures
    };
    let mut hit = 0;
    for k in 1..=20 {
        let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
        machine.set_faults(FaultPlan::none().fail_nth(k, ErrorKind::Other));
        hit += program(&machine);
        assert_eq!(machine.used(D0), 0);
        assert!(machine.traps().is_empty());
    }
    assert_eq!(hit, 11, "the program makes 11 calls");
}

#[test]
fn delays_and_hangs_move_the_virtual_clock() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    let hour = Duration::from_secs(3600);
    machine.set_faults(
        FaultPlan::none()
            .with(Fault::at(1, Effect::Delay(hour)).of(Call::Malloc))
            .with(Fault::at(2, Effect::Hang(hour)).of(Call::Malloc)),
    );
    let start = machine.now_ns();
    machine.malloc(D0, 1).unwrap();
    assert_eq!(machine.malloc(D0, 1).unwrap_err().kind, ErrorKind::Timeout);
    assert_eq!(machine.now_ns() - start, 2 * 3_600_000_000_000);
    let real = OpenReg::new(OpenRegConfig::default().clock(Clock::Workers)).unwrap();
    real.set_faults(FaultPlan::none().with(Fault::at(1, Effect::Hang(Duration::from_millis(30)))));
    let start = Instant::now();
    assert_eq!(real.synchronize_device(D0).unwrap_err().kind, ErrorKind::Timeout);
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn a_lost_device_stays_lost_and_the_other_lives() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    machine.set_faults(FaultPlan::none().with(Fault::at(2, Effect::LoseDevice).on(D1)));
    machine.malloc(D1, 1).unwrap();
    machine.malloc(D0, 1).unwrap();
    assert_eq!(machine.malloc(D1, 1).unwrap_err().kind, ErrorKind::DeviceLost);
    machine.set_faults(FaultPlan::none());
    assert_eq!(machine.synchronize_device(D1).unwrap_err().kind, ErrorKind::DeviceLost);
    assert_eq!(machine.query_stream(machine.default_stream(D1)).unwrap_err().kind, ErrorKind::DeviceLost);
    machine.malloc(D0, 1).unwrap();
    machine.lose_device(D0);
    assert_eq!(machine.malloc(D0, 1).unwrap_err().kind, ErrorKind::DeviceLost);
}

#[test]
fn calls_are_counted_by_name_and_charged() {
    let costs = CostModel::zero().per_call(Call::Malloc, 1_000).per_gib(Call::Malloc, 4_096);
    let machine = OpenReg::new(OpenRegConfig::default().costs(costs)).unwrap();
    machine.malloc(D0, GIB).unwrap();
    let before = machine.calls();
    machine.malloc(D0, GIB / 2).unwrap();
    assert!(machine.malloc(D0, 0).is_err());
    machine.query_stream(machine.default_stream(D0)).unwrap();
    let since = machine.calls().since(&before);
    assert_eq!((since.get(Call::Malloc), since.get(Call::QueryStream), since.total()), (2, 1, 3));
    assert_eq!(format!("{since:?}"), "{Malloc: 2, QueryStream: 1}");
    assert_eq!(machine.modelled_driver_time(), 3 * 1_000 + 4_096 + 2_048);
    machine.reset_calls();
    assert_eq!((machine.calls().total(), machine.modelled_driver_time()), (0, 0));
    let model = CostModel::default();
    for call in [Call::Map, Call::Unmap, Call::SetAccess] {
        assert_eq!(model.of_calls(call, 1), 20_000);
    }
    assert_eq!(model.of_calls(Call::SynchronizeDevice, 2), 200_000);
    let names: std::collections::BTreeSet<_> = Call::ALL.iter().map(|call| call.name()).collect();
    assert_eq!(names.len(), Call::COUNT);
}
