//! Memory at an address that the program names: where a graph or another process expects it.

use crate::arena::granule::take_in_view;
use crate::base::round::{EXABYTE, MIN_BLOCK};
use crate::device::Device;
use crate::device::{arenas, frees, pools, recorder};
use crate::error::{AllocError, Result};
use crate::types::{DevicePtr, Stream};
use crate::watch::history::RecordContext;

impl Device {
    /// See [`CachingAllocator::malloc_at`](crate::allocator::CachingAllocator::malloc_at).
    pub(crate) fn malloc_at(&self, bytes: u64, ptr: DevicePtr, stream: Stream) -> Result<DevicePtr> {
        let refuse = |problem| Err(AllocError::ExactAddress { ptr, problem });
        if !ptr.0.is_multiple_of(MIN_BLOCK) {
            return refuse("mallocWithAddress: addr must be aligned to kMinBlockSize (512 bytes)");
        }
        if bytes >= EXABYTE {
            return Err(AllocError::MoreThanAnExabyte { label: self.driver.backend().label() });
        }
        let calls = self.driver.calls();
        let outcome = place(self, bytes, ptr, stream);
        recorder::deliver(self, &calls);
        frees::arrived(self, outcome, &calls)
    }
}

fn place(device: &Device, bytes: u64, ptr: DevicePtr, stream: Stream) -> Result<DevicePtr> {
    let refuse = |problem| Err(AllocError::ExactAddress { ptr, problem });
    let call = recorder::begin_call(device, Some(stream), RecordContext::State)?;
    if !call.capturing {
        frees::drain(device, &call)?;
    }
    let visit = pools::route(device, stream, call.capturing)?;
    let Some(arena) = device.arenas.directory().of_stream(visit.pool.slot, stream) else {
        return refuse("the stream has no memory in this pool");
    };
    let mut state = arenas::attend(device, arena, &call);
    if !state.binding().serves(visit.pool.slot, stream) {
        return refuse("the stream has no memory in this pool");
    }
    state.change_binding(|binding| binding.note_pool(&visit.pool));
    let request = state.binding().policy().request(bytes);
    let segment = state.heap().segment_at(request.tier, ptr.0);
    if let Some(view) = segment.filter(|segment| state.layout().segments().is_view(*segment)) {
        let Some(block) = take_in_view(state.granule_mut(), view, ptr.0, request.size) else {
            return refuse("not all of the memory that is shown there is free");
        };
        return Ok(state.hand_out_whole(block, request.requested));
    }
    let Some(block) = segment.and_then(|segment| state.heap().free_at(segment, ptr.0)) else {
        return refuse("no free block of this stream, pool and size class holds it");
    };
    let room = state.layout().blocks()[block].end() - ptr.0;
    if room < request.size {
        return refuse("the free block there is too short");
    }
    let no_split = state.binding().pool().no_split;
    let cuts = room > request.size && !no_split && state.heap_mut().splits(room, &request);
    if no_split && ptr.0 != state.layout().blocks()[block].addr {
        return refuse("the pool hands blocks out whole, and one begins elsewhere");
    }
    Ok(state.hand_out_at(block, (ptr.0, request.size), bytes, cuts))
}
