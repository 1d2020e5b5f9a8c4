//! Drivers that fail, or take long.

use super::World;
use crate::features::Feature;
use alloc_core::backend::ErrorKind;
use backend_openreg::{Call, Effect, Fault, FaultPlan};
use std::time::Duration;

/// Calls that only the engine makes: where one fails, it is the engine that has to cope.
const CALLS: &[Call] = &[
    Call::Malloc,
    Call::Free,
    Call::ReserveAddress,
    Call::ReleaseAddress,
    Call::CreatePhysical,
    Call::ReleasePhysical,
    Call::Map,
    Call::Unmap,
    Call::SetAccess,
    Call::CreateEvent,
    Call::RecordEvent,
    Call::QueryEvent,
    Call::SynchronizeEvent,
    Call::WaitEvent,
    Call::SynchronizeStream,
    Call::MemoryInfo,
    Call::HostMalloc,
    Call::HostFree,
    Call::RegisterHost,
    Call::CopyAsync,
    Call::MemsetAsync,
    Call::EnablePeerAccess,
    Call::ExportPhysical,
    Call::ImportPhysical,
    Call::LaunchGraph,
];

/// The `nth` of such calls from now fails, or is late, and perhaps those after it.
pub fn set(world: &World, process: u8, call: u8, nth: u8, effect: u8) {
    let process = usize::from(process) % world.processes.len();
    let (effect, repeats) = match effect {
        0 => (Effect::Fail(ErrorKind::Other), false),
        1 => (Effect::Fail(ErrorKind::OutOfMemory), false),
        2 => (Effect::Fail(ErrorKind::Other), true),
        3 => (Effect::Hang(Duration::from_millis(3)), false),
        _ => (Effect::Delay(Duration::from_millis(5)), false),
    };
    let at = u64::from(nth);
    let fault = if repeats { Fault::from(at, effect) } else { Fault::at(at, effect) };
    let fault = fault.of(CALLS[usize::from(call) % CALLS.len()]);
    world.processes[process].machine.set_faults(FaultPlan::none().with(fault));
    match effect {
        Effect::Delay(_) => world.met.note(Feature::Delays),
        _ => {
            world.met.note(Feature::Faults);
            world.state().faulty[process] = true;
        }
    }
}

/// The driver of a process works again.
pub fn clear(world: &World, process: u8) {
    clear_of(world, usize::from(process) % world.processes.len());
}

/// [`clear`] by place.
pub fn clear_of(world: &World, process: usize) {
    world.processes[process].machine.set_faults(FaultPlan::none());
    world.state().faulty[process] = false;
}
