//! Page-locked host memory, and copies between it and blocks.

use super::{World, chosen};
use crate::features::Feature;
use alloc_core::AllocError;
use alloc_core::backend::CopyKind;
use alloc_core::host::HostBlock;

/// The most that there are at a time.
const MOST: usize = 24;

/// A page-locked block in the program's hands.
#[derive(Clone, Copy, Debug)]
pub struct Pinned {
    process: usize,
    block: HostBlock,
    tag: u64,
    /// A device may be writing into it.
    busy: bool,
}

/// Both ends of a block: the n-th byte from either is of its number.
fn places(block: &HostBlock) -> impl Iterator<Item = (*mut u8, usize)> {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(block.ptr.0 as usize);
    let bytes = block.bytes as usize;
    [0, bytes.saturating_sub(8)]
        .into_iter()
        .flat_map(move |from| (0..8.min(bytes)).map(move |n| (at.wrapping_add(from + n), n)))
}

/// Page-locked memory comes.
pub fn alloc(world: &World, process: u8, bytes: u32, stream: u8) {
    let process = usize::from(process) % world.processes.len();
    let Some(host) = &world.processes[process].host else { return };
    if world.pinned.borrow().len() >= MOST {
        return;
    }
    let stream = {
        let state = world.state();
        let lane = state.lane(process, stream, |n, _| !state.captures(n));
        lane.map(|lane| state.lanes[lane].stream).filter(|_| stream.is_multiple_of(2))
    };
    let taken = match stream {
        Some(stream) => host.allocate_for(u64::from(bytes), stream),
        None => host.allocate(u64::from(bytes)),
    };
    match taken {
        Ok(block) => {
            world.met.note(Feature::Host);
            let tag = world.state().number();
            for (at, n) in places(&block) {
                // SAFETY: inside of the block, which is the program's.
                unsafe { at.write(tag.to_le_bytes()[n]) };
            }
            world.pinned.borrow_mut().push(Pinned { process, block, tag, busy: false });
        }
        Err(error) => world.refused_in(process, "allocate page-locked memory", &error, false),
    }
}

/// A copy between a block and page-locked memory.
pub fn copy(world: &World, host: u8, nth: u16, stream: u8, back: bool) {
    let mut pinned = world.pinned.borrow_mut();
    let Some(n) = chosen(host, &pinned, |one| one.tag) else { return };
    let Pinned { process, block: on_host, .. } = pinned[n];
    let Some(of) = &world.processes[process].host else { return };
    let (nth, ptr, stream, before) = {
        let state = world.state();
        let Some(nth) = state.block(nth) else { return };
        let block = &state.blocks[nth];
        let suits =
            world.sites[block.site].process == process && !block.asleep && !state.captures(block.last);
        if !suits || block.bytes < 16 || on_host.bytes < 16 {
            return;
        }
        // Its own stream: nobody needs to be told of it.
        let home = state.lanes[block.home];
        if !home.alive || state.captures(block.home) || stream.is_multiple_of(8) {
            return;
        }
        (nth, block.ptr, home.stream, state.lanes[block.last].stream)
    };
    let machine = &world.processes[process].machine;
    let ordered = machine.order(before, stream);
    world.verdict.expect(ordered.is_ok(), "machine", || format!("order: {ordered:?}"));
    {
        let mut state = world.state();
        let block = &mut state.blocks[nth];
        block.last = block.home;
        if back {
            block.known = None;
        }
    }
    let (dst, src, kind) = if back {
        (ptr, on_host.ptr, CopyKind::HostToDevice)
    } else {
        (on_host.ptr, ptr, CopyKind::DeviceToHost)
    };
    // SAFETY: both are live and as long; the engine is told of the use of the page-locked one.
    match unsafe { of.copy_async(dst, src, 16, kind, stream) } {
        Ok(()) => world.met.note(Feature::HostCopies),
        Err(error) => world.refused_in(process, "copy_async", &error, false),
    }
    pinned[n].busy = true;
}

/// Page-locked memory goes back, perhaps before devices are done with it.
pub fn free(world: &World, host: u8) {
    let one = {
        let mut pinned = world.pinned.borrow_mut();
        let Some(n) = chosen(host, &pinned, |one| one.tag) else { return };
        pinned.swap_remove(n)
    };
    if !one.busy {
        let tag = one.tag.to_le_bytes();
        for (at, n) in places(&one.block) {
            // SAFETY: inside of the block, which is the program's.
            let found = unsafe { at.read() };
            // Both ends overlap in a short block, and the second was written last.
            let short = one.block.bytes < 16 && one.block.bytes > 8;
            world.verdict.expect(short || found == tag[n], "host bytes", || {
                format!(
                    "page-locked block {} at {:?}: found {found:#x}, not {:#x}",
                    one.tag, one.block.ptr, tag[n]
                )
            });
        }
    }
    let Some(of) = &world.processes[one.process].host else { return };
    if let Err(error) = of.free(one.block.id) {
        let allowed = matches!(error, AllocError::Backend(_));
        world.refused_in(
            one.process,
            "free page-locked memory",
            &error,
            allowed && world.state().faulty[one.process],
        );
    }
}

/// Cached page-locked memory goes back, or completed uses are noticed.
pub fn settle(world: &World, process: u8, empty: bool) {
    let process = usize::from(process) % world.processes.len();
    let Some(host) = &world.processes[process].host else { return };
    let done = if empty { host.empty_cache() } else { host.poll() };
    if let Err(error) = done {
        world.refused_in(process, "page-locked memory", &error, false);
    }
}

/// All page-locked memory goes back.
pub fn free_all(world: &World) {
    while !world.pinned.borrow().is_empty() {
        free(world, 0);
    }
}
