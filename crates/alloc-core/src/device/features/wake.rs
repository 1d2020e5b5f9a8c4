//! Memory for pools that wake; what that means is said in [`crate::sleep`]. `waking_up.rs` has those on their way.

use crate::backend::VirtualMemory;
use crate::device::Base;
use crate::device::features::sleep::{GranuleRun, Sleep};
use crate::device::features::waking_up::WakingUp;
use crate::device::holdings::Intent;
use crate::device::ladder::reclaim::{Need, Reclaim};
use crate::device::pools::Sleeper;
use crate::device::space::Space;
use crate::error::{AllocError, Result};
use crate::features::sleep::WakeReport;
use crate::lifetimes::call::Call;
use crate::memory::region::{self, Mapping, Source};
use crate::process::foreign::Calls;
use crate::sync::{Arc, InTransit, ThreadId};

/// Pools that get memory behind their addresses again.
pub(crate) struct Wake {
    base: Base,
    space: Arc<Space>,
    reclaim: Arc<Reclaim>,
    sleep: Arc<Sleep>,
}

/// Memory for a run, on its way.
pub(super) struct Given<'a> {
    pub(super) memory: Vec<Mapping>,
    pub(super) source: Source,
    pub(super) intent: Intent<'a>,
    pub(super) transit: InTransit<'a, ThreadId>,
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

    /// Begins to wake pools. What does not wake because all in it was freed goes at once.
    pub(crate) fn begin(&self, pools: Vec<Sleeper>) -> Result<WakingUp<'_>> {
        let calls = self.base.site.calls();
        let call = self.sleep.begin_uncaptured()?;
        let mut report = WakeReport::default();
        let mut emptied = Ok(());
        if let Ok(vm) = self.base.site.backend().virtual_memory() {
            for pool in pools.iter().filter(|pool| !self.base.pools.is_known_to_graphs(pool.slot)) {
                for arena in self.base.arenas.directory().of_pool(pool.slot) {
                    let (dropped, outcome) = self.space.drop_dormant(arena, pool.slot, vm);
                    report.dropped += dropped;
                    emptied = emptied.and(outcome);
                }
            }
        }
        Ok(WakingUp::new(self, pools, report, emptied, call, calls))
    }

    pub(super) fn base(&self) -> &Base {
        &self.base
    }

    /// New memory behind a run, counted as on its way. `Ok(None)` where there is none, or a limit refuses it.
    pub(super) fn memory_for(
        &self,
        pool: &Sleeper,
        run: &GranuleRun,
        vm: &dyn VirtualMemory,
        calls: &Calls<'_>,
    ) -> Result<Option<Given<'_>>> {
        let transit = self.base.arenas.in_transit();
        let backing = self.space.backing(&pool.source);
        let sizes: Vec<u64> = {
            let device = self.base.holdings.lock();
            let region = device.regions().get(run.region);
            region
                .into_iter()
                .flat_map(|region| region.granules(run.range.clone()))
                .map(|(_, bytes, _)| bytes)
                .collect()
        };
        if !self.base.holdings.admit_waking(pool.id, run.bytes()) {
            return Ok(None);
        }
        let mut intent = Intent::up_to(&self.base.holdings, pool.id, run.bytes(), run.bytes());
        if !intent.is_spared() {
            return Ok(None);
        }
        self.space.retry_leftovers();
        match region::back(&**self.base.site.backend(), vm, &backing, run.at(), &sizes, calls) {
            Ok(memory) => Ok(Some(Given { memory, source: backing.source, intent, transit })),
            Err(failed) => {
                self.base.holdings.lock().regions_mut().keep(*failed.leftovers);
                if failed.error.is_out_of_memory() { Ok(None) } else { Err(failed.error.into()) }
            }
        }
    }

    /// [`memory_for`](Self::memory_for) a run, with the remedies that a request has: callbacks, cached memory in the order
    /// that is fair, spill hooks.
    pub(super) fn memory_by_all_means(
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
            host: self.base.site.host_room().filter(|host| host.is_short_of(run.bytes())),
        }
    }
}
