//! Segments, and the blocks that they are divided into.

use crate::base::steps::Counted;
use crate::memory::block::{Block, BlockId, BlockPhase, BlockTable, Live, NO_USES, SegmentId, Tier};
use crate::memory::granules::Granules;
use crate::memory::region::RegionId;
use crate::memory::segment::{Origin, Segment, SegmentTable};
use crate::types::DevicePtr;
use crate::watch::history::Context;
use std::ops::Range;

/// The neighbours of a block, below and above.
pub(crate) type Neighbours = (Option<BlockId>, Option<BlockId>);

/// The segments of an arena, and their blocks, which cover them.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    blocks: BlockTable,
    segments: SegmentTable,
}

impl Layout {
    #[inline(always)]
    pub(crate) fn blocks(&self) -> &BlockTable {
        &self.blocks
    }

    /// Records, to be changed. Blocks in an index keep the values of their keys.
    #[inline(always)]
    pub(crate) fn blocks_mut(&mut self) -> &mut BlockTable {
        &mut self.blocks
    }

    #[inline(always)]
    pub(crate) fn segments(&self) -> &SegmentTable {
        &self.segments
    }

    /// A segment's granules.
    pub(crate) fn granules_mut(&mut self, id: SegmentId) -> Option<&mut Granules> {
        self.segments.granules_mut(id)
    }

    /// A new segment with one block that covers it, of this order and in state `state`.
    pub(crate) fn add_segment(
        &mut self,
        segment: Segment,
        order: u32,
        state: BlockPhase,
    ) -> (SegmentId, BlockId) {
        let Segment { base, bytes, tier, .. } = segment;
        let id = self.segments.add(segment);
        let block = self.blocks.add(Block {
            addr: base,
            size: bytes,
            requested: 0,
            epoch: 0,
            born: 0,
            prev: BlockId::NONE,
            next: BlockId::NONE,
            segment: id,
            uses: NO_USES,
            order,
            pending: 0,
            state,
            tier,
        });
        self.segments.set_first(id, block);
        (id, block)
    }

    /// Takes out a segment with its one block. Drop it without a lock.
    pub(crate) fn remove_segment(&mut self, id: SegmentId, only: BlockId) -> Option<Segment> {
        debug_assert!(!self.blocks[only].is_split(), "only whole segments are given back");
        self.blocks.remove(only);
        self.segments.remove(id)
    }

    /// The blocks of a segment, ascending.
    pub(crate) fn of_segment(&self, id: SegmentId) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.upwards(self.segments[id].first).counted()
    }

    /// Blocks on a range of addresses, from `start` upwards, which is at or below the first.
    pub(crate) fn on(&self, start: BlockId, range: &Range<u64>) -> Vec<BlockId> {
        let up_to = self.blocks.upwards(start).counted().take_while(|(_, block)| block.addr < range.end);
        up_to.filter(|(_, block)| range.start < block.end()).map(|(id, _)| id).collect()
    }

    /// The segment of a block.
    pub(crate) fn segment_of(&self, id: BlockId) -> &Segment {
        &self.segments[self.blocks[id].segment]
    }

    /// The segment in whose address space `addr` lies.
    pub(crate) fn segment_at(&self, addr: u64) -> Option<(SegmentId, &Segment)> {
        self.segments.iter().find(|(_, segment)| (segment.base..segment.base + segment.bytes).contains(&addr))
    }

    /// The first of the blocks from `start` upwards that ends above `addr`, if it is free and holds the byte there.
    pub(crate) fn free_at(&self, start: BlockId, addr: u64) -> Option<BlockId> {
        let (id, block) = self.blocks.upwards(start).find(|(_, block)| block.end() > addr)?;
        (block.state == BlockPhase::Free && block.addr <= addr).then_some(id)
    }

    /// The sizes of free blocks of a tier.
    pub(crate) fn free_sizes(&self, tier: Tier) -> impl Iterator<Item = u64> {
        let free = move |(_, b): &(BlockId, &Block)| b.state == BlockPhase::Free && b.tier == tier;
        self.blocks.iter().filter(free).map(|(_, block)| block.size)
    }

    /// The size of the largest of them; 0 where there is none.
    pub(crate) fn largest_free(&self, tier: Tier) -> u64 {
        self.free_sizes(tier).max().unwrap_or(0)
    }

    /// Growable segments with their region.
    pub(crate) fn growable(&self) -> Vec<(SegmentId, RegionId)> {
        let region = |origin| match origin {
            Origin::Growable { region, .. } => Some(region),
            Origin::Fixed | Origin::View => None,
        };
        self.segments.iter().filter_map(|(id, segment)| Some((id, region(segment.origin)?))).collect()
    }

    /// A neighbour that is in this state.
    #[inline(always)]
    pub(crate) fn neighbour_in(&self, state: BlockPhase, id: BlockId) -> Option<BlockId> {
        self.blocks.get(id).is_some_and(|block| block.state == state).then_some(id)
    }

    /// The neighbours of a block that are in this state, below and above.
    #[inline(always)]
    pub(crate) fn neighbours_in(&self, state: BlockPhase, id: BlockId) -> Neighbours {
        let block = &self.blocks[id];
        (self.neighbour_in(state, block.prev), self.neighbour_in(state, block.next))
    }

    /// Joins a block with its neighbours that are in `state`, and in no index. The lowest keeps its record.
    pub(crate) fn join(&mut self, mut id: BlockId, state: BlockPhase) -> BlockId {
        let (below, above) = self.neighbours_in(state, id);
        if let Some(below) = below {
            self.blocks.absorb_above(below, id);
            id = below;
        }
        if let Some(above) = above {
            self.blocks.absorb_above(id, above);
        }
        id
    }

    /// Notes the context of a growable segment that got memory: that of the first operation counts.
    pub(crate) fn note_context(&mut self, region: RegionId, call: Option<Context>) {
        let of_region = |origin| matches!(origin, Origin::Growable { region: own, .. } if own == region);
        if let Some(call) = call
            && let Some(segment) = self.segments.find_mut(|segment| of_region(segment.origin))
        {
            segment.context.get_or_insert(call);
        }
    }

    /// Forgets contexts of segments. Drop them without a lock.
    pub(crate) fn take_contexts(&mut self) -> impl Iterator<Item = Context> {
        self.segments.take_contexts()
    }

    /// True if some block sleeps.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.blocks.iter().any(|(_, block)| match block.state {
            BlockPhase::Live(live) => live.is_asleep(),
            state => state == BlockPhase::FreeAsleep,
        })
    }

    /// The block handed out at `ptr` that anyone may free, if the map's entry is still true.
    #[inline]
    pub(crate) fn handed_out(&self, ptr: DevicePtr, id: BlockId) -> Option<&Block> {
        self.blocks.get(id).filter(|block| block.is_handed_out_at(ptr.0))
    }

    /// The block handed out at `ptr`, a value's or not, if the map's entry is still true.
    pub(crate) fn awake(&self, ptr: DevicePtr, id: BlockId) -> Option<&Block> {
        self.live(ptr, id).filter(|block| block.is_awake())
    }

    /// The block at `ptr`, if it is in the program's hands, awake or asleep.
    pub(crate) fn live(&self, ptr: DevicePtr, id: BlockId) -> Option<&Block> {
        self.blocks.get(id).filter(|block| block.addr == ptr.0 && block.live().is_some())
    }

    /// Gives these bytes of the live block at `ptr` to a value, or takes them back. `false` where that is so already,
    /// or there is no live block, or one that is too small.
    pub(crate) fn set_owned(&mut self, ptr: DevicePtr, id: BlockId, owned: Option<u64>) -> bool {
        let block = self.live(ptr, id).filter(|block| owned.is_none_or(|bytes| bytes <= block.size));
        let Some(live) = block.and_then(Block::live) else { return false };
        self.blocks[id].state = BlockPhase::Live(Live::new(owned.is_some(), live.is_asleep()));
        live.is_owned() != owned.is_some()
    }
}
