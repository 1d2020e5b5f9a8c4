//! Which pool.

use granule::types::PoolId;

/// A pool's id, PyTorch's MempoolId_t. {0, 0} is the default pool.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_pool_id {
    /// Not 0 for the pool of a capture.
    pub first: u64,
    /// Not 0 for a pool of the program.
    pub second: u64,
}

impl granule_pool_id {
    pub(crate) fn is_default(self) -> bool {
        PoolId::from(self) == PoolId::DEFAULT
    }
}

impl From<granule_pool_id> for PoolId {
    fn from(id: granule_pool_id) -> Self {
        Self(id.first, id.second)
    }
}

impl From<PoolId> for granule_pool_id {
    fn from(id: PoolId) -> Self {
        Self { first: id.0, second: id.1 }
    }
}
