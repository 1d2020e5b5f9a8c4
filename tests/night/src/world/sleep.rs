//! Pools sleep and wake.

use super::World;
use super::pools::tag_name;
use crate::features::Feature;
use alloc_core::AllocError;
use alloc_core::sleep::{Backup, Retention, Tags};

/// Pools of an allocator sleep.
pub fn sleep(world: &World, at: u8, tag: u8, backup: u8) {
    let (site, of) = world.site(at);
    let backup = match backup % 4 {
        0 => Backup::Discard,
        1 => Backup::HostPinned(Retention::Release),
        2 => Backup::HostPinned(Retention::Keep),
        _ => Backup::File(std::env::temp_dir()),
    };
    let discards = backup == Backup::Discard;
    let mut sleepers = Vec::new();
    let in_graphs = world.pools.borrow().captured.contains(&(site, tag % 3));
    world.pools.borrow_mut().slept.insert((site, tag % 3));
    for pool in world.pools.borrow_mut().list.iter_mut() {
        if pool.site == site && pool.tag == Some(tag % 3) {
            pool.asleep = true;
            sleepers.push(pool.number);
        }
    }
    for block in &mut world.state().blocks {
        if block.site == site && block.tag_of_pool == Some(tag % 3) {
            block.asleep = true;
            if discards {
                block.known = None;
            }
        }
    }
    if discards {
        sleepers.iter().for_each(|pool| world.graphs.borrow_mut().forget(*pool));
    }
    // SAFETY: what uses these pools' memory was queued before; blocks that may sleep are not used.
    match unsafe { of.allocator.sleep_mode().sleep(Tags::Only(&[tag_name(tag)]), &backup) } {
        Ok(report) => {
            world.met.note(Feature::Sleep);
            if report.backed_up > 0 {
                world.met.note(Feature::Backup);
            }
            world.state().saw(report.slept);
        }
        Err(error) => {
            // What a graph may read at its next launch is not given up.
            if sleepers.is_empty() && !in_graphs {
                world.pools.borrow_mut().slept.remove(&(site, tag % 3));
            }
            let allowed = sleepers.is_empty() || world.state().captured.is_some() || discards && in_graphs;
            world.refused(site, "sleep", &error, allowed && matches!(error, AllocError::Sleep(_)));
        }
    }
}

/// Pools of an allocator wake.
pub fn wake(world: &World, at: u8, tag: u8) {
    let (site, of) = world.site(at);
    let most = world.pools.borrow().most_to_wake(world, site, tag % 3);
    match of.allocator.sleep_mode().wake(Tags::Only(&[tag_name(tag)])) {
        Ok(report) => {
            world.verdict.expect(report.woken <= most, "wake", || {
                format!("{} bytes are awake, and live blocks had {most} at most", report.woken)
            });
            wakened(world, site, tag % 3);
        }
        Err(error) => {
            let known =
                world.pools.borrow().list.iter().any(|pool| pool.site == site && pool.tag == Some(tag % 3));
            let captured = world.state().captured.is_some();
            let unknown = matches!(error, AllocError::Sleep(_)) && (!known || captured);
            let allowed = unknown || matches!(error, AllocError::NoRoomToWake { .. });
            world.refused(site, "wake", &error, allowed);
        }
    }
}

/// What slept is awake, and has what was in it.
fn wakened(world: &World, site: usize, tag: u8) {
    let mut awake = Vec::new();
    world.pools.borrow_mut().slept.remove(&(site, tag));
    for pool in world.pools.borrow_mut().list.iter_mut() {
        if pool.site == site && pool.tag == Some(tag) {
            pool.asleep = false;
            awake.push(pool.number);
        }
    }
    let asleep = |ptr| world.sites[site].allocator.sleep_mode().is_asleep(ptr);
    for block in world.state().blocks.iter_mut().filter(|block| block.site == site && block.asleep) {
        match asleep(block.ptr) {
            Some(false) => block.asleep = false,
            state if block.pool.is_some_and(|pool| awake.contains(&pool)) => {
                world.verdict.find("wake", format!("block {} is awake: {state:?}", block.tag));
            }
            _ => {}
        }
    }
}
