//! Which blocks have canaries, and which are held back. Bookkeeping only.

use super::{CorruptionObserver, HardenedStats};
use crate::base::ids::Waiting;
use crate::process::held_event::HeldEvent;
use crate::types::DevicePtr;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A freed block that is held back.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pub(crate) block: Waiting,
    pub(crate) ptr: DevicePtr,
    /// The block's bytes, rounded.
    pub(crate) bytes: u64,
    /// As requested: what is poisoned.
    pub(crate) requested: u64,
    /// Bytes of canary that follow.
    pub(crate) canary: u64,
    /// The part that the device cannot access: first address and bytes, whole granules.
    pub(crate) protected: Option<(DevicePtr, u64)>,
    /// Past once the block is poisoned.
    pub(crate) poisoned: HeldEvent,
}

/// A device's quarantine.
#[derive(Default)]
pub(crate) struct Quarantine {
    /// The mode is on.
    on: bool,
    /// Bytes that may be held back.
    bound: u64,
    /// Live blocks with a canary, and its bytes.
    armed: FxHashMap<DevicePtr, u64>,
    /// Oldest first.
    held: VecDeque<Quarantined>,
    stats: HardenedStats,
    /// It was said that a block could not be read back.
    told_unreadable: bool,
    observers: Vec<CorruptionObserver>,
}

impl std::fmt::Debug for Quarantine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quarantine").field("on", &self.on).field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Quarantine {
    /// Turns the mode on or off; off, nothing is known of any canary any more.
    pub(crate) fn configure(&mut self, on: bool, bound: u64) {
        (self.on, self.bound) = (on, bound);
        if !on {
            self.armed.clear();
        }
    }

    pub(crate) fn observers(&self) -> &[CorruptionObserver] {
        &self.observers
    }

    pub(crate) fn add_observer(&mut self, observer: CorruptionObserver) {
        self.observers.push(observer);
    }

    /// Whether this is the first block that could not be read back.
    pub(crate) fn is_first_unreadable(&mut self) -> bool {
        !std::mem::replace(&mut self.told_unreadable, true)
    }

    /// A block that was handed out has a canary of so many bytes; 0 where it has none.
    pub(crate) fn arm(&mut self, ptr: DevicePtr, canary: u64) {
        if canary > 0 && self.on {
            self.armed.insert(ptr, canary);
        } else {
            self.armed.remove(&ptr);
        }
    }

    /// The canary of a block that is not live any more.
    pub(crate) fn disarm(&mut self, ptr: DevicePtr) -> u64 {
        self.armed.remove(&ptr).unwrap_or(0)
    }

    /// Holds a block back.
    pub(crate) fn hold(&mut self, held: Quarantined) {
        self.stats.quarantined += 1;
        self.stats.quarantined_bytes += held.bytes;
        self.stats.protected_bytes += held.protected.map_or(0, |(_, bytes)| bytes);
        self.held.push_back(held);
    }

    /// The oldest block, if there are more bytes than may be held back.
    pub(crate) fn take_excess(&mut self) -> Option<Quarantined> {
        let bound = if self.on { self.bound } else { 0 };
        if self.stats.quarantined_bytes > bound { self.take() } else { None }
    }

    /// The oldest block.
    pub(crate) fn take(&mut self) -> Option<Quarantined> {
        let held = self.held.pop_front()?;
        self.stats.quarantined -= 1;
        self.stats.quarantined_bytes -= held.bytes;
        self.stats.protected_bytes -= held.protected.map_or(0, |(_, bytes)| bytes);
        Some(held)
    }

    /// Blocks held back.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn holds(&self, ptr: DevicePtr) -> bool {
        self.held.iter().any(|held| held.ptr == ptr)
    }

    pub(crate) fn note_checked(&mut self, corruptions: u64) {
        self.stats.checked += 1;
        self.stats.corruptions += corruptions;
    }

    pub(crate) fn note_unchecked(&mut self) {
        self.stats.unchecked += 1;
    }

    pub(crate) fn stats(&self) -> HardenedStats {
        self.stats
    }
}
