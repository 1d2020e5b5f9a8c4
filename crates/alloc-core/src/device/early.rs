//! Early reuse (`early_reuse`): a block that only waits for other streams is taken at once, by making the stream
//! that wants it wait for them on the device. Nothing waits on the host, and no memory is taken from the device.

use super::DeviceAllocator;
use crate::arena::directory::Arena;
use crate::lifetimes::call::Call;
use crate::lifetimes::pending::Waiting;
use crate::memory::block::{BlockId, State};
use crate::policy::Request;
use std::cmp::Reverse;

impl DeviceAllocator {
    /// Makes a pending block of the request's own stream free that is large enough, the smallest first. `false` where
    /// the option is off or there is none.
    pub(super) fn reuse_early(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> bool {
        if call.capturing || !self.state.lock().settings.early_reuse {
            return false;
        }
        let (number, mut candidates) = {
            let state = arena.lock();
            let fits = |block: &crate::memory::block::Block| {
                block.state == State::Pending && block.tier == request.tier && block.size >= request.size
            };
            let blocks = state.blocks.iter().filter(|(_, block)| fits(block));
            let found: Vec<(BlockId, u64, u64)> = blocks.map(|(id, b)| (id, b.size, b.addr)).collect();
            (state.id.number, found)
        };
        candidates.sort_unstable_by_key(|(_, size, addr)| Reverse((*size, *addr)));
        while let Some((block, ..)) = candidates.pop() {
            let (stream, awaited, _named) = {
                let state = arena.lock();
                if state.blocks[block].state != State::Pending || state.retired.is_some() {
                    continue;
                }
                (state.id.stream, state.blocks[block].pending, self.naming.begin(state.id.stream))
            };
            if self.may_be_capturing(stream) {
                // Whoever began that, and did not say so: the wait would become part of the graph, or break it.
                return false;
            }
            let waiting = Waiting { arena: number, block };
            let _block = self.in_transit();
            let done = |waiting: Waiting| {
                let mut state = arena.lock();
                // The device is done with it when it has passed the stream's wait, not what came before the free.
                state.blocks[waiting.block].epoch = state.epochs.current();
                state.event_done(waiting.block);
                self.leave(state);
            };
            if self.pending.take_over(&*self.backend, stream, waiting, awaited, done) {
                return true;
            }
        }
        false
    }
}
