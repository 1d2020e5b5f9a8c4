//! Granules that are backed in parts: a compaction gave the memory of what was free back, and left the rest where it was.

use super::{Granule, GranuleState, Region, RegionId, Regions};
use crate::types::{DevicePtr, PhysicalHandle};
use std::collections::BTreeMap;

/// Memory behind a part of a granule, or behind all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// First address.
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) handle: PhysicalHandle,
}

impl Part {
    pub(crate) fn at(&self) -> DevicePtr {
        DevicePtr(self.addr)
    }

    pub(crate) fn end(&self) -> u64 {
        self.addr + self.bytes
    }
}

/// The parts of granules, by the granules' addresses.
#[derive(Debug, Default)]
pub(super) struct Partial(BTreeMap<u64, Vec<Part>>);

impl Region {
    /// Bytes that have memory behind them.
    pub(crate) fn backed_bytes(&self) -> u64 {
        let whole = self.granules.iter().filter(|g| g.state.is_backed()).count() as u64 * self.granule;
        whole + self.partial.0.values().flatten().map(|part| part.bytes).sum::<u64>()
    }

    /// Bytes of a granule that have memory behind them.
    pub(crate) fn backed_bytes_of(&self, addr: u64) -> u64 {
        if self.state_at(addr).is_backed() {
            return self.granule;
        }
        self.partial.0.get(&addr).into_iter().flatten().map(|part| part.bytes).sum()
    }

    /// Address and bytes of all memory that is behind granules, or is about to go.
    pub(crate) fn held_granules(&self) -> impl Iterator<Item = (DevicePtr, u64)> + '_ {
        let held = (0u64..).zip(&self.granules).filter(|(_, granule)| granule.handle.is_some());
        let whole = held.map(|(n, _)| (DevicePtr(self.base + n * self.granule), self.granule));
        whole.chain(self.partial.0.values().flatten().map(|part| (part.at(), part.bytes)))
    }

    /// Whether some granule is backed in parts.
    pub(crate) fn has_partial(&self) -> bool {
        !self.partial.0.is_empty()
    }

    /// The granules that are backed in parts, and the parts, each ascending.
    pub(crate) fn partial(&self) -> impl Iterator<Item = (u64, &[Part])> {
        self.partial.0.iter().map(|(at, parts)| (*at, parts.as_slice()))
    }
}

impl Regions {
    /// What is behind a granule, which may be whole.
    pub(crate) fn parts(&self, id: RegionId, addr: u64) -> Vec<Part> {
        let Some(region) = self.get(id) else { return Vec::new() };
        let whole = self.handle(id, addr).map(|handle| Part { addr, bytes: region.granule, handle });
        whole.map_or_else(|| region.partial.0.get(&addr).cloned().unwrap_or_default(), |part| vec![part])
    }

    /// Publishes the intent to change what is behind a granule, as [`begin`](Self::begin) does. Returns that.
    pub(crate) fn begin_parts(&mut self, id: RegionId, addr: u64) -> Vec<Part> {
        let parts = self.parts(id, addr);
        self.granule_mut(id, addr).state = GranuleState::Pending;
        parts
    }

    /// Commits: these parts are behind a granule now, all of it or nothing included.
    pub(crate) fn commit_parts(&mut self, id: RegionId, addr: u64, parts: Vec<Part>) {
        let region = self.get_mut(id);
        let granule = match parts.as_slice() {
            [] => Granule::FREE,
            [part] if part.bytes == region.granule => {
                Granule { state: GranuleState::Mapped, handle: Some(part.handle) }
            }
            _ => Granule { state: GranuleState::Partial, handle: None },
        };
        if granule.state == GranuleState::Partial {
            region.partial.0.insert(addr, parts);
        } else {
            region.partial.0.remove(&addr);
        }
        *self.granule_mut(id, addr) = granule;
    }
}
