//! Which of several free blocks of one size comes first.

use crate::memory::segment::Segment;

/// The rule by which a policy's [`BestFitIndex`](crate::policy::BestFitIndex) orders free blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieBreak {
    /// The one of the oldest segment, then the one with the lowest address. PyTorch 2.13 and later.
    #[default]
    OldestSegment,
    /// The one whose record was made first. Each segment brings one. The lower part of a block that is cut for a request gets
    /// a new one. Of blocks that become one, the one that caused it keeps its own. PyTorch 2.12.
    OldestRecord,
    /// The one with the lowest address. PyTorch until 2.11.
    LowestAddress,
}

/// Gives the blocks of an arena their [`order`](crate::policy::Block::order).
#[derive(Debug)]
pub(crate) struct Order {
    rule: TieBreak,
    /// That of the next record.
    next: u32,
}

impl Order {
    pub(crate) fn new(rule: TieBreak) -> Self {
        Self { rule, next: 0 }
    }

    /// The order of the block that covers a new segment.
    pub(crate) fn of_segment(&mut self, segment: &Segment) -> u32 {
        match self.rule {
            TieBreak::OldestSegment => segment.registration,
            TieBreak::OldestRecord => self.take_next(),
            TieBreak::LowestAddress => 0,
        }
    }

    /// The order of a new record for a part of a block that has order `of`.
    pub(crate) fn of_part(&mut self, of: u32) -> u32 {
        match self.rule {
            TieBreak::OldestSegment | TieBreak::LowestAddress => of,
            TieBreak::OldestRecord => self.take_next(),
        }
    }

    fn take_next(&mut self) -> u32 {
        debug_assert!(!self.is_spent(), "numbers are given anew before they end");
        self.next += 1;
        self.next - 1
    }

    /// Whether no number is left: the blocks have to be [numbered anew](Self::number_anew).
    pub(crate) fn is_spent(&self) -> bool {
        self.next == u32::MAX
    }

    /// The records there are have the numbers below `count` from here on.
    pub(crate) fn number_anew(&mut self, count: u32) {
        self.next = count;
    }

    /// Panics where the blocks of a segment, with these orders, have others than the rule gives.
    pub(crate) fn check(&self, segment: &Segment, orders: impl Iterator<Item = u32>) {
        for order in orders {
            match self.rule {
                TieBreak::OldestSegment => {
                    assert_eq!(order, segment.registration, "a block knows its segment's age")
                }
                TieBreak::OldestRecord => assert!(order < self.next, "a record's number was given out"),
                TieBreak::LowestAddress => assert_eq!(order, 0, "nothing but the address decides"),
            }
        }
    }
}
