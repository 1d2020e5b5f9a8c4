//! Size classes, and sets of them.
//!
//! A class is a 32nd of a doubling of sizes (3 %); sizes under 16 KiB have one each. Two levels of bits say which classes are
//! in a set, so that the next one is found in a few steps.

/// Classes of a doubling.
const STEPS: u32 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Classes of one word of bits.
const WORD: usize = 64;
/// Words of bits. Sizes are less than 2^32 units: 27 doublings from 32 units on, and smaller sizes.
const WORDS: usize = 14;
/// Number of size classes.
pub(super) const CLASSES: usize = WORD * WORDS;

/// A size in units of 512 bytes. Larger sizes count as the largest that fits, 2 TiB.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // no more than fits
pub(super) fn units(bytes: u64) -> u32 {
    (bytes >> 9).min(u64::from(u32::MAX)) as u32
}

/// The class of a size in units; it grows with the size.
#[inline(always)]
pub(super) fn class(units: u32) -> usize {
    let doubling = (units | STEPS).ilog2() - STEP_BITS;
    ((doubling << STEP_BITS) + (units >> doubling)) as usize
}

/// A set of classes.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassSet {
    /// Words of `classes` that are not zero.
    words: u32,
    classes: [u64; WORDS],
}

impl ClassSet {
    #[inline(always)]
    pub(super) fn insert(&mut self, class: usize) {
        self.classes[class / WORD] |= 1 << (class % WORD);
        self.words |= 1 << (class / WORD);
    }

    /// Takes a class out if `so` is 1, and not if it is 0: without a branch.
    #[inline(always)]
    pub(super) fn remove_if(&mut self, class: usize, so: u64) {
        let word = &mut self.classes[class / WORD];
        *word &= !(so << (class % WORD));
        self.words &= !(u32::from(*word == 0) << (class / WORD));
    }

    /// The first class from `class` on.
    #[inline(always)]
    pub(super) fn next(&self, class: usize) -> Option<usize> {
        let (word, bit) = (class / WORD, class % WORD);
        let rest = self.classes.get(word)? & (u64::MAX << bit);
        if rest != 0 {
            return Some(word * WORD + rest.trailing_zeros() as usize);
        }
        let words = self.words & (u32::MAX << word << 1);
        if words == 0 {
            return None;
        }
        let word = words.trailing_zeros() as usize;
        Some(word * WORD + self.classes[word].trailing_zeros() as usize)
    }

    /// All classes from `class` on.
    pub(super) fn from(&self, class: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.next(class), |class| self.next(class + 1))
    }

    pub(super) fn contains(&self, class: usize) -> bool {
        self.classes[class / WORD] >> (class % WORD) & 1 == 1
    }

    /// Panics where it contradicts itself.
    pub(super) fn check(&self) {
        for (word, classes) in self.classes.iter().enumerate() {
            assert_eq!(self.words >> word & 1 == 1, *classes != 0, "a word with a class has its bit");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_and_are_narrow() {
        for units in 1..100_000u32 {
            assert!((class(units)..=class(units) + 1).contains(&class(units + 1)));
        }
        assert!((1..64).all(|units| class(units) == units as usize));
        assert_eq!(class(u32::MAX), CLASSES - 1);
        let width = |units: u32| (units..).take_while(|u| class(*u) == class(units)).count();
        for bits in 5..16 {
            assert_eq!(width(1 << bits), 1 << (bits - 5), "a 32nd of the doubling");
        }
    }

    #[test]
    fn the_next_class_is_found_across_words() {
        let mut set = ClassSet::default();
        let chosen = [0, 63, 64, 300, CLASSES - 1];
        chosen.iter().for_each(|class| set.insert(*class));
        for class in 0..=CLASSES {
            assert_eq!(set.next(class), chosen.iter().copied().find(|chosen| *chosen >= class));
        }
        chosen.iter().for_each(|class| set.remove_if(*class, u64::from(*class != 64)));
        set.check();
        assert_eq!((set.next(0), set.next(65)), (Some(64), None));
    }
}
