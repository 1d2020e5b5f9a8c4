//! Pools that sleep; what that means is said in [`crate::sleep`]. `falling_asleep.rs` and `waking_up.rs` have those on their way.
//!
//! Like all that calls the driver: the granules concerned are `Pending` and their blocks out of everyone's reach before the
//! lock is dropped, and the outcome is committed granule by granule, so that an error leaves each awake or asleep.

use crate::arena::directory::Arena;
use crate::arena::{ArenaState, Bed};
use crate::backend::BackendError;
use crate::device::Device;
use crate::device::features::falling_asleep::FallingAsleep;
use crate::device::holdings::DeviceState;
use crate::device::pools::{Flush, Sleeper};
use crate::error::{AllocError, Result};
use crate::features::sleep::{Backup, Kept, KeptBecause, SleepReport, SleepTag};
use crate::lifetimes::call::Call;
use crate::memory::address_map::Location;
use crate::memory::backup::Store;
use crate::memory::block::{SegmentId, Tier};
use crate::memory::region::{Mapping, RegionId};
use crate::memory::segment::Origin;
use crate::process::attention::Reason;
use crate::sync::{Arc, Claims, assert_unlocked};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::history::RecordContext;
use std::collections::BTreeSet;
use std::ops::Range;

/// Granules of one segment that go to sleep, or wake, together.
pub(super) struct GranuleRun {
    pub(super) segment: SegmentId,
    pub(super) region: RegionId,
    pub(super) range: Range<u64>,
    pub(super) tier: Tier,
    pub(super) stream: Stream,
    /// What is behind them, unless they sleep.
    pub(super) memory: Vec<Mapping>,
}

impl GranuleRun {
    /// Publishes that a thread is changing these granules.
    pub(super) fn take(
        state: &ArenaState,
        holdings: &mut DeviceState,
        segment: SegmentId,
        region: RegionId,
        range: Range<u64>,
    ) -> Self {
        let memory = holdings.regions_mut().begin(region, range.clone());
        Self {
            segment,
            region,
            range,
            tier: state.layout().segments()[segment].tier,
            stream: state.tenure().stream(),
            memory,
        }
    }

    /// Cuts its first granules off: at most so many bytes, but one granule at least. Returns them, and the rest.
    pub(super) fn cut(mut self, bytes: u64) -> (Self, Option<Self>) {
        let most = self.range.start + bytes;
        let count = self.memory.partition_point(|mapping| mapping.end() <= most).max(1);
        let rest = self.memory.split_off(count.min(self.memory.len()));
        let Some(first) = rest.first() else { return (self, None) };
        let range = first.addr..std::mem::replace(&mut self.range.end, first.addr);
        let rest = Self { range, memory: rest, ..self };
        (self, Some(rest))
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

impl Device {
    /// Who puts which pools to sleep, or wakes them; ask the first device.
    pub(crate) fn sleep_claims(&self) -> &Claims<(DeviceIndex, PoolId)> {
        &self.sleeping
    }

    /// See [`SleepMode::set_tag`](crate::allocator::SleepMode::set_tag).
    pub(crate) fn set_tag(&self, id: PoolId, tag: Option<SleepTag>) -> Result<()> {
        if tag.is_some() && !self.site.has_virtual_memory() {
            let reason =
                self.site.backend().virtual_memory().err().map_or_else(String::new, |why| why.to_string());
            return Err(AllocError::Sleep(format!(
                "memory of this device cannot sleep: it takes virtual memory, and {reason}. Free the memory instead, or copy \
                 it away by hand"
            )));
        }
        let grows = self.arenas.directory().with_template(|template| template.policy.grows());
        if id == PoolId::DEFAULT && tag.is_some() && !grows {
            return Err(AllocError::Sleep(
                "the default pool can sleep only with expandable_segments:True; set that, or give the tag to a pool of its \
                 own"
                .into(),
            ));
        }
        if tag.is_some() && self.site.attention().has(Reason::UNCACHED) {
            return Err(AllocError::Sleep(
                "caching is off, and what comes straight from the driver cannot sleep; turn caching on"
                    .into(),
            ));
        }
        if tag.is_none() && self.pools.is_asleep(id)? {
            return Err(AllocError::Sleep(format!(
                "pool {id} sleeps, and its tag is what wakes it; wake it first"
            )));
        }
        let has_tag = tag.is_some();
        let slot = self.pools.set_tag(id, tag)?;
        if id == PoolId::DEFAULT {
            self.granule.iter().for_each(|granule| granule.stay_at_home(has_tag));
        }
        for arena in self.arenas.directory().of_pool(slot) {
            let mut state = arena.lock();
            if state.tenure().slot() == slot {
                // As it is now: other settings may have come since.
                let policy = self.arenas.directory().with_template(|template| template.policy.clone());
                state.set_sleeps(has_tag, policy);
            }
        }
        Ok(())
    }

    /// Begins to put pools to sleep: gives back what they only cache. Nothing lies down yet.
    pub(crate) fn begin_sleep<'s>(
        &'s self,
        pools: Vec<Sleeper>,
        backup: &'s Backup,
    ) -> Result<FallingAsleep<'s>> {
        let calls = self.site.calls();
        let call = self.begin_uncaptured()?;
        let mut report = SleepReport::default();
        for pool in &pools {
            if let Err(error) = empty_before_sleep(self, pool, &call, &mut report) {
                drop(call);
                self.history.tell_trackers();
                return Err(error);
            }
        }
        Ok(FallingAsleep::new(self, pools, backup, report, call, calls))
    }

    pub(super) fn begin_uncaptured(&self) -> Result<Call<'_>> {
        let call = self.history.begin_call(None, RecordContext::All)?;
        self.refuse_capture()?;
        Ok(call)
    }

    /// Refuses a backup that would take what the sleep frees.
    pub(crate) fn refuse_backup(&self, backup: &Backup) -> Result<()> {
        if self.site.is_unified() && matches!(backup, Backup::HostPinned(_)) {
            return Err(AllocError::Sleep(format!(
                "device {} shares the host's memory: contents in pinned memory would take as much as the sleep frees; \
                 keep them in files (Backup::File, in a directory on a disk), or give them up (Backup::Discard)",
                self.site.device()
            )));
        }
        Ok(())
    }

    /// Refuses while a capture is under way on this device.
    pub(crate) fn refuse_capture(&self) -> Result<()> {
        if self.site.is_captured() {
            return Err(AllocError::Sleep(format!(
                "a capture is under way on device {}, and what it uses cannot be waited for; end it first",
                self.site.device()
            )));
        }
        Ok(())
    }

    /// The devices whose work may use the pool's memory.
    pub(crate) fn users_of(&self, pool: &Sleeper) -> BTreeSet<DeviceIndex> {
        let mut users: BTreeSet<DeviceIndex> = self.holdings.users().into_iter().collect();
        for arena in self.arenas.directory().of_pool(pool.slot) {
            users.extend(arena.lock().uses().devices());
        }
        users
    }

    /// Waits for all devices that may be using the memory: also for work that the engine was not told of. Blocks.
    pub(crate) fn wait_for_users(
        &self,
        users: &BTreeSet<DeviceIndex>,
    ) -> std::result::Result<(), BackendError> {
        assert_unlocked();
        users.iter().try_for_each(|device| self.site.backend().synchronize_device(*device)).inspect_err(
            |_| {
                self.site.backend().clear_error();
            },
        )
    }

    /// Host memory for a run's contents; `None` where they are given up. May block.
    pub(super) fn store_for(
        &self,
        backup: &Backup,
        bytes: u64,
    ) -> std::result::Result<Option<Arc<Store>>, BackendError> {
        if let Backup::HostPinned(_) = backup {
            let spare = self.spares.lock().find(self.site.backend().id(), bytes);
            if spare.is_some() {
                return Ok(spare);
            }
        }
        let made = backup.store(self.site.backend(), self.site.device(), bytes);
        let Some((store, keep)) = made.inspect_err(|_| self.site.backend().clear_error())? else {
            return Ok(None);
        };
        let store = Arc::new(store);
        if keep {
            self.spares.lock().keep(&store);
        }
        Ok(Some(store))
    }

    /// Takes a sleeping block back from the program. `false` where the block at `ptr` is none.
    pub(crate) fn free_asleep(&self, ptr: DevicePtr, location: Location) -> bool {
        let Some(arena) = self.arenas.directory().get(location.arena) else { return false };
        let uses = {
            let mut state = self.arenas.attend(arena, &Call::PLAIN);
            let Some((segment, range, uses)) = state.free_asleep(ptr, location.block) else {
                return false;
            };
            // Where a call failed, some of its memory may be awake.
            let holdings = self.holdings.lock();
            if let Origin::Growable { region, .. } = state.layout().segments()[segment].origin
                && let Some(region) = holdings.regions().get(region)
            {
                Bed::of(state.heap_mut(), segment).follow(region, &range);
            }
            uses
        };
        self.lifetimes.end_uses(uses.iter());
        self.history.tell_trackers();
        true
    }

    /// Refuses to give contents up that a graph left for its next launch. What sleeps already has lost nothing.
    pub(crate) fn refuse_to_discard(&self, pool: &Sleeper) -> Result<()> {
        if self.pools.has_served_captures(pool.slot) && self.holdings.reserved_by(pool.id) > 0 {
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
            let holdings = self.holdings.lock();
            let region = holdings.regions().iter().find(|region| region.contains(ptr.0));
            let saved = region.into_iter().flat_map(|region| {
                let around = region.around(ptr.0..end);
                region.saved(around).map(|(at, bytes, saved)| (at, at + bytes, saved))
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
            unsafe { store.read(&**self.site.backend(), offset, into.add(at), length) }?;
        }
        Ok(true)
    }

    /// Bytes that backups hold on the host.
    pub(crate) fn backup_bytes(&self) -> u64 {
        let mut stores: Vec<(*const Store, u64)> = {
            let holdings = self.holdings.lock();
            let saved = holdings.regions().iter().flat_map(|region| region.saved(0..u64::MAX));
            saved.filter_map(|(.., saved)| saved.as_ref()).map(|(s, _)| (Arc::as_ptr(s), s.bytes())).collect()
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

/// Gives back what a pool caches or shows to others, as far as it is not what sleeps.
fn empty_before_sleep(
    device: &Device,
    pool: &Sleeper,
    call: &Call<'_>,
    report: &mut SleepReport,
) -> Result<()> {
    // Graphs may know what is cached, and what is shown elsewhere: both stay mapped.
    let of_graphs = device.pools.is_known_to_graphs(pool.slot);
    if of_graphs {
        let arenas = device.arenas.directory().of_pool(pool.slot);
        let of_pool = arenas.into_iter().map(|arena| arena.lock().tenure().number()).collect();
        device.lifetimes.synchronise(Some(&of_pool), call)?;
    } else {
        let before = device.holdings.reserved_by(pool.id);
        let released = device.release(Flush::InUse(pool.slot), call);
        report.uncached += before.saturating_sub(device.holdings.reserved_by(pool.id));
        released?;
    }
    report.kept.extend(fixed_memory(device, pool));
    for arena in device.arenas.directory().of_pool(pool.slot) {
        device.withdraw_shares(arena);
        if !of_graphs {
            device.before_leaving(arena, call)?;
        }
    }
    Ok(())
}

/// Fixed segments with live blocks, which stay awake.
fn fixed_memory(device: &Device, pool: &Sleeper) -> Option<Kept> {
    let of_arena = |arena: &&Arc<Arena>| {
        let state = arena.lock();
        let fixed = state.layout().segments().iter().filter(|(_, segment)| segment.is_fixed());
        fixed.map(|(_, segment)| segment.bytes).sum::<u64>()
    };
    let bytes: u64 = device.arenas.directory().of_pool(pool.slot).iter().map(of_arena).sum();
    let because = KeptBecause::Fixed;
    (bytes > 0).then_some(Kept { device: device.site.device(), pool: pool.id, bytes, because })
}
