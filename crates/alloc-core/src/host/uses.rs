//! Who uses a block: streams, and graphs that record their work.

use super::HostBlockId;
use super::block::Use;
use super::engine::Engine;
use crate::backend::{BackendError, CopyKind, ErrorKind, PointerKind};
use crate::error::{AllocError, Result};
use crate::lifetimes::last_work::LastWork;
use crate::lifetimes::uses::User;
use crate::memory::block::BlockId;
use crate::sync::Arc;
use crate::types::{DevicePtr, Stream};

impl Engine {
    /// See [`HostAllocator::record_event`](super::HostAllocator::record_event).
    pub(super) fn record_event(&self, ptr: DevicePtr, id: HostBlockId, stream: Stream) -> Result<bool> {
        self.reachable()?;
        let stream = self.own(stream)?;
        let found = {
            let state = self.lock();
            state.handed_out(id).or_else(|| state.handed_out_at(ptr)).is_some()
        };
        if !found {
            return Ok(false);
        }
        let captured = self.noticing(self.capture_id(stream).map_err(AllocError::Backend))?.is_some();
        let mut state = self.lock();
        // Looked up again: it may have been freed by a thread that should not have.
        let Some(block) = state.handed_out(id).or_else(|| state.handed_out_at(ptr)) else { return Ok(false) };
        let block = state.block_mut(block);
        block.in_graph |= captured;
        let is_new = !block.uses.iter().any(|found| found.user.is(stream));
        if is_new {
            block.uses.push(Use { device: stream.device, user: User::Live(stream) });
        }
        drop(state);
        if is_new && !captured {
            // So that the free finds an event.
            let _relaxed = self.relaxed().ok();
            self.pending[usize::from(stream.device.0)].prepare(&self.backend, stream.device);
        }
        Ok(true)
    }

    /// See [`HostAllocator::copy_async`](super::HostAllocator::copy_async).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        self.reachable()?;
        let own = self.own(stream)?;
        let sides: &[DevicePtr] = match kind {
            CopyKind::HostToHost => &[dst, src],
            CopyKind::HostToDevice => &[src],
            CopyKind::DeviceToHost => &[dst],
            CopyKind::DeviceToDevice => &[],
        };
        let captured = self.noticing(self.capture_id(own).map_err(AllocError::Backend))?.is_some();
        for side in sides.iter().filter(|_| captured) {
            self.refuse_pageable(*side, stream)?;
        }
        for side in sides {
            let id = {
                let state = self.lock();
                state.handed_out_around(*side).map(|block: BlockId| state.block(block).ptr)
            };
            if let Some(base) = id {
                self.record_event(base, HostBlockId::NONE, stream)?;
            }
        }
        // SAFETY: the caller keeps rule 2; the blocks that this allocator knows wait for the stream.
        let queued = unsafe { self.backend.copy_async(dst, src, bytes, kind, stream) };
        self.noticing(queued.inspect_err(|_| self.backend.clear_error()).map_err(AllocError::Backend))
    }

    /// A graph copies from where the memory is when it is launched, which may be long after.
    fn refuse_pageable(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        let info = self.backend.pointer_info(ptr).inspect_err(|_| self.backend.clear_error())?;
        if matches!(info.kind, PointerKind::Host | PointerKind::Managed) {
            return Ok(());
        }
        let detail = format!(
            "{ptr} is host memory that is not pinned, and the stream is being captured: a graph needs memory that stays. \
             Pin it (HostAllocator::allocate), or copy before the capture"
        );
        Err(BackendError::new(ErrorKind::CaptureViolation, 0, "copy_async", stream.device, detail).into())
    }

    /// See [`HostAllocator::retire_stream`](super::HostAllocator::retire_stream).
    pub(super) fn retire_stream(&self, stream: Stream) -> Result<()> {
        if let Some(edge) = self.edge() {
            return edge.of_release();
        }
        let stream = self.own(stream)?;
        let pending = &self.pending[usize::from(stream.device.0)];
        // In this order: a use goes from its block to a free on its way, and from there to a queue, unless it goes back.
        let is_used = || {
            let mut state = self.lock();
            let is_known = state.users_mut().any(|user| user.is(stream)) || self.naming.concerns(stream);
            is_known || pending.names(stream)
        };
        if is_used() {
            let last = LastWork::of(&self.backend, stream).inspect_err(|_| self.backend.clear_error());
            let last = Arc::new(self.noticing(last.map_err(AllocError::Backend))?);
            // A free on its way has read the handle before, and puts it where the next round finds it.
            while is_used() {
                for user in self.lock().users_mut().filter(|user| user.is(stream)) {
                    *user = User::Retired(Arc::clone(&last));
                }
                pending.retire(stream, &last);
                self.naming.wait_for(|named| named == stream, || None::<()>);
            }
        }
        self.pools.lock().retire(stream);
        Ok(())
    }
}
