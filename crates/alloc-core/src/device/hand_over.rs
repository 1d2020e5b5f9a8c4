//! Moving free granules from one arena to another, with an unmap and a map.

use super::DeviceAllocator;
use crate::arena::directory::Arena;
use crate::backend::{Readiness, VirtualMemory};
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, Tier};
use crate::memory::region::{self, Failed};
use crate::memory::segment::Origin;
use crate::policy::Request;
use crate::process::foreign::Calls;
use crate::sync::assert_unlocked;
use crate::types::{DevicePtr, PhysicalHandle, PoolId};
use crate::watch::observers::{SegmentChange, SegmentEvent};
use crate::watch::snapshot::Action;

impl DeviceAllocator {
    /// Whether the device is done with everything that an arena's stream was given. Does not block.
    pub(super) fn is_idle(&self, arena: &Arena) -> bool {
        let (stream, _named, sealed) = {
            let mut state = arena.lock();
            if state.retired.is_some() {
                return false;
            }
            (state.id.stream, self.naming.begin(state.id.stream), state.epochs.seal())
        };
        assert_unlocked();
        // The question itself would break a capture, also one that nobody told of.
        if self.may_be_capturing(stream) {
            return false;
        }
        match self.backend.query_stream(stream) {
            Ok(Readiness::Ready) => {
                arena.lock().epochs.close(sealed);
                true
            }
            Ok(_) => false,
            Err(_) => {
                self.backend.clear_error();
                false
            }
        }
    }

    /// Moves busy blocks of whole granules, with which the device is done, to another arena, where they are free. Returns how
    /// many bytes came.
    pub(super) fn hand_over(
        &self,
        from: &Arena,
        to: &Arena,
        parts: Vec<BlockId>,
        call: &Call<'_>,
    ) -> Result<u64> {
        let vm = self.backend.virtual_memory();
        let calls = self.foreign.calls();
        let mut came = 0;
        let mut outcome = Ok(());
        for part in parts {
            let Some(vm) = vm.as_ref().ok().filter(|_| outcome.is_ok()) else {
                from.lock().return_free(part);
                continue;
            };
            let (granule, handles) = self.lift(from, part, *vm, call, &calls);
            match self.put(to, granule, handles, *vm, call, &calls) {
                Ok(bytes) => came += bytes,
                Err(error) => outcome = Err(error),
            }
        }
        match outcome {
            // The memory is the device's again: what comes next on the ladder may take it.
            Err(AllocError::Backend(error)) if error.is_out_of_memory() => {
                self.backend.clear_error();
                Ok(came)
            }
            outcome => outcome.map(|()| came),
        }
    }

    /// Unmaps a busy block of whole granules and keeps the memory. Returns the size of a granule, and the granules.
    fn lift(
        &self,
        arena: &Arena,
        part: BlockId,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        calls: &Calls<'_>,
    ) -> (u64, Vec<PhysicalHandle>) {
        let (segment, addr, bytes, region, granule, handles, stream) = {
            let state = arena.lock();
            let block = &state.blocks[part];
            let Origin::Growable { region, granule } = state.segments[block.segment].origin else {
                unreachable!("only granules of growable segments are taken out")
            };
            let handles = self.state.lock().regions.begin(region, block.addr, block.size);
            (block.segment, block.addr, block.size, region, granule, handles, state.id.stream)
        };
        let mut handles: Vec<_> = handles.into_iter().flatten().collect();
        let at = DevicePtr(addr);
        let event = self.segment_event(SegmentChange::Detaching, PoolId::DEFAULT, stream, at, bytes, true);
        self.observers.tell(event, calls);
        // SAFETY: the granules are set to `Pending` by this thread only; the block is busy, and its stream was seen to be
        // idle after it was freed.
        let (count, outcome) = unsafe { region::lift(vm, at, granule, handles.len()) };
        let lifted = count as u64 * granule;
        if lifted < bytes {
            let (addr, bytes) = (at.add(lifted), bytes - lifted);
            self.observers
                .tell(SegmentEvent { change: SegmentChange::Attached, addr, bytes, ..event }, calls);
        }
        let mut state = self.attend(arena, call);
        {
            let mut device = self.state.lock();
            device.regions.commit_vacant(region, addr, lifted);
            device.regions.commit_backed(region, addr + lifted, &handles[count..]);
            device.counters.device_free += i64::from(lifted > 0);
        }
        if lifted > 0 {
            let context = state.segments[segment].context.clone();
            state.history.record_about(Action::SegmentUnmap, addr, lifted, context.as_ref());
        }
        let empty = state.commit_vacate(part, lifted);
        drop(state);
        handles.truncate(count);
        if let Err(error) = outcome {
            self.backend.clear_error();
            tracing::warn!(%error, "not all free granules could be moved to another stream");
        }
        if let Some((segment, block)) = empty
            && let Err(error) = self.remove_region(arena, segment, block, region, vm)
        {
            self.backend.clear_error();
            tracing::warn!(%error, "addresses could not be given back; it is tried again later");
        }
        (granule, handles)
    }

    /// Puts granules that nothing maps into an arena, as free memory. Returns their bytes.
    fn put(
        &self,
        arena: &Arena,
        granule: u64,
        handles: Vec<PhysicalHandle>,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        calls: &Calls<'_>,
    ) -> Result<u64> {
        let bytes = handles.len() as u64 * granule;
        if bytes == 0 {
            return Ok(0);
        }
        let stock = Request { requested: bytes, size: bytes, tier: Tier::Large, segment_bytes: bytes };
        let (growth, stream) = loop {
            let mut state = arena.lock();
            if let Some(growth) = state.plan_stock(Tier::Large, bytes, granule) {
                break (growth, state.id.stream);
            }
            drop(state);
            let added = self.add_region(arena, &stock, granule, vm);
            if !matches!(added, Ok(true)) {
                self.lose(granule, handles, vm, calls);
                return added.map(|_| 0);
            }
        };
        let addr = growth.maps(&arena.lock()).first().map_or(0, |(addr, _)| *addr);
        self.state.lock().regions.begin(growth.region, addr, bytes);
        let backing = self.backing(granule, &None);
        let put = region::put(&*self.backend, vm, &backing, DevicePtr(addr), handles, calls);
        if put.is_ok() {
            let at = DevicePtr(addr);
            let event = self.segment_event(SegmentChange::Attached, PoolId::DEFAULT, stream, at, bytes, true);
            self.observers.tell(event, calls);
        }
        let mut state = self.attend(arena, call);
        let region = growth.region;
        let outcome = {
            let mut device = self.state.lock();
            match put {
                Ok(handles) => {
                    device.regions.commit_backed(region, addr, &handles);
                    device.counters.device_alloc += 1;
                    device.counters.granules_moved += i64::try_from(handles.len()).unwrap_or(i64::MAX);
                    Ok(bytes)
                }
                Err(Failed { error, leftovers }) => {
                    device.regions.commit_vacant(region, addr, bytes);
                    device.regions.leftovers.append(*leftovers);
                    device.accounts.give_back(PoolId::DEFAULT, Tier::Large, bytes);
                    Err(error)
                }
            }
        };
        if outcome.is_ok() {
            state.history.record(Action::SegmentMap, addr, bytes);
            state.note_segment_context(region);
        }
        if let Some(block) = state.commit_growth(growth, usize::from(outcome.is_ok())) {
            state.insert_free(block);
        }
        Ok(outcome?)
    }

    /// Gives granules back for which there is no place.
    fn lose(&self, granule: u64, handles: Vec<PhysicalHandle>, vm: &dyn VirtualMemory, calls: &Calls<'_>) {
        let bytes = handles.len() as u64 * granule;
        let leftovers = region::give_back(vm, handles, calls);
        let mut device = self.state.lock();
        device.regions.leftovers.append(leftovers);
        device.accounts.give_back(PoolId::DEFAULT, Tier::Large, bytes);
    }
}
