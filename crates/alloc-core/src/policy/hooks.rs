//! What a policy may remember of an arena, and what the arena tells it.
//!
//! Every hook has a default that does nothing. A policy of this crate that remembers nothing ([`()`](unit)) costs nothing,
//! because its type is known where requests are served; that of a program is asked through a table. What a policy does with blocks, segments and free memory it does through
//! [`Ground`](super::ground::Ground).

use crate::memory::block::{Block, BlockId, BlockTable, SegmentId};
use crate::memory::segment::{Segment, SegmentTable};
use std::fmt::Debug;
use std::ops::Range;

/// Bytes of an arena that are mapped in another place, too: the address there, the segment at home, and the range in it.
pub(crate) type Elsewhere = (u64, SegmentId, Range<u64>);

/// A policy's memory of an arena.
pub(crate) trait Hooks: Debug + Send {
    /// A block came among the free ones.
    #[inline(always)]
    fn inserted(&mut self, _: &Block, _: BlockId) {}

    /// A block left the free ones.
    #[inline(always)]
    fn removed(&mut self, _: &BlockTable, _: BlockId) {}

    /// A block among the free ones ends elsewhere than before.
    #[inline(always)]
    fn resized(&mut self, _: &Block, _: BlockId) {}

    /// Whether the free ones are searched for `size` bytes only after [`place`](Self::place) was asked.
    #[inline(always)]
    fn follows(&self, _size: u64) -> bool {
        false
    }

    /// Where a request of `size` bytes is to be served, if exactly these bytes are free.
    fn place(&mut self, _size: u64) -> Option<(SegmentId, u64)> {
        None
    }

    /// A block was handed out.
    #[inline(always)]
    fn gave(&mut self, _: &Block) {}

    /// Whether the block that was freed last is kept as it is for the next request of exactly its size.
    #[inline(always)]
    fn parks(&self) -> bool {
        false
    }

    /// Keeps a block so; none is kept yet.
    #[inline(always)]
    fn park(&mut self, _: &Block, _: BlockId) {}

    /// Whether a block is kept so.
    #[inline(always)]
    fn has_parked(&self) -> bool {
        false
    }

    /// The block that is kept so, and is not any more; of `size` bytes, or any where that is `None`.
    #[inline(always)]
    fn take_parked(&mut self, _size: Option<u64>) -> Option<BlockId> {
        None
    }

    /// Whether blocks of a segment are the policy's to take back when they are free.
    #[inline(always)]
    fn lends(&self, _: &SegmentTable, _: SegmentId) -> bool {
        false
    }

    /// A segment came.
    fn segment_added(&mut self, _: SegmentId, _: &Segment) {}

    /// A segment is about to go; nothing of it is free.
    fn segment_removed(&mut self, _: SegmentId, _: &SegmentTable) {}

    /// Whether the granule at `addr` has to keep its memory.
    fn keeps(&self, _: SegmentId, _addr: u64) -> bool {
        false
    }

    /// A block of a segment from which upwards the one that holds the byte at `addr` is found soon.
    fn below(&self, _: SegmentId, _addr: u64) -> Option<BlockId> {
        None
    }

    /// Whether a request of a tier may be served at a place in a segment of another, where the program names the place.
    fn crosses_tiers(&self) -> bool {
        false
    }

    /// Nothing is served from another place than its home from here on, or is again.
    fn stay_at_home(&mut self, _: bool) {}

    /// Why the places of the live blocks cannot be kept, if that is so.
    fn unkeepable(&self) -> Option<&'static str> {
        None
    }

    /// The memory of a block that lies elsewhere than at home, in the block's order.
    fn homes(&self, _: &SegmentTable, _: &Block) -> Vec<Elsewhere> {
        Vec::new()
    }
}

/// Nothing is remembered.
impl Hooks for () {}
