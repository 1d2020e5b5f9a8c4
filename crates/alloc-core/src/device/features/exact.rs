//! Memory at an address that the program names: where a graph or another process expects it.

use crate::base::round::{EXABYTE, MIN_BLOCK};
use crate::device::Base;
use crate::device::arenas::Arenas;
use crate::device::hardened::Hardened;
use crate::device::history::History;
use crate::device::lifetimes::Lifetimes;
use crate::device::pools::PrivatePools;
use crate::device::site::Site;
use crate::error::{AllocError, Result};
use crate::process::attention::Reason;
use crate::sync::Arc;
use crate::types::{DevicePtr, Stream};
use crate::watch::history::RecordContext;

/// Memory at given addresses.
pub(crate) struct ExactPlaces {
    site: Site,
    arenas: Arc<Arenas>,
    history: Arc<History>,
    pools: Arc<PrivatePools>,
    lifetimes: Arc<Lifetimes>,
    hardened: Arc<Hardened>,
}

impl ExactPlaces {
    pub(in crate::device) fn new(base: &Base) -> Self {
        Self {
            site: base.site.clone(),
            arenas: Arc::clone(&base.arenas),
            history: Arc::clone(&base.history),
            pools: Arc::clone(&base.pools),
            lifetimes: Arc::clone(&base.lifetimes),
            hardened: Arc::clone(&base.hardened),
        }
    }

    /// See [`CachingAllocator::malloc_at`](crate::allocator::CachingAllocator::malloc_at).
    pub(crate) fn malloc_at(&self, bytes: u64, ptr: DevicePtr, stream: Stream) -> Result<DevicePtr> {
        let refuse = |problem| Err(AllocError::ExactAddress { ptr, problem });
        if !ptr.0.is_multiple_of(MIN_BLOCK) {
            return refuse("mallocWithAddress: addr must be aligned to kMinBlockSize (512 bytes)");
        }
        if bytes >= EXABYTE {
            return Err(AllocError::MoreThanAnExabyte { label: self.site.backend().label() });
        }
        let calls = self.site.calls();
        let outcome = self.place(bytes, ptr, stream);
        self.history.deliver(&calls);
        self.hardened.arrived(outcome, &calls)
    }

    fn place(&self, bytes: u64, ptr: DevicePtr, stream: Stream) -> Result<DevicePtr> {
        let refuse = |problem| Err(AllocError::ExactAddress { ptr, problem });
        let call = self.history.begin_call(Some(stream), RecordContext::State)?;
        self.hardened.empty_quarantine(&call)?;
        if !call.capturing {
            self.lifetimes.drain(&call)?;
        }
        let visit = self.pools.route(stream, call.capturing)?;
        let Some(arena) = self.arenas.directory().of_stream(visit.pool.slot, stream) else {
            return refuse("the stream has no memory in this pool");
        };
        let mut state = self.arenas.attend(arena, &call);
        if !state.serves(visit.pool.slot, stream) {
            return refuse("the stream has no memory in this pool");
        }
        let request = state.policy.request(bytes);
        let segment = state.segment_at(request.tier, ptr.0);
        if let Some(view) = segment.filter(|segment| state.segments.is_view(*segment)) {
            if self.site.attention().has(Reason::HARDENED) {
                return refuse("in the hardened mode free memory is not shown in another place");
            }
            let Some(block) = state.take_at(view, ptr.0, request.size) else {
                return refuse("not all of the memory that is shown there is free");
            };
            return Ok(state.hand_out_whole(self.site.map(), block, request.requested));
        }
        let Some(block) = segment.and_then(|segment| state.free_block_at(segment, ptr.0)) else {
            return refuse("no free block of this stream, pool and size class holds it");
        };
        let room = state.blocks[block].end() - ptr.0;
        if room < request.size {
            return refuse("the free block there is too short");
        }
        let cuts = room > request.size && state.splits(room, &request);
        if state.pool.no_split && ptr.0 != state.blocks[block].addr {
            return refuse("the pool hands blocks out whole, and one begins elsewhere");
        }
        let ptr = state.hand_out_at(self.site.map(), block, (ptr.0, request.size), bytes, cuts);
        drop(state);
        self.hardened.forget_canary(ptr);
        Ok(ptr)
    }
}
