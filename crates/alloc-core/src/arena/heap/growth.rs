//! Growth: memory to be mapped into growable segments, so that one free block serves a request.

use super::Heap;
use crate::memory::block::{BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::layout::Layout;
use crate::memory::region::RegionId;
use crate::memory::segment::Origin;
use crate::policy::{GranuleSizes, Sizes};
use std::ops::Range;

/// A part of a growth: from the candidate upwards.
#[derive(Clone, Debug)]
enum GrowthStep {
    /// Free memory that is there already.
    Mapped(BlockId),
    /// Address space of which the first bytes get memory, in granules of these sizes.
    ToMap(BlockId, Sizes),
}

/// Room for a request.
struct Candidate {
    region: RegionId,
    /// Sizes of new granules.
    grain: GranuleSizes,
    /// Blocks upwards, and the bytes of each that are to be mapped: 0 of memory that is free already.
    chain: Vec<(BlockId, u64)>,
}

/// Memory to be mapped so that one free block serves a request. Its blocks are busy until it is [committed](Self::commit).
#[derive(Debug)]
pub(crate) struct Growth {
    pub(crate) region: RegionId,
    chain: Vec<GrowthStep>,
}

/// Granules to be mapped, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) addr: u64,
    pub(crate) sizes: Sizes,
}

impl Map {
    pub(crate) fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.addr..self.addr + self.bytes()
    }
}

impl Growth {
    /// Finds room for `size` bytes in the growable segments of `tier` (reference §5.2) that can have new granules `of`
    /// these sizes, or of any where that is `None`, and takes it out.
    pub(crate) fn plan(heap: &mut Heap, tier: Tier, size: u64, of: Option<GranuleSizes>) -> Option<Self> {
        let Candidate { region, grain, chain } = Self::room_for(heap, tier, size, of)?;
        let link = |(id, bytes)| match bytes {
            0 => GrowthStep::Mapped(id),
            _ => GrowthStep::ToMap(id, grain.sizes(bytes)),
        };
        let chain = chain.into_iter().map(link).collect();
        Some(Self { region, chain }.take_out(heap))
    }

    /// As [`plan`](Self::plan), for new granules of these sizes, even if there is free memory beside them.
    pub(crate) fn stock(heap: &mut Heap, tier: Tier, sizes: Sizes) -> Option<Self> {
        let bytes = sizes.iter().sum();
        let (region, id) = heap.unmapped.of(tier).find_map(|(_, id)| {
            let block = &heap.layout.blocks()[id];
            let (region, unit) = region_of(&heap.layout, block.segment, None)?;
            let fits = block.size >= bytes && sizes.iter().all(|size| size.is_multiple_of(unit));
            fits.then_some((region, id))
        })?;
        Some(Self { region, chain: vec![GrowthStep::ToMap(id, sizes)] }.take_out(heap))
    }

    /// Bytes to be mapped where [`plan`](Self::plan) would find room.
    pub(crate) fn missing(heap: &Heap, tier: Tier, size: u64, of: Option<GranuleSizes>) -> Option<u64> {
        let room = Self::room_for(heap, tier, size, of)?;
        Some(room.chain.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Ranges to map, in order.
    pub(crate) fn maps(&self, layout: &Layout) -> Vec<Map> {
        let to_map = |link: &GrowthStep| match link {
            GrowthStep::ToMap(id, sizes) => {
                Some(Map { addr: layout.blocks()[*id].addr, sizes: sizes.clone() })
            }
            GrowthStep::Mapped(_) => None,
        };
        self.chain.iter().filter_map(to_map).collect()
    }

    fn room_for(heap: &Heap, tier: Tier, size: u64, of: Option<GranuleSizes>) -> Option<Candidate> {
        let layout = &heap.layout;
        let blocks = layout.blocks();
        // A later start in a run that is too small has even less room.
        let mut too_little = 0;
        let start = heap.unmapped.of(tier).find_map(|(addr, unmapped)| {
            region_of(layout, blocks[unmapped].segment, of).filter(|_| too_little <= addr)?;
            let candidate = layout.neighbour_in(BlockPhase::Free, blocks[unmapped].prev).unwrap_or(unmapped);
            let mut room = 0;
            for (_, block) in blocks.upwards(candidate) {
                if !matches!(block.state, BlockPhase::Free | BlockPhase::Unmapped) {
                    break;
                }
                (room, too_little) = (room + block.size, block.end());
                if room >= size {
                    return Some(candidate);
                }
            }
            None
        })?;
        let (region, unit) = region_of(layout, blocks[start].segment, of)?;
        let of = of.unwrap_or(GranuleSizes::even(unit));
        let mut chain = Vec::new();
        let mut have = 0;
        for (id, block) in blocks.upwards(start) {
            if have >= size {
                break;
            }
            if block.state == BlockPhase::Free {
                chain.push((id, 0));
                have += block.size;
            } else {
                let bytes = of.round(size - have, unit).min(block.size);
                chain.push((id, bytes));
                have += bytes;
            }
        }
        Some(Candidate { region, grain: of, chain })
    }

    fn take_out(self, heap: &mut Heap) -> Self {
        for link in &self.chain {
            match link {
                GrowthStep::Mapped(id) => heap.take_free(*id),
                GrowthStep::ToMap(id, _) => {
                    let id = *id;
                    heap.unmapped.remove(&heap.layout.blocks()[id], id);
                    heap.layout.blocks_mut()[id].state = BlockPhase::Busy;
                }
            }
        }
        self
    }

    /// Commits a growth of which the first `mapped` maps succeeded. Returns the block that now has room for the
    /// request, in no index, if all did. Otherwise mapped memory is free, and the rest is as before.
    pub(crate) fn commit(self, heap: &mut Heap, mapped: usize) -> Option<BlockId> {
        let mut maps = 0;
        let mut run: Option<BlockId> = None;
        let mut requested = None;
        let mut complete = true;
        for link in self.chain {
            let id = match link {
                GrowthStep::Mapped(id) => id,
                GrowthStep::ToMap(id, sizes) if maps < mapped => {
                    maps += 1;
                    let (block, bytes) = (&heap.layout.blocks()[id], sizes.iter().sum());
                    requested = Some(block.requested);
                    let (segment, addr) = (block.segment, block.addr);
                    if let Some(granules) = heap.layout.granules_mut(segment) {
                        granules.set(addr, sizes);
                    }
                    if bytes < heap.layout.blocks()[id].size {
                        let rest = heap.cut_above(id, bytes, BlockPhase::Busy);
                        heap.layout.blocks_mut()[rest].requested = 0;
                        heap.join_unmapped(rest);
                    }
                    id
                }
                GrowthStep::ToMap(id, _) => {
                    complete = false;
                    if let Some(run) = run.take() {
                        heap.return_free(run);
                    }
                    heap.join_unmapped(id);
                    continue;
                }
            };
            match run {
                Some(lower) => heap.layout.blocks_mut().absorb_above(lower, id),
                None => run = Some(id),
            }
        }
        let run = run?;
        let run = heap.join_free(run);
        if let Some(requested) = requested {
            heap.layout.blocks_mut()[run].requested = requested;
        }
        if complete {
            return Some(run);
        }
        heap.insert_free(run);
        None
    }
}

/// Region and unit of a growable segment that can have granules `of` these sizes, or of any where that is `None`.
fn region_of(layout: &Layout, segment: SegmentId, of: Option<GranuleSizes>) -> Option<(RegionId, u64)> {
    match layout.segments()[segment].origin {
        Origin::Growable { region, unit } if of.is_none_or(|of| of.usual.is_multiple_of(unit)) => {
            Some((region, unit))
        }
        _ => None,
    }
}
