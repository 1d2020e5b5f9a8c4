//! Pools that sleep; [`crate::sleep`] says what that means. `falling_asleep.rs` and `waking_up.rs` move them.
//!
//! As in all driver calls, the granules concerned are `Pending` and their blocks out of everyone's reach before the
//! lock is dropped. The outcome is committed granule by granule, so that an error leaves each awake or asleep.

use crate::arena::directory::Arena;
use crate::arena::{ArenaState, Bed};
use crate::backend::BackendError;
use crate::device::Device;
use crate::device::accounting::DeviceState;
use crate::device::falling_asleep::FallingAsleep;
use crate::device::pools::{Flush, Sleeper};
use crate::device::{arenas, frees, pools, recorder};
use crate::error::{AllocError, Result};
use crate::features::sleep::{Backup, Kept, KeptBecause, SleepReport, SleepTag};
use crate::lifetimes::call::Call;
use crate::memory::address_map::Location;
use crate::memory::backup::Store;
use crate::memory::block::{SegmentId, Tier};
use crate::memory::region::{Mapping, RegionId};
use crate::memory::segment::Origin;
use crate::process::attention::Reason;
use crate::sync::{Arc, assert_unlocked};
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
    /// Memory behind the granules, unless they sleep.
    pub(super) memory: Vec<Mapping>,
}

impl GranuleRun {
    /// Publishes that a thread is changing these granules.
    pub(super) fn take(
        state: &ArenaState,
        accounting: &mut DeviceState,
        segment: SegmentId,
        region: RegionId,
        range: Range<u64>,
    ) -> Self {
        let memory = accounting.regions_mut().begin(region, range.clone());
        Self {
            segment,
            region,
            range,
            tier: state.layout().segments()[segment].tier,
            stream: state.binding().stream(),
            memory,
        }
    }

    /// Cuts its first granules off: at most `bytes`, but one granule at least. Returns them, and the rest.
    pub(super) fn cut(mut self, bytes: u64) -> (Self, Option<Self>) {
        let most = self.range.start + bytes;
        let count = self.memory.partition_point(|mapping| mapping.end() <= most).max(1);
        let rest = self.memory.split_off(count.min(self.memory.len()));
        let Some(first) = rest.first() else { return (self, None) };
        let range = first.addr..std::mem::replace(&mut self.range.end, first.addr);
        let rest = Self { range, memory: rest, ..self };
        (self, Some(rest))
    }

    /// Sets its blocks to the states of its granules.
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

/// See [`SleepMode::set_tag`](crate::allocator::SleepMode::set_tag).
pub(crate) fn set_tag(device: &Device, id: PoolId, tag: Option<SleepTag>) -> Result<()> {
    if tag.is_some() && !device.driver.has_virtual_memory() {
        let reason =
            device.driver.backend().virtual_memory().err().map_or_else(String::new, |why| why.to_string());
        return Err(AllocError::Sleep(format!(
            "memory of this device cannot sleep: it takes virtual memory, and {reason}. Free the memory instead, or copy \
             it away by hand"
        )));
    }
    let grows = device.arenas.directory().with_template(|template| template.policy.grows());
    if id == PoolId::DEFAULT && tag.is_some() && !grows {
        return Err(AllocError::Sleep(
            "the default pool can sleep only with expandable_segments:True; set that, or give the tag to a pool of its \
             own"
            .into(),
        ));
    }
    if tag.is_some() && device.driver.attention().has(Reason::UNCACHED) {
        return Err(AllocError::Sleep(
            "caching is off, and what comes straight from the driver cannot sleep; turn caching on".into(),
        ));
    }
    if tag.is_none() && pools::is_asleep(device, id)? {
        return Err(AllocError::Sleep(format!(
            "pool {id} sleeps, and its tag is what wakes it; wake it first"
        )));
    }
    let has_tag = tag.is_some();
    let slot = pools::set_tag(device, id, tag)?;
    if id == PoolId::DEFAULT {
        device.granule.iter().for_each(|granule| granule.stay_at_home(has_tag));
    }
    for arena in device.arenas.directory().of_pool(slot) {
        let mut state = arena.lock();
        if state.binding().slot() == slot {
            // The policy of now: other settings may have come since.
            let policy = device.arenas.directory().with_template(|template| template.policy.clone());
            state.set_sleeps(has_tag, policy);
        }
    }
    Ok(())
}

/// Begins to put pools to sleep: gives their cached memory back. Takes nothing out of use yet.
pub(crate) fn begin_sleep<'s>(
    device: &'s Device,
    pools: Vec<Sleeper>,
    backup: &'s Backup,
) -> Result<FallingAsleep<'s>> {
    let calls = device.driver.calls();
    let call = begin_uncaptured(device)?;
    let mut report = SleepReport::default();
    for pool in &pools {
        if let Err(error) = empty_before_sleep(device, pool, &call, &mut report) {
            drop(call);
            recorder::tell_trackers(device);
            return Err(error);
        }
    }
    Ok(FallingAsleep::new(device, pools, backup, report, call, calls))
}

pub(in crate::device) fn begin_uncaptured(device: &Device) -> Result<Call<'_>> {
    let call = recorder::begin_call(device, None, RecordContext::All)?;
    refuse_capture(device)?;
    Ok(call)
}

/// Refuses a backup that would take the memory that the sleep frees.
pub(crate) fn refuse_backup(device: &Device, backup: &Backup) -> Result<()> {
    if device.driver.is_unified() && matches!(backup, Backup::HostPinned(_)) {
        return Err(AllocError::Sleep(format!(
            "device {} shares the host's memory: contents in pinned memory would take as much as the sleep frees; \
             keep them in files, in a directory on a disk, or discard them",
            device.driver.device()
        )));
    }
    Ok(())
}

/// Refuses while a capture is under way on this device.
pub(crate) fn refuse_capture(device: &Device) -> Result<()> {
    if device.driver.is_captured() {
        return Err(AllocError::Sleep(format!(
            "a capture is under way on device {}, and what it uses cannot be waited for; end it first",
            device.driver.device()
        )));
    }
    Ok(())
}

/// The devices whose work may use the pool's memory.
pub(crate) fn users_of(device: &Device, pool: &Sleeper) -> BTreeSet<DeviceIndex> {
    let mut users: BTreeSet<DeviceIndex> = device.accounting.users().into_iter().collect();
    for arena in device.arenas.directory().of_pool(pool.slot) {
        users.extend(arena.lock().uses().devices());
    }
    users
}

/// Waits for all devices that may be using the memory, also for work that the engine was not told of. Blocks.
pub(crate) fn wait_for_users(
    device: &Device,
    users: &BTreeSet<DeviceIndex>,
) -> std::result::Result<(), BackendError> {
    assert_unlocked();
    let backend = device.driver.backend();
    let waited = users.iter().try_for_each(|user| backend.synchronize_device(*user));
    waited.inspect_err(|_| backend.clear_error())
}

/// Host memory for a run's contents; `None` where they are not kept. May block.
pub(in crate::device) fn store_for(
    device: &Device,
    backup: &Backup,
    bytes: u64,
) -> std::result::Result<Option<Arc<Store>>, BackendError> {
    if let Backup::HostPinned(_) = backup {
        let spare = device.spares.lock().find(device.driver.backend().id(), bytes);
        if spare.is_some() {
            return Ok(spare);
        }
    }
    let made = backup.store(device.driver.backend(), device.driver.device(), bytes);
    let Some((store, keep)) = made.inspect_err(|_| device.driver.backend().clear_error())? else {
        return Ok(None);
    };
    let store = Arc::new(store);
    if keep {
        device.spares.lock().keep(&store);
    }
    Ok(Some(store))
}

/// Takes a sleeping block back from the program. `false` where the block at `ptr` is none.
pub(crate) fn free_asleep(device: &Device, ptr: DevicePtr, location: Location) -> bool {
    let Some(arena) = device.arenas.directory().get(location.arena) else { return false };
    let uses = {
        let mut state = arenas::attend(device, arena, &Call::PLAIN);
        let Some((segment, range, uses)) = state.free_asleep(ptr, location.block) else {
            return false;
        };
        // A failed call may have left some of its memory awake.
        let accounting = device.accounting.lock();
        if let Origin::Growable { region, .. } = state.layout().segments()[segment].origin
            && let Some(region) = accounting.regions().get(region)
        {
            Bed::of(state.heap_mut(), segment).follow(region, &range);
        }
        uses
    };
    frees::end_uses(device, uses.iter());
    recorder::tell_trackers(device);
    true
}

/// Refuses to discard contents that a graph left for its next launch. Memory that sleeps already has lost nothing.
pub(crate) fn refuse_to_discard(device: &Device, pool: &Sleeper) -> Result<()> {
    if pools::has_served_captures(device, pool.slot) && device.accounting.reserved_by(pool.id) > 0 {
        return Err(AllocError::Sleep(format!(
            "pool {} serves captured graphs, and a launch may read what the capture or an earlier launch left there: \
             discarded, it would be garbage. Save its contents (any other backup), or end the graphs first",
            pool.id
        )));
    }
    Ok(())
}

/// Copies `bytes` bytes of the backup of sleeping memory at `ptr` to the host. `false` where some of it is awake, or
/// was not saved. Blocks.
///
/// # Safety
/// There is room for them at `into`, on the host, that nobody else uses.
pub(crate) unsafe fn read_backup(
    device: &Device,
    ptr: DevicePtr,
    bytes: u64,
    into: DevicePtr,
) -> Result<bool> {
    let (mut copies, mut next) = (Vec::new(), ptr.0);
    let end = ptr.0.saturating_add(bytes);
    {
        let accounting = device.accounting.lock();
        let region = accounting.regions().iter().find(|region| region.contains(ptr.0));
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
        unsafe { store.read(&**device.driver.backend(), offset, into.add(at), length) }?;
    }
    Ok(true)
}

/// Bytes that backups hold on the host.
pub(crate) fn backup_bytes(device: &Device) -> u64 {
    let mut stores: Vec<(*const Store, u64)> = {
        let accounting = device.accounting.lock();
        let saved = accounting.regions().iter().flat_map(|region| region.saved(0..u64::MAX));
        saved.filter_map(|(.., saved)| saved.as_ref()).map(|(s, _)| (Arc::as_ptr(s), s.bytes())).collect()
    };
    stores.sort_unstable();
    stores.dedup();
    stores.iter().map(|(_, bytes)| bytes).sum::<u64>() + device.spares.lock().idle_bytes()
}

/// Gives back the host memory that is kept for later sleeps.
pub(crate) fn drop_backups(device: &Device) {
    let idle = device.spares.lock().take_idle();
    drop(idle);
}

/// Gives back a pool's cached memory and its views of others, unless they are to sleep.
fn empty_before_sleep(
    device: &Device,
    pool: &Sleeper,
    call: &Call<'_>,
    report: &mut SleepReport,
) -> Result<()> {
    // Graphs may know cached memory and views: both stay mapped.
    let of_graphs = pools::is_known_to_graphs(device, pool.slot);
    if of_graphs {
        let arenas = device.arenas.directory().of_pool(pool.slot);
        let of_pool = arenas.into_iter().map(|arena| arena.lock().binding().number()).collect();
        frees::synchronise(device, Some(&of_pool), call)?;
    } else {
        let before = device.accounting.reserved_by(pool.id);
        let released = device.release(Flush::InUse(pool.slot), call);
        report.uncached += before.saturating_sub(device.accounting.reserved_by(pool.id));
        released?;
    }
    report.kept.extend(fixed_memory(device, pool));
    for arena in device.arenas.directory().of_pool(pool.slot) {
        device.withdraw_shares(arena);
        if !of_graphs {
            device.unmap_aliases(arena, call)?;
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
    (bytes > 0).then_some(Kept { device: device.driver.device(), pool: pool.id, bytes, because })
}
