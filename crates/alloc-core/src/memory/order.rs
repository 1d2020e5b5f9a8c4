//! Order of free blocks of one size.

use crate::memory::segment::Segment;

/// The rule by which a policy's [`BestFitIndex`](super::index::BestFitIndex) orders free blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TieBreak {
    /// First the oldest segment's block, then the lowest address. PyTorch 2.13 and later.
    OldestSegment,
    /// The lowest address. PyTorch until 2.11.
    LowestAddress,
}

impl TieBreak {
    /// The [`order`](super::block::Block::order) of the blocks of a segment.
    pub(crate) fn order_in(self, segment: &Segment) -> u32 {
        match self {
            Self::OldestSegment => segment.registration,
            Self::LowestAddress => 0,
        }
    }
}
