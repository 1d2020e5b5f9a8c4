//! Whole granules of a growable segment that lose their memory: what is told and written down before and after.

use super::Device;
use super::accounting::DeviceState;
use crate::arena::ArenaPool;
use crate::arena::directory::Arena;
use crate::device::arenas;
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, SegmentId};
use crate::memory::region::{Mapping, RegionId, bytes_of};
use crate::memory::segment::Origin;
use crate::process::callbacks::CallbackScope;
use crate::types::{DevicePtr, Stream};
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;
use std::ops::Range;

/// A busy block of whole granules on its way out.
pub(super) struct Leaving<'a> {
    device: &'a Device,
    arena: &'a Arena,
    part: BlockId,
    segment: SegmentId,
    range: Range<u64>,
    stream: Stream,
    pub(super) region: RegionId,
    /// The granules' memory, in order.
    pub(super) memory: Vec<Mapping>,
    pub(super) pool: ArenaPool,
}

impl<'a> Leaving<'a> {
    /// Sets the granules to `Pending`, which only this thread ends, and tells observers. `None` where the segment does not grow.
    pub(super) fn begin(
        device: &'a Device,
        arena: &'a Arena,
        part: BlockId,
        calls: &CallbackScope<'_>,
    ) -> Option<Self> {
        let leaving = {
            let state = arena.lock();
            let block = &state.layout().blocks()[part];
            let Origin::Growable { region, .. } = state.layout().segments()[block.segment].origin else {
                return None;
            };
            let range = block.addr..block.end();
            let memory = device.accounting.lock().regions_mut().begin(region, range.clone());
            Self {
                device,
                arena,
                part,
                segment: block.segment,
                range,
                stream: state.binding().stream(),
                region,
                memory,
                pool: state.binding().pool().clone(),
            }
        };
        let bytes = leaving.range.end - leaving.range.start;
        debug_assert_eq!(bytes_of(&leaving.memory), bytes, "what is free is backed");
        leaving.tell(SegmentChange::Detaching, 0, calls);
        Some(leaving)
    }

    /// The first `count` granules have lost their memory, of which `account` says in the device's accounts what became. Returns
    /// the segment, with its one block, if nothing of it has memory any more.
    pub(super) fn commit(
        &self,
        count: usize,
        call: &Call<'_>,
        calls: &CallbackScope<'_>,
        account: impl FnOnce(&mut DeviceState),
    ) -> Option<(SegmentId, BlockId)> {
        let (addr, left) = (self.range.start, bytes_of(&self.memory[..count]));
        self.tell(SegmentChange::Attached, left, calls);
        let mut state = arenas::attend(self.device, self.arena, call);
        {
            let mut accounting = self.device.accounting.lock();
            accounting.regions_mut().commit_vacant(self.region, addr..addr + left);
            accounting.regions_mut().commit_backed(self.region, &self.memory[count..]);
            account(&mut accounting);
        }
        if left > 0 {
            let context = state.layout().segments()[self.segment].context.clone();
            let history = state.ledger_mut().history_mut();
            history.record_about(Action::SegmentUnmap, addr, left, context.as_ref());
        }
        state.heap_mut().commit_evict(self.part, left)
    }

    /// Tells observers what happens to all but the first bytes.
    fn tell(&self, change: SegmentChange, first: u64, calls: &CallbackScope<'_>) {
        let owner = (self.pool.id, self.stream);
        let at = self.range.start + first;
        self.device.tell_growable(change, owner, DevicePtr(at), self.range.end - at, calls);
    }
}
