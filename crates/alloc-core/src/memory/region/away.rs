//! Granules that are mapped where their memory does not serve: it serves at another stream's address, and may come back
//! without a driver call.

use super::RegionId;
use crate::memory::block::{BlockId, SegmentId};
use crate::types::PhysicalHandle;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A granule of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The arena's number.
    pub(crate) arena: u16,
    pub(crate) segment: SegmentId,
    pub(crate) region: RegionId,
    pub(crate) addr: u64,
    /// The one block that covers it, while its memory serves elsewhere.
    pub(crate) block: BlockId,
}

/// Memory that is mapped where it does not serve.
#[derive(Debug)]
struct Memory {
    /// Where it serves.
    home: Place,
    /// Where it does not.
    away: SmallVec<[Place; 1]>,
}

/// All such memory.
#[derive(Debug, Default)]
pub(super) struct Away(FxHashMap<PhysicalHandle, Memory>);

impl Away {
    /// Memory that served at `from` serves at `home` from here on, where it may have been away.
    pub(super) fn send(&mut self, memory: PhysicalHandle, from: Place, home: Place) {
        let memory = self.0.entry(memory).or_insert_with(|| Memory { home, away: SmallVec::new() });
        memory.home = home;
        memory.away.retain(|place| place.addr != home.addr);
        memory.away.push(from);
    }

    /// It is not mapped any more where it was away, at `addr`.
    pub(super) fn remove(&mut self, memory: PhysicalHandle, addr: u64) {
        let Some(of) = self.0.get_mut(&memory) else { return };
        of.away.retain(|place| place.addr != addr);
        if of.away.is_empty() {
            self.0.remove(&memory);
        }
    }

    /// Where it is away in an arena.
    pub(super) fn place(&self, memory: PhysicalHandle, arena: u16) -> Option<Place> {
        self.0.get(&memory)?.away.iter().find(|place| place.arena == arena).copied()
    }

    pub(super) fn has(&self, memory: PhysicalHandle) -> bool {
        self.0.contains_key(&memory)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where memory is away, and where it serves.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PhysicalHandle, &Place, &Place)> {
        self.0.iter().flat_map(|(memory, of)| of.away.iter().map(|place| (*memory, place, &of.home)))
    }
}
