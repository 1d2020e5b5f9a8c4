//! Compaction; [`crate::compaction`] says what that is.
//!
//! What is free of a granule is taken out of its arena, the device is waited for, and the granule's memory is exchanged for less
//! (`memory/region/shrink.rs`), with no lock held. Then the outcome is committed, granule by granule, so that an error leaves each
//! as it was or with less memory.

use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaState, Sparse, Sparses};
use crate::backend::{BackendError, ErrorKind, VirtualMemory};
use crate::config::{Compact, Launches};
use crate::device::Base;
use crate::device::holdings::Intent;
use crate::device::pools::Flush;
use crate::device::provider::Provider;
use crate::device::release::Release;
use crate::error::{AllocError, Result};
use crate::features::compaction::{CompactionReport, Quiesce, QuiesceHook};
use crate::lifetimes::call::Call;
use crate::memory::block::{Block, BlockId, Tier};
use crate::memory::region::{GranuleState, Leftovers, Mapping, Place, Regions, Shrinking, Shrunk, bytes_of};
use crate::policy::Request;
use crate::policy::engine::{Engine, Streams};
use crate::process::attention::Reason;
use crate::process::foreign::{Calls, Kind};
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Rank, assert_unlocked, this_thread};
use crate::types::{DeviceIndex, DevicePtr, PoolId};
use crate::watch::history::RecordContext;
use crate::watch::snapshot::Action;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

/// What gives back the memory between live blocks.
pub(crate) struct Compaction {
    base: Base,
    provider: Arc<Provider>,
    release: Arc<Release>,
    /// A thread is at it.
    running: AtomicBool,
    hooks: Mutex<Arc<Vec<QuiesceHook>>>,
    /// The most bytes that were in use when memory was taken.
    most_needed: AtomicU64,
    /// What that was at the last compaction in ample memory, and how many requests missed since.
    needed_then: AtomicU64,
    misses: AtomicU64,
}

/// Memory is compacted in ample memory where more would be held than this many thousandths beyond what is needed at most.
const BEYOND: u64 = 3;
/// It has to give so many thousandths of what is held.
const WORTH: u64 = 4;
/// It is due where so many thousandths of what is held are wanted,
const WANTED: u64 = 7;
/// where so many hundredths more are needed than at the last,
const GROWN: u64 = 10;
/// or so many requests missed since.
const MISSED: u64 = 100;

/// A granule that is to have less memory. What is free of it is out of everyone's reach.
struct Shrinkable {
    sparse: Sparse,
    blocks: Vec<BlockId>,
    /// What is behind it.
    memory: Mapping,
}

/// A granule that could have less memory.
pub(super) struct Candidate {
    sparse: Sparse,
    /// Bytes that it would give.
    pub(super) gain: u64,
    /// Bytes that have to be there beside it meanwhile.
    pub(super) beside: u64,
    /// Its memory is mapped in other places, too, where it is not used.
    elsewhere: bool,
}

impl Candidate {
    /// `None` where a granule is not only this allocator's.
    fn of(regions: &Regions, sparse: Sparse) -> Option<Self> {
        let (gain, beside) = (sparse.gain(), sparse.rest());
        let elsewhere = sparse.shown || regions.is_elsewhere(sparse.region, sparse.granule.start);
        is_own(regions, &sparse).then_some(Self { sparse, gain, beside, elsewhere })
    }

    /// Whether it gives more than has to be copied.
    fn is_cheap(&self) -> bool {
        self.gain >= self.beside
    }
}

/// What a compaction is to give.
#[derive(Clone, Copy)]
struct Goal {
    bytes: u64,
    /// Only from granules that give more than has to be copied.
    cheaply: bool,
}

impl Goal {
    /// What is taken for it, in this order: what gives the most, and can be had with `room` bytes and what was given before.
    fn choose(self, mut candidates: Vec<Candidate>, mut room: u64) -> Vec<Candidate> {
        candidates.retain(|found| !self.cheaply || found.is_cheap());
        let (mut chosen, mut gained) = (Vec::new(), 0);
        while gained < self.bytes {
            let Some(place) = candidates.iter().position(|found| found.beside <= room) else { break };
            let found = candidates.remove(place);
            (gained, room) = (gained + found.gain, room + found.gain);
            chosen.push(found);
        }
        chosen
    }
}

/// One thread compacts until this is dropped.
struct Running<'a>(&'a AtomicBool);

impl<'a> Running<'a> {
    fn begin(running: &'a AtomicBool) -> Option<Self> {
        (!running.swap(true, Ordering::Acquire)).then_some(Self(running))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// No other thread of the program gives the device work until this is dropped.
struct Quiet<'a> {
    compaction: &'a Compaction,
    stopped: Vec<QuiesceHook>,
    calls: &'a Calls<'a>,
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let device = self.compaction.base.site.device();
        for hook in self.stopped.drain(..).rev() {
            self.calls.call(Kind::QuiesceHook, || hook(Quiesce::Resume(device)));
        }
    }
}

/// Whether a granule is only this allocator's, and nobody changes it.
fn is_own(regions: &Regions, sparse: &Sparse) -> bool {
    let state = regions.get(sparse.region).map(|region| region.state_at(sparse.granule.start));
    state == Some(GranuleState::Mapped)
}

/// Why nothing of a device can be compacted, whoever asks.
pub(super) fn lasting_obstacle(base: &Base) -> Option<&'static str> {
    let site = &base.site;
    if !site.has_virtual_memory() || !base.supply.counts_what_is_missing() {
        Some("nothing is compacted but growable memory of policy:granule")
    } else if site.attention().has(Reason::HARDENED) {
        Some("nothing is compacted in hardened mode, which watches freed memory where it is")
    } else if site.is_beside_capture() {
        Some("nothing is compacted during a capture, whose work cannot be waited for; end it first")
    } else if base.holdings.users().len() > 1 {
        Some("nothing is compacted that other devices reach: they may write to it at any time")
    } else if base.observers.has_segment_observers() || base.history.is_tracked() {
        Some(
            "nothing is compacted while somebody observes segments or traces: they may have registered the memory",
        )
    } else {
        None
    }
}

/// The granules of a device that could have less memory.
pub(super) fn candidates(base: &Base) -> Vec<Candidate> {
    let arenas = base.arenas.directory().of_pool(PoolSlot::DEFAULT).into_iter();
    arenas.flat_map(|arena| candidates_in(base, &mut arena.lock())).collect()
}

/// Those of an arena, where most comes free first.
fn candidates_in(base: &Base, state: &mut ArenaState) -> Vec<Candidate> {
    let own = base.site.device();
    if state.tenure().slot() != PoolSlot::DEFAULT || state.uses().devices().any(|device| device != own) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (segment, _) in state.layout().growable() {
        let Some(sparses) = Sparses::of(state.heap_mut(), segment) else { continue };
        if sparses.tier() != Tier::Large {
            continue;
        }
        let sparse = base.pins.with(|is_pinned| sparses.find(|block: &Block| is_pinned(block.addr)));
        let device = base.holdings.lock();
        found.extend(sparse.into_iter().filter_map(|sparse| Candidate::of(device.regions(), sparse)));
    }
    found.sort_unstable_by_key(|found| (Reverse(found.gain), found.sparse.granule.start));
    found
}

impl Compaction {
    pub(in crate::device) fn new(base: &Base, provider: &Arc<Provider>, release: &Arc<Release>) -> Self {
        Self {
            base: base.clone(),
            provider: Arc::clone(provider),
            release: Arc::clone(release),
            running: AtomicBool::new(false),
            hooks: Mutex::new(Rank::Registry, Arc::default()),
            most_needed: AtomicU64::new(0),
            needed_then: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// See [`Hooks::on_quiesce`](crate::allocator::Hooks::on_quiesce).
    pub(crate) fn add_hook(&self, hook: QuiesceHook) {
        Arc::make_mut(&mut self.hooks.lock()).push(hook);
    }

    /// The block at `ptr`, which lives, keeps its memory until it is freed.
    pub(crate) fn pin(&self, ptr: DevicePtr) {
        self.base.pins.begin(ptr);
        let me = this_thread();
        if self.running.load(Ordering::Acquire) && !self.base.arenas.transit().concerns(me) {
            // It may have been chosen before it was pinned.
            self.base.arenas.transit().wait_for(|thread| thread != me, || None::<()>);
        }
    }

    /// Frees the block at `ptr`, which is not pinned any more then. Whether `free` did.
    pub(in crate::device) fn freeing(&self, ptr: DevicePtr, free: impl FnOnce() -> bool) -> bool {
        // Before the address is anybody's again.
        let was_pinned = self.base.pins.end(ptr);
        let freed = free();
        if was_pinned && !freed {
            self.pin(ptr);
        }
        freed
    }

    /// See [`CachingAllocator::compact`](crate::CachingAllocator::compact).
    pub(crate) fn compact(&self) -> Result<CompactionReport> {
        if let Some(obstacle) = self.obstacle() {
            return Err(AllocError::Limit(obstacle));
        }
        let call = self.base.history.begin_call(None, RecordContext::All)?;
        let outcome = self
            .release
            .release(Flush::Everything, &call)
            .and_then(|()| self.run(Goal { bytes: u64::MAX, cheaply: false }, &call));
        drop(call);
        self.base.history.tell_trackers();
        outcome
    }

    /// Why nothing may be moved now, if that is so.
    fn obstacle(&self) -> Option<&'static str> {
        let is_inside = self.base.arenas.transit().concerns(this_thread());
        lasting_obstacle(&self.base).or_else(|| {
            is_inside
                .then_some("nothing is compacted by a callback that runs while memory is taken or given back")
        })
    }

    /// Waits for all work of the devices that the process uses: a copy between two runs on a stream of either, and notes no use.
    fn drain(&self) -> std::result::Result<(), BackendError> {
        let (backend, own) = (self.base.site.backend(), self.base.site.device());
        backend.synchronize_device(own)?;
        for device in (0..backend.device_count()?).map(DeviceIndex).filter(|device| *device != own) {
            if backend.has_primary_context(device)? {
                backend.synchronize_device(device)?;
            }
        }
        Ok(())
    }

    /// Before a request is refused: makes room for it where settings say so, and serves it.
    pub(in crate::device) fn last_resort(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let pool = arena.lock().tenure().pool().id;
        if self.setting() == Compact::Never || self.obstacle().is_some() {
            return Ok(None);
        }
        let missing = || {
            // The driver is asked with no lock held.
            let missing = self.provider.missing_for(&mut arena.lock(), request);
            missing.saturating_sub(self.room(pool))
        };
        if missing() > self.potential(false) {
            return Ok(None);
        }
        let calls = self.base.site.calls();
        let served = {
            let Some(_quiet) = self.quiesce(&calls) else { return Ok(None) };
            self.serve(arena, request, missing, call)?
        };
        // A hook may have panicked only now: then nobody gets it.
        served.map(|ptr| self.base.hardened.arrived(Ok(ptr), &calls)).transpose()
    }

    /// Serves a request that misses so much with what compactions give.
    fn serve(
        &self,
        arena: &Arena,
        request: &Request,
        missing: impl Fn() -> u64,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        loop {
            if self.try_to_gain(Goal { bytes: missing().max(1), cheaply: false }, call)? == 0 {
                return Ok(None);
            }
            let found = self.provider.search(arena, request, false, call);
            let served = found.map_or_else(
                || self.provider.take_memory(arena, request, false, call),
                |ptr| Ok(Some(ptr)),
            )?;
            if served.is_some() {
                return Ok(served);
            }
        }
    }

    /// Before more is taken than the program needs: gives the memory between live blocks back, where settings say so and it is
    /// worth a pause. Whether it did.
    pub(in crate::device) fn in_ample_memory(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Result<bool> {
        if self.setting() != Compact::Always || self.obstacle().is_some() {
            return Ok(false);
        }
        let wanted = self.provider.missing_for(&mut arena.lock(), request);
        let held = self.base.holdings.lock().accounts().whole().held();
        let needed = self.base.arenas.in_use().saturating_add(request.size);
        let needed = self.most_needed.fetch_max(needed, Ordering::Relaxed).max(needed);
        let excess = held.saturating_add(wanted).saturating_sub(needed + needed / 1000 * BEYOND);
        let missed = self.misses.fetch_add(1, Ordering::Relaxed);
        let then = self.needed_then.load(Ordering::Relaxed);
        let is_due = wanted >= held / 1000 * WANTED || needed > then + then / 100 * GROWN || missed >= MISSED;
        if excess == 0 || !is_due {
            return Ok(false);
        }
        // Looking takes a look at every block, so it is not done at each miss where it gives nothing.
        self.misses.store(0, Ordering::Relaxed);
        self.needed_then.store(needed, Ordering::Relaxed);
        if self.potential(true) < held / 1000 * WORTH {
            return Ok(false);
        }
        let calls = self.base.site.calls();
        let Some(_quiet) = self.quiesce(&calls) else { return Ok(false) };
        Ok(self.try_to_gain(Goal { bytes: excess, cheaply: true }, call)? > 0)
    }

    /// Bytes gained by a compaction. What it fails with is no reason to refuse a request, unless the device is lost.
    fn try_to_gain(&self, goal: Goal, call: &Call<'_>) -> Result<u64> {
        match self.run(goal, call) {
            Ok(report) => Ok(report.gained),
            Err(AllocError::Backend(error)) if error.kind != ErrorKind::DeviceLost => {
                tracing::warn!(%error, "memory could not be compacted for a request");
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    fn setting(&self) -> Compact {
        self.base.holdings.lock().settings().compaction
    }

    /// Sees to it that nobody else gives the device work. `None` where the program has promised nothing, or a hook refuses.
    fn quiesce<'a>(&'a self, calls: &'a Calls<'a>) -> Option<Quiet<'a>> {
        if calls.is_inside(Kind::QuiesceHook) {
            return None;
        }
        let hooks = Arc::clone(&self.hooks.lock());
        if hooks.is_empty() && self.base.holdings.lock().settings().launches != Launches::AllocatingThread {
            return None;
        }
        let device = self.base.site.device();
        let mut quiet = Quiet { compaction: self, stopped: Vec::new(), calls };
        for hook in hooks.iter() {
            let stopped = calls.call(Kind::QuiesceHook, || hook(Quiesce::Stop(device)));
            if stopped != Some(true) {
                return None;
            }
            quiet.stopped.push(Arc::clone(hook));
        }
        Some(quiet)
    }

    /// What may be taken for a pool at the moment. Calls the driver.
    fn room(&self, pool: PoolId) -> u64 {
        assert_unlocked();
        let free = self.base.site.device_free().unwrap_or_else(|| {
            self.base.site.backend().clear_error();
            0
        });
        let limits = self.base.holdings.lock().accounts().limits(Some(pool));
        limits.iter().map(|limit| limit.bytes.saturating_sub(limit.held)).fold(free, u64::min)
    }

    /// What a compaction would give at most.
    fn potential(&self, cheaply: bool) -> u64 {
        let worth = |found: &Candidate| !cheaply || found.is_cheap();
        candidates(&self.base).into_iter().filter(worth).map(|found| found.gain).sum()
    }

    /// Compacts granules of the default pool until the goal is reached, or there are none. Nothing where a thread is at it.
    /// Blocks.
    fn run(&self, goal: Goal, call: &Call<'_>) -> Result<CompactionReport> {
        let mut report = CompactionReport::default();
        let Some(_running) = Running::begin(&self.running) else { return Ok(report) };
        let Ok(vm) = self.base.site.backend().virtual_memory() else { return Ok(report) };
        let began = Instant::now();
        let mut outcome = Ok(());
        for arena in self.base.arenas.directory().of_pool(PoolSlot::DEFAULT) {
            if report.gained >= goal.bytes || outcome.is_err() {
                break;
            }
            let left = Goal { bytes: goal.bytes - report.gained, ..goal };
            outcome = self.compact_arena(arena, left, vm, call, &mut report);
        }
        report.pause = began.elapsed();
        if report.gained > 0 {
            self.base.holdings.lock().note_compaction(&report);
            tracing::debug!(?report, "memory was compacted");
        }
        outcome.map(|()| report)
    }

    /// Takes what is free of granules out of everyone's reach. `room` is what can be had beside them.
    fn choose(&self, arena: &Arena, goal: Goal, room: u64) -> Vec<Shrinkable> {
        let mut state = arena.lock();
        let mut candidates = candidates_in(&self.base, &mut state);
        candidates.retain(|found| !found.elsewhere);
        let mut taken = Vec::new();
        for Candidate { sparse, .. } in goal.choose(candidates, room) {
            let memory = {
                let mut device = self.base.holdings.lock();
                // Since it was found, somebody may have begun to share it.
                let regions = device.regions();
                if !is_own(regions, &sparse) || regions.is_elsewhere(sparse.region, sparse.granule.start) {
                    continue;
                }
                device.regions_mut().begin(sparse.region, sparse.granule.clone())
            };
            let &[memory] = memory.as_slice() else { continue };
            let sparses = Sparses::of(state.heap_mut(), sparse.segment);
            let Some(blocks) = sparses.and_then(|mut sparses| sparses.begin(&sparse)) else {
                self.base.holdings.lock().regions_mut().commit_backed(sparse.region, &[memory]);
                continue;
            };
            taken.push(Shrinkable { sparse, blocks, memory });
        }
        taken
    }

    /// The memory of granules that would be chosen is mapped at home only, where it need not be elsewhere. Blocks.
    fn bring_home(&self, arena: &Arena, goal: Goal, call: &Call<'_>) -> Result<()> {
        let room = self.room(PoolId::DEFAULT);
        let chosen = goal.choose(candidates_in(&self.base, &mut arena.lock()), room);
        let elsewhere: Vec<_> = chosen.into_iter().filter(|found| found.elsewhere).collect();
        let shown = elsewhere.iter().map(|found| (found.sparse.segment, found.sparse.granule.start));
        let hidden = self.base.supply.hide(&*self.provider, arena, &shown.collect::<Vec<_>>(), call);
        let mut away: BTreeMap<u16, Vec<Place>> = BTreeMap::new();
        for Candidate { sparse, .. } in &elsewhere {
            let device = self.base.holdings.lock();
            for place in device.regions().places_of(sparse.region, sparse.granule.start) {
                away.entry(place.arena).or_default().push(*place);
            }
        }
        away.into_iter().fold(hidden, |outcome, (number, places)| {
            let Some(other) = self.provider.streams().arena(number) else { return outcome };
            // First what shows it there.
            let shown: Vec<_> = places.iter().map(|place| (place.segment, place.addr)).collect();
            let hidden = self.base.supply.hide(&*self.provider, other, &shown, call);
            let unmapped = self.provider.streams().unmap_from(other, places.into_iter(), false, call);
            outcome.and(hidden).and(unmapped)
        })
    }

    fn compact_arena(
        &self,
        arena: &Arena,
        goal: Goal,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        report: &mut CompactionReport,
    ) -> Result<()> {
        let calls = self.base.site.calls();
        let _memory = self.base.arenas.in_transit();
        // A hook took its time, or another thread went on: what was in the way of nothing may be by now.
        if lasting_obstacle(&self.base).is_some() {
            return Ok(());
        }
        if let Err(error) = self.bring_home(arena, goal, call) {
            // Other granules may do.
            self.base.site.backend().clear_error();
            tracing::warn!(%error, "memory stays mapped in a second place, and is not compacted");
        }
        // That took its time.
        if lasting_obstacle(&self.base).is_some() {
            return Ok(());
        }
        let chosen = self.choose(arena, goal, self.room(PoolId::DEFAULT));
        if chosen.is_empty() {
            return Ok(());
        }
        let backend = &**self.base.site.backend();
        let mut outcome = self.drain();
        let backing = self.provider.backing();
        let mut shrinking = Shrinking::new(backend, vm, &backing, &calls);
        for granule in chosen {
            let mut memory = vec![granule.memory];
            if outcome.is_ok() {
                outcome = self.shrink(&granule, &mut memory, &mut shrinking, report);
                if outcome.as_ref().is_err_and(BackendError::is_out_of_memory) {
                    // Another process took what was there. A granule that needs less may do.
                    outcome = Ok(());
                }
            }
            self.commit(arena, granule, &memory, shrinking.take_leftovers(), call);
        }
        if outcome.is_err() && self.base.site.edge().is_none() {
            backend.clear_error();
        }
        Ok(outcome?)
    }

    /// Exchanges what is behind a granule, which `memory` says before and afterwards.
    fn shrink(
        &self,
        granule: &Shrinkable,
        memory: &mut Vec<Mapping>,
        shrinking: &mut Shrinking<'_>,
        report: &mut CompactionReport,
    ) -> std::result::Result<(), BackendError> {
        let Shrinkable { sparse, memory: old, .. } = granule;
        let new = sparse.rest();
        let mut intent = Intent::up_to(&self.base.holdings, PoolId::DEFAULT, 0, u64::MAX);
        if !intent.covers(new) {
            return Ok(());
        }
        // SAFETY: the granule is `Pending` by this thread only, and is mapped in no other place. The device was waited for
        // since, and the program has promised to give it no work on live blocks; all others are out of everyone's reach.
        match unsafe { shrinking.shrink(old, &sparse.stays()) } {
            Shrunk::Into(smaller) => {
                debug_assert_eq!(bytes_of(&smaller), new, "what stays has memory");
                *memory = smaller;
                let mut device = self.base.holdings.lock();
                intent.fulfil(&mut device);
                device.take(PoolId::DEFAULT, Tier::Large, new);
                device.give_back(PoolId::DEFAULT, Tier::Large, old.bytes);
                report.moved += new;
                report.gained += old.bytes - new;
                Ok(())
            }
            Shrunk::Unchanged(error) => Err(error),
            Shrunk::Lost(error) => {
                tracing::error!(%error, "a compaction lost contents; the driver is not called any more");
                self.base.site.abandon();
                Err(error)
            }
        }
    }

    /// This memory is behind what was a granule now.
    fn commit(
        &self,
        arena: &Arena,
        granule: Shrinkable,
        memory: &[Mapping],
        leftovers: Leftovers,
        call: &Call<'_>,
    ) {
        let Shrinkable { sparse, blocks, memory: before } = granule;
        let mut state = self.base.arenas.attend(arena, call);
        {
            let mut device = self.base.holdings.lock();
            device.regions_mut().keep(leftovers);
            device.regions_mut().commit_vacant(sparse.region, sparse.granule.clone());
            device.regions_mut().commit_backed(sparse.region, memory);
        }
        if memory != [before] {
            let context = state.layout().segments()[sparse.segment].context.clone();
            for Range { start, end } in sparse.free.iter().cloned() {
                let history = state.ledger_mut().history_mut();
                history.record_about(Action::SegmentUnmap, start, end - start, context.as_ref());
            }
        }
        if let Some(mut sparses) = Sparses::of(state.heap_mut(), sparse.segment) {
            sparses.settle(&sparse.granule, blocks, memory);
        }
    }
}
