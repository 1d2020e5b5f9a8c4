//! Pools of one device that are being woken: runs with memory again, and contents being copied back.

use crate::arena::directory::{Arena, PoolSlot};
use crate::device::Device;
use crate::device::offload::GranuleRun;
use crate::device::pools::Sleeper;
use crate::device::rounds::{Begun, Carried, PIECE};
use crate::device::wake::Given;
use crate::device::{arenas, budget_events, recorder};
use crate::error::Result;
use crate::features::sleep::WakeReport;
use crate::lifetimes::call::Call;
use crate::memory::backup::{CopyStream, Store, Ticket};
use crate::memory::region::{self, Leftovers};
use crate::process::callbacks::CallbackScope;
use crate::sync::Arc;
use crate::types::DevicePtr;
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;
use std::collections::VecDeque;

/// Pools that are being woken.
pub(crate) struct WakingUp<'w> {
    device: &'w Device,
    pools: Vec<Sleeper>,
    /// Arenas that may have more sleeping memory, with the numbers of their pools.
    asleep: VecDeque<(usize, Arc<Arena>)>,
    restoring: VecDeque<Rising<'w>>,
    copy_stream: CopyStream,
    report: WakeReport,
    /// Outcome of giving sleeping memory up.
    emptied: Result<()>,
    call: Call<'w>,
    /// The last to go: panics of the program's code go on from there.
    calls: CallbackScope<'w>,
}

/// A run that sleeps on when this is dropped, unless it has woken.
struct Unwoken<'w> {
    device: &'w Device,
    arena: Arc<Arena>,
    run: GranuleRun,
    has_woken: bool,
}

impl Drop for Unwoken<'_> {
    fn drop(&mut self) {
        if self.has_woken {
            return;
        }
        let mut state = self.arena.lock();
        let mut accounting = self.device.accounting.lock();
        accounting.regions_mut().keep_asleep(self.run.region, self.run.range.clone());
        self.run.follow(&mut state, &accounting);
    }
}

/// A run that has memory again, and whose contents are in flight.
struct Rising<'w> {
    asleep: Unwoken<'w>,
    pool: usize,
    given: Given<'w>,
    /// Copies, and the bytes they bring.
    copies: Copies,
}

/// Copy that brings a run's contents.
#[derive(Default)]
struct Copies {
    ticket: Option<Ticket>,
    bytes: u64,
}

impl<'w> WakingUp<'w> {
    pub(super) fn new(
        device: &'w Device,
        pools: Vec<Sleeper>,
        report: WakeReport,
        emptied: Result<()>,
        call: Call<'w>,
        calls: CallbackScope<'w>,
    ) -> Self {
        let arenas_of = |(number, pool): (usize, &Sleeper)| {
            let arenas = device.arenas.directory().of_pool(pool.slot).into_iter();
            arenas.map(move |arena| (number, Arc::clone(arena)))
        };
        Self {
            device,
            asleep: pools.iter().enumerate().flat_map(arenas_of).collect(),
            pools,
            restoring: VecDeque::new(),
            copy_stream: CopyStream::new(device.driver.backend(), device.driver.device()),
            report,
            emptied,
            call,
            calls,
        }
    }

    /// Ends the wake and reports it. Tells trackers.
    ///
    /// # Errors
    /// Where giving sleeping memory up failed.
    pub(crate) fn end(self) -> Result<WakeReport> {
        let Self { device, report, emptied, call, calls, .. } = self;
        drop(call);
        recorder::tell_trackers(device);
        // Observers may wait for other threads, which may wait for memory in flight: now there is none.
        budget_events::tell_in(device, &calls);
        emptied.map(|()| report)
    }

    /// The next sleeping piece, taken to be woken, and the number of its pool.
    fn next_asleep(&mut self) -> Option<(usize, Unwoken<'w>)> {
        while let Some((number, arena)) = self.asleep.front() {
            if let Some(run) = self.next_in(arena, self.pools[*number].slot) {
                let (device, arena) = (self.device, Arc::clone(arena));
                return Some((*number, Unwoken { device, arena, run, has_woken: false }));
            }
            self.asleep.pop_front();
        }
        None
    }

    fn next_in(&self, arena: &Arena, slot: PoolSlot) -> Option<GranuleRun> {
        let state = arena.lock();
        if state.binding().slot() != slot {
            return None;
        }
        for (segment, region_id) in state.layout().growable() {
            let mut accounting = self.device.accounting.lock();
            let Some(region) = accounting.regions().get(region_id) else { continue };
            let Some(range) = region.first_asleep(PIECE) else { continue };
            return Some(GranuleRun::take(&state, &mut accounting, segment, region_id, range));
        }
        None
    }

    /// Queues the copies of a run's contents, as far as it has any.
    fn copy_back(&mut self, run: &GranuleRun) -> Result<Copies> {
        // Neighbours in one store are copied together.
        let mut pieces: Vec<(Arc<Store>, u64, u64, u64)> = Vec::new();
        {
            let device = self.device.accounting.lock();
            let Some(region) = device.regions().get(run.region) else { return Ok(Copies::default()) };
            for (at, of_granule, saved) in region.saved(run.range.clone()) {
                let Some((store, offset)) = saved else { continue };
                match pieces.last_mut() {
                    Some((last, from, to, bytes))
                        if Arc::ptr_eq(last, store) && *from + *bytes == *offset && *to + *bytes == at =>
                    {
                        *bytes += of_granule;
                    }
                    _ => pieces.push((Arc::clone(store), *offset, at, of_granule)),
                }
            }
        }
        let mut copies = Copies::default();
        for (store, offset, at, bytes) in pieces {
            // SAFETY: mapped by this thread just now; the blocks on it are in nobody's reach.
            copies.ticket = Some(unsafe { self.copy_stream.restore(&store, offset, DevicePtr(at), bytes) }?);
            copies.bytes += bytes;
        }
        Ok(copies)
    }

    /// Takes the memory away again: the run sleeps on.
    fn take_back(&self, given: &Given<'w>) {
        let Ok(vm) = self.device.driver.backend().virtual_memory() else { return };
        let mut leftovers = Leftovers::default();
        let Given { memory, source, .. } = given;
        // SAFETY: the granules are set to `Pending` by this thread only, and what was queued for them is done.
        unsafe { region::undo(vm, source, memory, &mut leftovers, &self.calls) };
        self.device.accounting.lock().regions_mut().keep(leftovers);
    }

    /// Commits a run as awake.
    fn get_up(&mut self, rising: Rising<'w>) {
        let Rising { mut asleep, pool, given, copies } = rising;
        let (pool, run) = (&self.pools[pool], &asleep.run);
        let Given { memory, intent, in_flight, .. } = given;
        let owner = (pool.id, run.stream);
        self.device.tell_growable(SegmentChange::Attached, owner, run.at(), run.bytes(), &self.calls);
        let forgotten = {
            let mut state = arenas::attend(self.device, &asleep.arena, &self.call);
            let mut accounting = self.device.accounting.lock();
            intent.fulfil(&mut accounting);
            accounting.take(pool.id, run.tier, run.bytes());
            accounting.regions_mut().commit_backed(run.region, &memory);
            let forgotten = accounting.regions_mut().forget_saved(run.region, run.range.clone());
            run.follow(&mut state, &accounting);
            drop(accounting);
            state.ledger_mut().history_mut().record(Action::SegmentMap, run.range.start, run.bytes());
            forgotten
        };
        // Backups end in code of the program, perhaps, which may wait for other threads.
        drop(in_flight);
        drop(forgotten);
        self.report.woken += run.bytes();
        self.report.restored += copies.bytes;
        asleep.has_woken = true;
    }
}

impl Carried for WakingUp<'_> {
    fn begin(&mut self, pressed: bool) -> Result<Begun> {
        let Some((number, asleep)) = self.next_asleep() else { return Ok(Begun::Nothing) };
        let (pool, run) = (&self.pools[number], &asleep.run);
        let Ok(vm) = self.device.driver.backend().virtual_memory() else { return Ok(Begun::Nothing) };
        let given = if pressed {
            self.device.memory_by_all_means(pool, run, vm, &self.call, &self.calls)?
        } else {
            match self.device.memory_for(pool, run, vm, &self.calls)? {
                Some(given) => given,
                None => return Ok(Begun::Short),
            }
        };
        match self.copy_back(run) {
            Ok(copies) => {
                self.restoring.push_back(Rising { asleep, pool: number, given, copies });
                Ok(Begun::Piece)
            }
            Err(error) => {
                // Some of it may be queued.
                self.copy_stream.abandon();
                self.take_back(&given);
                Err(error)
            }
        }
    }

    fn under_way(&self) -> usize {
        self.restoring.len()
    }

    fn finish(&mut self) -> Result<()> {
        let Some(rising) = self.restoring.front() else { return Ok(()) };
        if let Some(ticket) = rising.copies.ticket {
            self.copy_stream.land(ticket)?;
        }
        if let Some(rising) = self.restoring.pop_front() {
            self.get_up(rising);
        }
        Ok(())
    }

    /// Wakes runs whose contents arrived; the others sleep on.
    fn settle(&mut self) {
        while !self.restoring.is_empty() && self.finish().is_ok() {}
        self.copy_stream.abandon();
        for Rising { given, asleep: _asleep, .. } in std::mem::take(&mut self.restoring) {
            self.take_back(&given);
        }
    }
}
