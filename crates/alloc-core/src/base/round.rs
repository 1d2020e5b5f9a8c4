//! Sizes: from requested bytes to block bytes, as PyTorch rounds them.

use crate::types::{KIB, MIB};
use std::hint::select_unpredictable;

/// Every block is a multiple of this, and aligned to it.
pub const MIN_BLOCK: u64 = 512;
/// Rounded sizes up to this, inclusive, are served by the small tier.
pub const SMALL_LIMIT: u64 = MIB;
/// Segment size, and growable granule, of the small tier.
pub const SMALL_SEGMENT: u64 = 2 * MIB;
/// Rounded sizes under this (and over [`SMALL_LIMIT`]) take a whole large segment.
pub const LARGE_LIMIT: u64 = 10 * MIB;
/// Larger sizes are rounded up to this for their segment.
pub const LARGE_ROUND: u64 = 2 * MIB;
/// Requests of this and more are refused with a text of their own.
pub const EXABYTE: u64 = 1 << 60;

/// Rounds a request (bytes, over 0 and under [`EXABYTE`]) to a block size. `divisions` is the table of
/// `roundup_power2_divisions` for 1 MiB, 2 MiB, ... 32 GiB; 0 and 1 are off.
#[must_use]
pub fn round_size(requested: u64, divisions: &[u64; 16]) -> u64 {
    if requested < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let d = divisions[division_index(requested)];
    if d > 1 && requested > MIN_BLOCK.saturating_mul(d) {
        return round_power2_division(requested, d);
    }
    requested.next_multiple_of(MIN_BLOCK)
}

/// Index into the divisions table for a size: 0 for everything under 2 MiB, 15 from 32 GiB on.
fn division_index(bytes: u64) -> usize {
    let log2 = bytes.ilog2() as usize;
    log2.saturating_sub(MIB.ilog2() as usize).min(15)
}

/// Rounds up to the next of `divisions` equal steps between two powers of two. `divisions` is a power of
/// two, 2 at least.
fn round_power2_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1u64 << bytes.ilog2();
    match floor >> divisions.ilog2() {
        0 => floor << 1,
        step => bytes.next_multiple_of(step),
    }
}

/// The bytes asked from the device for a rounded size, where segments are fixed.
#[must_use]
pub fn segment_size(rounded: u64, large_segment: u64) -> u64 {
    // Sizes come in no order, so a branch would be mispredicted.
    let whole = select_unpredictable(
        rounded < LARGE_LIMIT,
        large_segment.max(rounded),
        rounded.next_multiple_of(LARGE_ROUND),
    );
    select_unpredictable(rounded <= SMALL_LIMIT, SMALL_SEGMENT, whole)
}

/// Bytes in the way PyTorch's messages print them: two decimals, binary units.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let scaled = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..=KIB => format!("{bytes} bytes"),
        _ if bytes <= MIB => format!("{:.2} KiB", scaled(KIB)),
        _ if bytes <= 1024 * MIB => format!("{:.2} MiB", scaled(MIB)),
        _ => format!("{:.2} GiB", scaled(1024 * MIB)),
    }
}

/// Bytes for people, in the largest unit of which there is one at least: 1024 MiB are 1.00 GiB.
///
/// [`format_bytes`] is PyTorch's own way, for messages that are compared with PyTorch's.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    match bytes {
        1 => return "1 byte".into(),
        0..1024 => return format!("{bytes} bytes"),
        _ => {}
    }
    let hundredths = |power: usize| {
        let unit = 1u128 << (10 * (power + 1));
        (u128::from(bytes) * 100 + unit / 2) / unit
    };
    // Rounded to two digits, the text must not read 1024.00.
    let power = (0..UNITS.len() - 1).find(|power| hundredths(*power) < 102_400).unwrap_or(UNITS.len() - 1);
    let value = hundredths(power);
    format!("{}.{:02} {}", value / 100, value % 100, UNITS[power])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OFF: [u64; 16] = [0; 16];

    #[test]
    fn a_unit_is_used_from_one_of_it_on() {
        let texts = [0, 1, 1023, 1024, MIB - 1, MIB, 1023 * MIB, 1024 * MIB - 1, 1536 * MIB, MIB * MIB]
            .map(size_text);
        let small = ["0 bytes", "1 byte", "1023 bytes", "1.00 KiB", "1.00 MiB", "1.00 MiB"];
        let large = ["1023.00 MiB", "1.00 GiB", "1.50 GiB", "1.00 TiB"];
        assert_eq!(texts[..], [&small[..], &large].concat());
        assert_eq!(size_text(u64::MAX), "16777216.00 TiB");
    }

    #[test]
    fn plain_rounding_follows_the_reference() {
        for (n, block, segment) in [
            (1, 512, SMALL_SEGMENT),
            (512, 512, SMALL_SEGMENT),
            (513, 1024, SMALL_SEGMENT),
            (MIB, MIB, SMALL_SEGMENT),
            (MIB + 1, 1_049_088, 20 * MIB),
            (10 * MIB - 1, 10 * MIB, 10 * MIB),
            (10 * MIB + 1, 10_486_272, 12 * MIB),
        ] {
            assert_eq!(round_size(n, &OFF), block, "block for {n}");
            assert_eq!(segment_size(block, 20 * MIB), segment, "segment for {n}");
        }
    }

    #[test]
    fn division_rounding_follows_the_reference() {
        let four = [4; 16];
        for (n, block) in [
            (600, 1024),
            (1200, 1536),
            (2049, 2560),
            (1_048_577, 1_310_720),
            (3 * MIB + 5, 3_670_016),
            (100 * MIB + 1, 117_440_512),
        ] {
            assert_eq!(round_size(n, &four), block, "block for {n}");
        }
    }

    #[test]
    fn one_division_is_off_and_huge_divisions_are_harmless() {
        assert_eq!(round_size(3 * MIB + 5, &[1; 16]), round_size(3 * MIB + 5, &OFF));
        assert_eq!(round_size(3 * MIB + 5, &[1 << 62; 16]), round_size(3 * MIB + 5, &OFF));
    }

    #[test]
    fn sizes_print_as_in_messages() {
        for (bytes, text) in [
            (1024, "1024 bytes"),
            (MIB, "1024.00 KiB"),
            (20 * MIB, "20.00 MiB"),
            (1024 * MIB, "1024.00 MiB"),
            (80 * 1024 * MIB, "80.00 GiB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn rounding_covers_the_request_and_keeps_alignment(n in 1u64..1 << 50, log in 0u32..8) {
            let rounded = round_size(n, &[1 << log; 16]);
            prop_assert!(rounded >= n);
            prop_assert_eq!(rounded % MIN_BLOCK, 0);
            prop_assert_eq!(round_size(rounded, &[1 << log; 16]), rounded, "rounding is idempotent");
            prop_assert!(segment_size(rounded, 20 * MIB) >= rounded);
        }
    }
}
