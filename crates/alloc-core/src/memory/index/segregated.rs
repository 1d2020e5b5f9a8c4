//! Free lists by size class: every operation takes the same few steps, however many blocks there are.
//!
//! A search looks at a few blocks of the request's own class and takes the smallest that fits, or at a few of the next
//! class that has any, all of which fit. Of equal ones it takes the lowest.
//!
//! Lists are rings through a head of their own, so that a block is put in and taken out without a branch: with sizes in
//! no order, the processor would guess each wrongly half the time. Their links are kept together, four to a cache line,
//! and no block record is looked at.

use super::classes::{CLASSES, ClassSet, class, units};
use crate::base::big_table;
use crate::base::steps::{Counted, step};
use crate::memory::block::{Block, BlockId};

/// Blocks of a class that a search looks at.
const LOOKS: usize = 3;
/// Blocks that a search for a large request (1 MiB and more) looks at, since a better fit saves more.
const LARGE_LOOKS: usize = 32;
const LARGE: u32 = 2048;

/// A block's place in the ring of its class, or the head of that ring. Sizes and addresses are in units of 512 bytes.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    /// Size. Larger sizes, and heads, count as the largest that fits: 2 TiB.
    size: u32,
    /// Lower half of the address, to tell which of two blocks is lower.
    addr: u32,
}

/// Free blocks by size class.
#[derive(Debug, Default)]
pub(crate) struct SegregatedIndex {
    /// Classes that have a block.
    present: ClassSet,
    /// Heads by class, then blocks by number; empty before the first block comes.
    links: Vec<Link>,
}

/// Place of a block's link.
#[inline(always)]
fn place(block: BlockId) -> usize {
    CLASSES + block.index() as usize
}

/// The block whose link is at this place.
#[allow(clippy::cast_possible_truncation)] // there are less than 2^28 blocks
fn block_at(place: usize) -> BlockId {
    BlockId::new((place - CLASSES) as u32)
}

impl SegregatedIndex {
    /// The smallest block of at least `size` units, and of these the lowest, among the newest of a class that has any.
    #[inline(always)]
    fn best_of(&self, class: usize, size: u32) -> Option<usize> {
        let (mut best, mut least) = (0, u64::MAX);
        let mut at = self.links[class].after as usize;
        let looks = if size > LARGE { LARGE_LOOKS } else { LOOKS };
        for look in 0..looks {
            if look >= LOOKS && at == class {
                break;
            }
            step();
            let link = self.links[at];
            // The head, which comes up in a short ring, is larger than any block that is searched for here.
            let key = u64::from(link.size) << 32 | u64::from(link.addr);
            let is_better = (link.size >= size) & (key < least);
            (best, least) = if is_better { (at, key) } else { (best, least) };
            at = link.after as usize;
        }
        (least != u64::MAX).then_some(best)
    }

    /// Takes out a block of at least `bytes`, nearly the smallest there is. Sizes from 2 TiB on count as one: `fits`
    /// says if such a block is large enough.
    #[inline(always)]
    pub(crate) fn take_fit(&mut self, bytes: u64, fits: impl Fn(BlockId) -> bool) -> Option<BlockId> {
        let size = units(bytes);
        let own = class(size);
        let mut from = self.present.next(own)?;
        let mut found = if size < u32::MAX { self.best_of(from, size) } else { None };
        if found.is_none() {
            // Only its own class may have blocks that are too small.
            let Some(next) = self.present.next(own + 1) else { return self.take_hidden(own, size, fits) };
            from = next;
            found = self.best_of(from, size);
        }
        let Some(found) = found else { return self.take_hidden(from, size, fits) };
        self.unlink(found);
        Some(block_at(found))
    }

    /// Takes out the block that `order` puts first, among nearly the smallest that fits of each of the next `classes`
    /// classes that have any.
    pub(crate) fn take_first<K: Ord>(
        &mut self,
        bytes: u64,
        classes: usize,
        order: impl Fn(BlockId) -> K,
    ) -> Option<BlockId> {
        let size = units(bytes);
        if size == u32::MAX {
            return None;
        }
        let mut best: Option<(K, usize)> = None;
        let mut from = class(size);
        for _ in 0..classes {
            let Some(class) = self.present.next(from) else { break };
            if let Some(at) = self.best_of(class, size) {
                let key = order(block_at(at));
                if best.as_ref().is_none_or(|(first, _)| key < *first) {
                    best = Some((key, at));
                }
            }
            from = class + 1;
        }
        let (_, found) = best?;
        self.unlink(found);
        Some(block_at(found))
    }

    /// Takes any block that fits out of the last class that has one: some may be behind those that were looked at.
    #[cold]
    fn take_hidden(&mut self, class: usize, size: u32, fits: impl Fn(BlockId) -> bool) -> Option<BlockId> {
        let large = |at: &usize| self.links[*at].size >= size && fits(block_at(*at));
        let found = self.ring(class).counted().find(large)?;
        self.unlink(found);
        Some(block_at(found))
    }

    /// The links of a class, the newest block's first.
    fn ring(&self, class: usize) -> impl Iterator<Item = usize> + '_ {
        let next = move |at: usize| Some(self.links.get(at)?.after as usize).filter(|at| *at != class);
        std::iter::successors(next(class), move |at| next(*at))
    }

    #[inline(always)]
    fn unlink(&mut self, at: usize) {
        let Link { before, after, .. } = self.links[at];
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        // Then only the head is left in its ring, where the class says.
        let was_last = before == after;
        let class = if was_last { before as usize } else { 0 };
        self.present.remove_if(class, u64::from(was_last));
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation)] // there are less than 2^28 blocks
    fn make_room(&mut self, place: usize) {
        while self.links.len() <= place {
            let own = self.links.len() as u32;
            big_table::push(
                &mut self.links,
                Link { before: own, after: own, size: u32::MAX, addr: u32::MAX },
            );
        }
    }
}

impl SegregatedIndex {
    /// Adds a free block.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // there are less than 2^28 blocks, and the lower half is meant
    pub(crate) fn insert(&mut self, block: &Block, id: BlockId) {
        let at = place(id);
        if self.links.len() <= at {
            self.make_room(at);
        }
        let size = units(block.size);
        let class = class(size);
        let links = self.links.as_mut_slice();
        let after = std::mem::replace(&mut links[class].after, at as u32);
        links[after as usize].before = at as u32;
        links[at] = Link { before: class as u32, after, size, addr: (block.addr >> 9) as u32 };
        self.present.insert(class);
    }

    /// Takes a block out. It is there, with the size and the address it has now: the engine keeps block states and
    /// indexes in step.
    #[inline(always)]
    pub(crate) fn remove(&mut self, block: &Block, id: BlockId) {
        debug_assert_eq!(self.links[place(id)].size, units(block.size), "with this size");
        self.unlink(place(id));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.present.from(0).map(|class| self.ring(class).counted().count()).sum()
    }

    /// Blocks of at least so many bytes, by size, the smallest first.
    pub(crate) fn at_least(&self, bytes: u64) -> impl Iterator<Item = BlockId> + '_ {
        let size = units(bytes);
        let sorted = move |class| {
            let mut all: Vec<usize> = self.ring(class).filter(|at| self.links[*at].size >= size).collect();
            all.sort_by_key(|at| (self.links[*at].size, self.links[*at].addr));
            all
        };
        self.present.from(class(size)).flat_map(sorted).map(block_at).counted()
    }

    /// True if there is one of at least so many bytes.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        let (own, size) = (class(units(bytes)), units(bytes));
        // All blocks of the classes above are large enough.
        self.present.next(own + 1).is_some() || self.ring(own).counted().any(|at| self.links[at].size >= size)
    }

    /// Panics where the index contradicts itself.
    pub(crate) fn check(&self) {
        for at in 0..CLASSES {
            let mut before = at;
            for link in self.ring(at) {
                assert_eq!(self.links[link].before as usize, before, "links name each other");
                assert_eq!(class(self.links[link].size), at, "blocks are in the ring of their class");
                before = link;
            }
            assert_eq!(self.present.contains(at), before != at, "a class with a block is in the set");
        }
        self.present.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A free block; size and address in units.
    fn block(size: u64, addr: u64) -> Block {
        Block::free(addr << 9, size << 9)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn behaves_like_a_set_of_blocks(
            steps in prop::collection::vec((0u8..4, 0u32..13, 0u64..64, 0u32..200), 0..600)
        ) {
            let mut index = SegregatedIndex::default();
            let mut model: BTreeMap<u32, Block> = BTreeMap::new();
            let class_of = |bytes: u64| class(units(bytes));
            for (step, bits, fraction, number) in steps {
                let size = ((64 + fraction) << bits >> 6).max(1);
                match step {
                    0 | 1 if !model.contains_key(&number) => {
                        let free = block(size, u64::from(number));
                        index.insert(&free, BlockId::new(number));
                        model.insert(number, free);
                    }
                    2 => {
                        let size = size << 9;
                        let found = index.take_fit(size, |_| true).map(BlockId::index);
                        let there = model.values().any(|free| free.size >= size);
                        prop_assert_eq!(found.is_some(), there, "a fit is found where there is one");
                        if let Some(found) = found {
                            let taken = model.remove(&found).unwrap().size;
                            prop_assert!(taken >= size);
                            let least = model.values().map(|free| free.size).filter(|s| *s >= size).min();
                            let wasteful = least.is_some_and(|least| {
                                class_of(taken) > class_of(least) && class_of(least) > class_of(size)
                            });
                            prop_assert!(!wasteful, "no class that fits is passed over");
                        }
                    }
                    _ => {
                        if let Some(free) = model.remove(&number) {
                            index.remove(&free, BlockId::new(number));
                        }
                    }
                }
                index.check();
                prop_assert_eq!(index.len(), model.len());
            }
            let mut expected: Vec<_> = model.iter().map(|(number, b)| (b.size, b.addr, *number)).collect();
            expected.sort_unstable();
            let listed: Vec<_> = index.at_least(0).map(BlockId::index).collect();
            prop_assert_eq!(listed, expected.into_iter().map(|(.., number)| number).collect::<Vec<_>>());
        }
    }

    #[test]
    fn of_a_few_the_best_and_then_the_lowest_is_taken() {
        let mut index = SegregatedIndex::default();
        // One class: 1024 to 1055 units.
        for (id, size, addr) in [(0, 1030, 9), (3, 1050, 1), (1, 1025, 8), (2, 1025, 7)] {
            index.insert(&block(size, addr), BlockId::new(id));
        }
        assert_eq!(index.take_fit(1024 << 9, |_| true), Some(BlockId::new(2)));
        assert_eq!(index.take_fit(1024 << 9, |_| true), Some(BlockId::new(1)));
        assert_eq!(index.take_fit(1040 << 9, |_| true), Some(BlockId::new(3)));
        assert_eq!(index.take_fit(1040 << 9, |_| true), None);
        assert_eq!(index.take_fit(512, |_| true), Some(BlockId::new(0)));
    }

    #[test]
    fn of_a_few_classes_the_first_in_order_is_taken() {
        let mut index = SegregatedIndex::default();
        let order = |block: BlockId| [3, 1, 2, 0][block.index() as usize];
        for (id, units) in [(0, 100), (1, 200), (2, 400), (3, 800)] {
            index.insert(&block(units, 0), BlockId::new(id));
        }
        let mut take = |units: u64, classes| index.take_first(units << 9, classes, order).map(BlockId::index);
        assert_eq!(take(100, 3), Some(1), "the fourth class is not looked at");
        assert_eq!(take(100, 3), Some(3));
        assert_eq!(take(401, 3), None);
        assert_eq!(take(100, 1), Some(0));
        assert_eq!(take(100, 1), Some(2));
        assert_eq!(take(1, 3), None);
        index.check();
    }

    #[test]
    fn sizes_beyond_what_links_can_tell_are_asked_for() {
        let mut index = SegregatedIndex::default();
        for (id, tebibytes) in [(0, 3u64), (1, 9), (2, 2)] {
            index.insert(&block(tebibytes << 31, 0), BlockId::new(id));
        }
        assert_eq!(index.take_fit(8 << 40, |block| block.index() == 1), Some(BlockId::new(1)));
        assert_eq!(index.take_fit(8 << 40, |_| false), None);
        assert!(index.take_fit(1 << 40, |_| true).is_some());
        index.check();
    }
}
