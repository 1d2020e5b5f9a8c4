//! Drivers that fail, or take long.

use super::World;
use crate::features::Feature;
use crate::op::THRICE;
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

/// Those without which no memory is mapped.
const MAPS: [Call; 2] = [Call::Map, Call::SetAccess];

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
    let call = CALLS[usize::from(call) % CALLS.len()];
    let at = u64::from(nth);
    let fault = if repeats { Fault::from(at, effect) } else { Fault::at(at, effect) };
    let fault = fault.of(call);
    world.processes[process].machine.set_faults(FaultPlan::none().with(fault));
    match effect {
        Effect::Delay(_) => world.met.note(Feature::Delays),
        _ => {
            world.met.note(Feature::Faults);
            let mut state = world.state();
            (state.faulty[process], state.unfigured[process]) = (true, true);
            let sticks = repeats && MAPS.contains(&call);
            (state.stuck[process], state.relapsing[process]) = (sticks, repeats);
            state.left_mapped[process] |= sticks;
        }
    }
}

/// Calls that belong together, of which the first fails from the `nth` on, and the second always.
const TOGETHER: &[(Call, Option<Call>)] = &[
    (Call::RecordEvent, None),
    (Call::SynchronizeEvent, None),
    (Call::QueryEvent, Some(Call::SynchronizeEvent)),
    (Call::CreateEvent, Some(Call::RecordEvent)),
    (Call::Map, Some(Call::ReleasePhysical)),
    (Call::SetAccess, Some(Call::Unmap)),
    (Call::CreatePhysical, Some(Call::ReleasePhysical)),
];

/// Several calls that fail: a call again and again, and what would undo it, too.
#[derive(Debug)]
pub struct Failures {
    /// Which.
    pub plan: FaultPlan,
    /// Whether memory that was mapped may stay where it is.
    pub sticks: bool,
    /// Whether a call may fail again that is made once more.
    pub relapses: bool,
}

impl Failures {
    /// What an operation says, from the `nth` call on.
    #[must_use]
    pub fn of(what: u8, nth: u8) -> Self {
        let (first, second) = TOGETHER[usize::from(what) % TOGETHER.len()];
        let (nth, relapses) = (u64::from(nth), what != THRICE);
        let undoes = second.is_some_and(|second| matches!(second, Call::ReleasePhysical | Call::Unmap));
        let plan = if relapses { together(first, second, nth, what) } else { refused_thrice(nth) };
        Self { plan, sticks: relapses && undoes, relapses }
    }
}

fn together(first: Call, second: Option<Call>, nth: u64, what: u8) -> FaultPlan {
    let effect = Effect::Fail(if what & 128 == 0 { ErrorKind::Other } else { ErrorKind::OutOfMemory });
    let plan = FaultPlan::none().with(Fault::from(nth, effect).of(first));
    match second {
        Some(second) => plan.with(Fault::from(1, Effect::Fail(ErrorKind::Other)).of(second)),
        None => plan,
    }
}

/// The driver does not release a piece of physical memory, however often that is tried in one go; then it works again.
fn refused_thrice(nth: u64) -> FaultPlan {
    let fails = |nth| Fault::at(nth, Effect::Fail(ErrorKind::Other)).of(Call::ReleasePhysical);
    (nth..nth + 3).fold(FaultPlan::none(), |plan, nth| plan.with(fails(nth)))
}

/// The driver of a process works again.
pub fn clear(world: &World, process: u8) {
    clear_of(world, usize::from(process) % world.processes.len());
}

/// [`clear`] by place.
pub fn clear_of(world: &World, process: usize) {
    world.processes[process].machine.set_faults(FaultPlan::none());
    let mut state = world.state();
    (state.faulty[process], state.stuck[process], state.relapsing[process]) = (false, false, false);
}
