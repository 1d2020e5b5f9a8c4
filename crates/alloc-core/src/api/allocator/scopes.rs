//! Statistics of a part of the program.

use super::CachingAllocator;
use crate::device::ScopeId;
use crate::device::statistics;
#[cfg(doc)]
use crate::error::AllocError;
use crate::error::Result;
use crate::sync::Arc;
use crate::types::DeviceIndex;
use crate::watch::stats::ScopeStats;

/// Statistics of a device while a part of the program runs: a request, a step, a layer.
///
/// Scopes nest and overlap, on one thread or on many, and end in any order. They see what every thread does on the
/// device. Neither [`reset_peaks`](crate::allocator::Statistics::reset_peaks) nor
/// [`reset_accumulated`](crate::allocator::Statistics::reset_accumulated) changes a scope's figures, and no scope
/// changes the device's own statistics.
///
/// Requests and frees cost as much as without a scope, with one exception. A request that raises the peak of the newest
/// scope compares all streams, as does a request that raises the device's own peak.
///
/// ```
/// # fn main() -> Result<(), alloc_core::AllocError> {
/// # use alloc_core::{CachingAllocator, allocator::StatScope, types::{DeviceIndex, Stream}};
/// # use std::sync::Arc;
/// fn step(allocator: &Arc<CachingAllocator>, stream: Stream) -> Result<(), alloc_core::AllocError> {
///     let scope = StatScope::begin(allocator, stream.device)?;
///     let ptr = allocator.malloc(1 << 20, stream)?;
///     allocator.free(ptr)?;
///     let stats = scope.finish()?;
///     println!("{} bytes at most", stats.allocated_bytes.peak);
///     Ok(())
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct StatScope {
    allocator: Arc<CachingAllocator>,
    device: DeviceIndex,
    id: ScopeId,
}

impl StatScope {
    /// Begins statistics of a part of the program; they end with the answer. Does not block.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`], [`AllocError::Forked`].
    pub fn begin(allocator: &Arc<CachingAllocator>, device: DeviceIndex) -> Result<Self> {
        let id = statistics::begin_scope(allocator.seen_device(device)?);
        Ok(Self { allocator: Arc::clone(allocator), device, id })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// Statistics since the scope began, exact and of one moment. The scope goes on.
    ///
    /// # Errors
    /// [`AllocError::Forked`] in a child of the process that began the scope.
    pub fn peaks(&self) -> Result<ScopeStats> {
        Ok(statistics::scope_stats(self.allocator.seen_device(self.device)?, self.id))
    }

    /// Ends the scope, and returns its statistics.
    ///
    /// # Errors
    /// As for [`peaks`](Self::peaks).
    pub fn finish(self) -> Result<ScopeStats> {
        self.peaks()
    }
}

impl Drop for StatScope {
    fn drop(&mut self) {
        // In a forked child nothing may be locked; the scope is the parent's.
        if let Ok(device) = self.allocator.seen_device(self.device) {
            statistics::end_scope(device, self.id);
        }
    }
}
