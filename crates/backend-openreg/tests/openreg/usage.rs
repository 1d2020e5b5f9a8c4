//! What the driver was asked, and what that would have cost.

use crate::support::D0;
use backend_api::types::{DevicePtr, GIB, MIB};
use backend_api::*;
use backend_openreg::{Call, Clock, CostModel, OpenReg, OpenRegConfig};
use std::sync::Arc;

fn machine(costs: &str, lag: u64) -> Arc<OpenReg> {
    let config = OpenRegConfig::default().devices(1).capacity(GIB).clock(Clock::Virtual { lag });
    OpenReg::new(config.operations_tick(false).costs(costs.parse::<CostModel>().unwrap())).unwrap()
}

#[test]
fn calls_and_bytes_are_charged() {
    let machine = machine("zero,create-physical=30us+1ms/GiB,map=20us+64us/GiB,unmap=2us", 0);
    let vm = machine.virtual_memory().unwrap();
    let base = vm.reserve_address(D0, GIB, 0, DevicePtr::NULL).unwrap();
    let before = machine.usage();
    let handle = vm.create_physical(D0, 512 * MIB, HandleType::None).unwrap();
    vm.create_physical(D0, GIB, HandleType::None).unwrap_err();
    for place in [0, 512 * MIB] {
        // SAFETY: inside the reservation; the second place shows the same memory again.
        unsafe { vm.map(base.add(place), 512 * MIB, handle) }.unwrap();
    }
    let used = machine.usage().since(&before);
    assert_eq!((used.calls().get(Call::CreatePhysical), used.served(Call::CreatePhysical)), (2, 1));
    assert_eq!((used.bytes(Call::CreatePhysical), used.bytes(Call::Map)), (512 * MIB, GIB));
    assert_eq!(used.modelled_ns_of(Call::CreatePhysical), 60_000 + 500_000, "a refused call takes its time");
    assert_eq!(used.modelled_ns_of(Call::Map), 40_000 + 64_000);
    assert_eq!(used.modelled_ns(), 664_000);
    assert_eq!(machine.modelled_driver_time(), machine.usage().modelled_ns());
    machine.reset_calls();
    assert_eq!((machine.modelled_driver_time(), machine.usage().bytes(Call::Map)), (0, 0));
}

#[test]
fn waiting_is_driver_time() {
    let machine = machine("zero,synchronize-stream=7us,synchronize-device=100us", 1_000);
    let (first, second) = (machine.default_stream(D0), machine.create_stream(D0, 0).unwrap());
    let memory = machine.malloc(D0, 512).unwrap();
    machine.use_memory(first, memory, 512).unwrap();
    machine.advance(400);
    machine.use_memory(second, memory, 512).unwrap();
    machine.synchronize_stream(first).unwrap();
    assert_eq!(machine.usage().waited_ns(), 600_000, "a tick is a microsecond");
    assert_eq!(machine.modelled_driver_time(), 607_000);
    machine.synchronize_device(D0).unwrap();
    let used = machine.usage();
    assert_eq!(used.waited_ns(), 1_000_000, "the wait before lasted through the first 600 ticks");
    assert_eq!(used.modelled_ns(), 1_107_000);
    machine.synchronize_device(D0).unwrap();
    assert_eq!(machine.usage().waited_ns(), 1_000_000, "there is nothing more to wait for");
}
