//! Compaction: the memory between live blocks is given back, and no block changes its address.
//!
//! Under `policy:granule` memory is taken in granules of up to 64 MiB. A granule of which one block is left keeps all of its
//! memory. A compaction makes new memory of the size that its blocks need, copies the contents, and maps the new memory in the
//! place of the old. Pointers stay valid. Each piece of new memory is a granule like any other, and what was free between them is
//! address space without memory, where memory comes again when some is needed.
//!
//! For a moment a live block has no memory. So a compaction waits for the device, and nobody may give the device work on memory
//! of this allocator until it has ended. The program says how it knows that:
//!
//! * [`CachingAllocator::compact`](crate::CachingAllocator::compact) is a call at a moment that the program knows to be quiet.
//! * `launches:allocating_thread` promises that the thread which asks for memory of a device is the only one that gives the
//!   device work.
//! * A hook ([`Hooks::on_quiesce`](crate::allocator::Hooks::on_quiesce)) stops all other threads, and lets them go on.
//!
//! With `compaction:last_resort` a request that would be refused compacts first; with `compaction:True` also one that would take
//! more memory than the program needs. Both need the promise or a hook.
//!
//! These stay as they are: memory that a block in a view uses, that other processes have, that sleeps, that waits for a stream; memory of private pools, those of graphs among them; blocks that [were pinned](crate::CachingAllocator::pin_physical), and
//! granules of the smallest size. Nothing is compacted while a stream of the process is captured, in hardened mode, where other
//! devices reach the memory, or where somebody observes segments or traces: libraries that register memory (NCCL, RDMA) do.
//!
//! After any one error of the driver each live block has its contents at its address. Where undoing fails, too, the device is
//! lost: the call ends with [`DeviceLost`](crate::backend::ErrorKind::DeviceLost), and the driver is not called any more.

use crate::sync::Arc;
use crate::types::DeviceIndex;
use std::time::Duration;

/// What a hook is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quiesce {
    /// No thread but the calling one is to give the device work, until it is let go.
    Stop(DeviceIndex),
    /// All may go on.
    Resume(DeviceIndex),
}

/// Stops the other threads of the program, or lets them go on. Whether that is so.
pub type QuiesceHook = Arc<dyn Fn(Quiesce) -> bool + Send + Sync>;

/// What a compaction came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Bytes that were copied.
    pub moved: u64,
    /// Bytes of device memory that were given back.
    pub gained: u64,
    /// From the moment from which nobody may give the device work until nobody need wait any more.
    pub pause: Duration,
}
