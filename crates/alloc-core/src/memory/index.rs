//! Indexes of free blocks: in PyTorch's order (`index/best_fit.rs`), and that of the `granule` policy, which is quicker
//! and less exact (`index/segregated.rs`). Both keep blocks by size class (`index/classes.rs`).

mod best_fit;
mod classes;
mod segregated;

pub(crate) use best_fit::{BestFitIndex, Cursor};
pub(crate) use segregated::SegregatedIndex;

use crate::memory::block::Block;

/// The order of free blocks: size, then [`Block::order`], then address, packed so that one comparison of 128 bits
/// decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FitKey(u128);

impl FitKey {
    /// A size has 48 bits.
    const LARGEST: u64 = ((1 << 48) - 1) << 9;

    /// Sizes and addresses are multiples of 512, so their low 9 bits are not kept.
    #[must_use]
    pub const fn new(size: u64, order: u32, addr: u64) -> Self {
        Self(((size >> 9) as u128) << 80 | (order as u128) << 48 | (addr >> 9) as u128)
    }

    /// The least key of a size: it sorts before every block of that size. Sizes of 2^57 bytes and more, which no block
    /// has, share the last key, which has no room for their upper bits.
    #[must_use]
    pub const fn at_least(size: u64) -> Self {
        Self::new(if size > Self::LARGEST { Self::LARGEST } else { size }, 0, 0)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(self) -> u64 {
        ((self.0 >> 80) as u64) << 9
    }
}

impl Block {
    /// Its place in the index of free blocks.
    #[must_use]
    pub fn key(&self) -> FitKey {
        FitKey::new(self.size, self.order, self.addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_size_then_age_then_address() {
        let a = FitKey::new(1024, 9, 1 << 40);
        assert!(a < FitKey::new(1536, 0, 0));
        assert!(a < FitKey::new(1024, 10, 0));
        assert!(a < FitKey::new(1024, 9, (1 << 40) + 512));
        assert!(FitKey::at_least(1024) <= FitKey::new(1024, 0, 0));
        assert_eq!(a.size(), 1024);
    }

    #[test]
    fn no_block_is_as_large_as_a_request_that_no_device_serves() {
        let largest_block = FitKey::new(1 << 56, u32::MAX, u64::MAX);
        for size in [1 << 57, 1 << 60, 0x3c << 56, u64::MAX - 511] {
            assert!(FitKey::at_least(size) > largest_block, "{size:#x}");
        }
    }
}
