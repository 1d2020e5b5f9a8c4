//! Memory for pools that wake; [`crate::sleep`] says what that means. `waking_up.rs` moves them.

use crate::backend::VirtualMemory;
use crate::device::Device;
use crate::device::accounting::Intent;
use crate::device::miss::reclaim::Need;
use crate::device::offload::GranuleRun;
use crate::device::pools::Sleeper;
use crate::device::waking_up::WakingUp;
use crate::device::{offload, pools, space};
use crate::error::{AllocError, Result};
use crate::features::sleep::WakeReport;
use crate::lifetimes::call::Call;
use crate::memory::region::{self, Mapping, Source};
use crate::process::callbacks::CallbackScope;
use crate::sync::MemoryInFlight;

/// Memory for a run, in flight.
pub(super) struct Given<'a> {
    pub(super) memory: Vec<Mapping>,
    pub(super) source: Source,
    pub(super) intent: Intent<'a>,
    pub(super) in_flight: MemoryInFlight<'a>,
}

impl Device {
    /// Begins to wake pools. Drops at once the memory that need not wake because all in it was freed.
    pub(crate) fn begin_wake(&self, pools: Vec<Sleeper>) -> Result<WakingUp<'_>> {
        let calls = self.driver.calls();
        let call = offload::begin_uncaptured(self)?;
        let mut report = WakeReport::default();
        let mut emptied = Ok(());
        if let Ok(vm) = self.driver.backend().virtual_memory() {
            for pool in pools.iter().filter(|pool| !pools::is_known_to_graphs(self, pool.slot)) {
                for arena in self.arenas.directory().of_pool(pool.slot) {
                    let (dropped, outcome) = space::drop_free_asleep(self, arena, pool.slot, vm);
                    report.dropped += dropped;
                    emptied = emptied.and(outcome);
                }
            }
        }
        Ok(WakingUp::new(self, pools, report, emptied, call, calls))
    }

    /// Takes new memory for a run, counted as in flight. `Ok(None)` where there is none, or a limit refuses it.
    pub(super) fn memory_for(
        &self,
        pool: &Sleeper,
        run: &GranuleRun,
        vm: &dyn VirtualMemory,
        calls: &CallbackScope<'_>,
    ) -> Result<Option<Given<'_>>> {
        let in_flight = self.slow_path.begin();
        let backing = space::backing(self, &pool.source);
        let sizes: Vec<u64> = {
            let accounting = self.accounting.lock();
            let region = accounting.regions().get(run.region);
            region
                .into_iter()
                .flat_map(|region| region.granules(run.range.clone()))
                .map(|(_, bytes, _)| bytes)
                .collect()
        };
        if !self.accounting.admit_waking(pool.id, run.bytes()) {
            return Ok(None);
        }
        let mut intent = Intent::up_to(&self.accounting, pool.id, run.bytes(), run.bytes());
        if !intent.is_spared(self.driver.host_reserve()) {
            return Ok(None);
        }
        space::retry_leftovers(self);
        match region::back(&**self.driver.backend(), vm, &backing, run.at(), &sizes, calls) {
            Ok(memory) => Ok(Some(Given { memory, source: backing.source, intent, in_flight })),
            Err(failed) => {
                self.accounting.lock().regions_mut().keep(*failed.leftovers);
                if failed.error.is_out_of_memory() { Ok(None) } else { Err(failed.error.into()) }
            }
        }
    }

    /// [`memory_for`](Self::memory_for) a run, with the remedies of a miss: callbacks, cached memory in the fair order,
    /// spill hooks.
    pub(super) fn memory_by_all_means(
        &self,
        pool: &Sleeper,
        run: &GranuleRun,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        calls: &CallbackScope<'_>,
    ) -> Result<Given<'_>> {
        let mut attempt = || self.memory_for(pool, run, vm, calls);
        if let Some(given) = attempt()? {
            return Ok(given);
        }
        self.observers.ask_for_memory();
        let need = Need { pool: pool.id, stream: run.stream, bytes: run.bytes() };
        if let Some(given) = self.reclaim_until(&need, call, &mut attempt)? {
            return Ok(given);
        }
        let given = self.spill_until(&|| need, call, &mut |_| attempt())?;
        given.ok_or_else(|| no_room(self, pool, run))
    }
}

fn no_room(device: &Device, pool: &Sleeper, run: &GranuleRun) -> AllocError {
    AllocError::NoRoomToWake {
        label: device.driver.backend().label(),
        pool: pool.id,
        bytes: run.bytes(),
        free: device.driver.device_free().unwrap_or(0),
        host: device.driver.host_room().filter(|host| host.is_short_of(run.bytes())),
    }
}
