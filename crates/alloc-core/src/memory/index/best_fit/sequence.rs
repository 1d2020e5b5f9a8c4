//! Sequences: the chunks of a size class with many blocks, sorted.
//!
//! The largest key of each chunk is in one array beside them: a search is two binary searches over contiguous memory.

use super::chunk::{CHUNK, Chunks, FEW};
use crate::memory::block::BlockId;
use crate::memory::index::FitKey;

/// The chunks of a class.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// Largest key of each chunk, ascending; parallel to `chunks`.
    last: Vec<FitKey>,
    chunks: Vec<u32>,
}

impl Sequence {
    /// Makes an empty sequence that of one chunk.
    pub(super) fn begin(&mut self, chunks: &Chunks, chunk: u32) {
        self.last.push(chunks[chunk].last());
        self.chunks.push(chunk);
    }

    pub(super) fn clear(&mut self) {
        self.last.clear();
        self.chunks.clear();
    }

    /// Number of the chunk at a place.
    pub(super) fn chunk(&self, place: usize) -> Option<u32> {
        self.chunks.get(place).copied()
    }

    /// Number of its chunk, if it has only one.
    pub(super) fn only_chunk(&self) -> Option<u32> {
        match self.chunks[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The first entry whose key is not less than `key`: its chunk's place, and its index in the chunk.
    pub(super) fn lower_bound(&self, chunks: &Chunks, key: FitKey) -> Option<(usize, usize)> {
        let place = self.last.partition_point(|last| *last < key);
        let chunk = *self.chunks.get(place)?;
        Some((place, chunks[chunk].lower_bound(key)))
    }

    pub(super) fn insert(&mut self, chunks: &mut Chunks, key: FitKey, block: BlockId) {
        // Beyond every key: goes to the end of the last chunk.
        let mut place = self.last.partition_point(|last| *last < key).min(self.chunks.len() - 1);
        if chunks[self.chunks[place]].is_full() {
            self.cut(chunks, place);
            if key > self.last[place] {
                place += 1;
            }
        }
        let chunk = &mut chunks[self.chunks[place]];
        chunk.insert(chunk.lower_bound(key), key, block);
        self.last[place] = chunk.last();
    }

    /// Cuts a full chunk in two.
    fn cut(&mut self, chunks: &mut Chunks, place: usize) {
        let upper = chunks.take();
        if let Some([lower, upper]) = chunks.pair(self.chunks[place], upper) {
            lower.move_tail(CHUNK / 2, upper);
        }
        self.last.insert(place + 1, self.last[place]);
        self.last[place] = chunks[self.chunks[place]].last();
        self.chunks.insert(place + 1, upper);
    }

    pub(super) fn remove_at(&mut self, chunks: &mut Chunks, place: usize, at: usize) -> BlockId {
        let chunk = &mut chunks[self.chunks[place]];
        let block = chunk.remove(at);
        let left = chunk.len();
        if left == 0 {
            self.drop_chunk(chunks, place);
            return block;
        }
        self.last[place] = chunk.last();
        if let Some(next) = self.chunk(place + 1)
            && left + chunks[next].len() <= FEW
        {
            if let Some([lower, upper]) = chunks.pair(self.chunks[place], next) {
                upper.move_tail(0, lower);
            }
            self.last[place] = self.last[place + 1];
            self.drop_chunk(chunks, place + 1);
        }
        block
    }

    fn drop_chunk(&mut self, chunks: &mut Chunks, place: usize) {
        self.last.remove(place);
        chunks.give(self.chunks.remove(place));
    }

    /// Panics where it contradicts its chunks.
    pub(super) fn check(&self, chunks: &Chunks) {
        assert_eq!(self.last.len(), self.chunks.len(), "one last key per chunk");
        for (chunk, last) in self.chunks.iter().zip(&self.last) {
            assert_eq!(chunks[*chunk].last(), *last, "the array holds each chunk's largest key");
        }
    }
}
