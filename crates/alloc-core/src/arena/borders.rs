//! Where free memory touches the borders of granules.
//!
//! For each granule of a growable segment: which free block holds its first byte, and which holds its last. Both follow
//! the index of free blocks step by step, so that whether a granule is free, and how much of it, is known at once.

use crate::block::{Block, BlockId};

/// What is free of one granule, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreePart {
    /// From its first byte on.
    pub(crate) prefix: u64,
    /// Up to its last byte.
    pub(crate) suffix: u64,
}

#[derive(Clone, Copy, Debug)]
struct Border {
    first: BlockId,
    last: BlockId,
    /// Views that show the granule: it keeps its memory as long.
    views: u32,
}

impl Border {
    const NONE: Self = Self { first: BlockId::NONE, last: BlockId::NONE, views: 0 };
}

/// The granules of one growable segment, up to the highest that ever was free.
#[derive(Debug)]
pub(crate) struct Borders {
    base: u64,
    granule: u64,
    of: Vec<Border>,
}

impl Borders {
    /// For a segment at `base` whose granules have `granule` bytes.
    pub(crate) fn new(base: u64, granule: u64) -> Self {
        Self { base, granule, of: Vec::new() }
    }

    /// Bytes of a granule.
    pub(crate) fn granule(&self) -> u64 {
        self.granule
    }

    /// First address of a granule.
    pub(crate) fn address(&self, number: usize) -> u64 {
        self.base + number as u64 * self.granule
    }

    /// How many granules are known.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    /// The granule of which the byte at `addr` is part.
    pub(crate) fn number(&self, addr: u64) -> usize {
        ((addr - self.base) / self.granule) as usize
    }

    /// Notes that the first and last bytes in `block` are `holder`'s; nobody's where that is [`BlockId::NONE`].
    pub(crate) fn set(&mut self, block: &Block, holder: BlockId) {
        let (low, high) = (block.addr - self.base, block.end() - self.base);
        let lowest = low / self.granule;
        // Granules whose last byte lies in it end at or below its end; those whose first does begin in it.
        let ends = high / self.granule;
        let begins = low.div_ceil(self.granule)..high.div_ceil(self.granule);
        let known = ends.max(begins.end) as usize;
        if self.of.len() < known {
            self.of.resize(known, Border::NONE);
        }
        for border in &mut self.of[begins.start as usize..begins.end as usize] {
            border.first = holder;
        }
        for border in &mut self.of[lowest as usize..ends.max(lowest) as usize] {
            border.last = holder;
        }
    }

    /// The free blocks that hold a granule's first and last byte.
    pub(crate) fn holders(&self, number: usize) -> (Option<BlockId>, Option<BlockId>) {
        let border = self.of.get(number).unwrap_or(&Border::NONE);
        (border.first.some(), border.last.some())
    }

    /// A view shows the granule from now on.
    pub(crate) fn show(&mut self, number: usize) {
        self.of[number].views += 1;
    }

    /// A view does not show it any more.
    pub(crate) fn hide(&mut self, number: usize) {
        self.of[number].views -= 1;
    }

    /// How many views show it.
    pub(crate) fn views(&self, number: usize) -> u32 {
        self.of.get(number).map_or(0, |border| border.views)
    }
}
