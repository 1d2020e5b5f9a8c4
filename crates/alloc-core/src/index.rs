//! Indexes of free blocks. The ordered one, below: best fit by (size, segment creation order, address). The one of the
//! `granule` policy, by size class, is in `index/segregated.rs`.
//!
//! A sorted sequence cut into small chunks, with the largest key of each chunk in one array beside them.
//! A search is two binary searches over contiguous memory, so it touches few cache lines however many
//! blocks there are; chunks are recycled, so a steady state allocates nothing on the heap.

mod segregated;

pub use segregated::SegregatedIndex;

use crate::block::{Block, BlockId};

/// What the engine needs from any policy's index of free blocks.
pub trait PlacementIndex: Default + std::fmt::Debug + Send + 'static {
    /// Adds a free block.
    fn insert(&mut self, block: &Block, id: BlockId);
    /// Takes a block out. It is there, with the size and the address it has now: the engine keeps block states and
    /// indexes in step.
    fn remove(&mut self, block: &Block, id: BlockId);
    /// How many blocks are in it.
    fn len(&self) -> usize;
    /// True when nothing is in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Blocks by size, the smallest first.
    fn blocks(&self) -> impl Iterator<Item = BlockId> + '_;
    /// Panics where the index contradicts itself.
    fn check(&self);
}

/// The order of free blocks: size, then segment creation order, then address, packed so that one
/// comparison of 128 bits decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FitKey(u128);

impl FitKey {
    /// Sizes and addresses are multiples of 512, so their low 9 bits are not kept.
    #[must_use]
    pub const fn new(size: u64, registration: u32, addr: u64) -> Self {
        Self(((size >> 9) as u128) << 80 | (registration as u128) << 48 | (addr >> 9) as u128)
    }

    /// The least key of a size: sorts before every block that has it.
    #[must_use]
    pub const fn at_least(size: u64) -> Self {
        Self::new(size, 0, 0)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(self) -> u64 {
        ((self.0 >> 80) as u64) << 9
    }
}

/// Keys per chunk: large enough that the top array stays in cache at 100 000 blocks, small enough that
/// moving half a chunk costs a few vector instructions.
const CHUNK: usize = 32;
/// Two neighbours that together hold no more than this become one.
const MERGE: usize = CHUNK / 2;

#[derive(Debug)]
struct Chunk {
    len: usize,
    keys: [FitKey; CHUNK],
    blocks: [BlockId; CHUNK],
}

impl Chunk {
    fn boxed() -> Box<Self> {
        Box::new(Self { len: 0, keys: [FitKey(0); CHUNK], blocks: [BlockId::NONE; CHUNK] })
    }

    fn insert(&mut self, at: usize, key: FitKey, block: BlockId) {
        self.keys.copy_within(at..self.len, at + 1);
        self.blocks.copy_within(at..self.len, at + 1);
        self.keys[at] = key;
        self.blocks[at] = block;
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> BlockId {
        let block = self.blocks[at];
        self.keys.copy_within(at + 1..self.len, at);
        self.blocks.copy_within(at + 1..self.len, at);
        self.len -= 1;
        block
    }

    /// Moves the keys from `from` on to the end of `other`.
    fn move_tail(&mut self, from: usize, other: &mut Self) {
        let count = self.len - from;
        other.keys[other.len..other.len + count].copy_from_slice(&self.keys[from..self.len]);
        other.blocks[other.len..other.len + count].copy_from_slice(&self.blocks[from..self.len]);
        other.len += count;
        self.len = from;
    }
}

/// A place in a [`BestFitIndex`]; good until the index changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    chunk: usize,
    at: usize,
}

/// Free blocks in PyTorch's order.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "chunks change places in the order: that moves pointers, not their keys")]
pub struct BestFitIndex {
    /// Largest key of each chunk, ascending; parallel to `chunks`.
    last: Vec<FitKey>,
    chunks: Vec<Box<Chunk>>,
    /// Emptied chunks, for reuse.
    spare: Vec<Box<Chunk>>,
    len: usize,
}

impl BestFitIndex {
    /// The first block whose key is not less than `key`.
    #[must_use]
    pub fn lower_bound(&self, key: FitKey) -> Option<Cursor> {
        let chunk = self.last.partition_point(|last| *last < key);
        let inside = self.chunks.get(chunk)?;
        let at = inside.keys[..inside.len].partition_point(|k| *k < key);
        Some(Cursor { chunk, at })
    }

    /// The block after `cursor`.
    #[must_use]
    pub fn next(&self, cursor: Cursor) -> Option<Cursor> {
        if cursor.at + 1 < self.chunks[cursor.chunk].len {
            return Some(Cursor { chunk: cursor.chunk, at: cursor.at + 1 });
        }
        (cursor.chunk + 1 < self.chunks.len()).then_some(Cursor { chunk: cursor.chunk + 1, at: 0 })
    }

    /// The last block, the largest.
    #[must_use]
    pub fn last(&self) -> Option<Cursor> {
        if self.len == 0 {
            return None;
        }
        let chunk = self.chunks.len().checked_sub(1)?;
        Some(Cursor { chunk, at: self.chunks[chunk].len - 1 })
    }

    /// The block before `cursor`.
    #[must_use]
    pub fn previous(&self, cursor: Cursor) -> Option<Cursor> {
        if cursor.at > 0 {
            return Some(Cursor { chunk: cursor.chunk, at: cursor.at - 1 });
        }
        let chunk = cursor.chunk.checked_sub(1)?;
        Some(Cursor { chunk, at: self.chunks[chunk].len - 1 })
    }

    /// The block at `cursor`.
    #[must_use]
    pub fn block(&self, cursor: Cursor) -> BlockId {
        self.chunks[cursor.chunk].blocks[cursor.at]
    }

    /// Takes the block at `cursor` out.
    pub fn remove_at(&mut self, cursor: Cursor) -> BlockId {
        let Cursor { chunk, at } = cursor;
        let inside = &mut self.chunks[chunk];
        let block = inside.remove(at);
        self.len -= 1;
        let left = inside.len;
        if left == 0 {
            // The only chunk stays, so that a nearly empty index does not come and go.
            if self.chunks.len() > 1 {
                self.drop_chunk(chunk);
            } else {
                self.last[chunk] = FitKey(0);
            }
            return block;
        }
        self.last[chunk] = inside.keys[left - 1];
        if chunk + 1 < self.chunks.len() && left + self.chunks[chunk + 1].len <= MERGE {
            let (head, tail) = self.chunks.split_at_mut(chunk + 1);
            tail[0].move_tail(0, &mut head[chunk]);
            self.last[chunk] = self.last[chunk + 1];
            self.drop_chunk(chunk + 1);
        }
        block
    }

    fn drop_chunk(&mut self, chunk: usize) {
        self.last.remove(chunk);
        let empty = self.chunks.remove(chunk);
        self.spare.push(empty);
    }

    fn fresh_chunk(&mut self) -> Box<Chunk> {
        self.spare.pop().unwrap_or_else(Chunk::boxed)
    }
}

impl BestFitIndex {
    fn insert_key(&mut self, key: FitKey, block: BlockId) {
        self.len += 1;
        let mut chunk = self.last.partition_point(|last| *last < key);
        if chunk == self.chunks.len() {
            // Beyond every key: goes to the end of the last chunk.
            if chunk == 0 {
                let fresh = self.fresh_chunk();
                self.chunks.push(fresh);
                self.last.push(key);
            } else {
                chunk -= 1;
            }
        }
        if self.chunks[chunk].len == CHUNK {
            let mut upper = self.fresh_chunk();
            self.chunks[chunk].move_tail(CHUNK / 2, &mut upper);
            self.last.insert(chunk + 1, self.last[chunk]);
            self.last[chunk] = self.chunks[chunk].keys[CHUNK / 2 - 1];
            self.chunks.insert(chunk + 1, upper);
            if key > self.last[chunk] {
                chunk += 1;
            }
        }
        let inside = &mut self.chunks[chunk];
        let at = inside.keys[..inside.len].partition_point(|k| *k < key);
        inside.insert(at, key, block);
        self.last[chunk] = inside.keys[inside.len - 1];
    }

    fn remove_key(&mut self, key: FitKey) {
        let cursor = self.lower_bound(key);
        debug_assert!(
            cursor.is_some_and(|c| self.chunks[c.chunk].keys[c.at] == key),
            "a block that is not in the index was removed"
        );
        if let Some(cursor) = cursor {
            self.remove_at(cursor);
        }
    }
}

impl PlacementIndex for BestFitIndex {
    fn insert(&mut self, block: &Block, id: BlockId) {
        self.insert_key(block.key(), id);
    }

    fn remove(&mut self, block: &Block, _: BlockId) {
        self.remove_key(block.key());
    }

    fn len(&self) -> usize {
        self.len
    }

    fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.blocks[..chunk.len].iter().copied())
    }

    fn check(&self) {
        assert_eq!(self.last.len(), self.chunks.len(), "one last key per chunk");
        let mut count = 0;
        let mut before: Option<FitKey> = None;
        for (chunk, last) in self.chunks.iter().zip(&self.last) {
            if chunk.len == 0 {
                assert_eq!(self.chunks.len(), 1, "only the only chunk may be empty");
                continue;
            }
            assert_eq!(chunk.keys[chunk.len - 1], *last, "the top array holds each chunk's largest key");
            for key in &chunk.keys[..chunk.len] {
                assert!(before.is_none_or(|b| b < *key), "keys ascend strictly");
                before = Some(*key);
            }
            count += chunk.len;
        }
        assert_eq!(count, self.len, "the length is the number of keys");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn behaves_like_an_ordered_map(ops in prop::collection::vec((0u8..3, 1u64..40, 0u32..4, 0u64..64), 0..600)) {
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
                prop_assert_eq!(index.len(), model.len());
            }
            prop_assert_eq!(index.blocks().collect::<Vec<_>>(), model.values().copied().collect::<Vec<_>>());
            let mut backwards = Vec::new();
            let mut cursor = index.last();
            while let Some(c) = cursor {
                backwards.push(index.block(c));
                cursor = index.previous(c);
            }
            backwards.reverse();
            prop_assert_eq!(backwards, model.values().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_order_by_size_then_age_then_address() {
        let a = FitKey::new(1024, 9, 1 << 40);
        assert!(a < FitKey::new(1536, 0, 0));
        assert!(a < FitKey::new(1024, 10, 0));
        assert!(a < FitKey::new(1024, 9, (1 << 40) + 512));
        assert!(FitKey::at_least(1024) <= FitKey::new(1024, 0, 0));
        assert_eq!(a.size(), 1024);
    }
}
