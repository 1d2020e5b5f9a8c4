//! Plain values that every layer shares: those of the device contract, and pool ids.

pub use backend_api::types::*;
use std::fmt;

/// A memory pool's id: PyTorch's `MempoolId_t`. `(0, 0)` is the default pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// The pool that serves requests made outside every pool scope.
    pub const DEFAULT: Self = Self(0, 0);
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}
