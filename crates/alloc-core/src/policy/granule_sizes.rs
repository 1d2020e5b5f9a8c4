//! Sizes of new granules.

use smallvec::SmallVec;

/// Bytes of granules that lie one after the other.
pub(crate) type Sizes = SmallVec<[u64; 4]>;

/// The sizes of new granules: all have the usual one, but for the last, which has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GranuleSizes {
    /// Bytes of all but the last.
    pub(crate) usual: u64,
    /// Least bytes of the last.
    pub(crate) least: u64,
}

impl GranuleSizes {
    /// All of one size.
    pub(crate) fn even(bytes: u64) -> Self {
        Self { usual: bytes, least: bytes }
    }

    /// Granules that have `bytes` bytes together.
    pub(crate) fn sizes(self, bytes: u64) -> Sizes {
        let whole = std::iter::repeat_n(self.usual, (bytes / self.usual) as usize);
        whole.chain(Some(bytes % self.usual).filter(|rest| *rest > 0)).collect()
    }

    /// Bytes of the granules that serve `bytes`, in units of `unit` bytes.
    pub(crate) fn round(self, bytes: u64, unit: u64) -> u64 {
        let rest = bytes % self.usual;
        bytes - rest + if rest == 0 { 0 } else { rest.max(self.least).next_multiple_of(unit) }
    }
}
