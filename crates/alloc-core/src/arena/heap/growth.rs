//! Growth: memory to be mapped into growable segments, so that one free block serves a request.

use super::Heap;
use crate::memory::block::{BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::layout::Layout;
use crate::memory::region::RegionId;
use crate::memory::segment::Origin;
use crate::policy::Ground;

/// A part of a growth: from the candidate upwards.
#[derive(Clone, Copy, Debug)]
enum Link {
    /// Free memory that is there already.
    Mapped(BlockId),
    /// Address space of which the first bytes get memory.
    ToMap(BlockId, u64),
}

/// Memory to be mapped so that one free block serves a request. Its blocks are busy until it is [committed](Self::commit).
#[derive(Debug)]
pub(crate) struct Growth {
    pub(crate) region: RegionId,
    chain: Vec<Link>,
}

impl Growth {
    /// Finds room for `size` bytes in the growable segments of `tier` (reference §5.2) whose granules have `of` bytes, or any
    /// where that is 0, and takes it out.
    pub(crate) fn plan(heap: &mut Heap, tier: Tier, size: u64, of: u64) -> Option<Self> {
        let growth = Self::room_for(heap, tier, size, of)?;
        Some(growth.take_out(heap))
    }

    /// As [`plan`](Self::plan), for `bytes` of new memory whatever is free beside it.
    pub(crate) fn stock(heap: &mut Heap, tier: Tier, bytes: u64, of: u64) -> Option<Self> {
        let (region, link) = heap.unmapped[tier as usize].iter().find_map(|(_, id)| {
            let block = &heap.layout.blocks()[*id];
            let (region, granule) = region_of(&heap.layout, block.segment, of)?;
            let bytes = bytes.next_multiple_of(granule);
            (block.size >= bytes).then_some((region, Link::ToMap(*id, bytes)))
        })?;
        Some(Self { region, chain: vec![link] }.take_out(heap))
    }

    /// Bytes to be mapped where [`plan`](Self::plan) would find room.
    pub(crate) fn missing(heap: &Heap, tier: Tier, size: u64, of: u64) -> Option<u64> {
        let growth = Self::room_for(heap, tier, size, of)?;
        Some(growth.maps(&heap.layout).iter().map(|(_, bytes)| bytes).sum())
    }

    /// What to map, in order: address and bytes, each whole granules.
    pub(crate) fn maps(&self, layout: &Layout) -> Vec<(u64, u64)> {
        let to_map = |link: &Link| match link {
            Link::ToMap(id, bytes) => Some((layout.blocks()[*id].addr, *bytes)),
            Link::Mapped(_) => None,
        };
        self.chain.iter().filter_map(to_map).collect()
    }

    fn room_for(heap: &Heap, tier: Tier, size: u64, of: u64) -> Option<Self> {
        let layout = &heap.layout;
        let blocks = layout.blocks();
        let start = heap.unmapped[tier as usize].iter().find_map(|(_, unmapped)| {
            region_of(layout, blocks[*unmapped].segment, of)?;
            let candidate =
                layout.neighbour_in(BlockPhase::Free, blocks[*unmapped].prev).unwrap_or(*unmapped);
            let mut room = 0;
            for (_, block) in blocks.upwards(candidate) {
                if !matches!(block.state, BlockPhase::Free | BlockPhase::Unmapped) {
                    break;
                }
                room += block.size;
                if room >= size {
                    return Some(candidate);
                }
            }
            None
        })?;
        let segment = layout.segment_of(start);
        let Origin::Growable { region, granule } = segment.origin else { return None };
        let base = segment.base;
        let mut chain = Vec::new();
        let mut have = 0;
        for (id, block) in blocks.upwards(start) {
            if have >= size {
                break;
            }
            if block.state == BlockPhase::Free {
                chain.push(Link::Mapped(id));
                have += block.size;
            } else {
                let wanted = block.size.min(size - have);
                let end = (block.addr - base + wanted).next_multiple_of(granule) + base;
                let bytes = (end - block.addr).min(block.size);
                chain.push(Link::ToMap(id, bytes));
                have += bytes;
            }
        }
        Some(Self { region, chain })
    }

    fn take_out(self, heap: &mut Heap) -> Self {
        for link in &self.chain {
            match *link {
                Link::Mapped(id) => heap.take_free(id),
                Link::ToMap(id, _) => {
                    heap.take_unmapped(id);
                    heap.layout.blocks_mut()[id].state = BlockPhase::Busy;
                }
            }
        }
        self
    }

    /// Commits a growth of which the first `mapped` maps succeeded. Returns the block that now has room for
    /// the request, in no index, if all did; otherwise what was mapped is free, the rest is as before.
    pub(crate) fn commit(self, heap: &mut Heap, mapped: usize) -> Option<BlockId> {
        let mut maps = 0;
        let mut run: Option<BlockId> = None;
        let mut last = None;
        let mut complete = true;
        for link in self.chain {
            let id = match link {
                Link::Mapped(id) => id,
                Link::ToMap(id, bytes) if maps < mapped => {
                    maps += 1;
                    let block = &heap.layout.blocks()[id];
                    last = Some((block.requested, block.order));
                    if bytes < heap.layout.blocks()[id].size {
                        let rest = heap.cut_above(id, bytes, BlockPhase::Busy);
                        heap.layout.blocks_mut()[rest].requested = 0;
                        heap.join_unmapped(rest);
                    }
                    id
                }
                Link::ToMap(id, _) => {
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
        if let Some((_, order)) = last {
            heap.layout.blocks_mut()[run].order = order;
        }
        let run = heap.join_free(run);
        if let Some((requested, _)) = last {
            heap.layout.blocks_mut()[run].requested = requested;
        }
        if complete {
            return Some(run);
        }
        heap.insert_free(run);
        None
    }
}

/// Region and granule of a growable segment whose granules have `of` bytes, or any where that is 0.
fn region_of(layout: &Layout, segment: SegmentId, of: u64) -> Option<(RegionId, u64)> {
    match layout.segments()[segment].origin {
        Origin::Growable { region, granule } if of == 0 || granule == of => Some((region, granule)),
        _ => None,
    }
}
