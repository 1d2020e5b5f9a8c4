//! Waking a pool; what that means is said in [`crate::sleep`].

use crate::arena::directory::{Arena, PoolSlot};
use crate::backend::{BackendError, VirtualMemory};
use crate::device::Base;
use crate::device::features::sleep::{GranuleRun, Sleep};
use crate::device::holdings::{Holdings, Intent};
use crate::device::ladder::reclaim::{Need, Reclaim};
use crate::device::pools::Sleeper;
use crate::device::space::Space;
use crate::error::{AllocError, Result};
use crate::features::sleep::WakeReport;
use crate::lifetimes::call::Call;
use crate::memory::backup::Store;
use crate::memory::region::{self, Backing, Leftovers};
use crate::process::foreign::Calls;
use crate::sync::{Arc, InTransit, ThreadId};
use crate::types::{DevicePtr, PhysicalHandle};
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;

/// Pools that get memory behind their addresses again.
pub(crate) struct Wake {
    base: Base,
    space: Arc<Space>,
    reclaim: Arc<Reclaim>,
    sleep: Arc<Sleep>,
}

/// Memory for a run, on its way.
struct Given<'a> {
    handles: Vec<PhysicalHandle>,
    backing: Backing,
    intent: Intent<'a>,
    transit: InTransit<'a, ThreadId>,
}

/// A run that sleeps on when this is dropped.
struct Unwoken<'a> {
    holdings: &'a Holdings,
    arena: &'a Arena,
    run: &'a GranuleRun,
}

impl Drop for Unwoken<'_> {
    fn drop(&mut self) {
        let mut state = self.arena.lock();
        let mut device = self.holdings.lock();
        device.regions_mut().keep_asleep(self.run.region, self.run.range.clone());
        self.run.follow(&mut state, &device);
    }
}

impl Wake {
    pub(in crate::device) fn new(
        base: &Base,
        space: &Arc<Space>,
        reclaim: &Arc<Reclaim>,
        sleep: &Arc<Sleep>,
    ) -> Self {
        Self {
            base: base.clone(),
            space: Arc::clone(space),
            reclaim: Arc::clone(reclaim),
            sleep: Arc::clone(sleep),
        }
    }

    /// Wakes a pool. What was done before an error is in the report.
    pub(crate) fn wake(&self, pool: &Sleeper, report: &mut WakeReport) -> Result<()> {
        let _claim = self.sleep.claim(pool)?;
        let call = self.sleep.begin_uncaptured()?;
        let Ok(vm) = self.base.site.backend().virtual_memory() else { return Ok(()) };
        let keeps_free = self.base.pools.is_known_to_graphs(pool.slot);
        let mut outcome = Ok(());
        for arena in self.base.arenas.directory().of_pool(pool.slot) {
            if !keeps_free {
                let (dropped, emptied) = self.space.drop_dormant(arena, pool.slot, vm);
                report.dropped += dropped;
                outcome = outcome.and(emptied);
            }
            while let Some(run) = self.next_asleep(arena, pool.slot) {
                match self.wake_run(arena, pool, &run, vm, &call, report) {
                    Ok(()) => {}
                    Err(error) => {
                        drop(call);
                        self.base.history.tell_trackers();
                        return Err(error);
                    }
                }
            }
        }
        drop(call);
        self.base.history.tell_trackers();
        outcome
    }

    /// The next run of an arena that sleeps, taken to be woken.
    fn next_asleep(&self, arena: &Arena, slot: PoolSlot) -> Option<GranuleRun> {
        let state = arena.lock();
        if state.tenure().slot() != slot {
            return None;
        }
        for (segment, region_id) in state.layout().growable() {
            let mut device = self.base.holdings.lock();
            let Some(region) = device.regions().get(region_id) else { continue };
            let Some(range) = region.first_asleep() else { continue };
            return Some(GranuleRun::take(&state, &mut device, segment, region_id, range));
        }
        None
    }

    fn wake_run(
        &self,
        arena: &Arena,
        pool: &Sleeper,
        run: &GranuleRun,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        report: &mut WakeReport,
    ) -> Result<()> {
        let calls = self.base.site.calls();
        // Also where foreign code, a hook for example, panics.
        let unwoken = Unwoken { holdings: &self.base.holdings, arena, run };
        self.back_up_again(arena, pool, run, vm, call, &calls, report)?;
        std::mem::forget(unwoken);
        self.base.crossings.tell_in(&calls);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // one call in the middle of a walk
    fn back_up_again(
        &self,
        arena: &Arena,
        pool: &Sleeper,
        run: &GranuleRun,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        calls: &Calls<'_>,
        report: &mut WakeReport,
    ) -> Result<()> {
        let Given { handles, backing, intent, transit } =
            self.memory_by_all_means(pool, run, vm, call, calls)?;
        let restored = match self.restore_contents(run) {
            Ok(restored) => restored,
            Err(error) => {
                self.base.site.backend().clear_error();
                let mut leftovers = Leftovers::default();
                // SAFETY: the granules are set to `Pending` by this thread only, and nobody has used them since.
                unsafe { region::undo(vm, &backing, run.at(), &handles, &mut leftovers, calls) };
                self.base.holdings.lock().regions_mut().keep(leftovers);
                return Err(error.into());
            }
        };
        let owner = (pool.id, run.stream);
        self.base.tell_growable(SegmentChange::Attached, owner, run.at(), run.bytes(), calls);
        let forgotten = {
            let mut state = self.base.arenas.attend(arena, call);
            let mut device = self.base.holdings.lock();
            intent.fulfil(&mut device);
            device.take(pool.id, run.tier, run.bytes());
            device.regions_mut().commit_backed(run.region, run.range.start, &handles);
            let forgotten = device.regions_mut().forget_saved(run.region, run.range.clone());
            run.follow(&mut state, &device);
            drop(device);
            state.ledger_mut().history_mut().record(Action::SegmentMap, run.range.start, run.bytes());
            forgotten
        };
        drop(forgotten);
        drop(transit);
        report.woken += run.bytes();
        report.restored += restored;
        Ok(())
    }

    /// New memory behind a run, counted as on its way. `Ok(None)` where there is none, or a limit refuses it.
    fn memory_for(
        &self,
        pool: &Sleeper,
        run: &GranuleRun,
        vm: &dyn VirtualMemory,
        calls: &Calls<'_>,
    ) -> Result<Option<Given<'_>>> {
        let transit = self.base.arenas.in_transit();
        let backing = self.space.backing(run.granule, &pool.source);
        if !self.base.holdings.admit_waking(pool.id, run.bytes()) {
            return Ok(None);
        }
        let intent = Intent::up_to(&self.base.holdings, pool.id, run.bytes(), run.bytes());
        self.space.retry_leftovers();
        let count = (run.bytes() / run.granule) as usize;
        match region::back(&**self.base.site.backend(), vm, &backing, run.at(), count, calls) {
            Ok(handles) => Ok(Some(Given { handles, backing, intent, transit })),
            Err(failed) => {
                self.base.holdings.lock().regions_mut().keep(*failed.leftovers);
                if failed.error.is_out_of_memory() { Ok(None) } else { Err(failed.error.into()) }
            }
        }
    }

    /// [`memory_for`](Self::memory_for) a run, with the remedies that a request has: callbacks, cached memory in the order
    /// that is fair, spill hooks.
    fn memory_by_all_means(
        &self,
        pool: &Sleeper,
        run: &GranuleRun,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        calls: &Calls<'_>,
    ) -> Result<Given<'_>> {
        let mut attempt = || self.memory_for(pool, run, vm, calls);
        if let Some(given) = attempt()? {
            return Ok(given);
        }
        self.base.observers.ask_for_memory();
        let need = Need { pool: pool.id, stream: run.stream, bytes: run.bytes() };
        if let Some(given) = self.reclaim.reclaim_until(&need, call, &mut attempt)? {
            return Ok(given);
        }
        let given = self.reclaim.spill_until(&|| need, call, &mut |_| attempt())?;
        given.ok_or_else(|| self.no_room(pool, run))
    }

    fn no_room(&self, pool: &Sleeper, run: &GranuleRun) -> AllocError {
        AllocError::NoRoomToWake {
            label: self.base.site.backend().label(),
            pool: pool.id,
            bytes: run.bytes(),
            free: self.base.site.device_free().unwrap_or(0),
        }
    }

    /// Copies a run's contents back, as far as it has any; returns how many bytes. Blocks.
    fn restore_contents(&self, run: &GranuleRun) -> std::result::Result<u64, BackendError> {
        // Neighbours in one store are copied together.
        let mut pieces: Vec<(Arc<Store>, u64, u64, u64)> = Vec::new();
        {
            let device = self.base.holdings.lock();
            let Some(region) = device.regions().get(run.region) else { return Ok(0) };
            for (at, saved) in region.saved(run.range.clone()) {
                let Some((store, offset)) = saved else { continue };
                match pieces.last_mut() {
                    Some((last, from, to, bytes))
                        if Arc::ptr_eq(last, store) && *from + *bytes == *offset && *to + *bytes == at =>
                    {
                        *bytes += run.granule;
                    }
                    _ => pieces.push((Arc::clone(store), *offset, at, run.granule)),
                }
            }
        }
        let mut restored = 0;
        for (store, offset, at, bytes) in pieces {
            // SAFETY: mapped by this thread just now; the blocks on it are in nobody's reach.
            unsafe { store.restore(&**self.base.site.backend(), offset, DevicePtr(at), bytes) }?;
            restored += bytes;
        }
        Ok(restored)
    }
}
