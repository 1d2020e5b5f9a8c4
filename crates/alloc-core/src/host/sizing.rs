//! Sizes: how much is taken from the driver for a request.

use crate::config::PolicyName;

/// Rounding of pinned requests, and the choice of free blocks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HostSizing {
    /// PyTorch's: powers of two, so that up to half of a block is waste. A free block serves requests of its own doubling, and is
    /// kept.
    #[default]
    Pytorch,
    /// Whole pages of 4 KiB. A larger free block serves as long as the waste of all is small, and a new block lets free ones go back
    /// to the driver: what is held exceeds the most that was in use at once by the share `pinned_spare` (or 1 MiB).
    Granule,
}

/// Least bytes to pin.
const PAGE: u64 = 4096;

impl HostSizing {
    /// Sizing for a policy of the engine.
    #[must_use]
    pub fn of(policy: PolicyName) -> Self {
        match policy {
            PolicyName::Pytorch => Self::Pytorch,
            PolicyName::Granule => Self::Granule,
        }
    }

    /// Bytes of a new block for a request of `bytes`, at least 1; `None` where that is more than can be counted.
    ///
    /// `max_rounded` and `max_cached` are PyTorch's two thresholds. PyTorch does not round what it would not cache; for
    /// [`Granule`](Self::Granule) they have nothing to do with sizes.
    #[must_use]
    pub fn round(self, bytes: u64, max_rounded: u64, max_cached: u64) -> Option<u64> {
        match self {
            Self::Pytorch if bytes <= max_rounded.min(max_cached) => bytes.checked_next_power_of_two(),
            Self::Pytorch => Some(bytes),
            Self::Granule => bytes.checked_next_multiple_of(PAGE),
        }
    }
}

/// The place in PyTorch's histogram: log2, rounded up.
pub(super) fn doubling(size: u64) -> usize {
    match size {
        0 | 1 => 0,
        _ => (u64::BITS - (size - 1).leading_zeros()) as usize,
    }
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
        #[test]
        fn pages_are_whole_whatever_pytorchs_thresholds(bytes in sizes(), threshold in sizes()) {
            let block = HostSizing::Granule.round(bytes, threshold, threshold).unwrap();
            prop_assert!(block.is_multiple_of(PAGE) && block >= bytes && block - bytes < PAGE);
        }

        #[test]
        fn pytorch_takes_powers_of_two_up_to_the_thresholds(bytes in sizes(), threshold in sizes()) {
            let sizing = HostSizing::Pytorch;
            let block = sizing.round(bytes, u64::MAX, u64::MAX).unwrap();
            prop_assert!(block.is_power_of_two() && block >= bytes && block / 2 < bytes);
            prop_assert_eq!(block, 1 << doubling(bytes));
            let above = threshold + bytes;
            prop_assert_eq!(sizing.round(above, threshold, u64::MAX), Some(above));
            prop_assert_eq!(sizing.round(above, u64::MAX, threshold), Some(above));
        }
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!([1, 2, 3, 4, 5, 1 << 63, u64::MAX].map(doubling), [0, 1, 2, 2, 3, 63, 64]);
        assert_eq!(HostSizing::Pytorch.round(u64::MAX, u64::MAX, u64::MAX), None);
        assert_eq!(HostSizing::Granule.round(u64::MAX, u64::MAX, u64::MAX), None);
    }
}
