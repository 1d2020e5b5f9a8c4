//! Granules that other processes have: how many blocks they were shared with, and in which form they leave the process.

use super::{GranuleState, Region, RegionId, Regions};
use crate::backend::ShareableHandle;
use crate::sync::Arc;
use crate::types::PhysicalHandle;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Exported granules, by address: what the driver gave for them once it was asked, and how many blocks were shared that lie
/// in them.
#[derive(Debug, Default)]
pub(crate) struct Exports(FxHashMap<u64, Export>);

#[derive(Debug, Default)]
struct Export {
    shared: Option<Arc<ShareableHandle>>,
    blocks: usize,
}

/// Whole granules of a region, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) region: RegionId,
    pub(crate) range: Range<u64>,
}

impl Piece {
    pub(crate) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// A granule that is to be exported.
#[derive(Clone, Debug)]
pub(crate) struct ToExport {
    addr: u64,
    pub(crate) bytes: u64,
    pub(crate) handle: PhysicalHandle,
    /// There already, for another block.
    pub(crate) shared: Option<Arc<ShareableHandle>>,
}

impl Region {
    /// State that forbids to share the memory in a range, of granules that were this region's a moment ago, if any.
    fn unshareable(&self, range: &Range<u64>) -> Option<GranuleState> {
        let is_own = self.base <= range.start && range.end <= self.base + self.bytes;
        if !is_own || self.around(range.clone()) != *range {
            // It is another region by now, or other granules.
            return Some(GranuleState::Free);
        }
        self.states(range.clone()).find(|state| !state.is_backed())
    }
}

impl Regions {
    /// A block in these granules is to be shared: from here on they stay as they are. Refuses, with its state, where one
    /// has no memory now.
    pub(crate) fn begin_export(
        &mut self,
        pieces: &[Piece],
    ) -> std::result::Result<Vec<ToExport>, GranuleState> {
        for piece in pieces {
            let region = self.get(piece.region);
            let lost = region.map_or(Some(GranuleState::Free), |region| region.unshareable(&piece.range));
            if let Some(lost) = lost {
                return Err(lost);
            }
        }
        let mut exported = Vec::new();
        for piece in pieces {
            for (addr, granule) in self.get_mut(piece.region).granules.range_mut(piece.range.clone()) {
                let Some(handle) = granule.handle else { unreachable!("what is backed has a handle") };
                // One that is pinned stays so.
                if granule.state == GranuleState::Mapped {
                    granule.state = GranuleState::Exported;
                }
                exported.push(ToExport { addr: *addr, bytes: granule.bytes, handle, shared: None });
            }
        }
        for granule in &mut exported {
            let export = self.exports.0.entry(granule.addr).or_default();
            export.blocks += 1;
            granule.shared.clone_from(&export.shared);
        }
        Ok(exported)
    }

    /// Commits: this is how the granules leave the process. Where another thread was first, what it got counts; `shared` has
    /// what counts afterwards, and what is returned is to be dropped without a lock.
    pub(crate) fn commit_export(&mut self, granules: &mut [ToExport]) -> Vec<Arc<ShareableHandle>> {
        let mut displaced = Vec::new();
        for granule in granules {
            let Some(export) = self.exports.0.get_mut(&granule.addr) else { continue };
            match &export.shared {
                Some(first) => displaced.extend(granule.shared.replace(Arc::clone(first))),
                None => export.shared.clone_from(&granule.shared),
            }
        }
        displaced
    }

    /// Panics where a granule is said to be exported and no shared block lies in it, or the other way round.
    pub(crate) fn check_exports(&self) {
        if self.exports.0.is_empty() {
            return;
        }
        let mut exported = 0;
        for region in self.iter() {
            for (addr, granule) in &region.granules {
                let blocks = self.exports.0.get(addr).map_or(0, |export| export.blocks);
                let shown = granule.state == GranuleState::Exported;
                assert!(!shown || blocks > 0, "exported granules belong to shared blocks");
                assert!(
                    blocks == 0 || granule.state.is_backed(),
                    "memory of shared blocks stays where it is"
                );
                exported += usize::from(blocks > 0);
            }
        }
        assert_eq!(exported, self.exports.0.len(), "no export is lost");
    }

    /// A shared block of these granules is nobody's any more. What is returned is to be dropped without a lock.
    pub(crate) fn end_export(&mut self, pieces: &[Piece]) -> Vec<Arc<ShareableHandle>> {
        let mut ended = Vec::new();
        for Piece { region: id, range } in pieces {
            let Region { granules, .. } = match &mut self.records[id.0 as usize] {
                Some(region) => region,
                None => unreachable!("shared memory keeps its region"),
            };
            for (addr, granule) in granules.range_mut(range.clone()) {
                let Some(export) = self.exports.0.get_mut(addr) else { continue };
                export.blocks -= 1;
                if export.blocks > 0 {
                    continue;
                }
                ended.extend(self.exports.0.remove(addr).and_then(|export| export.shared));
                if granule.state == GranuleState::Exported {
                    granule.state = GranuleState::Mapped;
                }
            }
        }
        ended
    }
}
