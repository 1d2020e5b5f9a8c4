//! An arena, as a policy sees it that remembers something of it.

use crate::memory::block::{BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::layout::Layout;
use crate::memory::segment::{Segment, SegmentTable};
use crate::policy::Grain;
use crate::watch::snapshot::Action;

/// What a policy may do with the blocks of an arena, of which it remembers an `M`.
///
/// A block is in the index of free ones while it is [`BlockPhase::Free`], and only then. What a policy takes out is
/// [`BlockPhase::Busy`]; what becomes of it then is the policy's business.
pub(crate) trait Ground<M> {
    fn memory(&self) -> &M;
    fn memory_mut(&mut self) -> &mut M;
    /// Both at once.
    fn memory_and_segments(&mut self) -> (&mut M, &SegmentTable);
    fn layout(&self) -> &Layout;
    /// Records may be changed; what is free stays as it is.
    fn layout_mut(&mut self) -> &mut Layout;
    /// A new segment with one block that covers it, in state `state` and in no index.
    fn add_segment(&mut self, segment: Segment, state: BlockPhase) -> (SegmentId, BlockId);
    /// Takes out a segment whose one block is in no index. What is returned is to be dropped without a lock.
    fn remove_segment(&mut self, id: SegmentId, only: BlockId) -> Option<Segment>;
    /// Whether a free block of a tier has at least `bytes`.
    fn has_free(&self, tier: Tier, bytes: u64) -> bool;
    /// Free blocks of a tier with at least `bytes`, in the index's order.
    fn free(&self, tier: Tier, bytes: u64) -> Vec<BlockId>;
    /// Bytes to be mapped for `size` bytes in new granules `of` these sizes, or any where that is `None`, where the arena has
    /// room for them.
    fn missing_memory(&self, tier: Tier, size: u64, of: Option<Grain>) -> Option<u64>;
    /// Cuts a block after `size` bytes; the upper part gets `upper_state`.
    fn cut_above(&mut self, id: BlockId, size: u64, upper_state: BlockPhase) -> BlockId;
    /// Takes a range out of a free block, as busy; what is left at either end stays free, and nobody asked for it as it is.
    fn take_range(&mut self, id: BlockId, low: u64, high: u64) -> BlockId;
    /// Returns a busy block with memory to the free ones, joined with its neighbours.
    fn return_free(&mut self, id: BlockId);
}

/// What a policy may do with an arena, of which it remembers an `M`.
pub(crate) trait PolicyArena<M> {
    /// Its blocks.
    type Ground: Ground<M>;

    fn ground(&self) -> &Self::Ground;
    fn ground_mut(&mut self) -> &mut Self::Ground;
    /// Whether the device is done with everything freed in `epoch`.
    fn is_past(&self, epoch: u64) -> bool;
    /// Records that the memory of a block comes or goes, where anything is recorded.
    fn note_change(&mut self, action: Action, id: BlockId);
    /// Whether its memory may be in another place: growable memory on whose place nobody counts.
    fn is_movable(&self) -> bool;
    /// The granules of a new growable segment for a request of `size` bytes, in units of `minimum`.
    fn next_granule(&mut self, tier: Tier, minimum: u64, size: u64) -> Grain;
}
