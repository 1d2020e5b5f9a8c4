//! Putting a pool's memory to sleep; what that means is said in [`crate::sleep`]. `device/features/wake.rs` wakes it.
//!
//! Like all that calls the driver: the granules concerned are `Pending` and their blocks out of everyone's reach before the
//! lock is dropped, and the outcome is committed granule by granule, so that an error leaves each awake or asleep.

use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaState, Bed, Sleepers};
use crate::backend::{BackendError, VirtualMemory};
use crate::device::Base;
use crate::device::features::sharing::Sharing;
use crate::device::holdings::DeviceState;
use crate::device::pools::{Flush, Sleeper};
use crate::device::provider::Provider;
use crate::device::release::Release;
use crate::error::{AllocError, Result};
use crate::features::sleep::{Backup, Kept, KeptBecause, SleepReport, SleepTag};
use crate::lifetimes::call::Call;
use crate::memory::address_map::Location;
use crate::memory::backup::{Saved, Spares, Store};
use crate::memory::block::{SegmentId, Tier};
use crate::memory::region::{self, RegionId};
use crate::memory::segment::Origin;
use crate::process::attention::Reason;
use crate::process::foreign::Calls;
use crate::sync::{Arc, Claim, Claims, Mutex, Rank, assert_unlocked};
use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle, PoolId, Stream};
use crate::watch::history::RecordContext;
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;
use std::collections::BTreeSet;
use std::ops::Range;

/// Pools that give their memory up and keep their addresses.
pub(crate) struct Sleep {
    base: Base,
    provider: Arc<Provider>,
    release: Arc<Release>,
    sharing: Arc<Sharing>,
    /// Pools that are being put to sleep or woken.
    claims: Claims<PoolSlot>,
    /// Host memory kept for the next sleep.
    spares: Mutex<Spares>,
}

/// Granules of one segment that go to sleep, or wake, together.
pub(super) struct GranuleRun {
    pub(super) segment: SegmentId,
    pub(super) region: RegionId,
    pub(super) granule: u64,
    pub(super) range: Range<u64>,
    pub(super) tier: Tier,
    pub(super) stream: Stream,
    pub(super) handles: Vec<PhysicalHandle>,
}

impl GranuleRun {
    /// Publishes that a thread is changing these granules.
    pub(super) fn take(
        state: &ArenaState,
        device: &mut DeviceState,
        segment: SegmentId,
        region: RegionId,
        range: Range<u64>,
    ) -> Self {
        let granule = device.regions().get(region).map_or(1, |region| region.granule);
        let handles = device.regions_mut().begin(region, range.start, range.end - range.start);
        Self {
            segment,
            region,
            granule,
            range,
            tier: state.layout().segments()[segment].tier,
            stream: state.tenure().stream(),
            handles: handles.into_iter().flatten().collect(),
        }
    }

    /// Its blocks become what its granules are now.
    pub(super) fn follow(&self, state: &mut ArenaState, device: &DeviceState) {
        if let Some(region) = device.regions().get(self.region) {
            Bed::of(state.heap_mut(), self.segment).follow(region, &self.range);
        }
    }

    pub(super) fn at(&self) -> DevicePtr {
        DevicePtr(self.range.start)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Sleep {
    pub(in crate::device) fn new(
        base: &Base,
        provider: &Arc<Provider>,
        release: &Arc<Release>,
        sharing: &Arc<Sharing>,
    ) -> Self {
        Self {
            base: base.clone(),
            provider: Arc::clone(provider),
            release: Arc::clone(release),
            sharing: Arc::clone(sharing),
            claims: Claims::default(),
            spares: Mutex::new(Rank::Registry, Spares::default()),
        }
    }

    /// See [`SleepMode::set_tag`](crate::allocator::SleepMode::set_tag).
    pub(crate) fn set_tag(&self, id: PoolId, tag: Option<SleepTag>) -> Result<()> {
        if tag.is_some() && !self.base.site.has_virtual_memory() {
            let reason = self
                .base
                .site
                .backend()
                .virtual_memory()
                .err()
                .map_or_else(String::new, |why| why.to_string());
            return Err(AllocError::Sleep(format!(
                "memory of this device cannot sleep: it takes virtual memory, and {reason}. Free the memory instead, or copy \
                 it away by hand"
            )));
        }
        let grows = self.base.arenas.directory().with_template(|template| template.policy.grows());
        if id == PoolId::DEFAULT && tag.is_some() && !grows {
            return Err(AllocError::Sleep(
                "the default pool can sleep only with expandable_segments:True; set that, or give the tag to a pool of its \
                 own"
                .into(),
            ));
        }
        if tag.is_some() && self.base.site.attention().has(Reason::UNCACHED) {
            return Err(AllocError::Sleep(
                "caching is off, and what comes straight from the driver cannot sleep; turn caching on"
                    .into(),
            ));
        }
        if tag.is_none() && self.base.pools.is_asleep(id)? {
            return Err(AllocError::Sleep(format!(
                "pool {id} sleeps, and its tag is what wakes it; wake it first"
            )));
        }
        let has_tag = tag.is_some();
        let slot = self.base.pools.set_tag(id, tag)?;
        if id == PoolId::DEFAULT {
            self.base.supply.stay_at_home(has_tag);
        }
        for arena in self.base.arenas.directory().of_pool(slot) {
            let mut state = arena.lock();
            if state.tenure().slot() == slot {
                // As it is now: other settings may have come since.
                let policy = self.base.arenas.directory().with_template(|template| template.policy.clone());
                state.set_sleeps(has_tag, policy);
            }
        }
        Ok(())
    }

    /// Puts a pool to sleep. What was done before an error is in the report.
    pub(crate) fn sleep(&self, pool: &Sleeper, backup: &Backup, report: &mut SleepReport) -> Result<()> {
        let _claim = self.claim(pool)?;
        let call = self.begin_uncaptured()?;
        let Ok(vm) = self.base.site.backend().virtual_memory() else { return Ok(()) };
        let known_to_graphs = self.base.pools.is_known_to_graphs(pool.slot);
        if known_to_graphs {
            self.release.synchronise_pending(&call)?;
        } else {
            let before = self.base.holdings.reserved_by(pool.id);
            let released = self.release.release(Flush::InUse(pool.slot), &call);
            report.uncached += before.saturating_sub(self.base.holdings.reserved_by(pool.id));
            released?;
        }
        report.kept.extend(self.fixed_memory(pool));
        let mut outcome = Ok(());
        for arena in self.base.arenas.directory().of_pool(pool.slot) {
            self.sharing.withdraw_shares(arena);
            outcome = outcome.and(self.sleep_arena(arena, pool, known_to_graphs, backup, vm, &call, report));
        }
        drop(call);
        self.base.history.tell_trackers();
        outcome
    }

    /// Waits until no other thread puts the pool to sleep or wakes it.
    pub(super) fn claim(&self, pool: &Sleeper) -> Result<Claim<'_, PoolSlot>> {
        self.claims.take(pool.slot).ok_or_else(|| {
            AllocError::Sleep(format!(
                "pool {} is being put to sleep or woken by the call that this one is made from, or by another thread \
                 while this one does the same to another pool; call again from outside",
                pool.id
            ))
        })
    }

    pub(super) fn begin_uncaptured(&self) -> Result<Call<'_>> {
        let call = self.base.history.begin_call(None, RecordContext::All)?;
        self.refuse_capture()?;
        Ok(call)
    }

    /// Refuses a backup that would take what the sleep frees.
    pub(crate) fn refuse_backup(&self, backup: &Backup) -> Result<()> {
        if self.base.site.is_unified() && matches!(backup, Backup::HostPinned(_)) {
            return Err(AllocError::Sleep(format!(
                "device {} shares the host's memory: contents in pinned memory would take as much as the sleep frees; \
                 keep them in files (Backup::File, in a directory on a disk), or give them up (Backup::Discard)",
                self.base.site.device()
            )));
        }
        Ok(())
    }

    /// Refuses while a capture is under way on this device.
    pub(crate) fn refuse_capture(&self) -> Result<()> {
        if self.base.site.is_captured() {
            return Err(AllocError::Sleep(format!(
                "a capture is under way on device {}, and what it uses cannot be waited for; end it first",
                self.base.site.device()
            )));
        }
        Ok(())
    }

    /// The devices whose work may use the pool's memory.
    pub(crate) fn users_of(&self, pool: &Sleeper) -> BTreeSet<DeviceIndex> {
        let mut users: BTreeSet<DeviceIndex> = self.base.holdings.users().into_iter().collect();
        for arena in self.base.arenas.directory().of_pool(pool.slot) {
            users.extend(arena.lock().uses().devices());
        }
        users
    }

    /// Fixed segments with live blocks, which stay awake.
    fn fixed_memory(&self, pool: &Sleeper) -> Option<Kept> {
        let of_arena = |arena: &&Arc<Arena>| {
            let state = arena.lock();
            let fixed = state.layout().segments().iter().filter(|(_, segment)| segment.is_fixed());
            fixed.map(|(_, segment)| segment.bytes).sum::<u64>()
        };
        let bytes: u64 = self.base.arenas.directory().of_pool(pool.slot).iter().map(of_arena).sum();
        let because = KeptBecause::Fixed;
        (bytes > 0).then_some(Kept { device: self.base.site.device(), pool: pool.id, bytes, because })
    }

    #[allow(clippy::too_many_arguments)] // one call in the middle of a walk
    fn sleep_arena(
        &self,
        arena: &Arena,
        pool: &Sleeper,
        free_too: bool,
        backup: &Backup,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        report: &mut SleepReport,
    ) -> Result<()> {
        self.provider.before_leaving(arena, call)?;
        let calls = self.base.site.calls();
        let _memory = self.base.arenas.in_transit();
        let (runs, users) = self.lie_down(arena, pool, free_too, report);
        if runs.is_empty() {
            return Ok(());
        }
        let mut ready = self.wait_for_users(&users).map_err(AllocError::from);
        let mut outcome = Ok(());
        for run in runs {
            let fallen = match ready {
                Ok(()) => self.put_to_sleep(arena, pool, &run, backup, vm, call, &calls, report),
                Err(_) => {
                    self.stay_awake(arena, &run, 0);
                    Ok(())
                }
            };
            if ready.is_ok() && fallen.is_err() {
                // The others stay awake: the caller decides.
                outcome = fallen;
                ready = Err(AllocError::Sleep("an earlier part failed".into()));
            }
        }
        match (outcome, ready) {
            (Err(error), _) | (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(())) => Ok(()),
        }
    }

    /// Takes what can sleep of an arena out of everyone's reach. Returns it, and all devices that may be using it.
    fn lie_down(
        &self,
        arena: &Arena,
        pool: &Sleeper,
        free_too: bool,
        report: &mut SleepReport,
    ) -> (Vec<GranuleRun>, BTreeSet<DeviceIndex>) {
        let mut users: BTreeSet<DeviceIndex> = self.base.holdings.users().into_iter().collect();
        let mut runs = Vec::new();
        let mut state = arena.lock();
        if state.tenure().slot() != pool.slot {
            return (runs, users);
        }
        users.extend(state.uses().devices());
        for (segment, region_id) in state.layout().growable() {
            let mut device = self.base.holdings.lock();
            let Some(region) = device.regions().get(region_id) else { continue };
            let is_elsewhere = |at| device.regions().is_elsewhere(region_id, at);
            let found = Sleepers::of(state.heap(), segment, region, is_elsewhere, free_too);
            for (bytes, because) in found.kept {
                report.kept.push(Kept { device: self.base.site.device(), pool: pool.id, bytes, because });
            }
            for range in found.ranges {
                Bed::of(state.heap_mut(), segment).lie_down(&range);
                runs.push(GranuleRun::take(&state, &mut device, segment, region_id, range));
            }
        }
        (runs, users)
    }

    /// Waits for all devices that may be using the memory: also for work that the engine was not told of. Blocks.
    fn wait_for_users(&self, users: &BTreeSet<DeviceIndex>) -> std::result::Result<(), BackendError> {
        assert_unlocked();
        users.iter().try_for_each(|device| self.base.site.backend().synchronize_device(*device)).inspect_err(
            |_| {
                self.base.site.backend().clear_error();
            },
        )
    }

    /// The part of a run from its `from`-th granule on stays as it was, with memory.
    fn stay_awake(&self, arena: &Arena, run: &GranuleRun, from: usize) {
        let mut state = arena.lock();
        let mut device = self.base.holdings.lock();
        let start = run.range.start + from as u64 * run.granule;
        device.regions_mut().commit_backed(run.region, start, &run.handles[from..]);
        run.follow(&mut state, &device);
    }

    #[allow(clippy::too_many_arguments)] // one call in the middle of a walk
    fn put_to_sleep(
        &self,
        arena: &Arena,
        pool: &Sleeper,
        run: &GranuleRun,
        backup: &Backup,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
        calls: &Calls<'_>,
        report: &mut SleepReport,
    ) -> Result<()> {
        let mut saved = self.save_contents(run, backup).inspect_err(|_| {
            self.base.site.backend().clear_error();
            self.stay_awake(arena, run, 0);
        })?;
        let has_backup = saved.iter().any(Option::is_some);
        let owner = (pool.id, run.stream);
        self.base.tell_growable(SegmentChange::Detaching, owner, run.at(), run.bytes(), calls);
        // SAFETY: the granules are set to `Pending` by this thread only; their blocks are in nobody's reach, and all devices
        // that may use them are done.
        let (count, leftovers, outcome) =
            unsafe { region::vacate(vm, run.at(), run.granule, &run.handles, &pool.source, calls) };
        let slept = count as u64 * run.granule;
        let awake = run.bytes() - slept;
        self.base.tell_growable(SegmentChange::Attached, owner, run.at().add(slept), awake, calls);
        let _dropped_without_a_lock = saved.split_off(count);
        let on_it = {
            let mut state = self.base.arenas.attend(arena, call);
            let mut device = self.base.holdings.lock();
            let lost = leftovers.handle_count() as u64 * run.granule;
            device.regions_mut().keep(leftovers);
            device.regions_mut().commit_asleep(run.region, run.range.start, saved);
            device.regions_mut().commit_backed(run.region, run.range.start + slept, &run.handles[count..]);
            if slept > 0 {
                device.give_back(pool.id, run.tier, slept);
            }
            run.follow(&mut state, &device);
            drop(device);
            if slept > 0 {
                let context = state.layout().segments()[run.segment].context.clone();
                state.ledger_mut().history_mut().record_about(
                    Action::SegmentUnmap,
                    run.range.start,
                    slept,
                    context.as_ref(),
                );
            }
            report.slept += slept;
            report.freed += slept - lost;
            report.backed_up += if has_backup { slept } else { 0 };
            let on_it = state.layout().on(run.segment, &run.range).into_iter();
            let on_it = on_it.map(|id| &state.layout().blocks()[id]).filter(|block| block.state.is_asleep());
            on_it.map(|block| DevicePtr(block.addr)).collect::<Vec<_>>()
        };
        if !has_backup && self.base.site.attention().has(Reason::HARDENED) {
            // What was behind them to notice overflows is given up, too.
            on_it.into_iter().for_each(|ptr| self.base.hardened.forget_canary(ptr));
        }
        outcome.map_err(AllocError::from)
    }

    /// Copies a run's contents away. Blocks.
    fn save_contents(
        &self,
        run: &GranuleRun,
        backup: &Backup,
    ) -> std::result::Result<Vec<Saved>, BackendError> {
        let spare = match backup {
            Backup::HostPinned(_) => self.spares.lock().find(self.base.site.backend().id(), run.bytes()),
            _ => None,
        };
        let store = match spare {
            Some(store) => store,
            None => match backup.store(self.base.site.backend(), self.base.site.device(), run.bytes())? {
                None => return Ok(vec![None; run.handles.len()]),
                Some((store, keep)) => {
                    let store = Arc::new(store);
                    if keep {
                        self.spares.lock().keep(&store);
                    }
                    store
                }
            },
        };
        // SAFETY: all devices are done with the run, and its blocks are in nobody's reach; the store is this run's alone.
        unsafe { store.save(&**self.base.site.backend(), 0, run.at(), run.bytes()) }?;
        let place = |n: usize| Some((Arc::clone(&store), n as u64 * run.granule));
        Ok((0..run.handles.len()).map(place).collect())
    }

    /// Takes a sleeping block back from the program. `false` where the block at `ptr` is none.
    pub(crate) fn free_asleep(&self, ptr: DevicePtr, location: Location) -> bool {
        let Some(arena) = self.base.arenas.directory().get(location.arena) else { return false };
        let uses = {
            let mut state = self.base.arenas.attend(arena, &Call::PLAIN);
            let Some((segment, range, uses)) = state.free_asleep(ptr, location.block) else {
                return false;
            };
            // Where a call failed, some of its memory may be awake.
            let device = self.base.holdings.lock();
            if let Origin::Growable { region, .. } = state.layout().segments()[segment].origin
                && let Some(region) = device.regions().get(region)
            {
                Bed::of(state.heap_mut(), segment).follow(region, &range);
            }
            uses
        };
        self.base.lifetimes.end_uses(uses.iter());
        self.base.hardened.forget_canary(ptr);
        self.base.history.tell_trackers();
        true
    }

    /// Refuses to give contents up that a graph left for its next launch. What sleeps already has lost nothing.
    pub(crate) fn refuse_to_discard(&self, pool: &Sleeper) -> Result<()> {
        if self.base.pools.has_served_captures(pool.slot) && self.base.holdings.reserved_by(pool.id) > 0 {
            return Err(AllocError::Sleep(format!(
                "pool {} serves captured graphs, and a launch may read what the capture or an earlier launch left there: \
                 discarded, it would be garbage. Save its contents (any other backup), or end the graphs first",
                pool.id
            )));
        }
        Ok(())
    }

    /// Copies `bytes` bytes of what was saved of sleeping memory at `ptr` to the host. `false` where some of it is awake, or was not
    /// saved. Blocks.
    ///
    /// # Safety
    /// There is room for them at `into`, on the host, that nobody else uses.
    pub(crate) unsafe fn read_backup(&self, ptr: DevicePtr, bytes: u64, into: DevicePtr) -> Result<bool> {
        let (mut copies, mut next) = (Vec::new(), ptr.0);
        let end = ptr.0.saturating_add(bytes);
        {
            let device = self.base.holdings.lock();
            let region = device.regions().iter().find(|region| region.contains(ptr.0));
            let saved = region.into_iter().flat_map(|region| {
                let around = region.around(ptr.0..end);
                region.saved(around).map(|(at, saved)| (at, at + region.granule, saved))
            });
            for (start, stop, saved) in saved {
                let Some((store, offset)) = saved.as_ref().filter(|_| start <= next) else {
                    return Ok(false);
                };
                let length = stop.min(end) - next;
                copies.push((Arc::clone(store), offset + (next - start), next - ptr.0, length));
                next += length;
            }
        }
        if next < end {
            return Ok(false);
        }
        for (store, offset, at, length) in copies {
            // SAFETY: the granule's place in the store is as long as the granule, and there is room by this function's contract.
            unsafe { store.read(&**self.base.site.backend(), offset, into.add(at), length) }?;
        }
        Ok(true)
    }

    /// Bytes that backups hold on the host.
    pub(crate) fn backup_bytes(&self) -> u64 {
        let mut stores: Vec<(*const Store, u64)> = {
            let device = self.base.holdings.lock();
            let saved = device.regions().iter().flat_map(|region| region.saved(0..u64::MAX));
            saved.filter_map(|(_, saved)| saved.as_ref()).map(|(s, _)| (Arc::as_ptr(s), s.bytes())).collect()
        };
        stores.sort_unstable();
        stores.dedup();
        stores.iter().map(|(_, bytes)| bytes).sum::<u64>() + self.spares.lock().idle_bytes()
    }

    /// Gives back the host memory that is kept for later sleeps.
    pub(crate) fn drop_backups(&self) {
        let idle = self.spares.lock().take_idle();
        drop(idle);
    }
}
