//! Which devices are asked about where nobody says.

use alloc_core::types::GIB;

/// The memory of common cards, in bytes.
pub const COMMON_CARDS: [u64; 7] = [16 * GIB, 24 * GIB, 40 * GIB, 48 * GIB, 80 * GIB, 141 * GIB, 192 * GIB];

/// The two smallest common cards that hold what the program requests at once, `peak` bytes, and the device that the
/// recording is of. Ascending.
#[must_use]
pub fn capacities(peak: u64, recorded: Option<u64>) -> Vec<u64> {
    let mut found: Vec<u64> = COMMON_CARDS.into_iter().filter(|card| *card >= peak).take(2).collect();
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
    use super::capacities;
    use alloc_core::types::GIB;

    #[test]
    fn cards_near_the_need_and_the_recorded_one() {
        assert_eq!(capacities(11 * GIB, Some(80 * GIB)), [16, 24, 80].map(|gib| gib * GIB));
        assert_eq!(capacities(40 * GIB, Some(40 * GIB)), [40, 48].map(|gib| gib * GIB));
        assert_eq!(capacities(40 * GIB + 1, None), [48, 80].map(|gib| gib * GIB));
        assert_eq!(capacities(150 * GIB, None), [192 * GIB]);
        assert_eq!(capacities(200 * GIB, None), [225 * GIB]);
        assert_eq!(capacities(u64::MAX, None), [u64::MAX], "a wild size is no reason to panic");
    }
}
