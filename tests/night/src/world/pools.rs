//! Private pools: scopes that send requests to them, checkpoints of what is live in them.

use super::{Block, World, chosen, memory};
use crate::features::Feature;
use alloc_core::AllocError;
use alloc_core::backend::Backend;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions, PoolScope};
use alloc_core::sleep::SleepTag;
use alloc_core::types::{DeviceIndex, DevicePtr, MIB};
use std::collections::BTreeSet;

/// The most that there are at a time.
const MOST: usize = 6;

/// A private pool.
#[derive(Debug)]
pub struct Pool {
    /// Its number.
    pub number: u64,
    /// Whose it is.
    pub site: usize,
    /// On which device.
    pub device: DeviceIndex,
    /// The pool.
    pub pool: MemoryPool,
    /// Its sleep tag, if it has one.
    pub tag: Option<u8>,
    /// Some of its memory may be asleep.
    pub asleep: bool,
    /// A capture had memory of it.
    pub captured: bool,
    /// Blocks of others may be in it.
    serves_all: bool,
}

#[derive(Debug)]
struct Scope {
    number: u64,
    site: usize,
    lane: usize,
    /// Ends when dropped.
    _scope: PoolScope,
}

/// Which blocks of a pool were live at a moment.
#[derive(Debug)]
struct Saved {
    number: u64,
    site: usize,
    checkpoint: alloc_core::device::PoolCheckpoint,
    live: Vec<Block>,
    /// Where the memory of these blocks begins, and how many pieces had gone back by then.
    bases: Vec<DevicePtr>,
    gone: usize,
}

/// The program's pools.
#[derive(Debug, Default)]
pub struct Pools {
    /// Those that there are.
    pub list: Vec<Pool>,
    /// With which tags pools sleep that captures had memory of, by allocator. Such a pool may outlive its value.
    pub captured: BTreeSet<(usize, u8)>,
    /// Which tags were put to sleep and not woken since, by allocator.
    pub slept: BTreeSet<(usize, u8)>,
    scopes: Vec<Scope>,
    saved: Option<Saved>,
}

impl Pools {
    /// The pool to which requests of an allocator for a stream go.
    #[must_use]
    pub fn of_scope(&self, site: usize, lane: usize) -> Option<u64> {
        let of = |scope: &&Scope| scope.site == site && scope.lane == lane;
        self.scopes.iter().rev().find(of).map(|scope| scope.number)
    }

    /// With which tag a pool sleeps that there is.
    #[must_use]
    pub fn tag_of(&self, number: u64) -> Option<u8> {
        self.list.iter().find(|pool| pool.number == number).and_then(|pool| pool.tag)
    }

    /// Whether a scope names the stream.
    #[must_use]
    pub fn needs(&self, lane: usize) -> bool {
        self.scopes.iter().any(|scope| scope.lane == lane)
    }

    /// Whether a scope of the pool is open.
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        self.scopes.iter().any(|scope| scope.number == number)
    }

    /// A scope for one request of so many bytes, and whose pool it is.
    pub fn enter(&self, world: &World, number: u64, lane: usize, bytes: u64) -> Option<(PoolScope, usize)> {
        let pool = self.list.iter().find(|pool| pool.number == number)?;
        if self.is_open(number) {
            return None;
        }
        let stream = world.state().lanes[lane].stream;
        let filter = match bytes % 4 {
            0 => Filter::Always,
            1 => Filter::this_thread(),
            2 => Filter::Stream(stream),
            _ => Filter::Custom(std::sync::Arc::new(move |other| other == stream)),
        };
        match pool.pool.enter(filter) {
            Ok(scope) => Some((scope, pool.site)),
            Err(error) => {
                let busy = world.graphs.borrow().uses(number);
                world.refused(pool.site, "MemoryPool::enter", &error, busy);
                None
            }
        }
    }

    /// A pool that has none gets a sleep tag. What it holds in one piece stays awake.
    pub fn tag(&mut self, world: &World, pool: u8, tag: u8) {
        let Some(n) = chosen(pool, &self.list, |pool| pool.number) else { return };
        let Pool { number, site, device, serves_all, tag: former, .. } = self.list[n];
        // Who has a block of the default pool knows nothing of sleep.
        if serves_all || former.is_some() || world.state().captured.is_some() {
            return;
        }
        let (id, tag) = (self.list[n].pool.id(), tag % 3);
        let of = &world.sites[site].allocator;
        match of.sleep_mode().set_tag(device, id, Some(SleepTag::new(tag_name(tag)))) {
            Ok(()) => {
                self.list[n].tag = Some(tag);
                world.graphs.borrow_mut().tag(number, tag);
                let captured = self.list[n].captured;
                self.captured.extend(captured.then_some((site, tag)));
                let mut state = world.state();
                let saved = self.saved.iter_mut().flat_map(|saved| &mut saved.live);
                let of_pool = |block: &&mut Block| block.pool == Some(number) && !block.uncached;
                for block in state.blocks.iter_mut().chain(saved).filter(of_pool) {
                    block.tag_of_pool = Some(tag);
                }
            }
            Err(error) => {
                let possible = world.setup.growable && of.is_enabled();
                world.refused(site, "set_tag", &error, matches!(error, AllocError::Sleep(_)) && !possible);
            }
        }
    }

    /// Bytes that a wake may need: what segments grow by, behind live blocks. What graphs know is not known here.
    #[must_use]
    pub fn most_to_wake(&self, world: &World, site: usize, tag: u8) -> u64 {
        if self.captured.contains(&(site, tag)) {
            return u64::MAX;
        }
        let (state, of) = (world.state(), &world.sites[site]);
        let large = if of.granule { 2 * MIB } else { of.settings.borrow().large_segment_size };
        let sleeps = |block: &&Block| block.site == site && block.tag_of_pool == Some(tag);
        let around = |block: &Block| {
            let unit = if block.bytes > MIB { large } else { 2 * MIB };
            block.size.next_multiple_of(unit) + unit
        };
        state.blocks.iter().filter(sleeps).map(around).sum()
    }

    /// Which pool is meant.
    #[must_use]
    pub fn chosen(&self, pool: u8) -> Option<&Pool> {
        chosen(pool, &self.list, |pool| pool.number).map(|n| &self.list[n])
    }
}

/// The name of a sleep tag.
#[must_use]
pub const fn tag_name(tag: u8) -> &'static str {
    ["a", "b", "c"][tag as usize % 3]
}

/// A private pool comes.
pub fn begin(world: &World, at: u8, device: u8, kind: u8) {
    let ((site, of), device) = (world.site(at), world.device(device));
    if world.pools.borrow().list.len() >= MOST {
        return;
    }
    let number = world.state().number();
    let tag = (kind & 4 != 0).then_some((number % 3) as u8);
    let serves_all = kind & 1 != 0;
    let options = PoolOptions {
        source: None,
        use_on_oom: serves_all,
        no_split: kind & 2 != 0,
        sleep_tag: tag.map(|tag| SleepTag::new(tag_name(tag))),
    };
    match MemoryPool::new(&of.allocator, device, options) {
        Ok(pool) => {
            world.met.note(Feature::Pools);
            world.pools.borrow_mut().list.push(Pool {
                number,
                site,
                device,
                pool,
                tag,
                asleep: false,
                captured: false,
                serves_all,
            });
        }
        Err(error) => {
            let possible = world.setup.growable && of.allocator.is_enabled();
            let allowed = matches!(error, AllocError::Sleep(_)) && !possible;
            world.refused(site, "MemoryPool::new", &error, allowed);
        }
    }
}

/// A private pool ends; its live blocks stay.
pub fn end(world: &World, pool: u8) {
    let ended = {
        let mut pools = world.pools.borrow_mut();
        let Some(n) = chosen(pool, &pools.list, |pool| pool.number) else { return };
        let number = pools.list[n].number;
        if pools.is_open(number) {
            return;
        }
        pools.saved.take_if(|saved| saved.number == number);
        pools.list.swap_remove(n)
    };
    drop(ended);
}

/// Memory of a private pool, in a scope that lasts for the one request.
pub fn alloc(world: &World, pool: u8, stream: u8, bytes: u64) {
    let pools = world.pools.borrow();
    let Some(pool) = pools.chosen(pool) else { return };
    let process = world.sites[pool.site].process;
    let lane = {
        let state = world.state();
        let suits = |n: usize, lane: &super::Lane| !state.captures(n) && lane.stream.device == pool.device;
        state.lane(process, stream, suits)
    };
    let (number, Some(lane)) = (pool.number, lane) else { return };
    drop(pools);
    let entered = world.pools.borrow().enter(world, number, lane, bytes);
    if let Some((_scope, site)) = entered {
        memory::take(world, site, lane, bytes, Some(number));
    }
}

/// Requests for a stream go to a pool from here on.
pub fn open_scope(world: &World, pool: u8, stream: u8) {
    let mut pools = world.pools.borrow_mut();
    let opened = {
        let Some(pool) = pools.chosen(pool) else { return };
        if pools.is_open(pool.number) || pools.scopes.len() >= 4 {
            return;
        }
        let process = world.sites[pool.site].process;
        let state = world.state();
        let suits = |n: usize, lane: &super::Lane| !state.captures(n) && lane.stream.device == pool.device;
        let Some(lane) = state.lane(process, stream, suits) else { return };
        let stream = state.lanes[lane].stream;
        drop(state);
        let entered = pool.pool.enter(Filter::Stream(stream));
        entered
            .map(|scope| Scope { number: pool.number, site: pool.site, lane, _scope: scope })
            .map_err(|error| (pool.site, pool.number, error))
    };
    match opened {
        Ok(scope) => pools.scopes.push(scope),
        Err((site, number, error)) => {
            let busy = world.graphs.borrow().uses(number);
            world.refused(site, "MemoryPool::enter", &error, busy);
        }
    }
}

/// The newest scope ends.
pub fn close_scope(world: &World) {
    let ended = world.pools.borrow_mut().scopes.pop();
    drop(ended);
}

/// All scopes end.
pub fn close_scopes(world: &World) {
    let ended = std::mem::take(&mut world.pools.borrow_mut().scopes);
    drop(ended);
}

/// Which blocks of a pool are live is saved.
pub fn save(world: &World, pool: u8) {
    let mut pools = world.pools.borrow_mut();
    let Some(pool) = pools.chosen(pool) else { return };
    let (number, site, device, id) = (pool.number, pool.site, pool.device, pool.pool.id());
    if world.graphs.borrow().uses(number) || pool.serves_all {
        return;
    }
    match world.sites[site].allocator.pools().checkpoint(device, id) {
        Ok(checkpoint) => {
            let state = world.state();
            let of_pool =
                state.blocks.iter().filter(|block| block.pool == Some(number) && block.site == site);
            let live: Vec<_> =
                of_pool.filter(|block| block.device == device && !block.uncached).cloned().collect();
            let expected = live.iter().map(|block| block.ptr).collect();
            world.verdict.expect(checkpoint.live() == expected, "checkpoint", || {
                format!("{:?} are live, and {:?} were saved", expected, checkpoint.live())
            });
            world.met.note(Feature::Checkpoints);
            let base = |block: &Block| world.machine(site).address_range(block.ptr).ok();
            let bases = live.iter().filter_map(base).map(|range| range.base).collect();
            let gone = world.processes[world.sites[site].process].wire.pieces_back();
            pools.saved = Some(Saved { number, site, checkpoint, live, bases, gone });
        }
        Err(error) => {
            let allowed = matches!(error, AllocError::Checkpoint { .. });
            world.refused(site, "checkpoint", &error, allowed);
        }
    }
}

/// A pool's live blocks are again what was saved.
pub fn restore(world: &World) {
    let pools = world.pools.borrow();
    let Some(saved) = &pools.saved else { return };
    if world.graphs.borrow().uses(saved.number) || world.state().captured.is_some() {
        return;
    }
    match world.sites[saved.site].allocator.pools().restore(&saved.checkpoint, None) {
        Ok(_) => {
            let mut state = world.state();
            let process = world.sites[saved.site].process;
            let wire = &world.processes[process].wire;
            let lost = saved.bases.iter().find(|base| wire.went_back(**base, saved.gone));
            world.verdict.expect(lost.is_none(), "checkpoint", || {
                format!("a restore succeeded, and the memory at {lost:?} went back since it was saved")
            });
            let of_pool = |block: &Block| {
                block.pool == Some(saved.number) && block.site == saved.site && !block.uncached
            };
            let gone: Vec<_> =
                state.blocks.iter().filter(|block| of_pool(block)).map(|block| block.ptr.0).collect();
            state.blocks.retain(|block| !of_pool(block));
            for at in gone {
                state.ranges.remove(&(process, at));
            }
            for block in &saved.live {
                let tag = state.number();
                // Whatever streams did since is over: a restore is refused while uses go on.
                let home = state.lanes[block.home];
                let last = if home.alive { block.home } else { world.default_lane(process, block.device) };
                let again = Block { tag, known: None, last, told: Vec::new(), ..block.clone() };
                state.ranges.insert((process, again.ptr.0), again.ptr.0 + again.size);
                state.blocks.push(again);
            }
        }
        Err(error) => {
            let allowed = matches!(error, AllocError::Checkpoint { .. });
            world.refused(saved.site, "restore", &error, allowed);
        }
    }
}
