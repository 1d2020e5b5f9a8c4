//! The free blocks of a pool, by size.

use crate::memory::block::BlockId;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Knows blocks by their ids only, and each until it is taken.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    /// The block that was freed last: most requests take it again, so it is indexed once another is freed.
    last: Option<(BlockId, u64)>,
    /// Of one size, those freed last come first.
    by_size: BTreeMap<(u64, Reverse<u64>), BlockId>,
    frees: u64,
}

impl FreeBlocks {
    #[inline]
    pub(super) fn put(&mut self, id: BlockId, size: u64) {
        self.index_last();
        self.last = Some((id, size));
    }

    fn index_last(&mut self) {
        if let Some((id, size)) = self.last.take() {
            self.frees += 1;
            self.by_size.insert((size, Reverse(self.frees)), id);
        }
    }

    /// The block that was freed last, if it is of these sizes.
    #[inline(always)]
    fn take_last(&mut self, sizes: &RangeInclusive<u64>) -> Option<BlockId> {
        let (id, _) = self.last.take_if(|(_, size)| sizes.contains(size))?;
        Some(id)
    }

    /// The key of the smallest block of these sizes.
    #[inline(always)]
    fn smallest(&self, from: u64, end: u64) -> Option<(u64, Reverse<u64>)> {
        let sizes = (from, Reverse(u64::MAX))..=(end, Reverse(0));
        self.by_size.range(sizes).next().map(|(key, _)| *key)
    }

    /// Of the blocks of these sizes, the one that was freed last.
    #[inline]
    pub(super) fn take_newest(&mut self, sizes: RangeInclusive<u64>) -> Option<BlockId> {
        if let Some(last) = self.take_last(&sizes) {
            return Some(last);
        }
        let (mut from, end) = sizes.into_inner();
        let mut newest = None;
        // The newest of each size.
        while from <= end
            && let Some((size, Reverse(free))) = self.smallest(from, end)
        {
            newest = newest.max(Some((free, size)));
            let Some(larger) = size.checked_add(1) else { break };
            from = larger;
        }
        newest.and_then(|(free, size)| self.by_size.remove(&(size, Reverse(free))))
    }

    /// The smallest block of these sizes.
    pub(super) fn take_smallest(&mut self, sizes: RangeInclusive<u64>) -> Option<BlockId> {
        let smallest = *sizes.start();
        if let Some(last) = self.take_last(&(smallest..=smallest)) {
            return Some(last);
        }
        self.index_last();
        self.smallest(*sizes.start(), *sizes.end()).and_then(|key| self.by_size.remove(&key))
    }

    /// The smallest block of at least that size, else the largest; and its size.
    pub(super) fn take_about(&mut self, size: u64) -> Option<(BlockId, u64)> {
        self.index_last();
        let largest = || self.by_size.last_key_value().map(|(key, _)| *key);
        let key = self.smallest(size, u64::MAX).or_else(largest)?;
        self.by_size.remove(&key).map(|id| (id, key.0))
    }

    /// This block, unless it was taken.
    pub(super) fn take(&mut self, id: BlockId, size: u64) -> bool {
        self.index_last();
        let of_size = (size, Reverse(u64::MAX))..=(size, Reverse(0));
        let key = self.by_size.range(of_size).find(|(_, other)| **other == id).map(|(key, _)| *key);
        key.is_some_and(|key| self.by_size.remove(&key).is_some())
    }

    /// All blocks, by rising size.
    pub(super) fn take_all(&mut self) -> Vec<BlockId> {
        self.index_last();
        std::mem::take(&mut self.by_size).into_values().collect()
    }
}
