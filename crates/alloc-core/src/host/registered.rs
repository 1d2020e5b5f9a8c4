//! Memory of the program's own that it pins in place: nothing is cached, but the history tells of it.

use super::engine::Engine;
use crate::backend::HostFlags;
use crate::error::{AllocError, Result};
use crate::types::DevicePtr;
use crate::watch::history::RecordContext;
use crate::watch::snapshot::Action;

impl Engine {
    /// See [`HostAllocator::register`](super::HostAllocator::register).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn register(&self, ptr: DevicePtr, bytes: u64) -> Result<()> {
        self.reachable()?;
        let context = self.gather(RecordContext::State, &self.foreign.calls());
        let pin = || {
            let _relaxed = self.relaxed()?;
            // SAFETY: the range stays valid until it is unregistered, as the caller promises.
            unsafe { self.backend.host_registration()?.register(ptr, bytes, HostFlags::PORTABLE) }
        };
        self.noticing(pin().inspect_err(|_| self.backend.clear_error()).map_err(AllocError::Backend))?;
        let mut state = self.lock();
        state.registered.insert(ptr, bytes);
        state.note_range(&[Action::SegmentAlloc, Action::Alloc], ptr, bytes, context.as_deref());
        Ok(())
    }

    /// See [`HostAllocator::unregister`](super::HostAllocator::unregister).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        if let Some(edge) = self.edge() {
            return edge.of_release();
        }
        let calls = self.foreign.calls();
        let context = self.gather(RecordContext::All, &calls);
        let unpin = || {
            let _relaxed = self.relaxed()?;
            // SAFETY: rule 3, as the caller promises.
            unsafe { self.backend.host_registration()?.unregister(ptr) }
        };
        self.noticing(unpin().inspect_err(|_| self.backend.clear_error()).map_err(AllocError::Backend))?;
        let mut state = self.lock();
        if let Some(bytes) = state.registered.remove(&ptr) {
            let actions = [Action::FreeRequested, Action::FreeCompleted, Action::SegmentFree];
            state.note_range(&actions, ptr, bytes, context.as_deref());
        }
        Ok(())
    }
}
