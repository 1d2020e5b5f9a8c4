//! Blocks that another process has open.

use super::{World, chosen};
use crate::contents::{Pattern, Span};
use crate::features::Feature;
use alloc_core::AllocError;
use alloc_core::backend::Backend;
use alloc_core::share::ImportedMemory;
use alloc_core::types::{DeviceIndex, DevicePtr};
use std::sync::Arc;

/// The most that are open at a time.
const MOST: usize = 4;
const DEVICE: DeviceIndex = DeviceIndex(0);

/// A block that another process opened.
#[derive(Debug)]
pub struct Import {
    /// Who opened it.
    site: usize,
    memory: Arc<ImportedMemory>,
    offset: u64,
    bytes: u64,
    /// The block's number.
    tag: u64,
    /// Whose it is: the owner's process.
    owner: usize,
    /// Where it is there.
    at: DevicePtr,
    /// What was in it when it was last looked at, or given back.
    known: Option<Pattern>,
}

impl Import {
    /// Memory of a process was written, perhaps this.
    pub fn overwrite(&mut self, process: usize, written: impl Fn(DevicePtr, u64) -> bool) {
        if self.owner == process && written(self.at, self.bytes) {
            self.known = None;
        }
    }
}

/// A block goes back. Whoever has it open finds from here on what was in it last.
pub fn freeze(world: &World, tag: u64, known: Option<Pattern>) {
    for import in world.imports.borrow_mut().iter_mut().filter(|import| import.tag == tag) {
        import.known = known;
    }
}

/// A block is opened by another process.
pub fn share(world: &World, nth: u16, process: u8) {
    let (site, ptr, tag, bytes, uncached) = {
        let mut state = world.state();
        let Some(n) = state.block(nth) else { return };
        if state.blocks[n].asleep || world.processes.len() < 2 || state.captured.is_some() {
            return;
        }
        state.blocks[n].shared = true;
        let block = &state.blocks[n];
        (block.site, block.ptr, block.tag, block.bytes, block.uncached)
    };
    let from = world.sites[site].process;
    let to = (from + 1 + usize::from(process) % (world.processes.len() - 1)) % world.processes.len();
    let Some(importer) = world.sites.iter().position(|site| site.process == to) else { return };
    if world.imports.borrow().len() >= MOST {
        return;
    }
    let shared = match world.sites[site].allocator.sharing().share(ptr) {
        Ok(shared) => shared,
        Err(error) => {
            let allowed = matches!(error, AllocError::Share { .. }) || uncached;
            return world.refused(site, "share", &error, allowed);
        }
    };
    let Some(known) = settled(world, tag) else { return };
    match world.sites[importer].allocator.sharing().open(DEVICE, &shared.handle) {
        Ok(memory) => {
            world.met.note(Feature::Sharing);
            if world.setup.fabric {
                world.met.note(Feature::Fabric);
            }
            let (offset, owner) = (shared.offset, from);
            let import =
                Import { site: importer, memory, offset, bytes, tag, owner, at: ptr, known: Some(known) };
            inspect(world, &import);
            world.imports.borrow_mut().push(import);
        }
        Err(error) => {
            let excused = world.state().faulty[from];
            // Blocks of one granule are opened one by one, and each is mapped.
            let twice = !world.setup.aliases && matches!(error, AllocError::Backend(_));
            let allowed =
                excused || twice || !world.setup.growable && matches!(error, AllocError::Open { .. });
            world.refused(importer, "open", &error, allowed);
        }
    }
}

/// What is in a live block once its streams are done, if that is known.
fn settled(world: &World, tag: u64) -> Option<Pattern> {
    let (known, stream, site) = {
        let state = world.state();
        let block = state.blocks.iter().find(|block| block.tag == tag && !block.asleep)?;
        (block.known?, state.lanes[block.last].stream, block.site)
    };
    world.machine(site).synchronize_stream(stream).ok()?;
    Some(known)
}

/// The other process finds what its owner wrote.
fn inspect(world: &World, import: &Import) {
    let machine = world.machine(import.site);
    let stream = machine.default_stream(DEVICE);
    let ptr = import.memory.base().add(import.offset);
    let span = Span { machine, stream, ptr, bytes: import.bytes };
    span.work(&world.verdict, import.tag, import.known, None);
    // A driver that fails here is one that the engine did not call: the work is done all the same, later.
    while machine.synchronize_stream(stream).is_err() {
        super::faults::clear_of(world, world.sites[import.site].process);
    }
}

/// The other process looks at what it opened. What its owner freed stays as it was.
pub fn look(world: &World, nth: u8) {
    let mut imports = world.imports.borrow_mut();
    let Some(n) = chosen(nth, &imports, |import| import.tag) else { return };
    if world.state().captured.is_some() {
        return;
    }
    let import = &mut imports[n];
    let lives = world.state().blocks.iter().any(|block| block.tag == import.tag);
    match (lives, settled(world, import.tag)) {
        (true, Some(known)) => import.known = Some(known),
        (true, None) => return,
        (false, _) => {
            // Streams of other devices may have used it last.
            let machine = &world.processes[import.owner].machine;
            let done = |device| machine.synchronize_device(device).is_ok();
            if !(0..world.setup.devices).map(DeviceIndex).all(done) {
                return;
            }
        }
    }
    inspect(world, import);
}

/// The other process closes it.
pub fn close(world: &World, nth: u8) {
    let closed = {
        let mut imports = world.imports.borrow_mut();
        let Some(n) = chosen(nth, &imports, |import| import.tag) else { return };
        if world.state().captured.is_some() {
            return;
        }
        imports.swap_remove(n)
    };
    drop(closed);
}
