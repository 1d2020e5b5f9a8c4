//! Blocks that keep their physical memory as long as they live.

use crate::device::site::Site;
use crate::process::attention::Reason;
use crate::sync::{Mutex, Rank};
use crate::types::DevicePtr;
use rustc_hash::FxHashSet;

/// Those blocks, by address.
pub(in crate::device) struct Pins {
    site: Site,
    pinned: Mutex<FxHashSet<DevicePtr>>,
}

impl Pins {
    pub(in crate::device) fn new(site: &Site) -> Self {
        Self { site: site.clone(), pinned: Mutex::new(Rank::Registry, FxHashSet::default()) }
    }

    /// The block at `ptr`, which lives, keeps its memory.
    pub(in crate::device) fn begin(&self, ptr: DevicePtr) {
        let mut pinned = self.pinned.lock();
        pinned.insert(ptr);
        self.site.attention().set(Reason::PINNED, true);
    }

    /// The block at `ptr` is gone, or about to go: whoever gets its address next has pinned nothing. Whether it was pinned.
    pub(in crate::device) fn end(&self, ptr: DevicePtr) -> bool {
        if !self.site.attention().has(Reason::PINNED) {
            return false;
        }
        let mut pinned = self.pinned.lock();
        let was_pinned = pinned.remove(&ptr);
        self.site.attention().set(Reason::PINNED, !pinned.is_empty());
        was_pinned
    }

    /// Calls `look` with what says which blocks are pinned.
    pub(in crate::device) fn with<R>(&self, look: impl FnOnce(&dyn Fn(u64) -> bool) -> R) -> R {
        let pinned = self.pinned.lock();
        look(&|addr| !pinned.is_empty() && pinned.contains(&DevicePtr(addr)))
    }
}
