//! Chunks: a few sorted entries in one piece of memory.

use crate::base::big_table;
use crate::memory::block::BlockId;
use crate::memory::index::FitKey;
use std::ops::{Index, IndexMut};

/// Entries of a chunk: few enough that moving half of them costs a few vector instructions.
pub(super) const CHUNK: usize = 32;
/// Size up to which two neighbours become one; a class that holds no more has no sequence.
pub(super) const FEW: usize = CHUNK / 2;

/// A key in two halves, which take less room than a whole one with its alignment, and the block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    high: u64,
    low: u64,
    block: BlockId,
}

impl Entry {
    const NONE: Self = Self { high: 0, low: 0, block: BlockId::NONE };

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // one half each
    fn new(key: FitKey, block: BlockId) -> Self {
        Self { high: (key.0 >> 64) as u64, low: key.0 as u64, block }
    }

    #[inline(always)]
    fn key(&self) -> FitKey {
        FitKey(u128::from(self.high) << 64 | u128::from(self.low))
    }
}

/// Sorted entries.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    len: usize,
    entries: [Entry; CHUNK],
}

impl Chunk {
    const EMPTY: Self = Self { len: 0, entries: [Entry::NONE; CHUNK] };

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.len == CHUNK
    }

    #[inline(always)]
    fn entries(&self) -> &[Entry] {
        &self.entries[..self.len.min(CHUNK)]
    }

    /// Index of the first key that is not less than `key`; the length if there is none.
    #[inline(always)]
    pub(super) fn lower_bound(&self, key: FitKey) -> usize {
        self.entries().partition_point(|entry| entry.key() < key)
    }

    #[inline(always)]
    pub(super) fn key(&self, at: usize) -> FitKey {
        self.entries[at].key()
    }

    /// The largest key.
    pub(super) fn last(&self) -> FitKey {
        self.entries().last().map_or(FitKey(0), Entry::key)
    }

    #[inline(always)]
    pub(super) fn block(&self, at: usize) -> BlockId {
        self.entries[at].block
    }

    /// Puts an entry in before index `at`. There is room.
    #[inline(always)]
    pub(super) fn insert(&mut self, at: usize, key: FitKey, block: BlockId) {
        self.entries.copy_within(at..self.len, at + 1);
        self.entries[at] = Entry::new(key, block);
        self.len += 1;
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, at: usize) -> BlockId {
        let block = self.entries[at].block;
        self.entries.copy_within(at + 1..self.len, at);
        self.len -= 1;
        block
    }

    /// Moves the entries from `from` on to the end of `other`.
    pub(super) fn move_tail(&mut self, from: usize, other: &mut Self) {
        let count = self.len - from;
        other.entries[other.len..other.len + count].copy_from_slice(&self.entries[from..self.len]);
        other.len += count;
        self.len = from;
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = FitKey> + '_ {
        self.entries().iter().map(Entry::key)
    }
}

/// All chunks of an index, by number.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    all: Vec<Chunk>,
    /// Numbers of emptied chunks, for reuse.
    spare: Vec<u32>,
}

impl Chunks {
    /// An empty chunk.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // there are less than 2^28 blocks
    pub(super) fn take(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            big_table::push(&mut self.all, Chunk::EMPTY);
            self.all.len() as u32 - 1
        })
    }

    /// Takes an emptied chunk back.
    #[inline]
    pub(super) fn give(&mut self, number: u32) {
        debug_assert_eq!(self[number].len, 0, "nothing is forgotten");
        self.spare.push(number);
    }

    /// Two chunks.
    pub(super) fn pair(&mut self, one: u32, other: u32) -> Option<[&mut Chunk; 2]> {
        self.all.get_disjoint_mut([one as usize, other as usize]).ok()
    }

    /// Panics unless `used` chunks are in use.
    pub(super) fn check(&self, used: usize) {
        assert_eq!(used + self.spare.len(), self.all.len(), "chunks are used again");
    }
}

impl Index<u32> for Chunks {
    type Output = Chunk;
    #[inline(always)]
    fn index(&self, number: u32) -> &Chunk {
        &self.all[number as usize]
    }
}

impl IndexMut<u32> for Chunks {
    #[inline(always)]
    fn index_mut(&mut self, number: u32) -> &mut Chunk {
        &mut self.all[number as usize]
    }
}
