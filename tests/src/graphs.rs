//! Captures, and work that becomes part of them.

use crate::Allocator;
use crate::rig::{DEVICE, Rig};
use alloc_core::AllocError;
use alloc_core::backend::{Backend, CaptureMode, EventFlags};
use alloc_core::graph::GraphCapture;
use alloc_core::types::{DevicePtr, PoolId, Stream};

/// Begins a capture with a pool of its own.
///
/// # Panics
/// Where it is refused.
#[must_use]
pub fn begin(allocator: &Allocator, stream: Stream) -> GraphCapture {
    begin_in(allocator, stream, None)
}

/// Begins a capture with this pool.
///
/// # Panics
/// Where it is refused.
#[must_use]
pub fn begin_in(allocator: &Allocator, stream: Stream, pool: Option<PoolId>) -> GraphCapture {
    GraphCapture::begin(allocator, stream, CaptureMode::Global, pool).expect("the stream can be captured")
}

/// Queues a write to memory: a live block, or one that a graph owns.
///
/// # Panics
/// Where the machine refuses.
pub fn fill(rig: &Rig, stream: Stream, ptr: DevicePtr, bytes: u64) {
    // SAFETY: rule 2: the tests give live blocks, or let a graph that owns them write.
    unsafe { rig.backend.memset_async(ptr, 1, bytes, stream) }.expect("work can be queued");
}

/// Later work of `to` comes after all that `from` was given.
///
/// # Panics
/// Where the machine refuses.
pub fn join(backend: &dyn Backend, from: Stream, to: Stream) {
    let event = backend.create_event(DEVICE, EventFlags::empty()).expect("an event can be made");
    backend.record_event(event, from).expect("an event can be recorded");
    backend.wait_event(to, event).expect("a stream can wait");
    // SAFETY: rule 1: made above, and not used again.
    unsafe { backend.destroy_event(event) }.expect("an event can be destroyed");
}

/// Whether the allocator has no pool of this name.
#[must_use]
pub fn is_unknown(allocator: &Allocator, pool: PoolId) -> bool {
    matches!(allocator.pools().use_count(DEVICE, pool), Err(AllocError::UnknownPool { pool: found }) if found == pool)
}
