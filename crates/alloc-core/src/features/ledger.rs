//! Owners of a device's bytes: this allocator, this process, other processes, or nobody known.
//!
//! ```text
//! used = ours (live + cached + pending) + pinned + graphs + process_other + other_processes + unaccounted
//! ```
//!
//! `used` is the driver's figure, `ours` and `pinned` are counted. `graphs` is the driver's own memory for graphs: its
//! growth at the first launch of each of the allocator's graphs, and the memory that the driver reports for memory
//! nodes. The rest is what others publish:
//!
//! * Granule's allocators with `publish:True` write their holdings into a file each, in a folder of the user's
//!   ([`registry`]). Readers remove files of processes that were killed.
//! * The program may know each process's memory from the vendor's management library
//!   ([`set_process_memory_source`](crate::allocator::Hooks::set_process_memory_source)). It counts contexts and
//!   libraries, too.
//!
//! The rest of `used` is `unaccounted`: contexts, libraries, processes of other users.
//!
//! Memory that was allocated while caching was off is not ours here.

pub mod registry;

use crate::watch::oom::ProcessMemory;
use crate::watch::stats::DeviceStats;
use registry::ProcessUsage;
use std::collections::BTreeMap;

/// Bytes of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ours {
    /// In the program's hands, with memory behind them.
    pub live: u64,
    /// Free, and kept.
    pub cached: u64,
    /// Freed, and waiting for streams.
    pub pending: u64,
    /// In the program's hands without memory behind them: they take nothing of the device.
    pub asleep: u64,
    /// Addresses of views, at which memory is seen a second time: they take nothing of the device.
    pub views: u64,
}

impl Ours {
    pub(crate) fn of(stats: &DeviceStats, views: u64) -> Self {
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let held = bytes(stats.reserved_bytes.all.current);
        let asleep = bytes(stats.granule.asleep_bytes);
        let pending = bytes(stats.granule.pending_bytes).min(held);
        // A sleeping granule may end within a block.
        let live = bytes(stats.allocated_bytes.all.current).saturating_sub(asleep).min(held - pending);
        Self { live, cached: held - pending - live, pending, asleep, views }
    }

    /// Bytes that it takes of the device.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.live + self.cached + self.pending
    }
}

/// Bytes of a device that another process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherProcess {
    /// Number that the process has for itself: one of another PID name space may have that of a process of this one.
    pub pid: u32,
    /// All its known bytes.
    pub bytes: u64,
    /// Bytes that Granule's allocators in it hold; `None` where none of them publishes.
    pub granule: Option<u64>,
}

/// Owners of a device's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLedger {
    /// All bytes of the device.
    pub total: u64,
    /// Bytes in use, by whomever.
    pub used: u64,
    /// Bytes of this allocator.
    pub ours: Ours,
    /// Host memory that this process's allocators have pinned, where it is the device's memory; 0 elsewhere.
    pub pinned: u64,
    /// Bytes that the driver took for graphs beyond their pools. For the allocator's own live
    /// [`CapturedGraph`](crate::graph::CapturedGraph)s: the growth of used memory after each one's first launch. For
    /// memory that any graphs of this process allocate themselves: what the driver keeps, also after their end. Graphs
    /// that others launch are otherwise `unaccounted`.
    pub graphs: u64,
    /// Known bytes of this process beyond that: other allocators, contexts, libraries.
    pub process_other: u64,
    /// Known bytes of other processes, by number.
    pub other_processes: Vec<OtherProcess>,
    /// Bytes used by none of these.
    pub unaccounted: u64,
}

impl DeviceLedger {
    /// New ledger. `own` is this process's number; `entries` leave out the allocator whose ledger it is.
    pub(crate) fn new(
        (total, used): (u64, u64),
        (ours, pinned, graphs): (Ours, u64, u64),
        own: u32,
        entries: &[ProcessUsage],
        processes: &[ProcessMemory],
    ) -> Self {
        let own = (0, own);
        let mut granule: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        for entry in entries {
            *granule.entry((entry.name_space, entry.pid)).or_default() += entry.held;
        }
        let mut told: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        for process in processes {
            *told.entry((0, process.pid)).or_default() += process.bytes;
        }
        // The management library counts what allocators hold, too; one of the two may be late.
        let own_told = told.remove(&own).unwrap_or(0).saturating_sub(ours.held() + pinned + graphs);
        let process_other = granule.remove(&own).unwrap_or(0).max(own_told);
        let all: std::collections::BTreeSet<_> = granule.keys().chain(told.keys()).copied().collect();
        let other_processes: Vec<_> = all
            .into_iter()
            .map(|process| {
                let granule = granule.get(&process).copied();
                let bytes = told.get(&process).copied().unwrap_or(0).max(granule.unwrap_or(0));
                OtherProcess { pid: process.1, bytes, granule }
            })
            .filter(|process| process.bytes > 0)
            .collect();
        let mut ledger =
            Self { total, used, ours, pinned, graphs, process_other, other_processes, unaccounted: 0 };
        ledger.unaccounted = used.saturating_sub(ledger.known());
        ledger
    }

    /// Bytes of known owners.
    fn known(&self) -> u64 {
        self.ours.held() + self.pinned + self.graphs + self.process_other + self.others()
    }

    /// Bytes of all other processes together.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.other_processes.iter().map(|process| process.bytes).sum()
    }

    /// Sum of all parts. It is [`used`](Self::used) where all were read at one moment.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.known() + self.unaccounted
    }

    /// Bytes that came since `before`, by owner. Those that neighbours took meanwhile are not the phase's.
    #[must_use]
    pub fn since(&self, before: &Self) -> PhaseUse {
        let change =
            |now: u64, before: u64| i64::try_from(i128::from(now) - i128::from(before)).unwrap_or(i64::MAX);
        PhaseUse {
            ours: change(self.ours.held(), before.ours.held()),
            pinned: change(self.pinned, before.pinned),
            graphs: change(self.graphs, before.graphs),
            process_other: change(self.process_other, before.process_other),
            other_processes: change(self.others(), before.others()),
            unaccounted: change(self.unaccounted, before.unaccounted),
        }
    }
}

/// Changes of a ledger's parts in a phase of the program, in bytes: grown where positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseUse {
    /// Taken by the allocator.
    pub ours: i64,
    /// Pinned of the device's memory.
    pub pinned: i64,
    /// Taken by graphs that were launched for the first time.
    pub graphs: i64,
    /// Known to be taken by the process beyond that.
    pub process_other: i64,
    /// Taken by other processes.
    pub other_processes: i64,
    /// Taken by somebody who does not tell.
    pub unaccounted: i64,
}
