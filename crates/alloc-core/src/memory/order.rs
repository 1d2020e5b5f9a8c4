//! Order of free blocks of one size.

use crate::memory::segment::Segment;

/// The rule by which a policy's [`BestFitIndex`](super::index::BestFitIndex) orders free blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TieBreak {
    /// The one of the oldest segment, then the one with the lowest address. PyTorch 2.13 and later.
    OldestSegment,
    /// The one with the lowest address. PyTorch until 2.11.
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
