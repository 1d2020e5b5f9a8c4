//! Size classes: how much is taken from the driver for a request, and which cached blocks may serve it.
//!
//! A request is rounded to the end of its class, or, above the rounding threshold, not at all. Either way it is served
//! by blocks of its own class only, so what a class spans is also the most that reuse can waste.

use crate::types::MIB;

/// How requests for pinned memory are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HostSizing {
    /// PyTorch's: powers of two, so that up to half of a block is waste.
    #[default]
    Pytorch,
    /// Eight classes for each doubling: a block is at most 12.5 % larger than the request. Above
    /// [`EXACT_ABOVE`](Self::EXACT_ABOVE) (or the lower threshold that the settings name), new blocks are exact.
    Granule,
}

impl HostSizing {
    /// Requests over this many bytes are never rounded under [`Granule`](Self::Granule).
    pub const EXACT_ABOVE: u64 = 64 * MIB;

    /// Bytes of a new block for a request of `bytes`, at least 1; `None` where that is more than can be counted.
    ///
    /// `max_rounded` and `max_cached` are PyTorch's two thresholds. PyTorch does not round what it would not cache; for
    /// [`Granule`](Self::Granule) the two have nothing to do with each other.
    #[must_use]
    pub fn round(self, bytes: u64, max_rounded: u64, max_cached: u64) -> Option<u64> {
        match self {
            Self::Pytorch if bytes <= max_rounded.min(max_cached) => bytes.checked_next_power_of_two(),
            Self::Granule if bytes <= max_rounded.min(Self::EXACT_ABOVE) => Some(end_of_eighth(bytes)),
            _ => Some(bytes),
        }
    }

    /// The class of blocks (and requests) of this size, at least 1 byte.
    pub(crate) fn class(self, size: u64) -> usize {
        match self {
            Self::Pytorch => doubling(size),
            Self::Granule => eighth(size),
        }
    }
}

/// The place in PyTorch's histogram: log2, rounded up.
pub(crate) fn doubling(size: u64) -> usize {
    match size {
        0 | 1 => 0,
        _ => (u64::BITS - (size - 1).leading_zeros()) as usize,
    }
}

/// The power of two below `size` (over 8), as its exponent less 3: an eighth of the doubling is 2 to the power of it.
fn step_exponent(size: u64) -> u32 {
    (size - 1).ilog2() - 3
}

/// Sizes up to 8 have a class each; from there on, eight classes end at equal distances within each doubling.
fn eighth(size: u64) -> usize {
    let Some(last) = size.checked_sub(1).filter(|_| size > 8) else { return size.saturating_sub(1) as usize };
    let exponent = step_exponent(size);
    // `last >> exponent` is 8 to 15.
    8 * exponent as usize + (last >> exponent) as usize
}

/// The largest size of the same class. Only for sizes that leave room for it.
fn end_of_eighth(size: u64) -> u64 {
    if size <= 8 { size } else { size.next_multiple_of(1 << step_exponent(size)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes() -> impl Strategy<Value = u64> {
        // Even over magnitudes, and on both sides of their borders.
        prop_oneof![
            (0u32..41, any::<u64>()).prop_map(|(bits, n)| (1 << bits) + n % (1 << bits)),
            (1u32..42, 0u64..3).prop_map(|(bits, n)| (1u64 << bits) - 1 + n),
        ]
    }

    proptest! {
        /// At most 12.5 % of the request is waste, whether a block is new or reused.
        #[test]
        fn an_eighth_is_the_most_that_is_wasted(bytes in sizes(), other in sizes(), share in 0u64..=64) {
            let sizing = HostSizing::Granule;
            let block = sizing.round(bytes, u64::MAX, u64::MAX).unwrap();
            prop_assert!(block >= bytes && block - bytes <= bytes / 8, "{bytes} in {block}");
            prop_assert_eq!(sizing.class(block), sizing.class(bytes));
            prop_assert_eq!(sizing.round(block, u64::MAX, u64::MAX), Some(block));
            // Any cached block of the class, whatever threshold it was made under: up to a quarter larger is tried.
            let reused = bytes + bytes * share / 256;
            for reused in [reused, other] {
                if reused >= bytes && sizing.class(reused) == sizing.class(bytes) {
                    prop_assert!(reused - bytes <= bytes / 8, "{bytes} in {reused}");
                }
            }
            // Classes do not overlap, and rise with the size.
            let (small, large) = (bytes.min(other), bytes.max(other));
            prop_assert!(sizing.class(small) <= sizing.class(large));
        }

        #[test]
        fn above_the_threshold_sizes_are_exact(bytes in sizes(), threshold in sizes()) {
            for sizing in [HostSizing::Granule, HostSizing::Pytorch] {
                let above = threshold + bytes;
                prop_assert_eq!(sizing.round(above, threshold, u64::MAX), Some(above));
            }
            let large = HostSizing::EXACT_ABOVE + bytes;
            prop_assert_eq!(HostSizing::Granule.round(large, u64::MAX, u64::MAX), Some(large));
        }

        #[test]
        fn pytorch_takes_powers_of_two(bytes in sizes()) {
            let sizing = HostSizing::Pytorch;
            let block = sizing.round(bytes, u64::MAX, u64::MAX).unwrap();
            prop_assert!(block.is_power_of_two() && block >= bytes && block / 2 < bytes);
            prop_assert_eq!(block, 1 << sizing.class(bytes));
            prop_assert_eq!(sizing.class(block), sizing.class(bytes));
        }
    }

    #[test]
    fn rounding_and_caching_are_one_knob_for_pytorch_and_two_here() {
        let bytes = 10 * MIB + 1;
        assert_eq!(HostSizing::Pytorch.round(bytes, u64::MAX, MIB), Some(bytes));
        assert_eq!(HostSizing::Granule.round(bytes, u64::MAX, MIB), Some(11 * MIB));
    }

    #[test]
    fn the_ends_of_the_range() {
        let classes: Vec<usize> = (1..=18).map(eighth).collect();
        assert_eq!(classes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16]);
        assert_eq!([1, 2, 3, 4, 5, 1 << 63, u64::MAX].map(doubling), [0, 1, 2, 2, 3, 63, 64]);
        assert_eq!(HostSizing::Pytorch.round(u64::MAX, u64::MAX, u64::MAX), None);
        assert_eq!(HostSizing::Granule.round(u64::MAX, u64::MAX, u64::MAX), Some(u64::MAX));
        assert_eq!(HostSizing::Granule.class(u64::MAX), 8 * 60 + 15);
    }
}
