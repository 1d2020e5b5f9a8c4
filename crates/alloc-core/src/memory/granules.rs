//! Borders of the granules of a growable segment.

use std::ops::Range;

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// The granules of a growable segment. It is mapped in units; a granule, which is one piece of physical memory, has one unit or
/// several. Address space without memory counts as granules of one unit.
#[derive(Clone, Debug)]
pub(crate) struct Granules {
    base: u64,
    unit: u64,
    /// By unit, whether it is of one granule with the unit below. Units that are not here are not.
    joined: Vec<u64>,
}

impl Granules {
    /// Those of a segment at `base`, which has no memory yet and is mapped in units of so many bytes.
    pub(crate) fn new(base: u64, unit: u64) -> Self {
        Self { base, unit, joined: Vec::new() }
    }

    /// The number of the unit that holds the byte at `addr`.
    pub(crate) fn number(&self, addr: u64) -> usize {
        ((addr - self.base) / self.unit) as usize
    }

    fn address(&self, unit: usize) -> u64 {
        self.base + unit as u64 * self.unit
    }

    /// The first unit of the granule of which this one is part.
    fn first(&self, unit: usize) -> usize {
        let (mut word, place) = (unit / WORD, unit % WORD);
        let Some(joined) = self.joined.get(word) else { return unit };
        let mut begins = !joined & (u64::MAX >> (WORD - 1 - place));
        while begins == 0 {
            // The first unit of all is joined to none.
            word -= 1;
            begins = !self.joined[word];
        }
        word * WORD + begins.ilog2() as usize
    }

    /// The unit after the last of the granule of which this one is part.
    fn behind(&self, unit: usize) -> usize {
        let next = unit + 1;
        let (mut word, mut from) = (next / WORD, next % WORD);
        while let Some(joined) = self.joined.get(word) {
            let begins = !joined & (u64::MAX << from);
            if begins != 0 {
                return word * WORD + begins.trailing_zeros() as usize;
            }
            (word, from) = (word + 1, 0);
        }
        next.max(word * WORD)
    }

    /// The granule that holds the byte at `addr`.
    pub(crate) fn at(&self, addr: u64) -> Range<u64> {
        let unit = self.number(addr);
        self.address(self.first(unit))..self.address(self.behind(unit))
    }

    /// First address of that granule.
    pub(crate) fn start(&self, addr: u64) -> u64 {
        self.address(self.first(self.number(addr)))
    }

    /// True if a granule begins at `addr`.
    pub(crate) fn begins_at(&self, addr: u64) -> bool {
        let inside = addr - self.base;
        inside.is_multiple_of(self.unit)
            && self.first((inside / self.unit) as usize) as u64 * self.unit == inside
    }

    /// The whole granules in a range; empty where there is none.
    pub(crate) fn within(&self, range: Range<u64>) -> Range<u64> {
        let low = if self.begins_at(range.start) { range.start } else { self.at(range.start).end };
        let high = if self.begins_at(range.end) { range.end } else { self.start(range.end) };
        low..high.max(low)
    }

    /// The granules that a range touches.
    pub(crate) fn around(&self, range: Range<u64>) -> Range<u64> {
        self.start(range.start)..self.at(range.end - 1).end
    }

    /// Each granule of a range of whole ones, ascending.
    pub(crate) fn each(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let after = move |at: u64| (at < range.end).then(|| self.at(at));
        std::iter::successors(after(range.start), move |granule| after(granule.end))
    }

    /// True if each unit of a range is a granule of its own.
    pub(crate) fn is_clear(&self, range: Range<u64>) -> bool {
        let known = self.number(range.end).min(self.joined.len() * WORD);
        (self.number(range.start)..known).all(|unit| self.first(unit) == unit)
    }

    /// Granules of these sizes lie one after the other from `addr` on.
    pub(crate) fn set(&mut self, addr: u64, sizes: impl IntoIterator<Item = u64>) {
        let mut at = addr;
        for bytes in sizes {
            let (first, behind) = (self.number(at), self.number(at + bytes));
            self.join(first, false);
            (first + 1..behind).for_each(|unit| self.join(unit, true));
            at += bytes;
        }
    }

    /// No memory is behind whole granules any more.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        let (first, behind) =
            (self.number(range.start), self.number(range.end).min(self.joined.len() * WORD));
        if first >= behind {
            return;
        }
        for word in first / WORD..behind.div_ceil(WORD) {
            let low = first.saturating_sub(word * WORD);
            let high = (behind - word * WORD).min(WORD);
            self.joined[word] &= !((u64::MAX >> (WORD - (high - low))) << low);
        }
    }

    fn join(&mut self, unit: usize, joined: bool) {
        let (word, place) = (unit / WORD, unit % WORD);
        if self.joined.len() <= word {
            if !joined {
                return;
            }
            self.joined.resize(word + 1, 0);
        }
        self.joined[word] = self.joined[word] & !(1 << place) | u64::from(joined) << place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 1 << 40;
    const UNIT: u64 = 2 << 20;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against a plain list of where granules begin.
        #[test]
        fn granules_are_found_by_address(
            steps in prop::collection::vec((0u64..300, 1u64..90, any::<bool>()), 1..60)
        ) {
            let mut granules = Granules::new(BASE, UNIT);
            let mut begins = vec![true; 500];
            for (first, units, comes) in steps {
                // Whole granules come and go.
                let units_of = first as usize..(first + units) as usize;
                if !begins[units_of.start] || !begins[units_of.end] {
                    continue;
                }
                let (low, high) = (BASE + first * UNIT, BASE + (first + units) * UNIT);
                if comes {
                    granules.set(low, [high - low]);
                } else {
                    granules.clear(low..high);
                }
                begins[units_of.clone()].fill(!comes);
                begins[units_of.start] = true;
            }
            let address = |unit: usize| BASE + unit as u64 * UNIT;
            let begin = |unit: usize| (0..=unit).rev().find(|unit| begins[*unit]).unwrap();
            let end = |unit: usize| (unit + 1..begins.len()).find(|unit| begins[*unit]).unwrap();
            for (unit, begins_here) in begins.iter().enumerate().take(400) {
                let found = granules.at(address(unit) + 512);
                prop_assert_eq!(found, address(begin(unit))..address(end(unit)));
                prop_assert_eq!(granules.begins_at(address(unit)), *begins_here);
                prop_assert!(!granules.begins_at(address(unit) + 512));
            }
            let all: Vec<_> = granules.each(BASE..address(end(398))).map(|granule| granule.start).collect();
            let expected: Vec<_> = (0..end(398)).filter(|unit| begins[*unit]).map(address).collect();
            prop_assert_eq!(all, expected);
            let inside = granules.within(address(7) + 512..address(200));
            prop_assert_eq!(inside.start, address(end(7)));
            prop_assert_eq!(inside.end, address(begin(200)).max(inside.start));
            prop_assert_eq!(granules.around(address(7) + 512..address(200) + 1), address(begin(7))..address(end(200)));
        }
    }
}
