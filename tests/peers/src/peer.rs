//! The allocators, seen alike.

mod foreign;
mod mimalloc;
mod offset;
mod tlsf;

use anyhow::Result;
use std::path::Path;

/// An allocator. Blocks are numbers that are not 0; what they stand for is the allocator's business.
pub(crate) trait Peer: Sync {
    /// Memory for a stream, or 0.
    fn malloc(&self, bytes: usize, stream: usize) -> usize;
    /// Takes a block back; size and stream are those of its `malloc`, for allocators that need them.
    fn free(&self, block: usize, bytes: usize, stream: usize);
    /// The most bytes it held of the device; 0 where that means nothing.
    fn peak_reserved(&self) -> usize;
    /// Calls of the driver that took or gave memory.
    fn driver_calls(&self) -> usize {
        0
    }
    /// Gives unused memory back.
    fn empty_cache(&self) {}
}

/// Starts the allocator of this name.
pub(crate) fn start(name: &str, capacity: usize, config: &str) -> Result<Box<dyn Peer>> {
    Ok(match name {
        "offset" => Box::new(offset::Offsets::new(capacity)?),
        "tlsf" => Box::new(tlsf::Scaled::new(capacity)?),
        "mimalloc" => Box::new(mimalloc::HostMemory),
        path => Box::new(foreign::Library::open(Path::new(path), capacity, config)?),
    })
}
