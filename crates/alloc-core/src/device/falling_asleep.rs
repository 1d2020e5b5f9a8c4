//! Pools of one device that are being put to sleep: taken out of use, copied away, their memory given up.

use crate::arena::directory::Arena;
use crate::arena::{Bed, Sleepers};
use crate::device::Device;
use crate::device::offload::GranuleRun;
use crate::device::pools::Sleeper;
use crate::device::rounds::{Begun, Carried, PIECE};
use crate::device::{arenas, offload, pools, recorder};
use crate::error::Result;
use crate::features::sleep::{Backup, Kept, SleepReport};
use crate::lifetimes::call::Call;
use crate::memory::backup::{CopyStream, Saved, Store, Ticket};
use crate::memory::region::{self, Mapping, bytes_of};
use crate::process::callbacks::CallbackScope;
use crate::sync::{Arc, MemoryInFlight};
use crate::types::DeviceIndex;
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;
use std::collections::{BTreeSet, VecDeque};

/// Pools that are being put to sleep.
pub(crate) struct FallingAsleep<'s> {
    device: &'s Device,
    pools: Vec<Sleeper>,
    backup: &'s Backup,
    report: SleepReport,
    /// Runs out of use whose contents are still on the device.
    awake: VecDeque<Lying>,
    /// Runs that are being copied away.
    copied: VecDeque<(Lying, Option<Ticket>)>,
    copy_stream: CopyStream,
    memory: Option<MemoryInFlight<'s>>,
    call: Call<'s>,
    /// The last to go: panics of the program's code go on from there.
    calls: CallbackScope<'s>,
}

/// Granules out of everyone's reach, and the place for their contents.
struct Lying {
    arena: Arc<Arena>,
    pool: usize,
    run: GranuleRun,
    store: Option<(Arc<Store>, u64)>,
}

impl<'s> FallingAsleep<'s> {
    /// Takes no memory out of use yet.
    pub(super) fn new(
        device: &'s Device,
        pools: Vec<Sleeper>,
        backup: &'s Backup,
        report: SleepReport,
        call: Call<'s>,
        calls: CallbackScope<'s>,
    ) -> Self {
        Self {
            device,
            pools,
            backup,
            report,
            awake: VecDeque::new(),
            copied: VecDeque::new(),
            copy_stream: CopyStream::new(device.driver.backend(), device.driver.device()),
            memory: None,
            call,
            calls,
        }
    }

    /// Takes memory that can sleep out of everyone's reach. Returns all devices that may be using it.
    pub(crate) fn lie_down(&mut self) -> BTreeSet<DeviceIndex> {
        let mut users: BTreeSet<DeviceIndex> = self.device.accounting.users().into_iter().collect();
        self.memory = Some(self.device.slow_path.begin());
        for number in 0..self.pools.len() {
            for arena in self.device.arenas.directory().of_pool(self.pools[number].slot) {
                self.lie_down_in(arena, number, &mut users);
            }
        }
        if self.awake.is_empty() { BTreeSet::new() } else { users }
    }

    fn lie_down_in(&mut self, arena: &Arc<Arena>, number: usize, users: &mut BTreeSet<DeviceIndex>) {
        let pool = &self.pools[number];
        let free_too = pools::is_known_to_graphs(self.device, pool.slot);
        let mut state = arena.lock();
        if state.binding().slot() != pool.slot {
            return;
        }
        users.extend(state.uses().devices());
        for (segment, region_id) in state.layout().growable() {
            let mut accounting = self.device.accounting.lock();
            let Some(region) = accounting.regions().get(region_id) else { continue };
            let has_aliases = |at| accounting.regions().has_aliases(region_id, at);
            let found = Sleepers::of(state.heap(), segment, region, has_aliases, free_too);
            for (bytes, because) in found.kept {
                let (device, pool) = (self.device.index(), pool.id);
                self.report.kept.push(Kept { device, pool, bytes, because });
            }
            for range in found.ranges {
                Bed::of(state.heap_mut(), segment).lie_down(&range);
                let run = GranuleRun::take(&state, &mut accounting, segment, region_id, range);
                self.awake.push_back(Lying { arena: Arc::clone(arena), pool: number, run, store: None });
            }
        }
    }

    /// Nothing is in flight any more, so that the program's code may be called.
    pub(crate) fn land(&mut self) {
        self.memory = None;
    }

    /// Ends the sleep and reports it. Tells trackers, which may wait for other threads.
    pub(crate) fn end(self) -> SleepReport {
        let Self { device, report, call, .. } = self;
        drop(call);
        recorder::tell_trackers(device);
        report
    }

    /// Leaves the run as it was, with memory.
    fn stay_awake(&self, lying: &Lying) {
        let run = &lying.run;
        let mut state = lying.arena.lock();
        let mut accounting = self.device.accounting.lock();
        accounting.regions_mut().commit_backed(run.region, &run.memory);
        run.follow(&mut state, &accounting);
    }

    /// The next piece to sleep, with a place for its contents.
    fn next(&mut self) -> Result<Option<Lying>> {
        let Some(mut lying) = self.awake.pop_front() else { return Ok(None) };
        if lying.store.is_none() {
            match offload::store_for(self.device, self.backup, lying.run.bytes()) {
                Ok(store) => lying.store = store.map(|store| (store, 0)),
                Err(error) => {
                    self.awake.push_front(lying);
                    return Err(error.into());
                }
            }
        }
        let Lying { arena, pool, run, store } = lying;
        let Some((store, offset)) = store else { return Ok(Some(Lying { arena, pool, run, store: None })) };
        let (run, rest) = run.cut(PIECE);
        if let Some(rest) = rest {
            let store = Some((Arc::clone(&store), offset + run.bytes()));
            self.awake.push_front(Lying { arena: Arc::clone(&arena), pool, run: rest, store });
        }
        Ok(Some(Lying { arena, pool, run, store: Some((store, offset)) }))
    }

    /// Queues the copy of a piece's contents.
    fn copy_away(&mut self, lying: &Lying) -> Result<Option<Ticket>> {
        let Some((store, offset)) = &lying.store else { return Ok(None) };
        // SAFETY: all devices are done with the run, and its blocks are in nobody's reach; the place in the store is its alone.
        Ok(Some(unsafe { self.copy_stream.save(store, *offset, lying.run.at(), lying.run.bytes()) }?))
    }

    /// Gives up the memory of a piece whose contents are saved, or not wanted.
    fn give_up(&mut self, lying: &Lying) -> Result<()> {
        let run = &lying.run;
        let Ok(vm) = self.device.driver.backend().virtual_memory() else { return Ok(()) };
        let pool = &self.pools[lying.pool];
        let place = |mapping: &Mapping| -> (u64, Saved) {
            let offset = mapping.addr - run.range.start;
            (mapping.addr, lying.store.as_ref().map(|(store, at)| (Arc::clone(store), at + offset)))
        };
        let mut saved: Vec<_> = run.memory.iter().map(place).collect();
        let owner = (pool.id, run.stream);
        self.device.tell_growable(SegmentChange::Detaching, owner, run.at(), run.bytes(), &self.calls);
        // SAFETY: the granules are set to `Pending` by this thread only; their blocks are in nobody's reach, and all devices
        // that may use them are done.
        let (count, leftovers, outcome) =
            unsafe { region::evict(vm, &run.memory, &pool.source, &self.calls) };
        let slept = bytes_of(&run.memory[..count]);
        self.device.tell_growable(
            SegmentChange::Attached,
            owner,
            run.at().add(slept),
            run.bytes() - slept,
            &self.calls,
        );
        let _dropped_without_a_lock = saved.split_off(count);
        let lost = leftovers.handle_bytes();
        {
            let mut state = arenas::attend(self.device, &lying.arena, &self.call);
            let mut accounting = self.device.accounting.lock();
            accounting.regions_mut().keep(leftovers);
            accounting.regions_mut().commit_asleep(run.region, saved);
            accounting.regions_mut().commit_backed(run.region, &run.memory[count..]);
            if slept > 0 {
                accounting.give_back(pool.id, run.tier, slept);
            }
            run.follow(&mut state, &accounting);
            drop(accounting);
            if slept > 0 {
                let context = state.layout().segments()[run.segment].context.clone();
                state.ledger_mut().history_mut().record_about(
                    Action::SegmentUnmap,
                    run.range.start,
                    slept,
                    context.as_ref(),
                );
            }
        }
        self.report.slept += slept;
        self.report.freed += slept - lost;
        if lying.store.is_some() {
            self.report.backed_up += slept;
        }
        Ok(outcome?)
    }
}

impl Carried for FallingAsleep<'_> {
    fn begin(&mut self, _pressed: bool) -> Result<Begun> {
        let Some(lying) = self.next()? else { return Ok(Begun::Nothing) };
        match self.copy_away(&lying) {
            Ok(ticket) => self.copied.push_back((lying, ticket)),
            Err(error) => {
                self.awake.push_front(lying);
                return Err(error);
            }
        }
        Ok(Begun::Piece)
    }

    fn under_way(&self) -> usize {
        self.copied.len()
    }

    fn finish(&mut self) -> Result<()> {
        let Some((_, ticket)) = self.copied.front() else { return Ok(()) };
        if let Some(ticket) = ticket {
            self.copy_stream.land(*ticket)?;
        }
        let Some((lying, _)) = self.copied.pop_front() else { return Ok(()) };
        self.give_up(&lying)
    }

    /// Wakes all runs that still have memory. The caller decides what to do next.
    fn settle(&mut self) {
        self.copy_stream.abandon();
        let copied = std::mem::take(&mut self.copied).into_iter().map(|(lying, _)| lying);
        let lying: Vec<Lying> = copied.chain(std::mem::take(&mut self.awake)).collect();
        for lying in lying {
            self.stay_awake(&lying);
        }
    }
}
