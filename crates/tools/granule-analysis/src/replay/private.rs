//! The private pools of a trace.

use super::DEVICE;
use alloc_core::pool::Filter;
use alloc_core::types::PoolId;
use alloc_core::{AllocError, CachingAllocator};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Pools by their numbers in the trace, and the one that requests are for.
#[derive(Default)]
pub(super) struct PrivatePools {
    used: HashMap<u32, PoolId>,
    ended: HashMap<u32, PoolId>,
    open: Option<PoolId>,
}

impl PrivatePools {
    /// The requests that follow are for this pool; 0 is the common one.
    pub(super) fn enter(&mut self, allocator: &CachingAllocator, pool: u32) -> Result<(), AllocError> {
        let pools = allocator.pools();
        if let Some(open) = self.open.take() {
            pools.end(DEVICE, open)?;
            pools.release(DEVICE, open)?;
        }
        if pool != 0 {
            let id = match self.used.entry(pool) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let id = PoolId::fresh();
                    pools.create(DEVICE, id, None)?;
                    *entry.insert(id)
                }
            };
            pools.begin(DEVICE, id, Filter::Always)?;
            self.open = Some(id);
        }
        Ok(())
    }

    /// Nobody uses it any more. Requests after that, if there are any, are for another pool of its number.
    pub(super) fn end(&mut self, allocator: &CachingAllocator, pool: u32) -> Result<(), AllocError> {
        let Some(id) = self.used.remove(&pool) else { return Ok(()) };
        if self.open == Some(id) {
            self.enter(allocator, 0)?;
        }
        self.ended.insert(pool, id);
        allocator.pools().release(DEVICE, id)
    }

    /// Gives back what it has cached, if nobody uses it any more.
    pub(super) fn empty(&self, allocator: &CachingAllocator, pool: u32) -> Result<(), AllocError> {
        self.ended.get(&pool).map_or(Ok(()), |id| allocator.pools().empty(*id))
    }
}
