//! Memory comes, is used, and goes back.

use super::fit::Wanted;
use super::{Block, World};
use crate::contents::{Pattern, Span};
use crate::features::Feature;
use alloc_core::backend::ErrorKind;
use alloc_core::types::{DevicePtr, MIB, Stream};
use alloc_core::{AllocError, steps};

/// The most blocks that are live at a time.
const MOST: usize = 400;

/// Memory of an allocator, for a stream.
pub fn alloc(world: &World, at: u8, stream: u8, bytes: u64) {
    let (site, _) = world.site(at);
    let Some(lane) = free_lane(world, site, stream) else { return };
    let pool = world.pools.borrow().of_scope(site, lane);
    take(world, site, lane, bytes, pool);
}

/// A stream of an allocator's process that is not captured.
pub fn free_lane(world: &World, site: usize, stream: u8) -> Option<usize> {
    let state = world.state();
    state.lane(world.sites[site].process, stream, |n, _| !state.captures(n))
}

/// Asks for memory. It goes to `pool`, as the program has seen to.
pub fn take(world: &World, site: usize, lane: usize, bytes: u64, pool: Option<u64>) {
    let state = world.state();
    let allocator = &world.sites[site].allocator;
    // While a stream is captured, what comes straight from the driver is refused by it, and breaks the capture.
    if state.blocks.len() >= MOST || state.captured.is_some() && !allocator.is_enabled() {
        return;
    }
    let stream = state.lanes[lane].stream;
    drop(state);
    let (process, used) = (world.sites[site].process, world.machine(site).used(stream.device));
    let pieces = world.processes[process].wire.pieces();
    let asked = allocator.malloc(bytes, stream);
    let got = world.processes[process].wire.pieces() - pieces;
    match asked {
        Ok(ptr) => {
            let n = hold(world, site, lane, ptr, bytes, pool);
            let sleeps = world.state().blocks[n].tag_of_pool.is_some();
            world.verdict.expect(!sleeps || got == 0 || !world.setup.growable, "sleep", || {
                format!("{ptr} of a pool with a tag came with memory that cannot sleep")
            });
            if world.machine(site).used(stream.device) > used && pool.is_none() {
                Wanted { site, stream, rounded: bytes, needed: 0 }.expect_none_missed(world, ptr);
            }
            world.graphs.borrow().expect_apart(world, (site, pool), ptr, bytes);
            world.graphs.borrow().come_before(world, site, lane, ptr, bytes);
            write(world, n);
        }
        Err(error) => refuse(world, site, (stream, pool.is_none()), bytes, &error),
    }
}

/// A request was refused, which is wrong while the device has room for it, or the cache. An ordinary one is of the default
/// pool.
pub fn refuse(
    world: &World,
    site: usize,
    (stream, ordinary): (Stream, bool),
    bytes: u64,
    error: &AllocError,
) {
    let device = stream.device;
    let settings = world.sites[site].settings.borrow();
    let hindered = world.state().limited;
    let machine = world.machine(site);
    let room = machine.capacity(device).saturating_sub(machine.used(device));
    let rounded = if settings.roundup_power2_divisions[0] > 1 { bytes.next_power_of_two() } else { bytes };
    let unit = 2 * MIB;
    let needed = match (world.sites[site].granule, rounded) {
        (_, 0..=MIB) | (true, _) => rounded.next_multiple_of(unit),
        // Also where settings are for fixed segments, some pools grow.
        (false, _) => rounded.next_multiple_of(settings.large_segment_size),
    };
    world.met.note(Feature::Refusals);
    let captured = matches!(error, AllocError::Backend(error) if error.kind == ErrorKind::CaptureViolation);
    world.verdict.expect(!captured || !world.sites[site].allocator.is_enabled(), "refused", || {
        format!("malloc of {bytes} on device {device}: a capture is no reason: {error}")
    });
    let refused = match error {
        // Straight from the driver.
        AllocError::Backend(error) => error.is_out_of_memory() && !world.sites[site].allocator.is_enabled(),
        error => error.is_out_of_memory(),
    };
    let allowed = refused && (hindered || room < needed);
    let what = || format!("malloc of {bytes} on device {device} with room for {room}");
    if !allowed {
        world.refused(site, &what(), error, false);
    }
    let undisturbed = {
        let (state, process) = (world.state(), world.sites[site].process);
        !hindered && !state.faulty[process] && state.captured.is_none()
    };
    if ordinary && undisturbed && error.is_out_of_memory() && world.sites[site].allocator.is_enabled() {
        let wanted = Wanted { site, stream, rounded, needed };
        if let Some(found) = wanted.found(world) {
            world.verdict.find("fit", format!("{}: {found}", what()));
        }
    }
    world.state().saw(2);
}

/// A block is in the program's hands from here on. Its place in the list.
pub fn hold(world: &World, site: usize, lane: usize, ptr: DevicePtr, bytes: u64, pool: Option<u64>) -> usize {
    let allocator = &world.sites[site].allocator;
    let uncached = !allocator.is_enabled();
    let size = allocator.block_size(ptr).unwrap_or(bytes);
    let tag_of_pool = pool.and_then(|pool| world.pools.borrow().tag_of(pool)).filter(|_| !uncached);
    let mut state = world.state();
    let (process, device) = (world.sites[site].process, state.lanes[lane].stream.device);
    world.verdict.expect(ptr.0.is_multiple_of(512) && size >= bytes, "block", || {
        format!("{ptr} of {size} for {bytes}")
    });
    if let Some((at, end)) = state.claim(process, ptr, size) {
        world
            .verdict
            .find("overlap", format!("{ptr}+{size} was handed out, and {at:#x} to {end:#x} is live"));
    }
    let tag = state.number();
    // Windows of machines begin at multiples of this.
    state.saw(ptr.0 & ((1 << 38) - 1));
    let block = Block {
        site,
        device,
        ptr,
        bytes,
        size,
        known: None,
        tag,
        home: lane,
        last: lane,
        told: Vec::new(),
        pool,
        tag_of_pool,
        asleep: false,
        shared: false,
        uncached,
        graph: None,
    };
    state.blocks.push(block);
    state.blocks.len() - 1
}

/// Queues work that finds what is known to be in a block, and leaves something new. The stream is its last one.
pub fn write(world: &World, nth: usize) {
    let (block, old, stream) = {
        let mut state = world.state();
        let stream = state.lanes[state.blocks[nth].last].stream;
        let block = &mut state.blocks[nth];
        let old = block.known;
        let version = old.map_or(0, |old| old.version + 1);
        block.known = Some(Pattern { tag: block.tag, version });
        (block.clone(), old, stream)
    };
    let machine = world.machine(block.site);
    if let Err(error) = machine.use_memory_as(block.tag, stream, block.ptr, block.bytes) {
        world.verdict.find("order", format!("block {} at {}: {error}", block.tag, block.ptr));
    }
    let span = Span { machine, stream, ptr: block.ptr, bytes: block.bytes };
    span.work(&world.verdict, block.tag, old, block.known);
}

/// Work of a stream on a block, after all that used it before.
pub fn use_on(world: &World, nth: u16, stream: u8, told: bool) {
    let chosen = {
        let state = world.state();
        let Some(nth) = state.block(nth) else { return };
        let block = &state.blocks[nth];
        if block.asleep || block.graph.is_some() || state.captures(block.last) {
            return;
        }
        let process = world.sites[block.site].process;
        let reaches = |from| block.device == from || state.peers.contains(&(block.site, from, block.device));
        let lane = state.lane(process, stream, |n, lane| !state.captures(n) && reaches(lane.stream.device));
        let Some(lane) = lane else { return };
        let home = state.lanes[block.home];
        let returns = home.alive && !state.captures(block.home);
        (nth, lane, told || !returns, block.ptr, block.site)
    };
    let (nth, lane, told, ptr, site) = chosen;
    let (before, stream, home) = {
        let state = world.state();
        let lanes = |n: usize| state.lanes[n].stream;
        (lanes(state.blocks[nth].last), lanes(lane), state.blocks[nth].home)
    };
    let machine = world.machine(site);
    let ordered = machine.order(before, stream);
    world.verdict.expect(ordered.is_ok(), "machine", || format!("order: {ordered:?}"));
    world.state().blocks[nth].last = lane;
    if told && lane != home && !tell(world, nth, lane, ptr, site) {
        return;
    }
    write(world, nth);
    if !told && lane != home {
        let mut state = world.state();
        let back = state.lanes[home].stream;
        let ordered = machine.order(stream, back);
        world.verdict.expect(ordered.is_ok(), "machine", || format!("order: {ordered:?}"));
        state.blocks[nth].last = home;
    }
}

/// Tells the engine that a stream uses a block.
fn tell(world: &World, nth: usize, lane: usize, ptr: DevicePtr, site: usize) -> bool {
    let stream = world.state().lanes[lane].stream;
    let steps = steps::taken();
    let told = world.sites[site].allocator.record_stream(ptr, stream);
    world.verdict.few_steps("a record_stream", steps, world.state().blocks[nth].told.len());
    match told {
        Ok(()) => {
            world.met.note(Feature::RecordStream);
            world.state().blocks[nth].told.push(lane);
            true
        }
        Err(error) => {
            world.refused(site, "record_stream", &error, false);
            false
        }
    }
}

/// A block goes back.
pub fn free(world: &World, nth: u16) {
    let Some(nth) = world.state().block(nth) else { return };
    if may_go(world, nth) {
        give(world, nth);
    }
}

/// What came straight from the driver goes there at once, which breaks a capture.
pub(super) fn may_go(world: &World, nth: usize) -> bool {
    let state = world.state();
    state.captured.is_none() || !state.blocks[nth].uncached
}

/// Looks at a block once more and gives it back; the block as it was.
pub fn give(world: &World, nth: usize) -> Block {
    let last_look = {
        let state = world.state();
        let block = &state.blocks[nth];
        !block.asleep && block.known.is_some() && !state.captures(block.last) && block.graph.is_none()
    };
    if last_look {
        let (lane, known, ptr, site) = {
            let state = world.state();
            let block = &state.blocks[nth];
            let known = block.last == block.home || block.told.contains(&block.last);
            (block.last, known, block.ptr, block.site)
        };
        if known || tell(world, nth, lane, ptr, site) {
            look(world, nth);
        }
    }
    let block = {
        let mut state = world.state();
        let process = world.sites[state.blocks[nth].site].process;
        state.let_go(nth, process)
    };
    world.graphs.borrow_mut().go_after(&block);
    super::sharing::freeze(world, block.tag, block.known);
    let allocator = &world.sites[block.site].allocator;
    let process = world.sites[block.site].process;
    let wire = &world.processes[process].wire;
    let (free, calls) = (|| allocator.free(block.ptr), wire.calls());
    let steps = steps::taken();
    let freed = free();
    // An event for each user, and what asks whether it is captured. Blocks that are looked at take more, and device memory
    // that was not cached.
    let allowed = 4 + 8 * (block.told.len() as u64 + 1);
    let few = block.uncached || wire.calls() - calls <= allowed;
    if !block.uncached && !block.asleep {
        world.verdict.few_steps("a free", steps, block.told.len());
    }
    world.verdict.expect(few, "calls", || {
        format!("the free of block {} took {} calls, not {allowed}", block.tag, wire.calls() - calls)
    });
    if let Err(error) = freed {
        let excused = block.uncached && world.state().faulty[process];
        world.verdict.expect(excused, "free", || format!("block {} at {}: {error}", block.tag, block.ptr));
        super::faults::clear_of(world, process);
        let again = free();
        world.verdict.expect(again.is_ok(), "free", || format!("block {} once more: {again:?}", block.tag));
    }
    block
}

/// Queues work that finds what is known to be in a block.
fn look(world: &World, nth: usize) {
    let (block, stream) = {
        let state = world.state();
        (state.blocks[nth].clone(), state.lanes[state.blocks[nth].last].stream)
    };
    let span = Span { machine: world.machine(block.site), stream, ptr: block.ptr, bytes: block.bytes };
    span.work(&world.verdict, block.tag, block.known, None);
}

/// All but every `keep`-th block of an allocator go back.
pub fn free_most(world: &World, at: u8, keep: u8) {
    let (site, _) = world.site(at);
    let mut nth = 0;
    while nth < world.state().blocks.len() {
        let goes = {
            let state = world.state();
            let block = &state.blocks[nth];
            block.site == site
                && block.graph.is_none()
                && !block.tag.is_multiple_of(u64::from(keep.max(1)) + 1)
        };
        if goes && may_go(world, nth) {
            give(world, nth);
        } else {
            nth += 1;
        }
    }
}

/// A block goes back and is asked for at its very address.
pub fn alloc_at(world: &World, nth: u16) {
    let chosen = {
        let state = world.state();
        let Some(nth) = state.block(nth) else { return };
        let block = &state.blocks[nth];
        let home = state.lanes[block.home];
        let suits = !block.asleep && !block.uncached && block.graph.is_none() && home.alive;
        (suits && !state.captures(block.home)).then_some((nth, home.stream))
    };
    let Some((nth, stream)) = chosen else { return };
    let block = give(world, nth);
    let pool = world.pools.borrow().of_scope(block.site, block.home);
    match world.sites[block.site].allocator.malloc_at(block.bytes, block.ptr, stream) {
        Ok(ptr) => {
            world.met.note(Feature::ExactPlace);
            world
                .verdict
                .expect(ptr == block.ptr, "exact place", || format!("{ptr} instead of {}", block.ptr));
            let n = hold(world, block.site, block.home, ptr, block.bytes, pool);
            // It comes from what is cached, whatever is switched off.
            let tag_of_pool = pool.and_then(|pool| world.pools.borrow().tag_of(pool));
            {
                let mut state = world.state();
                (state.blocks[n].uncached, state.blocks[n].tag_of_pool) = (false, tag_of_pool);
            }
            world.graphs.borrow().come_before(world, block.site, block.home, ptr, block.bytes);
            write(world, n);
        }
        Err(error) => {
            let allowed = matches!(error, AllocError::ExactAddress { .. });
            world.refused(block.site, "malloc_at", &error, allowed);
        }
    }
}

/// A free of what is no block of this allocator.
pub fn wrong_free(world: &World, value: u64) {
    let (site, ptr) = {
        let state = world.state();
        let others = state.gone.len() as u64;
        let gone = (others > 0).then(|| state.gone[(value % others.max(1)) as usize]);
        match (value % 3, gone, state.blocks.first()) {
            (0, Some(gone), _) => gone,
            (1, _, Some(block)) => (block.site, block.ptr.add(1 + value % block.size.max(2))),
            _ => ((value % world.sites.len() as u64) as usize, DevicePtr(value)),
        }
    };
    if ptr.is_null() || world.state().ranges.contains_key(&(world.sites[site].process, ptr.0)) {
        return;
    }
    if world.sites[site].allocator.free(ptr).is_ok() {
        world.verdict.find("wrong free", format!("{ptr} was taken back, and is no live block"));
    }
}

/// The cache goes back.
pub fn empty(world: &World, at: u8) {
    let (site, of) = world.site(at);
    match of.allocator.empty_cache() {
        Ok(()) => of.expect_flushed(world, site),
        Err(error) => world.refused(site, "empty_cache", &error, waits_for_capture(world, &error)),
    }
}

/// Whether a captured stream could not be waited for, as it has to be.
pub fn waits_for_capture(world: &World, error: &AllocError) -> bool {
    let kind = matches!(error, AllocError::Backend(error) if error.kind == ErrorKind::CaptureViolation);
    kind && world.state().captured.is_some()
}

/// Finished frees are noticed, or waited for.
pub fn settle(world: &World, at: u8, device: u8, wait: bool) {
    let ((site, of), device) = (world.site(at), world.device(device));
    let settled = if wait { of.allocator.synchronise(device) } else { of.allocator.poll(device) };
    if let Err(error) = settled {
        world.refused(site, "synchronise", &error, waits_for_capture(world, &error));
    }
}
