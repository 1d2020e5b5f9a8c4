//! What may be held, by whom; settings that change; devices that reach each other.

use super::{Site, State, World};
use crate::features::Feature;
use alloc_core::AllocError;
use alloc_core::budget::{Budget, TenantId};
use alloc_core::config::{CrossStream, MemoryLimit};
use alloc_core::types::{MIB, PoolId};
use std::sync::{Arc, Mutex};

/// A tenant.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    site: usize,
    id: TenantId,
}

/// From here on requests may be refused although the device has room.
fn note(world: &World, feature: Feature) {
    world.met.note(feature);
    world.state().limited = true;
}

/// The most that there are at a time.
const MOST: usize = 4;

/// A tenant comes or goes, or a pool joins or leaves it.
pub fn tenant(world: &World, at: u8, device: u8, what: u8, mib: u16) {
    let mut tenants = world.tenants.borrow_mut();
    if !world.setup.limits {
        return;
    }
    if what < 2 || tenants.is_empty() {
        let ((site, of), device) = (world.site(at), world.device(device));
        if tenants.len() >= MOST {
            return;
        }
        let limit = |bytes: u64| (bytes > 0).then_some(MemoryLimit::Bytes(bytes));
        let hard = u64::from(mib) * MIB;
        let budget = Budget { guarantee: limit(hard / 8), soft: limit(hard / 2), hard: limit(hard) };
        let name = format!("tenant {}", world.state().number());
        match of.allocator.budgets().create_tenant(device, &name, &budget) {
            Ok(id) => {
                note(world, Feature::Budgets);
                tenants.push(Tenant { site, id });
            }
            Err(error) => {
                let captured = super::memory::waits_for_capture(world, &error);
                let allowed = captured || matches!(error, AllocError::Budget { .. });
                world.refused(site, "create_tenant", &error, allowed);
            }
        }
        return;
    }
    let n = usize::from(mib) % tenants.len();
    let Tenant { site, id } = tenants[n];
    let budgets = world.sites[site].allocator.budgets();
    let pools = world.pools.borrow();
    let pool = pools.list.iter().find(|pool| pool.site == site && pool.device == id.device());
    let pool = pool.map_or(PoolId::DEFAULT, |pool| pool.pool.id());
    let done = match what {
        2 | 3 => budgets.join(pool, id),
        _ if mib.is_multiple_of(2) => budgets.leave(id.device(), pool),
        _ => {
            tenants.swap_remove(n);
            budgets.remove_tenant(id)
        }
    };
    if let Err(error) = done {
        let allowed = matches!(error, AllocError::Budget { .. } | AllocError::UnknownPool { .. });
        world.refused(site, "a tenant", &error, allowed);
    }
}

/// Limits of a device, or of a pool.
pub fn limit(world: &World, at: u8, device: u8, pool: u8, mib: u16) {
    if !world.setup.limits {
        return;
    }
    let ((site, of), device) = (world.site(at), world.device(device));
    let bytes = (mib > 0).then(|| u64::from(mib) * MIB);
    let (hard, soft) = (bytes.map(MemoryLimit::Bytes), bytes.map(|bytes| MemoryLimit::Bytes(bytes / 2)));
    let pools = world.pools.borrow();
    let own =
        pools.list.iter().find(|one| one.site == site && one.device == device && pool.is_multiple_of(2));
    let set = match own {
        Some(own) => own.pool.set_limits(hard, soft),
        None => of.allocator.set_memory_limits(device, hard, soft),
    };
    note(world, Feature::Limits);
    if let Err(error) = set {
        let allowed = matches!(error, AllocError::Budget { .. } | AllocError::Settings(_));
        world.refused(site, "limits", &error, allowed);
    }
}

/// The share of the device that may be held, in percent.
pub fn fraction(world: &World, at: u8, device: u8, percent: u8) {
    if !world.setup.limits {
        return;
    }
    let ((site, of), device) = (world.site(at), world.device(device));
    note(world, Feature::Limits);
    if let Err(error) = of.allocator.set_memory_fraction(f64::from(percent) / 100.0, device) {
        world.refused(site, "set_memory_fraction", &error, matches!(error, AllocError::Budget { .. }));
    }
}

/// Other settings.
pub fn configure(world: &World, at: u8, what: u8) {
    let (site, of) = world.site(at);
    let mut settings = of.allocator.settings();
    match what {
        0 | 1 => {
            settings.cross_stream = match settings.cross_stream {
                CrossStream::Never => CrossStream::Completed,
                CrossStream::Completed => CrossStream::Never,
            };
        }
        2 => settings.expandable_segments = !settings.expandable_segments,
        // The same settings again.
        3 | 6..9 => {}
        9 => settings.max_split_size = 32 * MIB,
        4 => settings.max_split_size = if settings.max_split_size == u64::MAX { 32 * MIB } else { u64::MAX },
        _ => settings.garbage_collection_threshold = 0.7,
    }
    match of.allocator.configure(settings) {
        Ok(()) => *of.settings.borrow_mut() = of.allocator.settings(),
        Err(error) => {
            let limited = world.state().limited && matches!(error, AllocError::Budget { .. });
            world.refused(site, "configure", &error, limited);
        }
    }
}

/// Caching goes off or on.
pub fn caching(world: &World, at: u8, on: bool) {
    let (_, of) = world.site(at);
    of.allocator.enable(on);
    if !on {
        world.met.note(Feature::Uncached);
    }
}

/// A device reaches another's memory.
pub fn reach(world: &World, at: u8, from: u8, to: u8) {
    let ((site, of), from, to) = (world.site(at), world.device(from), world.device(to));
    if from == to {
        return;
    }
    match of.allocator.peers().enable(from, to) {
        Ok(()) => {
            world.met.note(Feature::Peers);
            let mut state = world.state();
            if !state.peers.contains(&(site, from, to)) {
                state.peers.push((site, from, to));
            }
        }
        Err(error) => world.refused(site, "peers().enable", &error, false),
    }
}

/// When a request would be refused, a block goes back whose work is all on its own stream.
pub fn spill(n: usize, site: &Site, shared: &Arc<Mutex<State>>) {
    let (allocator, process) = (Arc::downgrade(&site.allocator), site.process);
    let shared = Arc::clone(shared);
    site.allocator.hooks().on_spill(0, move |request| {
        let Some(allocator) = allocator.upgrade() else { return 0 };
        let (ptr, size) = {
            let mut state = shared.try_lock().expect("nobody has the state over a call of the engine");
            state.spills += 1;
            let plain = |block: &super::Block| {
                let own = block.last == block.home && block.told.is_empty();
                own && !block.asleep && !block.shared && !block.uncached && block.graph.is_none()
            };
            let suits =
                |block: &super::Block| block.site == n && block.device == request.device && plain(block);
            let Some(found) = state.blocks.iter().position(suits) else { return 0 };
            let block = state.blocks.swap_remove(found);
            state.unclaim(process, block.ptr);
            state.spilled = true;
            let place = (block.ptr, block.size);
            state.spilled_blocks.push(block);
            place
        };
        allocator.free(ptr).map_or(0, |()| size)
    });
}
