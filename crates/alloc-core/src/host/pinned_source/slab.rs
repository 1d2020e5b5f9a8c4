//! The reserve: one pinned range that small requests are cut from, and return to.
//!
//! PyTorch (2.15) only ever cuts: what was cut and then emptied from the cache is lost. Here it is free again, and
//! joined with its free neighbours.

use std::collections::BTreeMap;

/// Pieces begin and end at multiples of this, as PyTorch's do. It is no page of the host's: nothing here asks the system.
const PIECE: u64 = 4096;

/// Free parts of a pinned range. Knows no memory, only offsets.
#[derive(Debug)]
pub(super) struct Slab {
    bytes: u64,
    /// Free pieces: offset and length, no two of them touching.
    free: BTreeMap<u64, u64>,
}

impl Slab {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, free: BTreeMap::from([(0, bytes)]) }
    }

    /// Cuts a piece of at least `bytes` from the lowest free one that is large enough. Returns its offset.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let wanted = bytes.checked_next_multiple_of(PIECE)?;
        let (offset, length) =
            self.free.iter().find(|(_, length)| **length >= wanted).map(|(o, l)| (*o, *l))?;
        self.free.remove(&offset);
        if length > wanted {
            self.free.insert(offset + wanted, length - wanted);
        }
        Some(offset)
    }

    /// Takes back the piece of `bytes` at `offset`.
    pub(super) fn put(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut end) = (offset, offset + bytes.next_multiple_of(PIECE));
        debug_assert!(
            end <= self.bytes && self.free.range(start..end).next().is_none(),
            "it was cut from here"
        );
        if let Some((before, length)) = self.free.range(..start).next_back().map(|(o, l)| (*o, *l))
            && before + length == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(length) = self.free.remove(&end) {
            end += length;
        }
        self.free.insert(start, end - start);
    }

    /// Bytes that are not cut.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// True if all pieces are back.
    pub(super) fn is_whole(&self) -> bool {
        self.free_bytes() == self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_are_whole_and_the_lowest_fit_is_cut() {
        let mut slab = Slab::new(16 * PIECE);
        assert_eq!(
            [1, PIECE, PIECE + 1].map(|bytes| slab.take(bytes)),
            [Some(0), Some(PIECE), Some(2 * PIECE)]
        );
        assert_eq!((slab.take(12 * PIECE + 1), slab.free_bytes()), (None, 12 * PIECE));
        slab.put(0, 1);
        assert_eq!(slab.take(2 * PIECE), Some(4 * PIECE), "one piece is too small");
        assert_eq!(slab.take(u64::MAX), None);
    }

    proptest! {
        /// Whatever is cut and put back in whatever order, live pieces are disjoint, and in the end all is one piece.
        #[test]
        fn nothing_is_lost(steps in prop::collection::vec((1u64..40_000, any::<prop::sample::Index>(), any::<bool>()), 1..200)) {
            let mut slab = Slab::new(64 * PIECE);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (bytes, which, give_back) in steps {
                if give_back && !live.is_empty() {
                    let (offset, bytes) = live.swap_remove(which.index(live.len()));
                    slab.put(offset, bytes);
                } else if let Some(offset) = slab.take(bytes) {
                    let disjoint = live.iter().all(|(o, b)| offset + bytes <= *o || o + b <= offset);
                    prop_assert!(disjoint && offset + bytes <= 64 * PIECE);
                    live.push((offset, bytes));
                }
                let cut: u64 = live.iter().map(|(_, bytes)| bytes.next_multiple_of(PIECE)).sum();
                prop_assert_eq!(slab.free_bytes() + cut, 64 * PIECE);
            }
            live.into_iter().for_each(|(offset, bytes)| slab.put(offset, bytes));
            prop_assert!(slab.is_whole());
            prop_assert_eq!(slab.take(64 * PIECE), Some(0));
        }
    }
}
