//! Streams come, fall behind each other, and end.

use super::{Lane, World, chosen};
use crate::features::Feature;
use crate::world::faults;
use alloc_core::backend::Backend;
use backend_openreg::Lag;

/// The most that are alive at a time.
const MOST: usize = 10;

/// A stream comes.
pub fn begin(world: &World, process: u8, device: u8, lag: u16) {
    let process = usize::from(process) % world.processes.len();
    if world.state().alive.len() >= MOST {
        return;
    }
    let machine = &world.processes[process].machine;
    match machine.create_stream(world.device(device), 0) {
        Ok(stream) => {
            Lag(u64::from(lag)).set(machine, stream);
            world.processes[process].wire.set_dead(stream, false);
            let mut state = world.state();
            let lane = state.lanes.len();
            let number = state.number();
            state.lanes.push(Lane { process, number, stream, alive: true });
            state.alive.push(lane);
        }
        Err(error) => world.verdict.find("machine", error.to_string()),
    }
}

/// A stream becomes earlier or later.
pub fn set_lag(world: &World, stream: u8, lag: u16) {
    let state = world.state();
    let Some(n) = chosen(stream, &state.alive, |lane| state.lanes[*lane].number) else { return };
    let lane = state.lanes[state.alive[n]];
    Lag(u64::from(lag)).set(&world.processes[lane.process].machine, lane.stream);
}

/// A stream ends: every allocator of its process is told, then it is destroyed.
pub fn end(world: &World, stream: u8) {
    let ending = {
        let state = world.state();
        let Some(n) = chosen(stream, &state.alive, |lane| state.lanes[*lane].number) else { return };
        let n = state.alive[n];
        let lane = state.lanes[n];
        // Default streams stay, and so do those that graphs and scopes name.
        let is_default = n < usize::from(world.setup.devices) * world.processes.len();
        (!is_default && !world.graphs.borrow().needs(n) && !world.pools.borrow().needs(n))
            .then_some((n, lane))
    };
    let Some((n, lane)) = ending else { return };
    end_lane(world, n, lane);
}

/// Ends one that nothing names.
pub fn end_lane(world: &World, n: usize, lane: Lane) {
    let machine = &world.processes[lane.process].machine;
    let home = world.default_lane(lane.process, lane.stream.device);
    {
        // Later uses of its blocks come after its work.
        let mut state = world.state();
        if let Err(error) = machine.order(lane.stream, state.lanes[home].stream) {
            world.verdict.find("machine", error.to_string());
        }
        for block in state.blocks.iter_mut().filter(|block| block.last == n) {
            block.last = home;
        }
    }
    for site in world.sites.iter().filter(|site| site.process == lane.process) {
        // SAFETY: what uses memory of the stream was queued before, and it is not named again.
        if let Err(error) = unsafe { site.allocator.retire_stream(lane.stream) } {
            world.refused_in(lane.process, "retire_stream", &error, false);
            faults::clear_of(world, lane.process);
            // SAFETY: as above.
            if let Err(error) = unsafe { site.allocator.retire_stream(lane.stream) } {
                world.refused_in(lane.process, "retire_stream again", &error, false);
            }
        }
    }
    if let Some(host) = &world.processes[lane.process].host {
        // SAFETY: as above.
        if let Err(error) = unsafe { host.retire_stream(lane.stream) } {
            world.refused_in(lane.process, "retire_stream of pinned memory", &error, false);
            faults::clear_of(world, lane.process);
            // SAFETY: as above.
            if let Err(error) = unsafe { host.retire_stream(lane.stream) } {
                world.refused_in(lane.process, "retire_stream of pinned memory again", &error, false);
            }
        }
    }
    world.processes[lane.process].wire.set_dead(lane.stream, true);
    // SAFETY: rule 1: made by `begin`, and not named again: it is no lane that is alive.
    if let Err(error) = unsafe { machine.destroy_stream(lane.stream) } {
        world.verdict.find("machine", error.to_string());
    }
    world.met.note(Feature::StreamEnds);
    let mut state = world.state();
    state.lanes[n].alive = false;
    state.alive.retain(|other| *other != n);
}
