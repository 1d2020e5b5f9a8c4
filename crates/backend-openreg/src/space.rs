//! Addresses: ranges of them, which are free, and the lowest place where a range fits.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

/// A range of addresses that an operation uses; empty where `start == end`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Who uses it, where the program told: two users of one place must be ordered.
    pub(crate) user: Option<NonZeroU64>,
}

impl Span {
    pub(crate) const fn new(at: u64, bytes: u64) -> Self {
        Self { start: at, end: at.saturating_add(bytes), user: None }
    }
}

/// Free ranges of one address window.
///
/// Holes are kept by address and, within each power of two of their length, by address again: the lowest
/// fit is found without walking every hole.
#[derive(Debug)]
pub(crate) struct Space {
    holes: BTreeMap<u64, u64>,
    classes: Vec<BTreeSet<u64>>,
}

impl Space {
    pub(crate) fn new(base: u64, bytes: u64) -> Self {
        let mut space = Self { holes: BTreeMap::new(), classes: vec![BTreeSet::new(); 64] };
        space.insert(base, bytes);
        space
    }

    /// Takes the lowest range of `bytes` at a multiple of `alignment` (a power of two).
    pub(crate) fn take(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let mut lowest: Option<u64> = None;
        for class in class_of(bytes)..64 {
            // In a class above this line every hole fits, however it is aligned: its first is its lowest.
            let certain = 1_u64 << class >= bytes.saturating_add(alignment);
            for &hole in &self.classes[class] {
                if lowest.is_some_and(|found| hole >= found) {
                    break;
                }
                if let Some(at) = fit(hole, self.holes[&hole], bytes, alignment) {
                    lowest = Some(lowest.map_or(at, |found| found.min(at)));
                    break;
                }
                debug_assert!(!certain);
            }
        }
        lowest.filter(|&at| self.take_at(at, bytes))
    }

    /// Takes exactly this range; false where part of it is taken.
    pub(crate) fn take_at(&mut self, at: u64, bytes: u64) -> bool {
        let Some((&hole, &length)) = self.holes.range(..=at).next_back() else { return false };
        let (Some(end), hole_end) = (at.checked_add(bytes), hole + length) else { return false };
        if end > hole_end {
            return false;
        }
        self.remove(hole, length);
        self.insert(hole, at - hole);
        self.insert(end, hole_end - end);
        true
    }

    /// Gives a range back that was taken.
    pub(crate) fn give(&mut self, at: u64, bytes: u64) {
        let (mut start, mut end) = (at, at + bytes);
        if let Some((&hole, &length)) = self.holes.range(..at).next_back()
            && hole + length == at
        {
            self.remove(hole, length);
            start = hole;
        }
        if let Some(&length) = self.holes.get(&end) {
            self.remove(end, length);
            end += length;
        }
        self.insert(start, end - start);
    }

    fn insert(&mut self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.holes.insert(at, bytes);
            self.classes[class_of(bytes)].insert(at);
        }
    }

    fn remove(&mut self, at: u64, bytes: u64) {
        self.holes.remove(&at);
        self.classes[class_of(bytes)].remove(&at);
    }
}

/// The power of two at or below `bytes`.
fn class_of(bytes: u64) -> usize {
    bytes.max(1).ilog2() as usize
}

fn fit(hole: u64, length: u64, bytes: u64, alignment: u64) -> Option<u64> {
    let at = hole.checked_next_multiple_of(alignment)?;
    let end = at.checked_add(bytes)?;
    (end <= hole + length).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_lowest_fit_whatever_the_class() {
        let mut space = Space::new(1 << 20, 1 << 20);
        let blocks: Vec<u64> = (0..8).map(|_| space.take(4096, 512).unwrap()).collect();
        assert_eq!(blocks[7], (1 << 20) + 7 * 4096);
        space.give(blocks[1], 4096);
        space.give(blocks[5], 4096);
        space.give(blocks[4], 4096);
        assert_eq!(space.take(8192, 512), Some(blocks[4]), "the two adjacent holes are one");
        assert_eq!(space.take(512, 512), Some(blocks[1]));
        assert_eq!(space.take(4096, 512), Some(blocks[7] + 4096));
        assert_eq!(space.take(2048, 1024), Some(blocks[1] + 1024));
    }

    #[test]
    fn agrees_with_a_linear_scan() {
        let mut space = Space::new(512, 1 << 16);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut seed = 1_u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = seed >> 33;
            if pick.is_multiple_of(3) && !taken.is_empty() {
                let (at, bytes) = taken.swap_remove((pick / 3) as usize % taken.len());
                space.give(at, bytes);
                continue;
            }
            let (bytes, alignment) = ((pick % 9 + 1) * 512, 512 << (pick % 4));
            let expected = (512..512 + (1 << 16) - bytes + 1).step_by(512).find(|at| {
                at % alignment == 0
                    && taken.iter().all(|&(base, length)| at + bytes <= base || base + length <= *at)
            });
            assert_eq!(space.take(bytes, alignment), expected);
            taken.extend(expected.map(|at| (at, bytes)));
        }
    }
}
