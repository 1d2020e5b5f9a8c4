//! Users of a block: streams, and graphs that record their work.

use super::HostBlockId;
use super::completions::Completions;
use super::driver_access::DriverAccess;
use super::shared::SharedTable;
use crate::backend::{BackendError, CopyKind, ErrorKind, PointerKind};
use crate::error::Result;
use crate::lifetimes::last_work::LastWork;
use crate::lifetimes::uses::User;
use crate::sync::Arc;
use crate::types::{DevicePtr, Stream};

/// Uses by streams of blocks that the program has.
pub(super) struct StreamUses<'a> {
    driver: &'a DriverAccess,
    table: &'a SharedTable,
    completions: &'a Completions,
}

impl<'a> StreamUses<'a> {
    pub(super) fn new(
        driver: &'a DriverAccess,
        table: &'a SharedTable,
        completions: &'a Completions,
    ) -> Self {
        Self { driver, table, completions }
    }

    /// See [`HostAllocator::record_event`](super::HostAllocator::record_event).
    pub(super) fn record(&self, ptr: DevicePtr, id: HostBlockId, stream: Stream) -> Result<bool> {
        let stream = self.driver.own(stream)?;
        if self.table.lock().find(ptr, id).is_none() {
            return Ok(false);
        }
        let captured = self.driver.capture_id(stream)?.is_some();
        let is_new = {
            let mut table = self.table.lock();
            // Looked up again: it may have been freed by a thread that should not have.
            let Some(block) = table.find(ptr, id) else { return Ok(false) };
            table.record_use(block, stream, captured)
        };
        if is_new && !captured {
            self.completions.prepare(stream);
        }
        Ok(true)
    }

    /// See [`HostAllocator::copy_async`](super::HostAllocator::copy_async).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn copy(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let own = self.driver.own(stream)?;
        let sides: &[DevicePtr] = match kind {
            CopyKind::HostToHost => &[dst, src],
            CopyKind::HostToDevice => &[src],
            CopyKind::DeviceToHost => &[dst],
            CopyKind::DeviceToDevice => &[],
        };
        if self.driver.capture_id(own)?.is_some() {
            sides.iter().try_for_each(|side| self.refuse_pageable(*side, stream))?;
        }
        for side in sides {
            let base = self.table.lock().base_of(*side);
            if let Some(base) = base {
                self.record(base, HostBlockId::NONE, stream)?;
            }
        }
        // SAFETY: the caller keeps rule 2; the blocks that this allocator knows wait for the stream.
        let queued = unsafe { self.driver.backend().copy_async(dst, src, bytes, kind, stream) };
        self.driver.answered(queued)
    }

    /// A graph copies from where the memory is when it is launched, which may be long after.
    fn refuse_pageable(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        let info = self.driver.answered(self.driver.backend().pointer_info(ptr))?;
        if matches!(info.kind, PointerKind::Host | PointerKind::Managed) {
            return Ok(());
        }
        let detail = format!(
            "{ptr} is host memory that is not pinned, and the stream is being captured: a graph needs memory that stays. \
             Pin it (HostAllocator::allocate), or copy before the capture"
        );
        Err(BackendError::new(ErrorKind::CaptureViolation, 0, "copy_async", stream.device, detail).into())
    }

    /// `stream` is about to be destroyed: its users wait for the last of its work from here on.
    pub(super) fn retire(&self, stream: Stream) -> Result<()> {
        // In this order: a use goes from its block to a free on its way, and from there to what waits.
        let is_used = || {
            let is_user = self.table.lock().users_mut().any(|user| user.is(stream));
            is_user || self.completions.names(stream)
        };
        if is_used() {
            let last = Arc::new(self.driver.answered(LastWork::of(self.driver.backend(), stream))?);
            while is_used() {
                for user in self.table.lock().users_mut().filter(|user| user.is(stream)) {
                    *user = User::Retired(Arc::clone(&last));
                }
                self.completions.retire(stream, &last);
            }
        }
        Ok(())
    }
}
