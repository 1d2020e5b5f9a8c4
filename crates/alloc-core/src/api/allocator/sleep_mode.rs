//! Sleep and wake; [`crate::sleep`] says what they mean.

use super::CachingAllocator;
use crate::device::{Carried, Device, FallingAsleep, Sleeper, carry};
use crate::device::{offload, pools};
use crate::error::{AllocError, Result};
use crate::features::sleep::{Backup, SleepReport, SleepTag, Tags, WakeReport};
use crate::lifetimes::call::Relaxed;
use crate::sync::Alone;
use crate::types::{DeviceIndex, DevicePtr, PoolId};
use std::collections::BTreeSet;
use std::time::Instant;

/// Pools of one device that sleep or wake together.
type Together<'a> = (&'a Device, Vec<Sleeper>);

/// Pools by device, in the order in which each device comes first.
fn by_device(pools: Vec<(&Device, Sleeper)>) -> Vec<Together<'_>> {
    let mut devices: Vec<Together<'_>> = Vec::new();
    for (device, pool) in pools {
        match devices.iter_mut().find(|(known, _)| std::ptr::eq(*known, device)) {
            Some((_, pools)) => pools.push(pool),
            None => devices.push((device, vec![pool])),
        }
    }
    devices
}

/// Sleep and wake of an allocator's pools: [`CachingAllocator::sleep_mode`].
#[derive(Clone, Copy, Debug)]
pub struct SleepMode<'a>(&'a CachingAllocator);

impl<'a> SleepMode<'a> {
    pub(super) fn of(allocator: &'a CachingAllocator) -> Self {
        Self(allocator)
    }

    /// Gives a pool a sleep tag, or takes the tag away. A pool with a tag takes growable memory from here on, whatever
    /// the settings say. Fixed segments that the pool has already stay awake.
    ///
    /// # Errors
    /// [`AllocError::Sleep`] where the device has no virtual memory, with the reason, and for the default pool without
    /// `expandable_segments`; [`AllocError::UnknownPool`].
    pub fn set_tag(self, device: DeviceIndex, pool: PoolId, tag: Option<SleepTag>) -> Result<()> {
        offload::set_tag(self.0.device(device)?, pool, tag)
    }

    /// Puts the pools with these tags to sleep, on all devices at once. It waits once for each device that may use
    /// their memory. Then it saves contents as `backup` says, and gives physical memory back while the next contents
    /// are copied. Blocks.
    ///
    /// # Safety
    /// From the call on until the memory is awake again, no work that uses memory of these pools is queued. That holds
    /// for use by address, and through a [`DeviceBuffer`](crate::DeviceBuffer) or another value that has the memory.
    /// With [`Backup::Discard`] nobody relies on the contents afterwards.
    ///
    /// # Errors
    /// [`AllocError::Sleep`] for a tag that no pool has, during a capture on a device that may use the memory, from
    /// within a callback of the same pool, for [`Backup::HostPinned`] of a device whose memory is the host's, and where
    /// [`Backup::Discard`] meets memory that a graph was captured with. Else the error of the driver or the system.
    /// Then some of the memory sleeps and the rest is as it was. You can make the call again, or call
    /// [`wake`](Self::wake).
    pub unsafe fn sleep(self, tags: Tags<'_>, backup: &Backup) -> Result<SleepReport> {
        let began = Instant::now();
        let pools = self.tagged(tags)?;
        for (device, pool) in &pools {
            offload::refuse_backup(device, backup)?;
            // To wait for a device would break its captures.
            offload::users_of(device, pool)
                .into_iter()
                .try_for_each(|user| offload::refuse_capture(self.0.device(user)?))?;
            if *backup == Backup::Discard {
                offload::refuse_to_discard(device, pool)?;
            }
        }
        let _claims = self.claim(&pools)?;
        let _relaxed = self.relaxed()?;
        let devices = by_device(pools);
        let free = || -> i128 {
            let infos = devices.iter().filter_map(|(device, _)| device.memory_info().ok());
            infos.map(|memory| i128::from(memory.free)).sum()
        };
        let before = free();
        let mut report = SleepReport::default();
        for done in self.fall_asleep(&devices, backup)? {
            report.add(done);
        }
        report.freed += report.uncached;
        report.device_free_gained = i64::try_from(free() - before).unwrap_or(i64::MAX);
        report.backup_held = self.backup_bytes();
        report.took = began.elapsed();
        Ok(report)
    }

    /// Puts pools of several devices to sleep at once; each device is waited for once.
    fn fall_asleep(self, devices: &[Together<'a>], backup: &Backup) -> Result<Vec<SleepReport>> {
        let begin = |(device, pools): &Together<'a>| {
            device.noticing(offload::begin_sleep(device, pools.clone(), backup))
        };
        let mut falling = devices.iter().map(begin).collect::<Result<Vec<_>>>()?;
        let users: BTreeSet<DeviceIndex> = falling.iter_mut().flat_map(|device| device.lie_down()).collect();
        let Some((first, _)) = devices.first() else { return Ok(Vec::new()) };
        let waited = offload::wait_for_users(first, &users).map_err(AllocError::from);
        let outcome = match waited {
            Ok(()) => carry(&mut falling),
            Err(error) => {
                falling.iter_mut().for_each(Carried::settle);
                Err(error)
            }
        };
        falling.iter_mut().for_each(FallingAsleep::land);
        let done = falling.into_iter().map(FallingAsleep::end).collect();
        first.noticing(outcome).map(|()| done)
    }

    /// Wakes the pools with these tags, on all devices, those of the highest priority first. It puts memory behind all
    /// that sleeps, and restores contents that were saved. Where memory is short, callbacks run and cached memory is
    /// given back first. Blocks.
    ///
    /// # Errors
    /// [`AllocError::Sleep`] as for [`sleep`](Self::sleep); [`AllocError::NoRoomToWake`]; the driver's error. Then some
    /// memory is awake, the rest sleeps on with its contents, and the call can be made again.
    pub fn wake(self, tags: Tags<'_>) -> Result<WakeReport> {
        let began = Instant::now();
        let mut pools = self.tagged(tags)?;
        pools.sort_by_key(|(_, pool)| std::cmp::Reverse(pool.priority));
        let mut report = WakeReport::default();
        let _relaxed = self.relaxed()?;
        for pools in pools.chunk_by(|(_, one), (_, other)| one.priority == other.priority) {
            let _claims = self.claim(pools)?;
            let devices = by_device(pools.to_vec());
            let begin = |(device, pools): &Together<'a>| device.noticing(device.begin_wake(pools.clone()));
            let mut waking = devices.iter().map(begin).collect::<Result<Vec<_>>>()?;
            let mut outcome = carry(&mut waking);
            for ((device, _), woken) in devices.iter().zip(waking) {
                outcome = device.noticing(outcome.and(woken.end().map(|done| report.add(done))));
            }
            outcome?;
        }
        report.backup_held = self.backup_bytes();
        report.took = began.elapsed();
        Ok(report)
    }

    /// Relaxed capture mode for a whole call, whose devices each begin and end in their own order: no capture elsewhere
    /// is broken, and the thread's capture mode is restored afterwards.
    fn relaxed(self) -> Result<Option<Relaxed<'a>>> {
        self.0.devices.first().map_or(Ok(None), |first| first.driver.relaxed())
    }

    /// Waits until no other thread puts one of the pools to sleep or wakes it.
    fn claim(self, pools: &[(&Device, Sleeper)]) -> Result<Option<Alone<'a, (DeviceIndex, PoolId)>>> {
        let keys = pools.iter().map(|(device, pool)| (device.index(), pool.id)).collect();
        let Some(first) = self.0.devices.first() else { return Ok(None) };
        first.sleeping.begin_alone(&keys).map(Some).map_err(|(_, pool)| {
            AllocError::Sleep(format!(
                "pool {pool} is being put to sleep or woken by the call that this one is made from, or by another thread \
                 while this one does the same to another pool; call again from outside"
            ))
        })
    }

    /// Pools with these tags; an unknown tag is an error.
    fn tagged(self, tags: Tags<'_>) -> Result<Vec<(&'a Device, Sleeper)>> {
        if let Some(process_state) = self.0.process_state() {
            return Err(process_state.refusal());
        }
        if let Tags::Only(names) = tags {
            let known: Vec<SleepTag> =
                self.0.devices.iter().flat_map(|device| pools::sleep_tags(device)).collect();
            if let Some(unknown) = names.iter().find(|name| !known.iter().any(|tag| &*tag.name == **name)) {
                let mut names: Vec<&str> = known.iter().map(|tag| &*tag.name).collect();
                names.sort_unstable();
                names.dedup();
                let known = if names.is_empty() { "none".into() } else { names.join(", ") };
                return Err(AllocError::Sleep(format!(
                    "no pool has the sleep tag {unknown:?} (tags: {known}); give it with set_sleep_tag, or PoolOptions"
                )));
            }
        }
        let of =
            |device: &'a Device| pools::sleepers_of(device, tags).into_iter().map(move |pool| (device, pool));
        Ok(self.0.all_devices().flat_map(of).collect())
    }

    /// True if any memory of the pool sleeps.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`], [`AllocError::UnknownPool`].
    pub fn is_pool_asleep(self, device: DeviceIndex, pool: PoolId) -> Result<bool> {
        pools::is_asleep(self.0.seen_device(device)?, pool)
    }

    /// True if the block at `ptr` sleeps; `None` where that is no live block.
    #[must_use]
    pub fn is_asleep(self, ptr: DevicePtr) -> Option<bool> {
        let at = self.0.map.get(ptr).filter(|_| !self.0.is_forked())?;
        self.0.devices[at.device.0 as usize].arenas.sleeps(ptr, at)
    }

    /// Copies saved contents of sleeping memory from `ptr` on, as much as `into` has room for. `false` where some of it
    /// is awake, or was not saved. Any address may be given. Blocks.
    ///
    /// # Errors
    /// The driver's error.
    pub fn read_backup(self, ptr: DevicePtr, into: &mut [u8]) -> Result<bool> {
        let (bytes, place) = (into.len() as u64, DevicePtr(into.as_mut_ptr() as u64));
        for device in self.0.reachable() {
            // SAFETY: the slice is that much room, and borrowed for the call.
            if unsafe { offload::read_backup(device, ptr, bytes, place) }? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Bytes of host memory, or of files, that backups hold now, those kept for later sleeps included.
    #[must_use]
    pub fn backup_bytes(self) -> u64 {
        self.0.reachable().map(offload::backup_bytes).sum()
    }

    /// Gives back host memory that [`Retention::Keep`](crate::sleep::Retention::Keep) kept and that no sleeping memory
    /// needs.
    pub fn drop_backups(self) {
        let _relaxed = self.relaxed();
        for device in self.0.reachable() {
            offload::drop_backups(device);
        }
    }
}
