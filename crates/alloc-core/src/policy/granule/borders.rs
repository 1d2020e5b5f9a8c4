//! Where free memory touches the borders of granules.
//!
//! All free blocks of a growable segment by their addresses: which one holds the bytes at an address, and so how much of a
//! granule is free, is found with a short look. This follows the index of free blocks step by step, with one mark a block.

mod all;

pub(crate) use all::{AllBorders, RowId};

use crate::base::growth;
use crate::base::round::{MIN_BLOCK, SMALL_LIMIT};
use crate::base::steps::{Counted, step, steps};
use crate::memory::block::{Block, BlockId, SegmentId};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::ops::Range;

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

/// Addresses, sizes and granules are multiples of this.
const UNIT: u64 = MIN_BLOCK;
/// Free blocks are found by the cell in which they begin: of this many bytes.
const CELL: u64 = 1 << CELL_BITS;
/// What blocks of the large tier have at least, so that two free ones, with another between them, seldom begin in one cell.
const CELL_BITS: u32 = SMALL_LIMIT.ilog2();
const _: () = assert!(CELL == SMALL_LIMIT, "a power of two");
/// Cells of a row.
const ROW: usize = 64;

/// A free block that begins in a cell.
#[derive(Clone, Copy, Debug)]
struct Free {
    /// Where it ends, in bytes from the segment's first.
    end: u64,
    block: BlockId,
    /// Where it begins, in units from the cell's first.
    unit: u16,
    /// Others begin in the same cell.
    crowded: bool,
}

/// Cells side by side.
#[derive(Debug)]
struct Row {
    /// Those in which a free block begins.
    begins: u64,
    /// Those in which one begins that holds a first or a last byte of any granule; where several begin in one, perhaps others.
    touches: u64,
    /// It is among those that changed.
    changed: bool,
    /// True where `begins` says so.
    first: [Free; ROW],
}

impl Row {
    const EMPTY: Self = Self {
        begins: 0,
        touches: 0,
        changed: false,
        first: [Free { end: 0, block: BlockId::NONE, unit: 0, crowded: false }; ROW],
    };
}

impl Row {
    /// What it holds at borders of granules changes.
    #[inline(always)]
    fn change(&mut self, id: (SegmentId, usize), changed: &mut Vec<RowId>) {
        if !self.changed {
            self.changed = true;
            note_changed(id, changed);
        }
    }
}

#[cold]
#[inline(never)]
#[allow(clippy::cast_possible_truncation)] // a segment has less than 2^32 rows of 64 MiB
fn note_changed((segment, row): (SegmentId, usize), changed: &mut Vec<RowId>) {
    growth::push(changed, (segment, row as u32));
}

/// The row of a cell, and its place there.
#[inline(always)]
fn place_of(cell: u64) -> (usize, usize) {
    ((cell / ROW as u64) as usize, (cell % ROW as u64) as usize)
}

/// The places of the bits that are set, ascending.
fn bits_of(bits: u64) -> impl Iterator<Item = usize> {
    let next = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
    std::iter::successors(Some(bits).filter(|bits| *bits != 0), next)
        .map(|bits| bits.trailing_zeros() as usize)
}

/// The same in words of bits.
fn set_bits(words: &[u64]) -> impl Iterator<Item = usize> {
    let words = words.iter().enumerate().counted();
    words.flat_map(|(word, bits)| bits_of(*bits).map(move |bit| word * ROW + bit))
}

/// The free blocks and the granules of one growable segment, up to the highest that ever was free.
#[derive(Debug)]
pub(crate) struct Borders {
    base: u64,
    granule: u64,
    /// 2^64 divided by the units of a granule, rounded up: what a division by the granule multiplies by.
    inverse: u64,
    /// The end of the highest block that ever was free, in bytes from the segment's first.
    highest: u64,
    /// By the cell in which they begin.
    rows: Vec<Row>,
    /// The rows in which any begins, and those that have such at borders of granules.
    beginning: Vec<u64>,
    touching: Vec<u64>,
    /// Free blocks beside the first one of their cell.
    others: FxHashMap<u64, SmallVec<[Free; 2]>>,
    /// Where views show a granule: it keeps its memory as long.
    shown: Vec<SmallVec<[Place; 1]>>,
    /// Which ones that are.
    visible: Vec<u64>,
    /// Granules that no view may show: a part has no memory, or is about to lose it.
    partial: FxHashSet<usize>,
}

impl Borders {
    /// For a segment at `base` whose granules have `granule` bytes.
    pub(crate) fn new(base: u64, granule: u64) -> Self {
        debug_assert!(granule > UNIT, "a granule is many units");
        let inverse = u64::MAX / (granule / UNIT) + 1;
        Self {
            base,
            granule,
            inverse,
            highest: 0,
            rows: Vec::new(),
            beginning: Vec::new(),
            touching: Vec::new(),
            others: FxHashMap::default(),
            shown: Vec::new(),
            visible: Vec::new(),
            partial: FxHashSet::default(),
        }
    }

    /// Bytes of a granule.
    pub(crate) fn granule(&self) -> u64 {
        self.granule
    }

    /// First address of the segment.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// First address of a granule.
    pub(crate) fn address(&self, number: usize) -> u64 {
        self.base + number as u64 * self.granule
    }

    /// The numbers of the rows of cells.
    pub(crate) fn rows(&self) -> Range<u32> {
        0..u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
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

    /// Notes a free block. Apart, so that what serves requests stays small enough to be compiled in one.
    #[inline(never)]
    pub(crate) fn insert(&mut self, block: &Block, id: BlockId, changed: &mut Vec<RowId>) {
        let low = block.addr - self.base;
        let end = low + block.size;
        let touches = self.touches(low, end);
        self.highest = self.highest.max(end);
        #[allow(clippy::cast_possible_truncation)] // a cell has few units
        let free = Free { end, block: id, unit: (low % CELL / UNIT) as u16, crowded: false };
        let (at, place) = place_of(low / CELL);
        match self.rows.get_mut(at) {
            Some(row) if row.begins >> place & 1 == 0 => {
                if row.begins == 0 {
                    self.beginning[at / ROW] |= 1 << (at % ROW);
                }
                row.begins |= 1 << place;
                row.first[place] = free;
                if touches {
                    row.change((block.segment, at), changed);
                    row.touches |= 1 << place;
                    self.touching[at / ROW] |= 1 << (at % ROW);
                }
            }
            _ => {
                self.insert_otherwise(low / CELL, free, touches);
                if touches {
                    self.rows[at].change((block.segment, at), changed);
                }
            }
        }
    }

    /// Whether what lies from `low` to `end` holds a first or a last byte of any granule.
    #[inline(always)]
    fn touches(&self, low: u64, end: u64) -> bool {
        // Exact for segments of less than 2^48 bytes and granules of less than 2^33.
        #[allow(clippy::cast_possible_truncation)] // less than `low`
        let number = ((u128::from(low / UNIT) * u128::from(self.inverse)) >> u64::BITS) as u64;
        debug_assert_eq!(number, low / self.granule, "within those bounds");
        let inside = low - number * self.granule;
        (inside == 0) | (inside + (end - low) >= self.granule)
    }

    /// There is no such row yet, or another one begins in the cell.
    #[cold]
    #[inline(never)]
    fn insert_otherwise(&mut self, cell: u64, free: Free, touches: bool) {
        let (at, place) = place_of(cell);
        if self.rows.len() <= at {
            self.rows.resize_with(at + 1, || Row::EMPTY);
            self.beginning.resize(at / ROW + 1, 0);
            self.touching.resize(at / ROW + 1, 0);
        }
        let row = &mut self.rows[at];
        row.touches |= u64::from(touches) << place;
        self.touching[at / ROW] |= u64::from(touches) << (at % ROW);
        let first = &mut row.first[place];
        if row.begins >> place & 1 == 0 {
            row.begins |= 1 << place;
            *first = free;
            self.beginning[at / ROW] |= 1 << (at % ROW);
        } else {
            first.crowded = true;
            self.others.entry(cell).or_default().push(free);
        }
    }

    /// Notes that a block is free no more.
    #[inline(never)]
    pub(crate) fn remove(&mut self, block: &Block, id: BlockId, changed: &mut Vec<RowId>) {
        let cell = (block.addr - self.base) / CELL;
        let (at, place) = place_of(cell);
        match self.rows.get_mut(at) {
            Some(row) if row.first[place].block == id && !row.first[place].crowded => {
                row.begins &= !(1 << place);
                if row.begins == 0 {
                    self.beginning[at / ROW] &= !(1 << (at % ROW));
                }
                if row.touches >> place & 1 == 1 {
                    row.change((block.segment, at), changed);
                    row.touches ^= 1 << place;
                    self.touching[at / ROW] &= !(u64::from(row.touches == 0) << (at % ROW));
                }
            }
            _ => {
                self.remove_from_crowd(cell, id);
                if self.rows[at].touches >> place & 1 == 1 {
                    self.rows[at].change((block.segment, at), changed);
                }
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn remove_from_crowd(&mut self, cell: u64, id: BlockId) {
        let (at, place) = place_of(cell);
        let first = &mut self.rows[at].first[place];
        let Some(others) = self.others.get_mut(&cell) else {
            unreachable!("a free block is known where it begins")
        };
        if first.block == id {
            others.pop().into_iter().for_each(|other| *first = other);
        } else {
            others.retain(|other| other.block != id);
        }
        first.crowded = !others.is_empty();
        if !first.crowded {
            self.others.remove(&cell);
        }
    }

    /// The free blocks that hold a granule's first and last byte.
    pub(crate) fn holders(&self, number: usize) -> (Option<BlockId>, Option<BlockId>) {
        let (low, high) = (self.address(number), self.address(number + 1));
        (self.holder(low, low + 1), self.holder(high - 1, high))
    }

    /// The free block that holds all bytes from `low` to `high`.
    pub(crate) fn holder(&self, low: u64, high: u64) -> Option<BlockId> {
        let (_, found) = self.begins_at_or_below(low)?;
        (high - self.base <= found.end).then_some(found.block)
    }

    /// The nearest free block that begins at `addr` or below.
    pub(crate) fn nearest(&self, addr: u64) -> Option<BlockId> {
        self.begins_at_or_below(addr).map(|(_, found)| found.block)
    }

    /// That one, and its row.
    #[inline(always)]
    fn begins_at_or_below(&self, addr: u64) -> Option<(usize, &Free)> {
        let low = addr - self.base;
        let unit = low % CELL / UNIT;
        let (own, place) = place_of(low / CELL);
        let mut at = own;
        let mut bits = self.rows.get(own).map_or(0, |row| row.begins & (u64::MAX >> (ROW - 1 - place)));
        let mut inside = bits >> place & 1 == 1;
        loop {
            step();
            if bits == 0 {
                at = self.row_below(at)?;
                bits = self.rows[at].begins;
            }
            let place = bits.ilog2() as usize;
            let first = &self.rows[at].first[place];
            let begins = |free: &Free| !inside || u64::from(free.unit) <= unit;
            if !first.crowded && begins(first) {
                return Some((at, first));
            }
            // Another one of this cell, or something below it.
            let found = self.in_cell(at, place).filter(|free| begins(free)).max_by_key(|free| free.unit);
            if let Some(found) = found {
                return Some((at, found));
            }
            (bits, inside) = (bits ^ 1 << place, false);
        }
    }

    /// The nearest row below another in which a free block begins.
    fn row_below(&self, row: usize) -> Option<usize> {
        let (mut word, mut bits) = (row / ROW, !(u64::MAX << (row % ROW)));
        if word >= self.beginning.len() {
            (word, bits) = (self.beginning.len().checked_sub(1)?, u64::MAX);
        }
        loop {
            step();
            bits &= self.beginning[word];
            if bits != 0 {
                return Some(word * ROW + bits.ilog2() as usize);
            }
            (word, bits) = (word.checked_sub(1)?, u64::MAX);
        }
    }

    /// The free blocks that begin in a cell, in no order.
    fn in_cell(&self, row: usize, place: usize) -> impl Iterator<Item = &Free> {
        let first = &self.rows[row].first[place];
        let others = if first.crowded { self.others_of(row, place) } else { &[] };
        std::iter::once(first).chain(others)
    }

    #[cold]
    fn others_of(&self, row: usize, place: usize) -> &[Free] {
        let others = self.others.get(&((row * ROW + place) as u64)).map_or(&[][..], SmallVec::as_slice);
        steps(others.len());
        others
    }

    /// The free blocks that hold a first or a last byte of any granule.
    pub(crate) fn free_blocks(&self) -> impl Iterator<Item = BlockId> {
        let rows = set_bits(&self.touching);
        let cells = rows.flat_map(|at| bits_of(self.rows[at].touches).map(move |place| (at, place)));
        cells.flat_map(move |(at, place)| self.touching_in(at, place)).map(|(_, free)| free.block)
    }

    /// The free blocks of a row that hold a first or a last byte of any granule: the bytes of each, and what it holds.
    pub(crate) fn of_row(&self, row: u32) -> impl Iterator<Item = (u64, Parts)> {
        let at = row as usize;
        let places = self.rows.get(at).map_or(0, |row| row.touches);
        bits_of(places).flat_map(move |place| self.touching_in(at, place)).map(|(low, free)| {
            let bytes = free.end - low;
            (bytes, self.parts_of(low, free.end))
        })
    }

    /// The free blocks of a cell that hold a first or a last byte of any granule, and where they begin.
    fn touching_in(&self, row: usize, place: usize) -> impl Iterator<Item = (u64, &Free)> {
        let low = move |free: &Free| ((row * ROW + place) as u64) * CELL + u64::from(free.unit) * UNIT;
        let all = self.in_cell(row, place).map(move |free| (low(free), free));
        all.filter(|(low, free)| self.touches(*low, free.end)).counted()
    }

    /// What a free block holds of the granules at whose borders it lies.
    pub(crate) fn parts(&self, block: &Block) -> Parts {
        self.parts_of(block.addr - self.base, block.end() - self.base)
    }

    fn parts_of(&self, low: u64, high: u64) -> Parts {
        let (first, last) = (low.div_ceil(self.granule), high / self.granule);
        let (before, behind) = (first * self.granule - low, high - last * self.granule);
        Parts {
            end: (before > 0).then(|| (first as usize - 1, before)),
            whole: first as usize..last as usize,
            beginning: (behind > 0).then_some((last as usize, behind)),
        }
    }

    /// No view may show the granule from now on, or one may again.
    fn set_partial(
        &mut self,
        (segment, number): (SegmentId, usize),
        partial: bool,
        changed: &mut Vec<RowId>,
    ) {
        if partial {
            self.partial.insert(number);
        } else {
            self.partial.remove(&number);
        }
        self.change_around(segment, self.address(number), changed);
        self.change_around(segment, self.address(number + 1) - 1, changed);
    }

    /// Whether a view may show the granule.
    pub(crate) fn may_show(&self, number: usize) -> bool {
        !self.partial.contains(&number)
    }

    /// A view shows the granule from now on.
    fn show(&mut self, (segment, number): (SegmentId, usize), place: Place, changed: &mut Vec<RowId>) {
        if self.shown.len() <= number {
            self.shown.resize_with(number + 1, SmallVec::new);
            self.visible.resize(number / ROW + 1, 0);
        }
        self.shown[number].push(place);
        self.visible[number / ROW] |= 1 << (number % ROW);
        self.change_around(segment, self.address(number + 1) - 1, changed);
    }

    /// A view does not show it any more.
    fn hide(&mut self, (segment, number): (SegmentId, usize), place: Place, changed: &mut Vec<RowId>) {
        let places = &mut self.shown[number];
        let at = places.iter().counted().position(|shown| *shown == place);
        at.map(|at| places.swap_remove(at));
        if places.is_empty() {
            self.visible[number / ROW] &= !(1 << (number % ROW));
        }
        self.change_around(segment, self.address(number + 1) - 1, changed);
    }

    /// Something else is true of the granule whose byte at `addr` is free, if it is.
    fn change_around(&mut self, segment: SegmentId, addr: u64, changed: &mut Vec<RowId>) {
        if let Some((row, _)) = self.begins_at_or_below(addr) {
            self.rows[row].change((segment, row), changed);
        }
    }

    /// Those of some granules that views show.
    pub(crate) fn visible(&self, numbers: Range<usize>) -> impl Iterator<Item = usize> {
        let first = numbers.start / ROW;
        let words = self.visible.get(first..self.visible.len().min(numbers.end.div_ceil(ROW)));
        let visible = set_bits(words.unwrap_or_default()).map(move |number| first * ROW + number);
        visible.filter(move |number| numbers.contains(number))
    }

    /// Where views show it, in no order.
    pub(crate) fn places(&self, number: usize) -> &[Place] {
        self.shown.get(number).map_or(&[], SmallVec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const BASE: u64 = 1 << 40;
    const GRANULE: u64 = 24 << 20;

    fn free(low: u64, size: u64) -> Block {
        Block::free(BASE + low, size)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against all free blocks in order: which one holds some bytes, and which lie at borders of granules. Many begin in
        /// one cell, and some rows of cells are empty.
        #[test]
        fn free_blocks_are_found_by_address(
            steps in prop::collection::vec((0u64..3, 0u64..600, 1u64..40, 0u64..4), 1..200)
        ) {
            let mut borders = Borders::new(BASE, GRANULE);
            let mut changed = Vec::new();
            let mut all: BTreeMap<u64, (u64, BlockId)> = BTreeMap::new();
            for (number, (far, place, units, large)) in steps.into_iter().enumerate() {
                let low = far * (200 << 20) + place * 20 * UNIT;
                let size = units * if large == 0 { CELL } else { UNIT };
                let id = BlockId::new(u32::try_from(number).unwrap());
                let overlaps = all.range(..low + size).next_back().is_some_and(|(_, (end, _))| *end > low);
                if let Some((end, id)) = all.remove(&low) {
                    borders.remove(&free(low, end - low), id, &mut changed);
                } else if !overlaps {
                    borders.insert(&free(low, size), id, &mut changed);
                    all.insert(low, (low + size, id));
                }
                for low in [low, low + size - UNIT, low + size, low.saturating_sub(UNIT)] {
                    let nearest = all.range(..=low).next_back();
                    prop_assert_eq!(borders.nearest(BASE + low), nearest.map(|(_, (_, id))| *id));
                    let holder = nearest.filter(|(_, (end, _))| low + 2 * UNIT <= *end).map(|(_, (_, id))| *id);
                    prop_assert_eq!(borders.holder(BASE + low, BASE + low + 2 * UNIT), holder);
                }
            }
            let touches = |low: u64, end: u64| low.is_multiple_of(GRANULE) || end / GRANULE > low / GRANULE;
            let at_borders = all.iter().filter(|(low, (end, _))| touches(**low, *end));
            let mut expected: Vec<_> = at_borders.clone().map(|(_, (_, id))| *id).collect();
            let mut found: Vec<_> = borders.free_blocks().collect();
            expected.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
            // Row by row the same, and each row with any was named when it changed.
            for row in borders.rows() {
                let of_row: Vec<_> = borders.of_row(row).collect();
                let low_of = |(low, (end, _)): (&u64, &(u64, BlockId))| (end - low, borders.parts(&free(*low, end - low)));
                let begins = u64::from(row) * 64 * CELL..(u64::from(row) + 1) * 64 * CELL;
                let expected: Vec<_> = at_borders.clone().filter(|(low, _)| begins.contains(low)).map(low_of).collect();
                prop_assert!(of_row.is_empty() || changed.iter().any(|(_, changed)| *changed == row));
                prop_assert_eq!(of_row.len(), expected.len());
                prop_assert!(expected.iter().all(|part| of_row.contains(part)));
            }
        }
    }
}
