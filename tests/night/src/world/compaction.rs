//! Compaction: at quiet moments, by requests, and beside memory that stays where it is.

use super::{Site, World};
use crate::features::Feature;
use alloc_core::AllocError;
use alloc_core::backend::Backend;
use alloc_core::compaction::Quiesce;
use alloc_core::config::{Compact, Launches, Settings};
use alloc_core::types::{DevicePtr, PhysicalHandle};
use backend_openreg::Driver;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The program's hooks: they answer yes, no, or with a panic, at once or when all may go on.
#[derive(Clone, Debug, Default)]
pub struct Hooks(Arc<(AtomicU8, AtomicBool)>);

/// What hooks panic with.
struct Refuses;

impl Hooks {
    /// Another answer.
    pub fn set(&self, mood: u8) {
        self.0.0.store(mood % 5, Ordering::Relaxed);
    }

    /// They answer no while `work` is done.
    pub fn refusing(&self, work: impl FnOnce()) {
        let mood = self.0.0.swap(2, Ordering::Relaxed);
        work();
        self.0.0.store(mood, Ordering::Relaxed);
    }

    /// Whether they were asked.
    #[must_use]
    pub fn were_asked(&self) -> bool {
        self.0.1.load(Ordering::Relaxed)
    }

    /// What a request came to; `None` where a hook panicked.
    pub fn guard<T>(&self, request: impl FnOnce() -> T) -> Option<T> {
        if self.0.0.load(Ordering::Relaxed) < 3 {
            return Some(request());
        }
        match catch_unwind(AssertUnwindSafe(request)) {
            Ok(done) => Some(done),
            Err(panic) if panic.is::<Refuses>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn answer(&self, asked: Quiesce) -> bool {
        self.0.1.store(true, Ordering::Relaxed);
        match (self.0.0.load(Ordering::Relaxed), asked) {
            (2, Quiesce::Stop(_)) => false,
            (3, Quiesce::Stop(_)) | (4, Quiesce::Resume(_)) => panic_any(Refuses),
            _ => true,
        }
    }
}

/// The program's hook of an allocator.
pub fn hook(site: &Site, hooks: &Hooks) {
    let hooks = hooks.clone();
    // SAFETY: one thread gives the devices work, and it is in the allocator.
    unsafe { site.allocator.hooks().on_quiesce(move |asked| hooks.answer(asked)) };
}

/// What an allocator's settings become.
pub fn change(world: &World, site: &Site, settings: &mut Settings, promise: bool) {
    if !site.granule || world.state().stuck[site.process] {
        return;
    }
    settings.compaction = match settings.compaction {
        Compact::Never => Compact::LastResort,
        Compact::LastResort => Compact::Always,
        Compact::Always => Compact::Never,
    };
    let promises = promise && settings.compaction != Compact::Never;
    settings.launches = if promises { Launches::AllocatingThread } else { Launches::Any };
}

/// The memory between live blocks goes back.
pub fn compact(world: &World, at: u8, device: u8) {
    let ((site, of), device) = (world.site(at), world.device(device));
    // Where undoing fails, too, contents are lost, and the device with them.
    if world.state().stuck[of.process] {
        return;
    }
    // SAFETY: the one thread that gives devices work is here.
    match unsafe { of.allocator.compact(device) } {
        Ok(report) => {
            if report.gained > 0 {
                world.met.note(Feature::Compaction);
                world.compacted.set(world.compacted.get() + 1);
            }
            world.state().saw(report.gained ^ report.moved);
        }
        Err(error) => {
            let captured = super::memory::waits_for_capture(world, &error);
            world.refused(site, "compact", &error, captured || matches!(error, AllocError::Limit(_)));
        }
    }
}

/// A block keeps its physical memory.
pub fn pin(world: &World, nth: u16) {
    let chosen = {
        let state = world.state();
        let Some(n) = state.block(nth) else { return };
        let block = &state.blocks[n];
        (!block.asleep && !block.uncached).then_some((n, block.site, block.ptr))
    };
    let Some((n, site, ptr)) = chosen else { return };
    match world.sites[site].allocator.pin_physical(ptr) {
        Ok(()) => {
            world.met.note(Feature::Pins);
            let behind = behind(world, site, ptr);
            world.state().blocks[n].pinned = behind;
        }
        Err(error) => world.refused(site, "pin_physical", &error, false),
    }
}

/// The physical memory behind a live block, where the machine can be asked: not while it may fail, or is captured.
fn behind(world: &World, site: usize, ptr: DevicePtr) -> Option<PhysicalHandle> {
    {
        let state = world.state();
        if state.faulty[world.sites[site].process] || state.captured.is_some() {
            return None;
        }
    }
    let vm = world.machine(site).virtual_memory().ok()?;
    let handle = Driver(world.machine(site)).retain_physical(ptr).ok()?;
    // SAFETY: rule 1: retained just now; the mapping keeps the memory.
    unsafe { vm.release_physical(handle) }.ok()?;
    Some(handle)
}

/// A block that was pinned has the memory that it had, as long as it does not sleep.
pub fn check(world: &World, nth: usize) {
    let (pinned, site, ptr, tag) = {
        let state = world.state();
        let block = &state.blocks[nth];
        (block.pinned.filter(|_| !block.asleep), block.site, block.ptr, block.tag)
    };
    let Some(pinned) = pinned else { return };
    if let Some(found) = behind(world, site, ptr) {
        world.verdict.expect(found == pinned, "pin", || {
            format!("the pinned block {tag} at {ptr} had {pinned:?}, and has {found:?}")
        });
    }
}
