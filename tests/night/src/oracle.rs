//! What must hold after every operation, at quiet points, and at the end.

use crate::features::Feature;
use crate::world::{Parts, Process, World, faults, graphs, host, pools};
use alloc_core::backend::{Backend, CaptureStatus};
use alloc_core::types::DeviceIndex;
use backend_openreg::Held;

/// So many calls of drivers need no explanation: before it is refused, a request may take most granules of a small device and
/// give them back, more than once.
const FEW: u64 = 500;
/// So many steps of loops over blocks, streams, pools, granules or views need none, and so many more for each thing that there
/// is.
const STEPS: (u64, u64) = (1000, 30);
/// What a spill hook made room for, or might have, is looked for again, and cached memory with it. A wake does so for each piece.
const SPILL: u64 = 10;

/// After every operation: no wrong use of memory was trapped, the capture that is under way is whole, and it `made` no more
/// calls of drivers than a few for each thing that there is, or was, and `took` no more steps.
pub fn always(world: &World, made: u64, took: u64) {
    // Also of what an operation gave back.
    let things: usize = world.processes.iter().map(Process::things).sum();
    world.most.set(world.most.get().max((things + world.state().blocks.len()) as u64));
    let steps = STEPS.0 + (STEPS.1 + SPILL * world.state().spills) * world.most.get();
    world.verdict.expect(took <= steps, "steps", || {
        format!("one operation took {took} steps, and there were {} things at most", world.most.get())
    });
    if made > FEW {
        let most = FEW + 20 * world.most.get();
        world.verdict.expect(made <= most, "calls", || {
            format!("one operation made {made} calls of drivers, and there are {things} things to call about")
        });
    }
    world.graphs.borrow_mut().expect_memory(world);
    let captured = {
        let state = world.state();
        state.captured.map(|lane| state.lanes[lane])
    };
    if let Some(lane) = captured {
        let status =
            world.processes[lane.process].machine.capture().map(|capture| capture.status(lane.stream));
        let whole = matches!(status, Ok(Ok(CaptureStatus::Active(_))));
        world.verdict.expect(whole, "capture", || format!("{:?} is {status:?}", lane.stream));
    }
    for process in &world.processes {
        if let Some(trap) = process.machine.take_traps().first() {
            world.verdict.find("trap", format!("{trap:?}"));
        }
    }
}

/// Now and then: all structures are consistent, and figures are what the program did.
pub fn quiet(world: &World) {
    if world.state().spilled {
        world.met.note(Feature::Spill);
    }
    for process in &world.processes {
        let held = Held::of(&process.machine);
        if held.mappings > held.physical {
            world.met.note(Feature::Views);
        }
    }
    for (n, site) in world.sites.iter().enumerate() {
        site.allocator.check_invariants();
        for device in (0..world.setup.devices).map(DeviceIndex) {
            figures(world, n, device);
        }
    }
}

fn figures(world: &World, site: usize, device: DeviceIndex) {
    let allocator = &world.sites[site].allocator;
    let Ok(stats) = allocator.stats(device) else { return world.verdict.find("stats", "none") };
    let state = world.state();
    let own =
        state.blocks.iter().filter(|block| block.site == site && block.device == device && !block.uncached);
    let (mut count, mut bytes) = (0, 0);
    for block in own {
        count += 1;
        bytes += block.size;
    }
    for (ptr, _) in world.graphs.borrow().live(site) {
        // Windows of devices lie one behind the other.
        let on = world.machine(site).pointer_info(ptr).ok().and_then(|info| info.device);
        if on == Some(device) {
            count += 1;
            bytes += allocator.block_size(ptr).unwrap_or(0);
        }
    }
    let asleep = world.pools.borrow().slept.iter().any(|(of, _)| *of == site);
    let seen = (stats.allocation.all.current, stats.allocated_bytes.all.current);
    let right = seen == (count, bytes as i64);
    world.verdict.expect(right || asleep, "stats", || {
        format!("{seen:?} blocks and bytes on device {device}, and the program has {:?}", (count, bytes))
    });
    let held = stats.reserved_bytes.all.current;
    let used = world.machine(site).used(device) as i64;
    let process = world.sites[site].process;
    // What a driver did not take back is nobody's, and what came straight from it is in no figure.
    let alone = world.sites.iter().filter(|other| other.process == process).count() == 1
        && !state.unfigured[process]
        && !state.blocks.iter().any(|block| block.uncached)
        && world.imports.borrow().is_empty();
    world.verdict.expect(held == used || held < used && !alone || asleep, "stats", || {
        format!("{held} bytes are said to be held of device {device}, which has {used} in use")
    });
    for array in [&stats.allocated_bytes, &stats.active, &stats.reserved_bytes, &stats.inactive_split_bytes] {
        for stat in [&array.all, &array.small_pool, &array.large_pool] {
            let right = stat.current >= 0 && stat.peak >= stat.current;
            world.verdict.expect(right, "stats", || format!("{stat:?}"));
        }
    }
}

/// All goes back: nothing is lost.
pub fn end(world: World) -> World {
    (0..world.processes.len()).for_each(|process| faults::clear_of(&world, process));
    graphs::end_all(&world);
    world.imports.borrow_mut().clear();
    pools::close_scopes(&world);
    host::free_all(&world);
    while !world.state().blocks.is_empty() {
        crate::world::memory::give(&world, 0);
    }
    world.pools.borrow_mut().list.clear();
    // What one allocator still had open of another's goes first.
    for _ in 0..3 {
        for site in 0..world.sites.len() {
            if let Err(error) = world.sites[site].allocator.empty_cache() {
                world.refused(site, "the last empty_cache", &error, false);
            }
        }
    }
    always(&world, 0, 0);
    quiet(&world);
    for (site, of) in world.sites.iter().enumerate() {
        for device in (0..world.setup.devices).map(DeviceIndex) {
            let stats = of.allocator.stats(device).unwrap_or_default();
            let left = (stats.reserved_bytes.all.current, stats.active_bytes.all.current);
            world.verdict.expect(left == (0, 0), "end", || {
                format!("allocator {site} says that it holds and uses {left:?} bytes of device {device}")
            });
        }
    }
    world
}

/// The allocators end, and with them all that they had; then the streams. Each machine is as it was.
pub fn close(world: World) {
    let devices = world.setup.devices;
    let Parts { processes, sites, state, verdict } = world.into_parts();
    drop(sites);
    for (n, Process { machine, host, before, .. }) in processes.into_iter().enumerate() {
        drop(host);
        let streams = state.alive.iter().map(|lane| state.lanes[*lane]).filter(|lane| lane.process == n);
        for lane in streams.filter(|lane| machine.default_stream(lane.stream.device) != lane.stream) {
            // SAFETY: rule 1: made by the program, and not named again.
            let ended = unsafe { machine.destroy_stream(lane.stream) };
            verdict.expect(ended.is_ok(), "end", || format!("{ended:?}"));
        }
        machine.advance(1 << 40);
        let after = Held::of(&machine);
        verdict.expect(after == before, "end", || format!("the machine had {before:?}, and has {after:?}"));
        let used: u64 = (0..devices).map(|device| machine.used(DeviceIndex(device))).sum();
        verdict.expect(used == 0, "end", || format!("{used} bytes are in use"));
    }
}
