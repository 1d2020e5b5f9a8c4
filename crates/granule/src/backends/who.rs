//! Whose the bytes of devices are, as answers have it.

use super::Chosen;
use alloc_core::config::Settings;
use alloc_core::ledger::{DeviceLedger, OtherProcess};
use alloc_core::types::DeviceIndex;
use alloc_core::{AllocError, CachingAllocator};
use serde::Serialize;

/// A device's ledger, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Who {
    /// The device.
    pub device: u16,
    /// All that there is.
    pub total: u64,
    /// What is taken of it.
    pub used: u64,
    /// What the allocator has that was asked.
    pub ours: Ours,
    /// Host memory that its process has pinned, where that is the device's memory.
    pub pinned: u64,
    /// What the driver took for its graphs beyond their pools, and keeps for memory nodes of the process's graphs.
    pub graphs: u64,
    /// What its process has beyond that, as far as it is known.
    pub process_other: u64,
    /// What other processes have, as far as it is known.
    pub other_processes: Vec<Other>,
    /// What is used by none of these.
    pub unaccounted: u64,
}

/// Bytes of an allocator. The last two take nothing of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ours {
    /// In the program's hands.
    pub live: u64,
    /// Free, and kept.
    pub cached: u64,
    /// Freed, and waiting for streams.
    pub pending: u64,
    /// In the program's hands, without memory behind them.
    pub asleep: u64,
    /// Addresses at which memory is seen a second time.
    pub views: u64,
}

/// What another process has of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    /// The process.
    pub pid: u32,
    /// All of it that is known.
    pub bytes: u64,
    /// What Granule's allocators in it say that they hold.
    pub granule: Option<u64>,
}

impl Who {
    /// A ledger of a device.
    #[must_use]
    pub fn new(device: DeviceIndex, ledger: &DeviceLedger) -> Self {
        let alloc_core::ledger::Ours { live, cached, pending, asleep, views } = ledger.ours;
        let others = ledger.other_processes.iter();
        Self {
            device: device.0,
            total: ledger.total,
            used: ledger.used,
            ours: Ours { live, cached, pending, asleep, views },
            pinned: ledger.pinned,
            graphs: ledger.graphs,
            process_other: ledger.process_other,
            other_processes: others
                .map(|&OtherProcess { pid, bytes, granule }| Other { pid, bytes, granule })
                .collect(),
            unaccounted: ledger.unaccounted,
        }
    }
}

/// Whose the bytes of a backend's devices are, seen by a process that has none of them but for the driver's own needs. The
/// files of other processes are looked for where the environment's `system_root` says.
///
/// # Errors
/// The driver's.
pub fn who(chosen: &Chosen) -> Result<Vec<Who>, AllocError> {
    let settings = Settings { system_root: super::system_root(), ..Settings::default() };
    let allocator = CachingAllocator::new(chosen.backend.clone(), settings)?;
    if let Err(reason) = super::tell_processes(&allocator) {
        tracing::info!(reason, "processes that do not publish are not told apart");
    }
    let devices = (0..allocator.device_count()).map(DeviceIndex);
    devices.map(|device| Ok(Who::new(device, &allocator.statistics().ledger(device)?))).collect()
}
