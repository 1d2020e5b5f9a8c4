//! Sleep and wake: pools give their physical memory up and keep their addresses.
//!
//! A pool that has a [`SleepTag`] takes growable memory. [`SleepMode::sleep`](crate::allocator::SleepMode::sleep) waits for
//! the device, copies contents away if asked to ([`Backup`]), and unmaps. Pointers, views, captured graphs stay valid as
//! addresses; nobody may use them until [`SleepMode::wake`](crate::allocator::SleepMode::wake) has put memory behind
//! them again, with the same contents where there is a backup.
//!
//! Rules for a pool that sleeps:
//! * A **free** of a sleeping block is an ordinary free. Its backup goes, and waking takes no memory for granules that are
//!   free by then.
//! * A **request** gets memory that is awake: new granules, mapped for it. They go to sleep with the next call.
//! * `record_stream`, launches of graphs of the pool, checkpoints: refused with
//!   [`AllocError::Asleep`](crate::AllocError::Asleep).
//! * Sleeping or waking twice is fine, and does nothing.
//! * Its live blocks count as allocated, not as reserved. A tenant's guarantee stays, since sleeping memory can wake.
//! * Memory that was allocated while caching was off does not sleep.
//!
//! The unit is the granule, and its state decides: one that is shared with another process, registered, or under a
//! block whose free still waits for a stream stays awake, and [`SleepReport::kept`] says so. A call that fails in the
//! middle leaves each granule awake or asleep as a whole. Nothing is lost, and the call can be made again.
//!
//! Backups hold whole granules (of 2 and 20 MiB by default), so they are larger than the blocks. Files go where the
//! program says; in a directory that the system keeps in memory (tmpfs), they are memory.
//!
//! Free cached memory is given back and not woken, except in pools whose addresses captured graphs know.

pub use crate::memory::backup::{Backup, Retention};

use crate::sync::Arc;
use crate::types::{DeviceIndex, PoolId};
use std::fmt;
use std::time::Duration;

/// Name under which pools sleep together, and their place in the order of waking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SleepTag {
    /// The name.
    pub name: Arc<str>,
    /// Pools with higher numbers wake first; 0 is usual.
    pub priority: i32,
}

impl SleepTag {
    /// A tag of priority 0.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), priority: 0 }
    }
}

/// Pools that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags<'a> {
    /// All pools that have a tag.
    All,
    /// Pools with one of these tags.
    Only(&'a [&'a str]),
}

impl Tags<'_> {
    pub(crate) fn name(&self, tag: &SleepTag) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(&&*tag.name),
        }
    }
}

/// Reason why some memory did not go to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KeptBecause {
    /// It is part of a fixed segment, taken before the pool got its tag or where the pool's own source has no physical
    /// memory to offer: its address goes with it.
    Fixed,
    /// Another process shares it.
    Shared,
    /// A freed block in it waits for other streams, or for the end of a capture.
    Pending,
    /// Another thread was moving it.
    Busy,
}

impl fmt::Display for KeptBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "fixed segments cannot give memory up and keep addresses",
            Self::Shared => "shared with another process",
            Self::Pending => "a freed block in it waits for a stream",
            Self::Busy => "another thread was moving it",
        })
    }
}

/// Memory that stayed awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Device of the memory.
    pub device: DeviceIndex,
    /// Pool of the memory.
    pub pool: PoolId,
    /// Size in bytes.
    pub bytes: u64,
    /// Reason why it stayed awake.
    pub because: KeptBecause,
}

/// Outcome of [`sleep`](crate::allocator::SleepMode::sleep). Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SleepReport {
    /// Put to sleep: unmapped, with the addresses kept.
    pub slept: u64,
    /// Cached memory of these pools that was given back.
    pub uncached: u64,
    /// Given back to the device in all, as the engine counts it.
    pub freed: u64,
    /// Growth of the driver's figure of free memory. Other programs may have changed it, too.
    pub device_free_gained: i64,
    /// Contents copied away by this call.
    pub backed_up: u64,
    /// Held by backups on the host now, those of earlier calls and those kept for later ones included.
    pub backup_held: u64,
    /// Memory that stayed awake.
    pub kept: Vec<Kept>,
    /// Duration of the call.
    pub took: Duration,
}

impl SleepReport {
    /// Adds the report of another device.
    pub(crate) fn add(&mut self, other: Self) {
        self.slept += other.slept;
        self.uncached += other.uncached;
        self.freed += other.freed;
        self.backed_up += other.backed_up;
        self.kept.extend(other.kept);
    }

    /// Contents copied away in a second, in bytes, over the whole call; 0 where none were.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        rate(self.backed_up, self.took)
    }

    /// Bytes that stayed awake.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.bytes).sum()
    }
}

/// Outcome of [`wake`](crate::allocator::SleepMode::wake). Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeReport {
    /// Awake again.
    pub woken: u64,
    /// Restored from backups; the rest has the contents of the driver's new memory.
    pub restored: u64,
    /// Not woken, because all its blocks had been freed.
    pub dropped: u64,
    /// Held by backups on the host now.
    pub backup_held: u64,
    /// Duration of the call.
    pub took: Duration,
}

impl WakeReport {
    /// Adds the report of another device.
    pub(crate) fn add(&mut self, other: Self) {
        self.woken += other.woken;
        self.restored += other.restored;
        self.dropped += other.dropped;
    }

    /// Contents restored in a second, in bytes, over the whole call; 0 where none were.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        rate(self.restored, self.took)
    }
}

#[allow(clippy::cast_precision_loss)]
fn rate(bytes: u64, took: Duration) -> f64 {
    if bytes == 0 { 0.0 } else { bytes as f64 / took.as_secs_f64().max(1e-9) }
}
