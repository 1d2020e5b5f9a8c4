//! What is hard on an allocator: devices that are nearly full, pools that may hold little, drivers that fail in several ways.

use super::faults::Failures;
use super::{World, memory};
use crate::features::Feature;
use alloc_core::AllocError;
use alloc_core::config::MemoryLimit;
use alloc_core::types::MIB;

/// Makes it hard.
#[derive(Clone, Copy, Debug)]
pub struct Pressure<'a>(pub &'a World);

impl Pressure<'_> {
    /// A stream's device is nearly full.
    pub fn crowd(self, at: u8, stream: u8, leaves: u8) {
        let (site, _) = self.0.site(at);
        if let Some(lane) = memory::free_lane(self.0, site, stream) {
            self.crowd_device(site, lane, leaves);
        }
    }

    /// The newest graph's device is nearly full.
    pub fn crowd_beside(self, leaves: u8) {
        let newest = self.0.graphs.borrow().newest();
        let Some((site, _, lane)) = newest else { return };
        let device = self.0.state().lanes[lane].stream.device;
        self.crowd_device(site, self.0.default_lane(self.0.sites[site].process, device), leaves);
    }

    /// A block has what is free of a device, but for some eighths of a MiB.
    fn crowd_device(self, site: usize, lane: usize, leaves: u8) {
        let world = self.0;
        let device = world.state().lanes[lane].stream.device;
        let machine = world.machine(site);
        let room = machine.capacity(device).saturating_sub(machine.used(device));
        let bytes = room.saturating_sub(u64::from(leaves) * MIB / 8);
        let bytes = match world.sites[site].settings.borrow().expandable_segments_reserve {
            // No segment has more.
            Some(_) => bytes.min(60 * MIB),
            None => bytes,
        };
        if bytes > MIB {
            let pool = world.pools.borrow().of_scope(site, lane);
            memory::take(world, site, lane, bytes, pool);
        }
    }

    /// Memory of the newest graph's pool, for its stream.
    pub fn alloc_beside(self, bytes: u64) {
        let newest = self.0.graphs.borrow().newest();
        let Some((_, number, lane)) = newest else { return };
        if self.0.state().captures(lane) {
            return;
        }
        let entered = self.0.pools.borrow().enter(self.0, number, lane, bytes);
        if let Some((_scope, site)) = entered {
            memory::take(self.0, site, lane, bytes, Some(number));
        }
    }

    /// A pool may hold little, or again whatever there is.
    pub fn squeeze(self, pool: u8, mib: u8) {
        let world = self.0;
        if !world.setup.limits {
            return;
        }
        let pools = world.pools.borrow();
        let Some(pool) = pools.chosen(pool) else { return };
        let hard = (mib > 40).then(|| MemoryLimit::Bytes(u64::from(mib / 2) * MIB));
        let set = pool.pool.set_limits(hard, None);
        world.met.note(Feature::Limits);
        world.state().limited = true;
        if let Err(error) = set {
            let allowed = matches!(error, AllocError::Budget { .. } | AllocError::Settings(_));
            world.refused(pool.site, "limits", &error, allowed);
        }
    }

    /// All that is live in a pool goes back, but for what is asleep.
    pub fn clear(self, pool: u8) {
        let world = self.0;
        let chosen = world.pools.borrow().chosen(pool).map(|pool| (pool.number, pool.site));
        let Some((number, site)) = chosen else { return };
        let mut nth = 0;
        while nth < world.state().blocks.len() {
            let goes = {
                let state = world.state();
                let block = &state.blocks[nth];
                let is_its = block.pool == Some(number) && block.site == site;
                is_its && !block.asleep && block.graph.is_none()
            };
            if goes && memory::may_go(world, nth) {
                memory::give(world, nth);
            } else {
                nth += 1;
            }
        }
    }

    /// Several calls of a driver fail.
    pub fn fail(self, process: u8, what: u8, nth: u8) {
        let world = self.0;
        let process = usize::from(process) % world.processes.len();
        let Failures { plan, sticks, relapses } = Failures::of(what, nth);
        world.processes[process].machine.set_faults(plan);
        world.met.note(Feature::Faults);
        let mut state = world.state();
        (state.faulty[process], state.unfigured[process]) = (true, true);
        (state.stuck[process], state.relapsing[process]) = (sticks, relapses);
        state.left_mapped[process] |= sticks;
    }
}
