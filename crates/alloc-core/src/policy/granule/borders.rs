//! Where free memory touches the borders of granules.
//!
//! For each granule of a growable segment: which free block holds its first byte, and which holds its last. This follows
//! the index of free blocks step by step, with one mark a block, so that whether a granule is free, and how much of it, is
//! found with a short look.

use crate::base::round::MIN_BLOCK;
use crate::base::steps::{Counted, step};
use crate::memory::block::{Block, BlockId, SegmentId};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::ops::Range;

/// The borders of an arena's segments.
#[derive(Debug, Default)]
pub(crate) struct AllBorders {
    of: Vec<Option<Box<Borders>>>,
}

impl AllBorders {
    /// A segment's, if they are watched.
    #[inline(always)]
    pub(crate) fn get(&self, id: SegmentId) -> Option<&Borders> {
        self.of.get(id.0 as usize)?.as_deref()
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: SegmentId) -> Option<&mut Borders> {
        self.of.get_mut(id.0 as usize)?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, id: SegmentId, borders: Borders) {
        let at = id.0 as usize;
        if self.of.len() <= at {
            self.of.resize_with(at + 1, || None);
        }
        self.of[at] = Some(Box::new(borders));
    }

    pub(crate) fn remove(&mut self, id: SegmentId) {
        if let Some(borders) = self.of.get_mut(id.0 as usize) {
            *borders = None;
        }
    }

    /// Whether none is watched.
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// All that are watched.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Borders)> {
        (0..)
            .map(SegmentId)
            .zip(&self.of)
            .counted()
            .filter_map(|(id, borders)| Some((id, borders.as_deref()?)))
    }
}

/// What is free of one granule, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreePart {
    /// From its first byte on.
    pub(crate) prefix: u64,
    /// Up to its last byte.
    pub(crate) suffix: u64,
}

/// The granules of which a free block holds a first or a last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The granule of which it holds an end only, and the bytes of that.
    pub(crate) end: Option<(usize, u64)>,
    /// Those that it holds as a whole.
    pub(crate) whole: Range<usize>,
    /// The granule of which it holds a beginning only, and the bytes of that.
    pub(crate) beginning: Option<(usize, u64)>,
}

/// Where a view shows a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The view's number.
    pub(crate) view: u64,
    pub(crate) slot: usize,
}

/// A free block that holds first or last bytes of granules.
#[derive(Clone, Copy, Debug)]
struct Holder {
    block: BlockId,
    /// Where it ends, in bytes from the segment's first.
    end: u64,
}

/// Addresses, sizes and granules are multiples of this.
const UNIT: u64 = MIN_BLOCK;
/// The first and the last bytes of granules in a word of bits.
const WORD: usize = 64;

/// The granules of one growable segment, up to the highest that ever was free.
///
/// First and last bytes of granules are numbered upwards: those of granule `n` are `2n` and `2n + 1`. What a free block holds
/// of them is a range, noted at its lowest.
#[derive(Debug)]
pub(crate) struct Borders {
    base: u64,
    granule: u64,
    /// 2^64 divided by the units of a granule, rounded up: what a division by the granule multiplies by.
    inverse: u64,
    /// The end of the highest block that ever was free, in bytes from the segment's first.
    highest: u64,
    /// By the lowest byte that a block holds; true where `marks` says so.
    holders: Vec<Holder>,
    marks: Vec<u64>,
    /// Where views show a granule: it keeps its memory as long.
    shown: Vec<SmallVec<[Place; 1]>>,
    /// Granules that no view may show: a part has no memory, or is about to lose it.
    partial: FxHashSet<usize>,
}

impl Borders {
    /// For a segment at `base` whose granules have `granule` bytes.
    pub(crate) fn new(base: u64, granule: u64) -> Self {
        debug_assert!(granule > UNIT, "a granule is many units");
        let inverse = u64::MAX / (granule / UNIT) + 1;
        let (holders, marks, shown) = (Vec::new(), Vec::new(), Vec::new());
        Self { base, granule, inverse, highest: 0, holders, marks, shown, partial: FxHashSet::default() }
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
        self.highest.div_ceil(self.granule) as usize
    }

    /// The granule of which the byte at `addr` is part.
    pub(crate) fn number(&self, addr: u64) -> usize {
        ((addr - self.base) / self.granule) as usize
    }

    /// The granule that begins at `addr`, if one that is known does.
    pub(crate) fn beginning(&self, addr: u64) -> Option<usize> {
        let number = (addr.checked_sub(self.base)? / self.granule) as usize;
        (number < self.len() && self.address(number) == addr).then_some(number)
    }

    /// Notes that the first and last bytes in `block` are `holder`'s; nobody's where that is [`BlockId::NONE`].
    #[inline(always)]
    pub(crate) fn set(&mut self, block: &Block, holder: BlockId) {
        let low = block.addr - self.base;
        // Exact for segments of less than 2^48 bytes and granules of less than 2^33.
        #[allow(clippy::cast_possible_truncation)] // less than `low`
        let number = ((u128::from(low / UNIT) * u128::from(self.inverse)) >> u64::BITS) as u64;
        debug_assert_eq!(number, low / self.granule, "within those bounds");
        let inside = low - number * self.granule;
        // Most blocks touch no border of any granule.
        if (inside == 0) | (inside + block.size >= self.granule) {
            self.mark(2 * number as usize + usize::from(inside > 0), low + block.size, holder);
        }
    }

    /// The lowest first or last byte of `holder` is `at`; `end` is its end.
    #[inline(never)]
    fn mark(&mut self, at: usize, end: u64, holder: BlockId) {
        self.highest = self.highest.max(end);
        if self.holders.len() <= at {
            let words = at / WORD + 1;
            self.marks.resize(words, 0);
            self.holders.resize(words * WORD, Holder { block: BlockId::NONE, end: 0 });
        }
        let bit = 1 << (at % WORD);
        if holder == BlockId::NONE {
            self.marks[at / WORD] &= !bit;
        } else {
            self.marks[at / WORD] |= bit;
            self.holders[at] = Holder { block: holder, end };
        }
    }

    /// The free blocks that hold a granule's first and last byte.
    pub(crate) fn holders(&self, number: usize) -> (Option<BlockId>, Option<BlockId>) {
        (self.first_holder(number), self.last_holder(number))
    }

    /// The free block that holds a granule's first byte.
    pub(crate) fn first_holder(&self, number: usize) -> Option<BlockId> {
        self.holder(2 * number, number as u64 * self.granule)
    }

    /// The free block that holds a granule's last byte.
    pub(crate) fn last_holder(&self, number: usize) -> Option<BlockId> {
        self.holder(2 * number + 1, (number as u64 + 1) * self.granule - 1)
    }

    /// The nearest free block that begins below the second byte of a granule, and touches a border of any.
    pub(crate) fn nearest(&self, number: usize) -> Option<BlockId> {
        self.nearest_mark(2 * number).map(|found| found.block)
    }

    /// The free block that holds the first or last byte `at`, `byte` of the segment: that of the nearest mark, if it goes so far.
    fn holder(&self, at: usize, byte: u64) -> Option<BlockId> {
        self.nearest_mark(at).filter(|found| byte < found.end).map(|found| found.block)
    }

    /// What is marked nearest to `at`, there or below.
    fn nearest_mark(&self, at: usize) -> Option<&Holder> {
        let (mut number, mut bits) = (at / WORD, u64::MAX >> (WORD - 1 - at % WORD));
        if number >= self.marks.len() {
            (number, bits) = (self.marks.len().checked_sub(1)?, u64::MAX);
        }
        loop {
            step();
            bits &= self.marks[number];
            if bits != 0 {
                return Some(&self.holders[number * WORD + bits.ilog2() as usize]);
            }
            (number, bits) = (number.checked_sub(1)?, u64::MAX);
        }
    }

    /// The free blocks that hold a first or a last byte of any granule, by address.
    pub(crate) fn free_blocks(&self) -> impl Iterator<Item = BlockId> {
        let words = self.marks.iter().enumerate().counted();
        words.flat_map(move |(word, marks)| {
            let next = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
            let rests = std::iter::successors(Some(*marks).filter(|bits| *bits != 0), next);
            rests.map(move |bits| self.holders[word * WORD + bits.trailing_zeros() as usize].block)
        })
    }

    /// What a free block holds of the granules at whose borders it lies.
    pub(crate) fn parts(&self, block: &Block) -> Parts {
        let (low, high) = (block.addr - self.base, block.end() - self.base);
        let (first, last) = (low.div_ceil(self.granule), high / self.granule);
        let (before, behind) = (first * self.granule - low, high - last * self.granule);
        Parts {
            end: (before > 0).then(|| (first as usize - 1, before)),
            whole: first as usize..last as usize,
            beginning: (behind > 0).then_some((last as usize, behind)),
        }
    }

    /// No view may show the granule from now on, or one may again.
    pub(crate) fn set_partial(&mut self, number: usize, partial: bool) {
        if partial {
            self.partial.insert(number);
        } else {
            self.partial.remove(&number);
        }
    }

    /// Whether a view may show the granule.
    pub(crate) fn may_show(&self, number: usize) -> bool {
        !self.partial.contains(&number)
    }

    /// A view shows the granule from now on.
    pub(crate) fn show(&mut self, number: usize, place: Place) {
        if self.shown.len() <= number {
            self.shown.resize_with(number + 1, SmallVec::new);
        }
        self.shown[number].push(place);
    }

    /// A view does not show it any more.
    pub(crate) fn hide(&mut self, number: usize, place: Place) {
        let places = &mut self.shown[number];
        let at = places.iter().counted().position(|shown| *shown == place);
        at.map(|at| places.swap_remove(at));
    }

    /// Where views show it, in no order.
    pub(crate) fn places(&self, number: usize) -> &[Place] {
        self.shown.get(number).map_or(&[], SmallVec::as_slice)
    }
}
