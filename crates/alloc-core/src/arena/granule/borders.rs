//! Borders of granules that free memory touches.
//!
//! All free blocks of a growable segment by their addresses: which one holds the bytes at an address, and so how much of a
//! granule is free, is found with a short look. This follows the index of free blocks step by step, with one mark a block.

mod all;

pub(crate) use all::{AllBorders, RowId};

use super::shown::Shown;
use crate::base::big_table;
use crate::base::round::{MIN_BLOCK, SMALL_LIMIT};
use crate::base::steps::{Counted, step, steps};
use crate::memory::block::{Block, BlockId, SegmentId};
use crate::memory::granules::Granules;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Range;

/// Free bytes of one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreePart {
    /// Bytes at its start.
    pub(crate) prefix: u64,
    /// Bytes at its end.
    pub(crate) suffix: u64,
}

/// The granules of which a free block holds a first or a last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The granule of which it holds an end only, and the bytes of that.
    pub(crate) end: Option<(Range<u64>, u64)>,
    /// Those that it holds as a whole: their addresses.
    pub(crate) whole: Range<u64>,
    /// The granule of which it holds a beginning only, and the bytes of that.
    pub(crate) beginning: Option<(Range<u64>, u64)>,
}

/// Place of a granule in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AliasPlace {
    /// The view's number.
    pub(crate) view: u64,
    pub(crate) slot: usize,
}

/// Addresses, sizes and granules are multiples of this.
const UNIT: u64 = MIN_BLOCK;
/// Free blocks are found by the cell in which they begin: of this many bytes.
const CELL: u64 = 1 << CELL_BITS;
/// Log2 of the smallest large-tier block, so that two free ones, with another between them, seldom begin in one cell.
const CELL_BITS: u32 = SMALL_LIMIT.ilog2();
const _: () = assert!(CELL == SMALL_LIMIT, "a power of two");
/// Cells of a row.
const ROW: usize = 64;

/// A free block that begins in a cell.
#[derive(Clone, Copy, Debug)]
struct Free {
    /// End, in bytes from the segment's first.
    end: u64,
    block: BlockId,
    /// Start, in units from the cell's first.
    unit: u16,
    /// Others begin in the same cell.
    crowded: bool,
}

impl Free {
    const NONE: Self = Self { end: 0, block: BlockId::NONE, unit: 0, crowded: false };
}

#[cold]
#[inline(never)]
#[allow(clippy::cast_possible_truncation)] // a segment has less than 2^32 rows of 64 MiB
fn note_changed((segment, row): (SegmentId, usize), changed: &mut Vec<RowId>) {
    big_table::push(changed, (segment, row as u32));
}

/// The row of a cell, and its place there.
#[inline(always)]
fn place_of(cell: usize) -> (usize, usize) {
    (cell / ROW, cell % ROW)
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

/// Parts of the granules at whose borders a free block lies. `None` where it lies inside of one.
fn parts_of(free: Range<u64>, granules: &Granules) -> Option<Parts> {
    let (first, last) = (granules.at(free.start), granules.at(free.end - 1));
    let low = if first.start == free.start { first.start } else { first.end };
    let high = if last.end == free.end { last.end } else { last.start };
    if high < low {
        return None;
    }
    let (before, behind) = (low - free.start, free.end - high);
    Some(Parts {
        end: (before > 0).then_some((first, before)),
        whole: low..high,
        beginning: (behind > 0).then_some((last, behind)),
    })
}

/// The free blocks of one growable segment, up to the highest that ever was free, and which granules views show. A granule
/// has the number of its first unit.
#[derive(Debug)]
pub(crate) struct Borders {
    base: u64,
    unit: u64,
    /// The end of the highest block that ever was free, in bytes from the segment's first.
    highest: u64,
    /// By row, the cells in which a free block begins.
    begins: Vec<u64>,
    /// By cell, such a block, where `begins` says that there is one.
    first: Vec<Free>,
    /// The rows in which any begins.
    beginning: Vec<u64>,
    /// By row, whether it is among those that changed.
    changed: Vec<bool>,
    /// Free blocks beside the first one of their cell.
    others: FxHashMap<usize, SmallVec<[Free; 2]>>,
    /// Slots in views, by granule.
    shown: Vec<SmallVec<[AliasPlace; 1]>>,
    /// Bits of these.
    visible: Vec<u64>,
}

impl Borders {
    /// For a segment at `base` that is mapped in units of so many bytes.
    pub(crate) fn new(base: u64, unit: u64) -> Self {
        Self {
            base,
            unit,
            highest: 0,
            begins: Vec::new(),
            first: Vec::new(),
            beginning: Vec::new(),
            changed: Vec::new(),
            others: FxHashMap::default(),
            shown: Vec::new(),
            visible: Vec::new(),
        }
    }

    /// The numbers of the rows of cells.
    pub(crate) fn rows(&self) -> Range<u32> {
        0..u32::try_from(self.begins.len()).unwrap_or(u32::MAX)
    }

    /// First address of the segment.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The end of the highest block that ever was free.
    pub(crate) fn highest(&self) -> u64 {
        self.base + self.highest
    }

    /// The number of the granule that begins at `addr`.
    pub(crate) fn number(&self, addr: u64) -> usize {
        ((addr - self.base) / self.unit) as usize
    }

    /// The cell in which a block begins.
    #[inline(always)]
    fn cell_of(&self, block: &Block) -> usize {
        ((block.addr - self.base) / CELL) as usize
    }

    /// Notes a change of a row's free parts.
    #[inline(always)]
    fn change(&mut self, (segment, row): (SegmentId, usize), changed: &mut Vec<RowId>) {
        let noted = &mut self.changed[row];
        if !*noted {
            *noted = true;
            note_changed((segment, row), changed);
        }
    }

    /// Notes a free block. Apart, so that what serves requests stays small enough to be compiled in one.
    #[inline(never)]
    pub(crate) fn insert(&mut self, block: &Block, id: BlockId, changed: &mut Vec<RowId>) {
        let cell = self.cell_of(block);
        let (row, place) = place_of(cell);
        match self.begins.get_mut(row) {
            Some(begins) if *begins >> place & 1 == 0 => {
                if *begins == 0 {
                    self.beginning[row / ROW] |= 1 << (row % ROW);
                }
                *begins |= 1 << place;
                self.first[cell] = self.free(block, id);
                self.change((block.segment, row), changed);
            }
            _ => self.insert_otherwise(block, id, changed),
        }
    }

    #[inline(always)]
    fn free(&mut self, block: &Block, id: BlockId) -> Free {
        let low = block.addr - self.base;
        let end = low + block.size;
        if end > self.highest {
            self.highest = end;
        }
        #[allow(clippy::cast_possible_truncation)] // a cell has few units
        Free { end, block: id, unit: (low % CELL / UNIT) as u16, crowded: false }
    }

    /// There is no such row yet, or another one begins in the cell.
    #[cold]
    #[inline(never)]
    fn insert_otherwise(&mut self, block: &Block, id: BlockId, changed: &mut Vec<RowId>) {
        let (cell, free) = (self.cell_of(block), self.free(block, id));
        let (row, place) = place_of(cell);
        if self.begins.len() <= row {
            self.begins.resize(row + 1, 0);
            self.first.resize((row + 1) * ROW, Free::NONE);
            self.changed.resize(row + 1, false);
            self.beginning.resize(row / ROW + 1, 0);
        }
        if self.begins[row] >> place & 1 == 0 {
            self.begins[row] |= 1 << place;
            self.first[cell] = free;
            self.beginning[row / ROW] |= 1 << (row % ROW);
        } else {
            self.first[cell].crowded = true;
            self.others.entry(cell).or_default().push(free);
        }
        self.change((block.segment, row), changed);
    }

    /// A free block ends elsewhere than before.
    #[inline(never)]
    pub(crate) fn resize(&mut self, block: &Block, id: BlockId, changed: &mut Vec<RowId>) {
        let cell = self.cell_of(block);
        let end = block.end() - self.base;
        if end > self.highest {
            self.highest = end;
        }
        match self.first.get_mut(cell) {
            Some(first) if first.block == id => first.end = end,
            _ => self.resize_in_crowd(cell, id, end),
        }
        self.change((block.segment, cell / ROW), changed);
    }

    #[cold]
    #[inline(never)]
    fn resize_in_crowd(&mut self, cell: usize, id: BlockId, end: u64) {
        let mut others = self.others.get_mut(&cell).into_iter().flatten();
        let Some(other) = others.find(|other| other.block == id) else {
            unreachable!("a free block is known where it begins")
        };
        other.end = end;
    }

    /// Notes that a block is free no more.
    #[inline(never)]
    pub(crate) fn remove(&mut self, block: &Block, id: BlockId, changed: &mut Vec<RowId>) {
        let cell = self.cell_of(block);
        let (row, place) = place_of(cell);
        match self.first.get(cell) {
            Some(first) if first.block == id && !first.crowded => {
                let begins = &mut self.begins[row];
                *begins &= !(1 << place);
                if *begins == 0 {
                    self.beginning[row / ROW] &= !(1 << (row % ROW));
                }
                self.change((block.segment, row), changed);
            }
            _ => self.remove_from_crowd(block, id, changed),
        }
    }

    #[cold]
    #[inline(never)]
    fn remove_from_crowd(&mut self, block: &Block, id: BlockId, changed: &mut Vec<RowId>) {
        let cell = self.cell_of(block);
        let first = &mut self.first[cell];
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
        self.change((block.segment, cell / ROW), changed);
    }

    /// The free blocks that hold a granule's first and last byte.
    pub(crate) fn holders(&self, granule: &Range<u64>) -> (Option<BlockId>, Option<BlockId>) {
        let Range { start, end } = *granule;
        (self.holder(start, start + 1), self.holder(end - 1, end))
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
        step();
        let (cell, unit) = self.unit_of(addr);
        let (row, place) = place_of(cell);
        if self.begins.get(row).is_some_and(|begins| begins >> place & 1 == 1) {
            let first = &self.first[cell];
            if !first.crowded && u64::from(first.unit) <= unit {
                return Some((row, first));
            }
        }
        self.begins_below(addr)
    }

    /// The cell of a byte, and the unit of that.
    #[inline(always)]
    fn unit_of(&self, addr: u64) -> (usize, u64) {
        let low = addr - self.base;
        ((low / CELL) as usize, low % CELL / UNIT)
    }

    /// The same where no block alone in its cell begins there, at `addr` or below.
    #[inline(never)]
    fn begins_below(&self, addr: u64) -> Option<(usize, &Free)> {
        let (cell, unit) = self.unit_of(addr);
        let (mut row, place) = place_of(cell);
        let up_to_own = self.begins.get(row).map_or(0, |begins| begins & (u64::MAX >> (ROW - 1 - place)));
        let own = 1 << place;
        if up_to_own & own != 0 {
            // Another one of this cell, or something below it.
            let begin = self.in_cell(row, place).filter(|free| u64::from(free.unit) <= unit);
            if let Some(found) = begin.max_by_key(|free| free.unit) {
                return Some((row, found));
            }
        }
        let mut cells = up_to_own & !own;
        if cells == 0 {
            row = self.row_below(row)?;
            cells = self.begins[row];
        }
        let place = cells.ilog2() as usize;
        let first = &self.first[row * ROW + place];
        if !first.crowded {
            return Some((row, first));
        }
        self.in_cell(row, place).max_by_key(|free| free.unit).map(|last| (row, last))
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
        let cell = row * ROW + place;
        let first = &self.first[cell];
        let others = if first.crowded { self.others_of(cell) } else { &[] };
        std::iter::once(first).chain(others)
    }

    #[cold]
    fn others_of(&self, cell: usize) -> &[Free] {
        let others = self.others.get(&cell).map_or(&[][..], SmallVec::as_slice);
        steps(others.len());
        others
    }

    /// The free blocks that hold a first or a last byte of any granule: the bytes of each, and what it holds.
    pub(crate) fn all(&self, granules: &Granules) -> impl Iterator<Item = (u64, Parts)> {
        set_bits(&self.beginning).flat_map(|row| self.in_row(row, granules))
    }

    /// Those of a row.
    pub(crate) fn of_row(&self, row: u32, granules: &Granules) -> impl Iterator<Item = (u64, Parts)> {
        self.in_row(row as usize, granules)
    }

    fn in_row(&self, row: usize, granules: &Granules) -> impl Iterator<Item = (u64, Parts)> {
        let places = self.begins.get(row).copied().unwrap_or(0);
        let low = move |place| (row * ROW + place) as u64 * CELL;
        let all = bits_of(places).flat_map(move |place| {
            self.in_cell(row, place).map(move |free| (low(place) + u64::from(free.unit) * UNIT, free))
        });
        let parts = move |(low, free): (u64, &Free)| {
            let parts = parts_of(self.base + low..self.base + free.end, granules)?;
            Some((free.end - low, parts))
        };
        // A row has 64 MiB, and so at most as many blocks of the granule policy. What counts is what is put in order.
        all.filter_map(parts).counted()
    }

    /// A view shows the granule from now on.
    fn show(&mut self, shown: &Shown, place: AliasPlace, changed: &mut Vec<RowId>) {
        let number = shown.number;
        if self.shown.len() <= number {
            self.shown.resize_with(number + 1, SmallVec::new);
            self.visible.resize(number / ROW + 1, 0);
        }
        self.shown[number].push(place);
        self.visible[number / ROW] |= 1 << (number % ROW);
        self.change_around(shown.segment, shown.addr + shown.bytes - 1, changed);
    }

    /// A view does not show it any more.
    fn hide(&mut self, shown: &Shown, place: AliasPlace, changed: &mut Vec<RowId>) {
        let number = shown.number;
        let places = &mut self.shown[number];
        let at = places.iter().counted().position(|shown| *shown == place);
        at.map(|at| places.swap_remove(at));
        if places.is_empty() {
            self.visible[number / ROW] &= !(1 << (number % ROW));
        }
        self.change_around(shown.segment, shown.addr + shown.bytes - 1, changed);
    }

    /// Something else is true of the granule whose byte at `addr` is free, if it is.
    fn change_around(&mut self, segment: SegmentId, addr: u64, changed: &mut Vec<RowId>) {
        if let Some((row, _)) = self.begins_at_or_below(addr) {
            self.change((segment, row), changed);
        }
    }

    /// Those of some granules that views show.
    pub(crate) fn visible(&self, numbers: Range<usize>) -> impl Iterator<Item = usize> {
        let first = numbers.start / ROW;
        let words = self.visible.get(first..self.visible.len().min(numbers.end.div_ceil(ROW)));
        let visible = set_bits(words.unwrap_or_default()).map(move |number| first * ROW + number);
        visible.filter(move |number| numbers.contains(number))
    }

    /// Its places in views, in no order.
    pub(crate) fn places(&self, number: usize) -> &[AliasPlace] {
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
    const UNIT_BYTES: u64 = 2 << 20;

    fn free(low: u64, size: u64) -> Block {
        Block::free(BASE + low, size)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against all free blocks in order: which one holds some bytes, and which lie at borders of granules. Many begin in
        /// one cell, and some rows of cells are empty.
        #[test]
        fn free_blocks_are_found_by_address(
            steps in prop::collection::vec((0u64..3, 0u64..600, 1u64..40, 0u64..4, any::<bool>()), 1..200)
        ) {
            let mut borders = Borders::new(BASE, UNIT_BYTES);
            let mut granules = Granules::new(BASE, UNIT_BYTES);
            granules.set(BASE, std::iter::repeat_n(GRANULE, 100));
            let mut changed = Vec::new();
            let mut all: BTreeMap<u64, (u64, BlockId)> = BTreeMap::new();
            for (number, (far, place, units, large, resizes)) in steps.into_iter().enumerate() {
                let low = far * (200 << 20) + place * 20 * UNIT;
                let size = units * if large == 0 { CELL } else { UNIT };
                let id = BlockId::new(u32::try_from(number).unwrap());
                let overlaps = all.range(..low + size).next_back().is_some_and(|(_, (end, _))| *end > low);
                if let Some((end, id)) = all.remove(&low) {
                    let above = all.range(low..).next();
                    if resizes && above.is_none_or(|(above, _)| low + size < *above) {
                        borders.resize(&free(low, size), id, &mut changed);
                        all.insert(low, (low + size, id));
                    } else {
                        borders.remove(&free(low, end - low), id, &mut changed);
                    }
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
            let low_of = |(low, (end, _)): (&u64, &(u64, BlockId))| {
                Some((end - low, parts_of(BASE + low..BASE + end, &granules)?))
            };
            let expected: Vec<_> = at_borders.clone().filter_map(low_of).collect();
            let found: Vec<_> = borders.all(&granules).collect();
            prop_assert_eq!(found.len(), expected.len());
            prop_assert!(expected.iter().all(|part| found.contains(part)));
            // Row by row the same, and each row with any was named when it changed.
            for row in borders.rows() {
                let of_row: Vec<_> = borders.of_row(row, &granules).collect();
                let begins = u64::from(row) * 64 * CELL..(u64::from(row) + 1) * 64 * CELL;
                let expected: Vec<_> = at_borders.clone().filter(|(low, _)| begins.contains(low)).filter_map(low_of).collect();
                prop_assert!(of_row.is_empty() || changed.iter().any(|(_, changed)| *changed == row));
                prop_assert_eq!(of_row.len(), expected.len());
                prop_assert!(expected.iter().all(|part| of_row.contains(part)));
            }
        }
    }
}
