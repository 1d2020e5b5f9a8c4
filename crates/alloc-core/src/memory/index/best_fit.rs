//! Free blocks in PyTorch's order: best fit by size, then by the policy's [`TieBreak`](crate::memory::order::TieBreak), then by address.
//!
//! Blocks are kept by size class, and sorted within. Most classes have few blocks, which lie in one chunk of memory: a
//! search is a step to the class and a look at one or two cache lines. A class of many has a sequence of chunks
//! (`best_fit/sequence.rs`), so that no number of blocks makes a step slow. Chunks and sequences are recycled: a steady state
//! allocates nothing on the heap.

mod chunk;
mod sequence;

use super::FitKey;
use super::classes::{CLASSES, ClassSet, class, units};
use crate::base::steps::Counted;
use crate::memory::block::{Block, BlockId};
use chunk::{Chunk, Chunks, FEW};
use sequence::Sequence;

/// Place of a class's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClassPlace {
    #[default]
    Nowhere,
    /// In the chunk with this number.
    Chunk(u32),
    /// In the sequence with this number.
    Sequence(u32),
}

/// A place in a [`BestFitIndex`]; good until the index changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    class: usize,
    /// Number of the chunk in the class, and of the entry in the chunk.
    chunk: usize,
    at: usize,
}

/// Free blocks in PyTorch's order.
#[derive(Debug, Default)]
pub(crate) struct BestFitIndex {
    /// Classes that have a block.
    present: ClassSet,
    /// Places by class; empty before the first block comes.
    places: Vec<ClassPlace>,
    chunks: Chunks,
    sequences: Vec<Sequence>,
    spare_sequences: Vec<u32>,
    len: usize,
}

impl BestFitIndex {
    /// The first block whose key is not less than `key`.
    #[must_use]
    #[inline]
    pub(crate) fn lower_bound(&self, key: FitKey) -> Option<Cursor> {
        let class = class_of(key);
        self.lower_bound_in(class, key).or_else(|| self.first_from(class + 1))
    }

    #[inline]
    fn lower_bound_in(&self, class: usize, key: FitKey) -> Option<Cursor> {
        match *self.places.get(class)? {
            ClassPlace::Nowhere => None,
            ClassPlace::Chunk(number) => {
                let chunk = &self.chunks[number];
                let at = chunk.lower_bound(key);
                (at < chunk.len()).then_some(Cursor { class, chunk: 0, at })
            }
            ClassPlace::Sequence(number) => {
                let (chunk, at) = self.sequences[number as usize].lower_bound(&self.chunks, key)?;
                Some(Cursor { class, chunk, at })
            }
        }
    }

    /// The first block of the classes from `class` on.
    #[inline]
    fn first_from(&self, class: usize) -> Option<Cursor> {
        self.present.next(class).map(|class| Cursor { class, chunk: 0, at: 0 })
    }

    /// The chunk of this number in a class.
    #[inline]
    fn chunk(&self, class: usize, chunk: usize) -> Option<&Chunk> {
        let number = match *self.places.get(class)? {
            ClassPlace::Nowhere => return None,
            ClassPlace::Chunk(number) => (chunk == 0).then_some(number)?,
            ClassPlace::Sequence(number) => self.sequences[number as usize].chunk(chunk)?,
        };
        Some(&self.chunks[number])
    }

    /// The block after `cursor`.
    #[must_use]
    #[inline]
    pub(crate) fn next(&self, cursor: Cursor) -> Option<Cursor> {
        let Cursor { class, chunk, at } = cursor;
        if at + 1 < self.chunk(class, chunk)?.len() {
            return Some(Cursor { class, chunk, at: at + 1 });
        }
        match self.chunk(class, chunk + 1) {
            Some(_) => Some(Cursor { class, chunk: chunk + 1, at: 0 }),
            None => self.first_from(class + 1),
        }
    }

    /// The block at `cursor`.
    #[must_use]
    #[inline]
    pub(crate) fn block(&self, cursor: Cursor) -> BlockId {
        self.chunk(cursor.class, cursor.chunk).map_or(BlockId::NONE, |chunk| chunk.block(cursor.at))
    }

    /// The first block of at least so many bytes, and its key; skips `but`.
    #[must_use]
    #[inline]
    pub(crate) fn first_but(&self, bytes: u64, but: BlockId) -> Option<(FitKey, BlockId)> {
        let first = self.lower_bound(FitKey::at_least(bytes))?;
        let entry = |at: Cursor| self.chunk(at.class, at.chunk).map(|c| (c.key(at.at), c.block(at.at)));
        entry(first).filter(|(_, block)| *block != but).or_else(|| entry(self.next(first)?))
    }

    /// Takes the block at `cursor` out.
    #[inline]
    pub(crate) fn remove_at(&mut self, cursor: Cursor) -> BlockId {
        let Cursor { class, at, .. } = cursor;
        let ClassPlace::Chunk(number) = self.places[class] else { return self.remove_of_many(cursor) };
        let chunk = &mut self.chunks[number];
        let block = chunk.remove(at);
        self.len -= 1;
        if chunk.len() == 0 {
            self.chunks.give(number);
            self.places[class] = ClassPlace::Nowhere;
            self.present.remove_if(class, 1);
        }
        block
    }

    #[inline(never)]
    fn remove_of_many(&mut self, Cursor { class, chunk, at }: Cursor) -> BlockId {
        let ClassPlace::Sequence(number) = self.places[class] else { return BlockId::NONE };
        let sequence = &mut self.sequences[number as usize];
        let block = sequence.remove_at(&mut self.chunks, chunk, at);
        self.len -= 1;
        if let Some(only) = sequence.only_chunk().filter(|only| self.chunks[*only].len() <= FEW) {
            sequence.clear();
            self.spare_sequences.push(number);
            self.places[class] = ClassPlace::Chunk(only);
        }
        block
    }

    #[inline]
    fn insert_key(&mut self, key: FitKey, block: BlockId) {
        let class = class_of(key);
        self.len += 1;
        if let Some(ClassPlace::Chunk(number)) = self.places.get(class).copied() {
            let chunk = &mut self.chunks[number];
            if !chunk.is_full() {
                return chunk.insert(chunk.lower_bound(key), key, block);
            }
        }
        self.insert_otherwise(class, key, block);
    }

    #[inline(never)]
    fn insert_otherwise(&mut self, class: usize, key: FitKey, block: BlockId) {
        if self.places.is_empty() {
            self.places = vec![ClassPlace::Nowhere; CLASSES];
        }
        let number = match self.places[class] {
            ClassPlace::Nowhere => {
                let number = self.chunks.take();
                self.chunks[number].insert(0, key, block);
                self.places[class] = ClassPlace::Chunk(number);
                return self.present.insert(class);
            }
            ClassPlace::Chunk(full) => {
                let number = self.spare_sequence();
                self.sequences[number as usize].begin(&self.chunks, full);
                self.places[class] = ClassPlace::Sequence(number);
                number
            }
            ClassPlace::Sequence(number) => number,
        };
        self.sequences[number as usize].insert(&mut self.chunks, key, block);
    }

    #[allow(clippy::cast_possible_truncation)] // no more than classes
    fn spare_sequence(&mut self) -> u32 {
        self.spare_sequences.pop().unwrap_or_else(|| {
            self.sequences.push(Sequence::default());
            self.sequences.len() as u32 - 1
        })
    }

    #[inline]
    fn remove_key(&mut self, key: FitKey) {
        let cursor = self.lower_bound_in(class_of(key), key);
        debug_assert!(
            cursor.is_some_and(|c| self.chunk(c.class, c.chunk).is_some_and(|chunk| chunk.key(c.at) == key)),
            "a block that is not in the index was removed"
        );
        if let Some(cursor) = cursor {
            self.remove_at(cursor);
        }
    }

    /// The chunks of a class in order.
    fn chunks_of(&self, class: usize) -> impl Iterator<Item = &Chunk> {
        (0..).map_while(move |chunk| self.chunk(class, chunk))
    }
}

#[inline]
fn class_of(key: FitKey) -> usize {
    class(units(key.size()))
}

impl BestFitIndex {
    /// Adds a free block.
    #[inline]
    pub(crate) fn insert(&mut self, block: &Block, id: BlockId) {
        self.insert_key(block.key(), id);
    }

    /// Takes a block out. It is there, with the size and the address it has now: the engine keeps block states and
    /// indexes in step.
    #[inline]
    pub(crate) fn remove(&mut self, block: &Block) {
        self.remove_key(block.key());
    }

    /// Blocks of at least so many bytes, by size, the smallest first.
    pub(crate) fn at_least(&self, bytes: u64) -> impl Iterator<Item = BlockId> + '_ {
        let first = self.lower_bound(FitKey::at_least(bytes));
        std::iter::successors(first, |at| self.next(*at)).map(|at| self.block(at)).counted()
    }

    /// True if there is one of at least so many bytes.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.at_least(bytes).next().is_some()
    }

    /// Panics where the index contradicts itself.
    pub(crate) fn check(&self) {
        let mut count = 0;
        let mut before: Option<FitKey> = None;
        for (class, place) in self.places.iter().enumerate() {
            assert_eq!(
                self.present.contains(class),
                *place != ClassPlace::Nowhere,
                "a class with a block is in the set"
            );
            if let ClassPlace::Sequence(number) = place {
                self.sequences[*number as usize].check(&self.chunks);
            }
            for chunk in self.chunks_of(class) {
                assert!(chunk.len() > 0, "empty chunks are given back");
                for key in chunk.keys() {
                    assert_eq!(class_of(key), class, "blocks are in their class");
                    assert!(before.is_none_or(|b| b < key), "keys ascend strictly");
                    before = Some(key);
                }
                count += chunk.len();
            }
        }
        self.present.check();
        assert_eq!(count, self.len, "the length is the number of keys");
        let sequences = self.places.iter().filter(|place| matches!(place, ClassPlace::Sequence(_))).count();
        assert_eq!(sequences + self.spare_sequences.len(), self.sequences.len(), "sequences are used again");
        let chunks: usize = (0..CLASSES).map(|class| self.chunks_of(class).count()).sum();
        self.chunks.check(chunks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Takes the first block of a size, or adds one, and compares with a map.
    fn compare(ops: Vec<(u8, u64, u32, u64)>) -> Result<(), TestCaseError> {
        let mut index = BestFitIndex::default();
        let mut model = BTreeMap::new();
        for (n, (op, size, registration, addr)) in ops.into_iter().enumerate() {
            let key = FitKey::new(size << 9, registration, addr << 9);
            let id = BlockId::new(u32::try_from(n).unwrap());
            match op {
                0 | 1 if !model.contains_key(&key) => {
                    index.insert_key(key, id);
                    model.insert(key, id);
                }
                2 => {
                    let probe = FitKey::at_least(size << 9);
                    let found = index.lower_bound(probe).map(|c| index.block(c));
                    prop_assert_eq!(found, model.range(probe..).next().map(|(_, b)| *b));
                    if let Some((&first, _)) = model.range(probe..).next() {
                        index.remove_key(first);
                        model.remove(&first);
                    }
                }
                _ => {}
            }
            index.check();
            prop_assert_eq!(index.len, model.len());
        }
        let mut forwards = Vec::new();
        let mut cursor = index.first_from(0);
        while let Some(c) = cursor {
            forwards.push(index.block(c));
            cursor = index.next(c);
        }
        prop_assert_eq!(&forwards, &model.values().copied().collect::<Vec<_>>());
        prop_assert_eq!(index.at_least(0).collect::<Vec<_>>(), forwards);
        while let Some(cursor) = index.first_from(0) {
            let least = model.pop_first().map(|(_, id)| id);
            prop_assert_eq!(Some(index.remove_at(cursor)), least);
            index.check();
        }
        prop_assert!(model.is_empty() && index.len == 0);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn many_sizes_behave_like_an_ordered_map(
            ops in prop::collection::vec((0u8..3, 1u64..40, 0u32..4, 0u64..64), 0..600)
        ) {
            compare(ops)?;
        }

        #[test]
        fn many_blocks_of_a_size_behave_like_an_ordered_map(
            ops in prop::collection::vec((0u8..5, 100u64..102, 0u32..2, 0u64..4096), 0..600)
        ) {
            compare(ops.into_iter().map(|(op, size, age, addr)| (op / 2, size, age, addr)).collect())?;
        }

        #[test]
        fn sizes_beyond_all_classes_are_ordered(
            ops in prop::collection::vec((0u8..3, (1u64 << 31)..(1 << 34), 0u32..2, 0u64..64), 0..200)
        ) {
            compare(ops)?;
        }
    }
}
