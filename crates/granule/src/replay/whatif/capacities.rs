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
pub const CARDS: [Card; 7] = [
    card("16 GiB", 14_900, "T4"),
    card("24 GiB", 22_500, "A10, L4"),
    card("40 GiB", 40_300, "A100"),
    card("48 GiB", 45_400, "L40, A40"),
    card("80 GiB", 80_900, "A100, H100"),
    card("141 GiB", 143_000, "H200"),
    card("192 GiB", 182_500, "B200"),
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
    use super::{CARDS, Card, capacities};
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
        assert_eq!(name(1), Some("16 GiB"));
        assert_eq!(name(CARDS[0].usable), Some("16 GiB"));
        assert_eq!(name(CARDS[0].usable + 1), Some("24 GiB"));
        assert_eq!(name(u64::MAX), None);
        let capacity = CARDS[2].for_the_allocator();
        assert_eq!(Card::of_capacity(capacity).map(|card| card.name), Some("40 GiB"));
        assert_eq!(Card::of_capacity(capacity + 1), None);
    }

    #[test]
    fn cards_near_the_need_and_the_recorded_one() {
        let of = |cards: [usize; 2]| cards.map(|index| CARDS[index].for_the_allocator());
        assert_eq!(of([0, 1]), [14_388 * MIB, 21_988 * MIB]);
        assert_eq!(capacities(11 * GIB, None), of([0, 1]));
        let with_recorded = [&of([0, 1])[..], &[80 * GIB]].concat();
        assert_eq!(capacities(11 * GIB, Some(80 * GIB)), with_recorded);
        // It has less than its name says.
        assert_eq!(capacities(40 * GIB, None), of([3, 4]));
        assert_eq!(capacities(150 * GIB, None), [CARDS[6].for_the_allocator()]);
        assert_eq!(capacities(200 * GIB, None), [225 * GIB]);
        assert_eq!(capacities(u64::MAX, None), [u64::MAX], "a wild size is no reason to panic");
    }
}
