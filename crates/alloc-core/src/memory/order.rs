//! Which of several free blocks of one size comes first.

use crate::memory::segment::Segment;

/// The rule by which a policy's [`BestFitIndex`](crate::policy::BestFitIndex) orders free blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TieBreak {
    /// The one of the oldest segment, then the one with the lowest address. PyTorch 2.13 and later.
    #[default]
    OldestSegment,
    /// The one with the lowest address. PyTorch until 2.11.
    LowestAddress,
}

impl TieBreak {
    /// The [`order`](crate::policy::Block::order) of the blocks of a segment.
    pub(crate) fn order_in(self, segment: &Segment) -> u32 {
        match self {
            Self::OldestSegment => segment.registration,
            Self::LowestAddress => 0,
        }
    }
}
