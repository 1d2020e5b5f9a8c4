//! The sizes that cards come in.

use serde::Serialize;

/// A size of card, and what of it a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Card {
    /// As it is sold.
    pub(crate) name: &'static str,
    /// The least that PyTorch reports as `total_memory` on a common card of this size, in bytes: error correction and the
    /// firmware take their part.
    pub(crate) usable: u64,
    /// Which card that is.
    pub(crate) example: &'static str,
}

const fn card(name: &'static str, usable_mib: u64, example: &'static str) -> Card {
    Card { name, usable: usable_mib << 20, example }
}

/// In rising order. Others of the same size have up to 2 GiB more.
pub(crate) const CARDS: [Card; 7] = [
    card("16 GiB", 14_900, "T4"),
    card("24 GiB", 22_500, "A10, L4"),
    card("40 GiB", 40_300, "A100"),
    card("48 GiB", 45_400, "L40, A40"),
    card("80 GiB", 80_900, "A100, H100"),
    card("141 GiB", 143_000, "H200"),
    card("192 GiB", 182_500, "B200"),
];

/// The smallest that has this much.
pub(crate) fn smallest(bytes: u64) -> Option<&'static Card> {
    CARDS.iter().find(|card| card.usable >= bytes)
}

#[cfg(test)]
mod tests {
    use super::{CARDS, smallest};

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
        assert_eq!(smallest(1).map(|card| card.name), Some("16 GiB"));
        assert_eq!(smallest(CARDS[0].usable).map(|card| card.name), Some("16 GiB"));
        assert_eq!(smallest(CARDS[0].usable + 1).map(|card| card.name), Some("24 GiB"));
        assert_eq!(smallest(200 << 30), None);
    }
}
