//! Which devices are asked about where nobody says.

use alloc_core::types::{GIB, MIB};
use serde::Serialize;

/// A size of card, and the memory that a program sees of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Card {
    /// As it is sold.
    pub name: &'static str,
    /// The least that PyTorch reports as `total_memory` on a common card of this size, in bytes: error correction and the
    /// firmware take their part.
    pub usable: u64,
    /// Which card that is.
    pub example: &'static str,
}

const fn card(name: &'static str, usable_mib: u64, example: &'static str) -> Card {
    Card { name, usable: usable_mib * MIB, example }
}

/// Common cards in rising order. Others of the same size have up to 2 GiB more.
pub const CARDS: [Card; 15] = [
    card("6 GiB", 5_920, "RTX 2060"),
    card("8 GiB", 7_940, "RTX 3070"),
    card("10 GiB", 9_990, "RTX 3080"),
    card("12 GiB", 12_000, "RTX 3060"),
    card("16 GiB", 14_900, "T4"),
    card("20 GiB", 20_000, "RTX A4500"),
    card("24 GiB", 22_500, "A10, L4"),
    card("32 GiB", 32_100, "V100, RTX 5090"),
    card("40 GiB", 40_300, "A100"),
    card("48 GiB", 45_400, "L40, A40"),
    card("80 GiB", 80_900, "A100, H100"),
    card("96 GiB", 96_700, "GH200, RTX PRO 6000"),
    card("141 GiB", 143_000, "H200"),
    card("192 GiB", 182_500, "B200"),
    card("288 GiB", 274_500, "B300, MI355X"),
];

/// The memory that the CUDA context and loaded kernels take of a card, unless you say otherwise. On real cards they
/// take from 300 MiB to 1 GiB.
pub const CONTEXT: u64 = 512 * MIB;

impl Card {
    /// The smallest that has this much.
    #[must_use]
    pub fn smallest(bytes: u64) -> Option<&'static Self> {
        CARDS.iter().find(|card| card.usable >= bytes)
    }

    /// What an allocator can have of it, beside the [`CONTEXT`].
    #[must_use]
    pub const fn for_the_allocator(&self) -> u64 {
        self.usable - CONTEXT
    }

    /// The card of which an allocator can have just this much.
    #[must_use]
    pub fn of_capacity(bytes: u64) -> Option<&'static Self> {
        CARDS.iter().find(|card| card.for_the_allocator() == bytes)
    }
}

/// Devices to ask about, by the memory that an allocator can have of them. They are the two smallest common cards that
/// hold `peak`, the bytes that the program requests at once, and the device that the recording is of. Ascending.
#[must_use]
pub fn capacities(peak: u64, recorded: Option<u64>) -> Vec<u64> {
    let cards = CARDS.iter().map(Card::for_the_allocator);
    let mut found: Vec<u64> = cards.filter(|capacity| *capacity >= peak).take(2).collect();
    if found.is_empty() {
        // Larger than any card; there are such devices, and what is missing is still worth knowing.
        found.push(peak.saturating_add(peak / 8).div_ceil(GIB).saturating_mul(GIB));
    }
    found.extend(recorded);
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::{CARDS, CONTEXT, Card, capacities};
    use alloc_core::types::{GIB, MIB};

    #[test]
    fn a_card_has_less_than_its_name_says() {
        for card in CARDS {
            let sold: u64 = card.name.trim_end_matches(" GiB").parse().unwrap();
            assert!(card.usable < sold << 30, "{}", card.name);
            assert!(card.usable > (sold << 30) / 100 * 90, "{}", card.name);
        }
        assert!(CARDS.is_sorted_by_key(|card| card.usable));
    }

    #[test]
    fn the_smallest_card_that_has_enough_is_found() {
        let name = |bytes| Card::smallest(bytes).map(|card| card.name);
        assert_eq!(name(1), Some("6 GiB"));
        assert_eq!(name(5 * GIB + CONTEXT), Some("6 GiB"));
        assert_eq!(name(6 * GIB), Some("8 GiB"));
        assert_eq!(name(CARDS[4].usable), Some("16 GiB"));
        assert_eq!(name(CARDS[4].usable + 1), Some("20 GiB"));
        assert_eq!(name(200 * GIB), Some("288 GiB"));
        assert_eq!(name(u64::MAX), None);
        let capacity = CARDS[8].for_the_allocator();
        assert_eq!(Card::of_capacity(capacity).map(|card| card.name), Some("40 GiB"));
        assert_eq!(Card::of_capacity(capacity + 1), None);
    }

    #[test]
    fn cards_near_the_need_and_the_recorded_one() {
        let of = |cards: [usize; 2]| cards.map(|index| CARDS[index].for_the_allocator());
        assert_eq!(of([4, 6]), [14_388 * MIB, 21_988 * MIB]);
        assert_eq!(capacities(5 * GIB, None), of([0, 1]));
        assert_eq!(capacities(13 * GIB, None), of([4, 5]));
        let with_recorded = [&of([4, 5])[..], &[80 * GIB]].concat();
        assert_eq!(capacities(13 * GIB, Some(80 * GIB)), with_recorded);
        // It has less than its name says.
        assert_eq!(capacities(40 * GIB, None), of([9, 10]));
        assert_eq!(capacities(200 * GIB, None), [CARDS[14].for_the_allocator()]);
        assert_eq!(capacities(280 * GIB, None), [315 * GIB]);
        assert_eq!(capacities(u64::MAX, None), [u64::MAX], "a wild size is no reason to panic");
    }
}
